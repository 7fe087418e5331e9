//! Graphs, and whose they are.

use argala_core::{
    Rejection,
    ports::{
        SweepStore,
        store::{Counters, Graph, GraphListing, GraphsQuery},
    },
};
use argala_wire::{GroupId, StorageKey};

use super::{Scene, acme, refused};
use crate::{TestDevice, conformance::Fresh, group, member};

fn query(device: &TestDevice, groups: Option<&[&str]>) -> GraphsQuery {
    GraphsQuery {
        device: device.to_ref(),
        groups: groups.map(|names| names.iter().map(|name| group(name)).collect()),
        after: None,
        limit: 1_000,
    }
}

async fn list(scene: &Scene, query: &GraphsQuery) -> Vec<GraphListing> {
    scene.store().graphs_of(query).await.expect("answered")
}

async fn keys(scene: &Scene, query: &GraphsQuery) -> Vec<String> {
    let listed = list(scene, query).await;
    listed
        .iter()
        .map(|listing| listing.graph.key.to_string())
        .collect()
}

/// A refused rotate leaves none behind either.
pub async fn a_graph_is_not_there_until_its_first_rotate(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("sam", "b")]).await;
    let absent = async || {
        assert_eq!(scene.store().graph(&acme()).await.expect("answered"), None);
        let standing = scene.store().standing(&acme(), &[member("sam")]).await;
        assert_eq!(standing.expect("answered"), None);
        assert_eq!(
            scene.store().recount(&acme()).await.expect("answered"),
            None
        );
        assert!(keys(&scene, &query(&a, Some(&["acme"]))).await.is_empty());
        let push = scene.push_request(&acme(), &a, Vec::new());
        assert_eq!(
            refused(scene.store().push(push).await),
            Rejection::GraphUnkeyed
        );
    };
    absent().await;
    let incomplete = scene
        .store()
        .rotate(scene.rotate_request(&acme(), 1, &[&a]))
        .await;
    assert!(matches!(
        refused(incomplete),
        Rejection::RotationIncomplete { .. }
    ));
    absent().await;
    let early = scene
        .store()
        .rotate(scene.rotate_request(&acme(), 2, &[&a, &b]))
        .await;
    assert_eq!(refused(early), Rejection::EpochConflict { epoch: 0 });
    absent().await;

    scene.rotate(&acme(), 1, &[&a, &b]).await;
    let wanted = Graph {
        key: acme(),
        epoch: 1,
        head: 0,
        counters: Counters::default(),
        incarnation: 1_001,
        floor: 0,
        revocation_owed: false,
        directory_owed: false,
    };
    let graph = scene.store().graph(&acme()).await.expect("answered");
    assert_eq!(graph.as_ref(), Some(&wanted));
    scene.rotate(&acme(), 2, &[&a, &b]).await;
    let graph = scene.store().graph(&acme()).await.expect("answered");
    assert_eq!(
        graph,
        Some(Graph { epoch: 2, ..wanted }),
        "incarnation is of the creation"
    );
}

/// By who they are named after, whether they hold a key or not.
pub async fn own_and_pair_graphs_are_listed_for_their_members(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [sam, alex, kim] = scene
        .devices([("sam", "a"), ("alex", "a"), ("kim", "a")])
        .await;
    let [s, a, k] = ["sam", "alex", "kim"].map(member);
    scene.rotate(&StorageKey::own(&s), 1, &[&sam]).await;
    scene
        .rotate(&StorageKey::pair(&s, &a), 1, &[&sam, &alex])
        .await;
    scene
        .rotate(&StorageKey::pair(&a, &k), 1, &[&alex, &kim])
        .await;
    // As if kim had had no device yet.
    scene.rotate(&StorageKey::pair(&k, &s), 1, &[&sam]).await;
    for groups in [None, Some(&[][..]), Some(&["alex", "sam"][..])] {
        let listed = async |device: &TestDevice| keys(&scene, &query(device, groups)).await;
        assert_eq!(listed(&sam).await, ["d:alex:sam", "d:kim:sam", "d:sam:sam"]);
        assert_eq!(listed(&alex).await, ["d:alex:kim", "d:alex:sam"]);
        assert_eq!(listed(&kim).await, ["d:alex:kim", "d:kim:sam"]);
        assert!(listed(&TestDevice::new("sa", "a")).await.is_empty());
        assert!(listed(&TestDevice::new("%", "a")).await.is_empty());
    }
}

