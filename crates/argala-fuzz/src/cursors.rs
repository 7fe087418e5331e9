//! Cursors of every list and walk: each is good where the protocol says so, and nowhere else.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use argala_testkit::{MemoryDirectory, TestDevice};
use argala_wire::{
    Code, Sealed,
    records::CursorReason::{self, Ahead, Foreign, Malformed},
};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{
    Verdict,
    plain::base64,
    relay::{Asked, GRAPH, LAPTOP},
};

/// The graphs that the member asks for: their own, a group's, and a pair's that has no key in the
/// first of the two relays.
const GRAPHS: [&str; 3] = [GRAPH, "/graphs/g%3Aacme", "/graphs/d%3Aalex"];
/// What is asked of each.
const WALKS: [&str; 4] = ["/pull", "/pull?epoch=1", "/devices", "/wraps"];
/// How many lists there are: two of the member's, and these of each graph.
const LISTS: usize = 2 + GRAPHS.len() * WALKS.len();

fn path_of(list: usize) -> String {
    match list {
        0 => "/devices".to_owned(),
        1 => "/graphs".to_owned(),
        at => {
            let (graph, walk) = ((at - 2) / WALKS.len(), (at - 2) % WALKS.len());
            format!("{}{}", GRAPHS[graph], WALKS[walk])
        }
    }
}

fn is_pull(list: usize) -> bool {
    path_of(list).contains("/pull")
}

/// A list as it is, and where each cursor that was given for it goes on.
struct List {
    items: Vec<Value>,
    cursors: BTreeMap<String, usize>,
    /// Whether the graph had a key when they were given.
    is_keyed: bool,
}

/// Two relays with the same devices and records, the second of which has another past: its graphs
/// are other incarnations, and it has one more.
struct World {
    relays: [Asked; 2],
    lists: [Vec<List>; 2],
    /// Cursors that another member was given, of a graph that the member may not read.
    strange: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let relays = [relay(0), relay(1)];
        let lists = [&relays[0], &relays[1]].map(|relay| {
            let lists = (0..LISTS).map(|list| walk(relay, LAPTOP, &path_of(list)));
            lists.collect()
        });
        let mut strange = BTreeSet::new();
        for at in WALKS {
            // What she calls so is not what the member calls so.
            let path = format!("/graphs/d%3Aalex{at}");
            strange.extend(walk(&relays[0], "alex/tablet", &path).cursors.into_keys());
        }
        Self {
            relays,
            lists,
            strange,
        }
    }

    /// What the second reading expects of `cursor` for this list of this relay.
    fn expected(&self, relay: usize, list: usize, cursor: &str) -> Expected {
        if let Some(from) = self.lists[relay][list].cursors.get(cursor) {
            return Expected::From(*from);
        }
        let other = &self.lists[1 - relay][list];
        if other.cursors.contains_key(cursor) {
            return match is_pull(list) {
                // No list but the records has a past.
                false => Expected::Some,
                true if other.is_keyed => Expected::Refused(Ahead),
                // Nothing had been passed when it was given.
                true => Expected::From(0),
            };
        }
        let mut lists = self.lists.iter().flatten();
        if self.strange.contains(cursor) || lists.any(|list| list.cursors.contains_key(cursor)) {
            Expected::Refused(Foreign)
        } else {
            Expected::Refused(Malformed)
        }
    }

    /// Asks, and holds the answer to what is expected of it.
    fn ask(&self, relay: usize, list: usize, cursor: &[u8]) -> Verdict {
        let path = path_of(list);
        let mark = if path.contains('?') { '&' } else { '?' };
        let encoded = percent_encode(cursor, NON_ALPHANUMERIC);
        let path = format!("{path}{mark}cursor={encoded}");
        let answer = self.relays[relay].send_as(LAPTOP, Method::GET, &path, &[], "");
        let Ok(cursor) = std::str::from_utf8(cursor) else {
            assert_eq!(answer.status, 400, "{answer:?}");
            return Verdict::Refused;
        };
        let problem = answer.problem();
        let refused = problem.as_ref().and_then(|problem| problem.reason);
        match (answer.status.as_u16(), &problem) {
            (200, None) => {}
            (410, Some(problem)) if problem.code == Code::CursorInvalid => {}
            _ => panic!("{path}: {answer:?}"),
        }
        let all = &self.lists[relay][list].items;
        let is_rest = |page: &[Value]| all.ends_with(page);
        let page = (refused.is_none())
            .then(|| items(&serde_json::from_slice(&answer.body).expect("JSON")));
        match self.expected(relay, list, cursor) {
            Expected::From(at) => assert_eq!(page.as_deref(), Some(&all[at..]), "{path}"),
            Expected::Some => assert!(page.as_deref().is_some_and(is_rest), "{path}: {page:?}"),
            // Whoever writes one that holds together may be told anything that is theirs to read.
            Expected::Refused(Malformed) if holds_together(cursor) => {
                assert!(page.as_deref().is_none_or(is_rest), "{path}: {page:?}");
            }
            Expected::Refused(reason) => assert_eq!(refused, Some(reason), "{path}"),
        }
        Verdict::of(refused.is_none())
    }
}

/// What is expected of a cursor.
enum Expected {
    /// What comes from here on.
    From(usize),
    /// Some rest of the list.
    Some,
    /// A 410.
    Refused(CursorReason),
}

