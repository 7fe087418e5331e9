//! When a rotation is owed, and who is told.

use std::time::Duration;

use argala_core::PageQuery;
use argala_wire::{
    graphs::{GraphSummary, RotationReason},
    keys::RotateRequest,
    limits::Bucket,
};

use super::{GROUP, RelayPorts, Rig};
use crate::{TestDevice, conformance::Fresh, eventually};

const MINUTE: Duration = Duration::from_secs(60);

async fn owed(rig: &Rig) -> bool {
    rig.pull(&rig.laptop)
        .await
        .expect("pulls")
        .page
        .rotation_owed
}

async fn list(rig: &Rig, device: &TestDevice, limit: u64) -> Vec<GraphSummary> {
    let caller = rig.admit(device, Bucket::Pull).await.expect("active");
    let mut graphs = Vec::new();
    let mut query = PageQuery {
        cursor: None,
        limit: Some(limit),
    };
    for _ in 0..100 {
        let page = rig
            .relay
            .graphs(&caller, query.clone())
            .await
            .expect("a page");
        assert!(page.graphs.len() as u64 <= limit);
        graphs.extend(page.graphs);
        if !page.more {
            return graphs;
        }
        query.cursor = Some(page.cursor);
    }
    panic!("the list does not end");
}

/// Whoever goes on pulling learns within a minute that a holder has left the group.
pub async fn a_member_who_leaves_is_owed_within_a_minute_of_use(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    assert!(!owed(&rig).await);
    rig.directory.leave("acme", "alex");
    rig.clock.advance(MINUTE);
    assert!(owed(&rig).await);
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    let graph = rig.relay.graph(&access).await.expect("a graph");
    assert!(graph.rotation_owed);
    assert_eq!(graph.rotation_reasons.len(), 1);
    assert_eq!(
        graph.rotation_reasons[0].reason,
        RotationReason::MemberRemoved
    );
    rig.directory.join("acme", "alex");
    rig.directory.set_member("alex", false);
    let graph = rig.relay.graph(&access).await.expect("a graph");
    assert_eq!(
        graph.rotation_reasons[0].reason,
        RotationReason::MemberInactive
    );
    rig.rotate(2, &[&rig.laptop, &rig.phone])
        .await
        .expect("rotates");
    assert!(!owed(&rig).await, "a rotation settles it at once");
}

/// The flag follows the directory back as well.
pub async fn a_member_who_returns_is_owed_no_longer(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    rig.directory.leave("acme", "alex");
    let access = rig.open(&rig.laptop, GROUP).await.expect("a member");
    // The route that computes it brings the stored flag up to date.
    assert!(
        rig.relay
            .graph(&access)
            .await
            .expect("a graph")
            .rotation_owed
    );
    assert!(owed(&rig).await);
    rig.directory.join("acme", "alex");
    rig.clock.advance(MINUTE);
    assert!(!owed(&rig).await);
}

/// A revocation needs no directory, and no directory takes it back.
pub async fn a_revocation_is_owed_at_once(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    assert!(!owed(&rig).await);
    let caller = rig.admit(&rig.laptop, Bucket::Keys).await.expect("active");
    let phone = rig.phone.to_ref().device_id;
    let revoked = rig
        .relay
        .revoke(&caller, phone.clone())
        .await
        .expect("revokes");
    assert_eq!(
        revoked
            .graphs
            .iter()
            .map(|id| id.as_str())
            .collect::<Vec<_>>(),
        [GROUP]
    );
    assert!(owed(&rig).await);
    assert!(list(&rig, &rig.laptop, 10).await[0].rotation_owed);
    rig.clock.advance(MINUTE);
    assert!(owed(&rig).await);
    let again = rig.relay.revoke(&caller, phone).await.expect("again");
    assert_eq!((again.graphs_flagged, again.graphs.len()), (0, 0));
    rig.rotate(2, &[&rig.laptop, &rig.alex])
        .await
        .expect("rotates");
    assert!(!owed(&rig).await);
}

/// A device that only ever lists its graphs learns it too.
pub async fn the_list_learns_of_the_directory_too(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.keyed().await;
    assert!(!list(&rig, &rig.laptop, 10).await[0].rotation_owed);
    rig.directory.leave("acme", "alex");
    rig.clock.advance(MINUTE);
    eventually("the list tells that a rotation is owed", || async {
        list(&rig, &rig.laptop, 10).await[0]
            .rotation_owed
            .then_some(())
    })
    .await;
}

/// Pages pass over graphs that may not be read, whole pages of them, and reach the end.
pub async fn a_list_leaves_out_what_may_not_be_read_and_still_ends(fresh: Fresh<RelayPorts>) {
    let rig = Rig::new(fresh.replica(0));
    rig.register(&rig.laptop).await;
    let names: Vec<_> = (0..12).map(|n| format!("team{n:02}")).collect();
    for name in &names {
        rig.directory.set_group(name, &["sam"]);
        let access = rig
            .open(&rig.laptop, &format!("g:{name}"))
            .await
            .expect("a member");
        let wraps = vec![rig.laptop.rotate_wrap("a key")];
        rig.relay
            .rotate(&access, RotateRequest { epoch: 1, wraps })
            .await
            .expect("rotates");
    }
    for lists_groups in [true, false] {
        rig.directory.set_lists_groups(lists_groups);
        for name in &names {
            rig.directory.join(name, "sam");
        }
        assert_eq!(list(&rig, &rig.laptop, 5).await.len(), 12);
        for name in &names[2..10] {
            rig.directory.leave(name, "sam");
        }
        let graphs = list(&rig, &rig.laptop, 2).await;
        let ids: Vec<_> = graphs.iter().map(|graph| graph.graph_id.as_str()).collect();
        assert_eq!(ids, ["g:team00", "g:team01", "g:team10", "g:team11"]);
    }
}
