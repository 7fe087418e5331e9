//! What an answer may hold, route by route: what was planted is handed out by few of them, and by
//! those only to who is entitled to it.

use std::collections::BTreeSet;

use super::{
    planted::{Garden, Search, Sort},
    stage::Told,
};

/// Each route, and what the bodies of its answers below 400 hold. Their heads hold nothing.
pub(super) const ROUTES: [(&str, &[Sort]); 17] = [
    ("POST /devices", &[Sort::Label]),
    ("GET /devices", &[Sort::Label]),
    ("DELETE /devices/{deviceId}", &[]),
    ("GET /graphs", &[]),
    ("GET /graphs/{graphId}", &[]),
    ("GET /graphs/{graphId}/devices", &[Sort::Label]),
    ("GET /graphs/{graphId}/wraps", &[Sort::Wrap]),
    ("POST /graphs/{graphId}/rotate", &[]),
    ("POST /graphs/{graphId}/grant", &[]),
    ("POST /graphs/{graphId}/push", &[Sort::RecordId]),
    (
        "GET /graphs/{graphId}/pull",
        &[
            Sort::RecordId,
            Sort::Ciphertext,
            Sort::Signature,
            Sort::Cursor,
        ],
    ),
    ("PUT /graphs/{graphId}/blobs/{blobId}", &[Sort::BlobId]),
    ("GET /graphs/{graphId}/blobs/{blobId}", &[Sort::Bytes]),
    ("HEAD /graphs/{graphId}/blobs/{blobId}", &[]),
    ("DELETE /graphs/{graphId}/blobs/{blobId}", &[]),
    ("GET /pokes", &[]),
    ("GET /limits", &[]),
];

/// The route that was asked, and what it hands out; none where there is no such route.
fn listed(asked: &str) -> Option<&'static (&'static str, &'static [Sort])> {
    let path = asked.split('?').next().unwrap_or_default();
    let fits = |(route, _): &&(&str, _)| {
        let (route, path) = (route.split('/'), path.split('/'));
        route.clone().count() == path.clone().count()
            && route
                .zip(path)
                .all(|(it, at)| it.starts_with('{') || it == at)
    };
    ROUTES.iter().find(fits)
}

/// The route that was asked.
pub(super) fn route_of(asked: &str) -> Option<&'static str> {
    listed(asked).map(|(route, _)| *route)
}

/// What of each sort was met in the answers of a route.
type Met = BTreeSet<(Option<&'static str>, Sort)>;

/// Searches every answer for all that it may not hold.
pub(super) fn answers(told: &[Told], garden: &Garden, search: &Search<'_>) -> Met {
    let mut met = BTreeSet::new();
    for told in told {
        let by = told
            .by
            .as_ref()
            .map_or("nobody", |by| by.device_id.as_str());
        let place = format!("the answer {} to {} by {by}", told.status, told.asked);
        let route = listed(&told.asked);
        search.holds_only(&[], &told.head, &format!("the head of {place}"));
        let may = match (route, told.status) {
            (Some((_, may)), ..400) => may,
            // Which records of an atomic push were refused.
            (Some((route, _)), 409) if route.ends_with("/push") => &[Sort::RecordId][..],
            _ => &[],
        };
        for name in search.holds_only(may, &told.body, &place) {
            let sort = garden.sort_of(name);
            assert!(is_theirs(told, sort, name), "{place} holds the {name}");
            met.insert((route.map(|(route, _)| *route), sort));
        }
    }
    met
}

/// Fails where the table says more than was met: that would hide what is new.
pub(super) fn say_no_more_than(met: &Met) {
    for (route, may) in ROUTES {
        for sort in may {
            assert!(met.contains(&(Some(route), *sort)), "{route}: no {sort:?}");
        }
    }
}

/// Whether what a route hands out is for this caller.
fn is_theirs(told: &Told, sort: Sort, name: &str) -> bool {
    let Some(by) = &told.by else { return false };
    match sort {
        Sort::Wrap => name == format!("wrap for {}", by.device_id),
        // Kim is in no group: their names are for themselves, and nobody's are for them. Elsewhere
        // than in a group everybody sees their own.
        Sort::Label => {
            let of = |member: &str| name.starts_with(&format!("sealed name of {member}s-"));
            let own = of(by.member_id.as_str());
            let is_roster = told.asked.starts_with("GET /graphs/");
            own || (is_roster && !of("kim"))
        }
        _ => by.member_id.as_str() != "kim",
    }
}

#[test]
fn a_route_is_known_by_its_path() {
    assert_eq!(route_of("GET /graphs"), Some("GET /graphs"));
    assert_eq!(
        route_of("GET /graphs/g%3Aacme/pull?limit=2"),
        Some("GET /graphs/{graphId}/pull")
    );
    assert_eq!(route_of("GET /graphs?cursor=a/b"), Some("GET /graphs"));
    assert_eq!(route_of("PATCH /graphs"), None);
    assert_eq!(route_of("GET /graphs/g%3Aacme/else"), None);
}