/// A relay with this past.
pub(crate) fn relay(past: u64) -> Asked {
    let groups: &[(&str, &[&str])] = &[("acme", &["sam", "alex"])];
    let directory = MemoryDirectory::of(&["sam", "alex"], groups);
    let relay = Asked::empty(directory, past + 1);
    let [laptop, phone, tablet] = [("sam", "laptop"), ("sam", "phone"), ("alex", "tablet")]
        .map(|(member, device)| TestDevice::new(member, device));
    let all = [&laptop, &phone, &tablet];
    for device in all {
        relay.register(device);
    }
    let [own, group, pair] = GRAPHS;
    for epoch in [1, 2] {
        let id = |name: &str| format!("{name}{epoch}");
        let ids = [id("a"), id("b"), id("c")];
        let ids = [ids[0].as_str(), ids[1].as_str(), ids[2].as_str()];
        relay.rotate(&laptop, own, epoch, &[&laptop, &phone]);
        relay.push(&laptop, own, "d:sam:sam", epoch, &ids);
        relay.rotate(&tablet, group, epoch, &all);
        relay.push(&tablet, group, "g:acme", epoch, &ids[1..]);
        // Her own, which the member calls by no name.
        relay.rotate(&tablet, pair, epoch, &[&tablet]);
        relay.push(&tablet, pair, "d:alex:alex", epoch, &ids);
        if past == 1 {
            relay.rotate(&laptop, pair, epoch, &all);
            relay.push(&laptop, pair, "d:alex:sam", epoch, &ids[..2]);
        }
    }
    relay
}

/// The items of a page, without what changes by being asked.
fn items(page: &Value) -> Vec<Value> {
    let list = ["devices", "graphs", "records", "wraps"]
        .iter()
        .find_map(|name| page[*name].as_array());
    let mut items = list.expect("a list").clone();
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.remove("lastSeenAt");
    }
    items
}

/// The list at `path` as this device sees it, in pages of one, of two, and of all.
fn walk(relay: &Asked, by: &str, path: &str) -> List {
    let mark = if path.contains('?') { '&' } else { '?' };
    let mut walked = List {
        items: Vec::new(),
        cursors: BTreeMap::new(),
        is_keyed: true,
    };
    for limit in [1, 2, 1_000] {
        walked.items.clear();
        let mut next = String::new();
        loop {
            let path = format!("{path}{mark}limit={limit}{next}");
            let answer = relay.send_as(by, Method::GET, &path, &[], "");
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let page: Value = serde_json::from_slice(&answer.body).expect("JSON");
            walked.items.extend(items(&page));
            walked.is_keyed = page["epoch"] != 0;
            let cursor = page["cursor"].as_str().expect("a cursor");
            let at = walked.items.len();
            let before = walked.cursors.insert(cursor.to_owned(), at);
            assert!(
                before.is_none_or(|before| before == at),
                "one cursor for two places"
            );
            if page["more"] != true {
                break;
            }
            next = format!("&cursor={cursor}");
        }
    }
    walked
}

fn on_world<T>(work: impl FnOnce(&World) -> T) -> T {
    // No cursor changes anything, so that one world does for all of a thread's.
    thread_local! {
        static WORLD: OnceCell<World> = const { OnceCell::new() };
    }
    WORLD.with(|world| work(world.get_or_init(World::new)))
}

/// What a relay would give out that had these bytes to keep. The form is the relay's own, and no
/// secret: who knows it can write any.
fn forged(content: &[u8]) -> String {
    let check = Sha256::digest(content);
    Sealed([content, &check[..6]].concat()).to_base64url()
}

/// Whether a text that no relay gave out is what one might have: a fuzzer that watches comparisons
/// writes such ones by itself.
fn holds_together(cursor: &str) -> bool {
    let bytes = base64(cursor, *b"-_").map_or_else(Vec::new, |(bytes, _)| bytes);
    let content = bytes.len().checked_sub(6).map(|at| bytes.split_at(at));
    content.is_some_and(|(content, check)| Sha256::digest(content)[..6] == *check)
}

/// Which list, of which relay, and whether a forger wrote what follows; then a cursor, or what a
/// forged one holds.
pub fn cursors(bytes: &[u8]) -> Verdict {
    let Some((which, cursor)) = bytes.split_first() else {
        return Verdict::Refused;
    };
    // A path that is longer than what `Uri` holds reaches no relay.
    if cursor.len() > 15_000 {
        return Verdict::Refused;
    }
    let list = usize::from(which & 0x3f) % LISTS;
    let relay = usize::from(which >> 7);
    on_world(|world| match which & 0x40 {
        0 => world.ask(relay, list, cursor),
        _ => world.ask(relay, list, forged(cursor).as_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_alone() {
        let mut taken = 0;
        on_world(|world| {
            let given = world.lists.iter().flatten();
            let given = given.flat_map(|list| list.cursors.keys());
            let all: BTreeSet<_> = given.chain(&world.strange).collect();
            for relay in [0, 1] {
                for list in 0..LISTS {
                    for cursor in &all {
                        let verdict = world.ask(relay, list, cursor.as_bytes());
                        taken += usize::from(verdict == Verdict::Taken);
                    }
                }
            }
            assert!(all.len() > 60, "{} cursors", all.len());
        });
        assert!(taken > 60, "{taken} of them were taken");
    }
}