/// Membership of now decides, not keys of then.
pub async fn listed_groups_decide_where_the_directory_lists_them(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [sam, alex] = scene.devices([("sam", "a"), ("alex", "a")]).await;
    for name in ["acme", "beta", "gamma"] {
        scene
            .rotate(&StorageKey::group(&group(name)), 1, &[&sam])
            .await;
    }
    let listed = async |device, groups: &[&str]| keys(&scene, &query(device, Some(groups))).await;
    assert!(listed(&sam, &[]).await.is_empty());
    assert_eq!(
        listed(&sam, &["beta", "none", "acme"]).await,
        ["g:acme", "g:beta"]
    );
    assert_eq!(listed(&alex, &["gamma"]).await, ["g:gamma"]);
    let mut many: Vec<GroupId> = (0..3_000)
        .map(|number| group(&format!("g{number}")))
        .collect();
    many.push(group("acme"));
    let query = GraphsQuery {
        groups: Some(many),
        ..query(&sam, None)
    };
    assert_eq!(keys(&scene, &query).await, ["g:acme"]);
}

/// Any device of the member, any epoch, blanked or not.
pub async fn held_groups_decide_where_it_does_not(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b, alex] = scene
        .devices([("sam", "a"), ("sam", "b"), ("alex", "a")])
        .await;
    scene.rotate(&acme(), 1, &[&a, &b, &alex]).await;
    scene.rotate(&acme(), 2, &[&alex]).await;
    scene
        .rotate(&StorageKey::group(&group("beta")), 1, &[&alex])
        .await;
    let listed = async |device: &TestDevice| keys(&scene, &query(device, None)).await;
    assert_eq!(listed(&a).await, ["g:acme"]);
    assert_eq!(listed(&alex).await, ["g:acme", "g:beta"]);
    scene.revoke(&a, &b).await;
    scene.revoke(&a, &a).await;
    let late = scene.device("sam", "late").await;
    assert_eq!(listed(&late).await, ["g:acme"]);
    assert!(listed(&TestDevice::new("kim", "a")).await.is_empty());
}

/// Of the calling device, not of its member.
pub async fn who_holds_the_current_epoch_is_told(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("sam", "b")]).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    let late = scene.device("sam", "late").await;
    let holds = async |device| {
        let listed = list(&scene, &query(device, None)).await;
        assert_eq!(listed.len(), 1);
        assert_eq!(
            Some(&listed[0].graph),
            scene
                .store()
                .graph(&acme())
                .await
                .expect("answered")
                .as_ref()
        );
        listed[0].holds_current
    };
    assert!(holds(&a).await && holds(&b).await);
    assert!(!holds(&late).await);
    scene
        .grant(&acme(), &a, &["sam"], vec![late.grant_wrap(1, "w")])
        .await;
    assert!(holds(&late).await);
    scene.revoke(&a, &b).await;
    assert!(!holds(&b).await);
    scene.rotate(&acme(), 2, &[&a, &late]).await;
    let later = scene.device("sam", "later").await;
    scene
        .grant(&acme(), &a, &["sam"], vec![later.grant_wrap(1, "w")])
        .await;
    assert!(
        !holds(&later).await,
        "an older epoch is not the current one"
    );
}

/// Whole, whatever the page.
pub async fn graphs_are_listed_in_byte_order_page_by_page(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [sam] = scene.devices([("sam", "a")]).await;
    let names: Vec<String> = (0..12)
        .map(|number| format!("{number}"))
        .chain(["B", "a", "é", "a b", "50%", "x:y", "🦀"].map(str::to_owned))
        .collect();
    let mut wanted = vec![StorageKey::own(&member("sam"))];
    scene.rotate(&wanted[0], 1, &[&sam]).await;
    for name in &names {
        let group_key = StorageKey::group(&group(name));
        let pair_key = StorageKey::pair(&member("sam"), &member(name));
        for key in [group_key, pair_key] {
            scene.rotate(&key, 1, &[&sam]).await;
            wanted.push(key);
        }
    }
    wanted.sort();
    let groups: Vec<&str> = names.iter().map(String::as_str).collect();
    for groups in [None, Some(&groups[..])] {
        for page in [1, 5, wanted.len(), 1_000] {
            let mut all: Vec<StorageKey> = Vec::new();
            loop {
                let query = GraphsQuery {
                    after: all.last().cloned(),
                    limit: page,
                    ..query(&sam, groups)
                };
                let next = list(&scene, &query).await;
                assert!(next.len() <= page);
                if next.is_empty() {
                    break;
                }
                all.extend(next.into_iter().map(|listing| listing.graph.key));
            }
            assert_eq!(all, wanted, "pages of {page}");
        }
    }
}

/// `a:b` with `c` is not `a` with `b:c`, and a group is no pair.
pub async fn odd_names_share_no_graph(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let names = ["a", "a:b", "b:c", "c", "a%3Ab", "a%"];
    let mut devices = Vec::new();
    for name in names {
        devices.push(scene.device(name, "x").await);
    }
    for (number, name) in names.iter().enumerate() {
        let me = &devices[number];
        scene
            .rotate(&StorageKey::group(&group(name)), 1, &[me])
            .await;
        for (other, partner) in names.iter().enumerate().skip(number) {
            let key = StorageKey::pair(&member(name), &member(partner));
            let both = [me, &devices[other]];
            let both = if other == number {
                &both[..1]
            } else {
                &both[..]
            };
            scene.rotate(&key, 1, both).await;
        }
    }
    for (number, name) in names.iter().enumerate() {
        let mut wanted: Vec<StorageKey> = names
            .iter()
            .map(|partner| StorageKey::pair(&member(name), &member(partner)))
            .collect();
        wanted.push(StorageKey::group(&group(name)));
        wanted.sort();
        let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        assert_eq!(
            keys(&scene, &query(&devices[number], None)).await,
            wanted,
            "{name}"
        );
    }
}

/// And does not touch the other flag.
pub async fn the_directorys_flag_is_of_one_epoch(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let [a, b] = scene.devices([("sam", "a"), ("sam", "b")]).await;
    let flag = async |epoch, owed| {
        let flagged = scene.store().flag_directory(&acme(), epoch, owed).await;
        flagged.expect("answered");
    };
    flag(1, true).await;
    scene.rotate(&acme(), 1, &[&a, &b]).await;
    let flags = async || {
        let graph = scene.store().graph(&acme()).await.expect("answered");
        let graph = graph.expect("the graph is there");
        (graph.directory_owed, graph.revocation_owed)
    };
    assert_eq!(flags().await, (false, false));
    flag(2, true).await;
    flag(0, true).await;
    assert_eq!(flags().await, (false, false));
    flag(1, true).await;
    assert_eq!(flags().await, (true, false));
    scene.revoke(&a, &b).await;
    assert_eq!(flags().await, (true, true));
    flag(1, false).await;
    assert_eq!(flags().await, (false, true));
    flag(1, true).await;
    scene.rotate(&acme(), 2, &[&a]).await;
    assert_eq!(flags().await, (false, false));
    flag(1, true).await;
    assert_eq!(flags().await, (false, false));
}
