//! What every [`DirectoryTables`] does.

use std::collections::{BTreeMap, BTreeSet};

use argala_core::ports::DirectoryTables;
use argala_wire::{GroupId, MemberId};

use super::Fresh;
use crate::{TestRandom, group, member};

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<dyn DirectoryTables>`.
#[macro_export]
macro_rules! directory_conformance {
    ($fresh:path) => {
        $crate::stamp_cases! { $fresh, directory:
            nobody_is_known_at_first,
            a_member_is_added_removed_and_brought_back,
            a_removed_member_stays_in_their_groups,
            joining_needs_a_member_and_a_group,
            leaving_is_for_good,
            a_group_is_created_once,
            names_are_compared_byte_for_byte,
            members_are_listed_in_byte_order_page_by_page,
            groups_are_listed_in_byte_order_page_by_page,
            many_are_asked_about_at_once,
            random_changes_follow_the_model,
        }
    };
}

/// Names that hosts really use, and names that a careless query takes for others.
const NAMES: [&str; 14] = [
    "sam", "Sam", "alex", "auth0|42", "user:7", "50%", "_", "a_b", "a b", "it's", "\"q\"", "🦀",
    "é", "e\u{301}",
];

struct Book {
    fresh: Fresh<dyn DirectoryTables>,
    turn: std::sync::atomic::AtomicUsize,
}

impl Book {
    fn new(fresh: Fresh<dyn DirectoryTables>) -> Self {
        let turn = std::sync::atomic::AtomicUsize::new(0);
        Self { fresh, turn }
    }

    fn tables(&self) -> &dyn DirectoryTables {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.fresh.replica(turn).as_ref()
    }

    async fn add(&self, name: &str) -> bool {
        let added = self.tables().add_member(&member(name)).await;
        added.expect("the directory answers")
    }

    async fn remove(&self, name: &str) -> bool {
        let removed = self.tables().remove_member(&member(name)).await;
        removed.expect("the directory answers")
    }

    async fn create(&self, name: &str) -> bool {
        let created = self.tables().create_group(&group(name)).await;
        created.expect("the directory answers")
    }

    async fn join(&self, to: &str, name: &str) -> Option<bool> {
        let joined = self.tables().join_group(&group(to), &member(name)).await;
        joined.expect("the directory answers")
    }

    async fn leave(&self, from: &str, name: &str) -> bool {
        let left = self.tables().leave_group(&group(from), &member(name)).await;
        left.expect("the directory answers")
    }

    async fn is_active(&self, name: &str) -> bool {
        let active = self.tables().is_active_member(&member(name)).await;
        active.expect("the directory answers")
    }

    async fn is_in(&self, of: &str, name: &str) -> bool {
        let of = self
            .tables()
            .is_group_member(&group(of), &member(name))
            .await;
        of.expect("the directory answers")
    }

    /// The members of a group, sorted: the port promises no order.
    async fn members(&self, of: &str) -> Vec<String> {
        let members = self.tables().members_of_group(&group(of)).await;
        let members = members.expect("the directory answers");
        let mut names: Vec<_> = members.iter().map(|id| id.as_str().to_owned()).collect();
        names.sort();
        names
    }

    /// The groups of a member, sorted; `None` where the directory cannot tell.
    async fn groups(&self, name: &str) -> Option<Vec<String>> {
        let groups = self.tables().groups_of_member(&member(name)).await;
        let groups = groups.expect("the directory answers")?;
        let mut names: Vec<_> = groups.iter().map(|id| id.as_str().to_owned()).collect();
        names.sort();
        Some(names)
    }

    async fn active_among(&self, names: &[&str]) -> BTreeSet<String> {
        let ids: Vec<MemberId> = names.iter().map(|name| member(name)).collect();
        let active = self.tables().active_members(&ids).await;
        let active = active.expect("the directory answers");
        let unique: BTreeSet<_> = active.iter().map(|id| id.as_str().to_owned()).collect();
        assert_eq!(unique.len(), active.len(), "each is told once");
        unique
    }

    async fn all_members(&self, page: usize) -> Vec<(String, bool)> {
        let mut all: Vec<(MemberId, bool)> = Vec::new();
        loop {
            let after = all.last().map(|(id, _)| id.clone());
            let next = self.tables().list_members(after.as_ref(), page).await;
            let next = next.expect("the directory answers");
            assert!(next.len() <= page);
            if next.is_empty() {
                break;
            }
            all.extend(next);
        }
        let name = |(id, active): &(MemberId, bool)| (id.as_str().to_owned(), *active);
        all.iter().map(name).collect()
    }

    async fn all_groups(&self, page: usize) -> Vec<String> {
        let mut all: Vec<GroupId> = Vec::new();
        loop {
            let next = self.tables().list_groups(all.last(), page).await;
            let next = next.expect("the directory answers");
            assert!(next.len() <= page);
            if next.is_empty() {
                break;
            }
            all.extend(next);
        }
        all.iter().map(|id| id.as_str().to_owned()).collect()
    }
}

/// What is not there is no error.
pub async fn nobody_is_known_at_first(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    assert!(!book.is_active("sam").await);
    assert!(!book.is_in("acme", "sam").await);
    assert!(book.members("acme").await.is_empty());
    assert!(book.groups("sam").await.unwrap_or_default().is_empty());
    assert!(book.active_among(&["sam", "alex"]).await.is_empty());
    assert!(book.active_among(&[]).await.is_empty());
    assert!(book.all_members(10).await.is_empty());
    assert!(book.all_groups(10).await.is_empty());
    assert!(!book.remove("sam").await);
    assert!(!book.leave("acme", "sam").await);
}

/// Each change tells whether it was one.
pub async fn a_member_is_added_removed_and_brought_back(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    assert!(book.add("sam").await);
    assert!(!book.add("sam").await);
    assert!(book.is_active("sam").await);
    assert!(book.remove("sam").await);
    assert!(!book.remove("sam").await);
    assert!(!book.is_active("sam").await);
    assert_eq!(book.all_members(10).await, [("sam".to_owned(), false)]);
    assert!(book.add("sam").await);
    assert!(book.is_active("sam").await);
}

/// Removing leaves the memberships in place, so that what is owed because of them stays visible.
pub async fn a_removed_member_stays_in_their_groups(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    book.add("sam").await;
    book.add("alex").await;
    book.create("acme").await;
    for name in ["sam", "alex"] {
        assert_eq!(book.join("acme", name).await, Some(true));
    }
    book.remove("sam").await;
    assert_eq!(book.members("acme").await, ["alex", "sam"]);
    assert!(book.is_in("acme", "sam").await);
    if let Some(groups) = book.groups("sam").await {
        assert_eq!(groups, ["acme"]);
    }
    let active = book.active_among(&["sam", "alex", "nobody"]).await;
    assert_eq!(active, BTreeSet::from(["alex".to_owned()]));
    book.add("sam").await;
    assert_eq!(book.members("acme").await, ["alex", "sam"]);
}

/// Both must be there; joining again changes nothing.
pub async fn joining_needs_a_member_and_a_group(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    assert_eq!(book.join("acme", "sam").await, None);
    book.add("sam").await;
    assert_eq!(book.join("acme", "sam").await, None);
    book.create("acme").await;
    assert_eq!(book.join("acme", "alex").await, None);
    assert_eq!(book.join("acme", "sam").await, Some(true));
    assert_eq!(book.join("acme", "sam").await, Some(false));
    assert_eq!(book.members("acme").await, ["sam"]);
}

/// Who left is not of the group, and is still a member.
pub async fn leaving_is_for_good(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    for name in ["sam", "alex"] {
        book.add(name).await;
    }
    for name in ["acme", "beta"] {
        book.create(name).await;
        book.join(name, "sam").await;
        book.join(name, "alex").await;
    }
    assert!(book.leave("acme", "sam").await);
    assert!(!book.leave("acme", "sam").await);
    assert!(!book.is_in("acme", "sam").await);
    assert!(book.is_in("beta", "sam").await);
    assert!(book.is_active("sam").await);
    assert_eq!(book.members("acme").await, ["alex"]);
    if let Some(groups) = book.groups("sam").await {
        assert_eq!(groups, ["beta"]);
    }
    assert_eq!(book.join("acme", "sam").await, Some(true));
}

/// A group is empty at first and keeps its members when it is created again.
pub async fn a_group_is_created_once(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    book.add("sam").await;
    assert!(book.create("acme").await);
    assert!(book.members("acme").await.is_empty());
    book.join("acme", "sam").await;
    assert!(!book.create("acme").await);
    assert_eq!(book.members("acme").await, ["sam"]);
}

/// No folding, no normalising, no patterns, and groups are no members.
pub async fn names_are_compared_byte_for_byte(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    let long = "é".repeat(64);
    let names: Vec<&str> = NAMES.into_iter().chain([long.as_str()]).collect();
    for (at, name) in names.iter().enumerate() {
        for (other, unknown) in names.iter().enumerate() {
            assert_eq!(book.is_active(unknown).await, other < at, "{unknown}");
        }
        assert!(book.add(name).await, "{name}");
        assert!(book.create(name).await, "{name}");
        assert_eq!(book.join(name, name).await, Some(true), "{name}");
    }
    for name in &names {
        assert_eq!(book.members(name).await, [*name]);
        for other in &names {
            assert_eq!(book.is_in(name, other).await, name == other);
        }
        if let Some(groups) = book.groups(name).await {
            assert_eq!(groups, [*name]);
        }
    }
}

/// The list is in byte order and whole, whatever the page.
pub async fn members_are_listed_in_byte_order_page_by_page(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    for name in NAMES {
        book.add(name).await;
    }
    book.remove("Sam").await;
    let mut wanted: Vec<(String, bool)> = NAMES
        .iter()
        .map(|name| ((*name).to_owned(), *name != "Sam"))
        .collect();
    wanted.sort();
    for page in [1, 3, NAMES.len(), 1_000] {
        assert_eq!(book.all_members(page).await, wanted, "pages of {page}");
    }
}

/// The same of groups.
pub async fn groups_are_listed_in_byte_order_page_by_page(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    for name in NAMES {
        book.create(name).await;
    }
    let mut wanted = NAMES.map(str::to_owned);
    wanted.sort();
    for page in [1, 3, NAMES.len(), 1_000] {
        assert_eq!(book.all_groups(page).await, wanted, "pages of {page}");
    }
}

/// One question may be about thousands, repeated ones among them.
pub async fn many_are_asked_about_at_once(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    let names: Vec<String> = (0..3_000).map(|at| format!("m{at}")).collect();
    for at in [0, 1_500, 2_999] {
        book.add(&names[at]).await;
    }
    let asked: Vec<&str> = names.iter().map(String::as_str).collect();
    let wanted = ["m0", "m1500", "m2999"].map(str::to_owned);
    assert_eq!(book.active_among(&asked).await, BTreeSet::from(wanted));
}

/// Any order of changes leaves what a plain model says.
pub async fn random_changes_follow_the_model(fresh: Fresh<dyn DirectoryTables>) {
    let book = Book::new(fresh);
    let random = TestRandom::new(7);
    let mut members: BTreeMap<&str, bool> = BTreeMap::new();
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let names = &NAMES[..5];
    for step in 0..300 {
        let (name, of) = (*random.pick(names), *random.pick(names));
        match random.below(6) {
            0 => {
                let changed = members.insert(name, true) != Some(true);
                assert_eq!(book.add(name).await, changed, "step {step}");
            }
            1 => {
                let changed = members.get(name) == Some(&true);
                members.entry(name).and_modify(|active| *active = false);
                assert_eq!(book.remove(name).await, changed, "step {step}");
            }
            2 => {
                let changed = !groups.contains_key(of);
                groups.entry(of).or_default();
                assert_eq!(book.create(of).await, changed, "step {step}");
            }
            3 | 4 => {
                let there = members.contains_key(name);
                let joined = groups.get_mut(of).filter(|_| there);
                let wanted = joined.map(|members| members.insert(name));
                assert_eq!(book.join(of, name).await, wanted, "step {step}");
            }
            _ => {
                let left = groups
                    .get_mut(of)
                    .is_some_and(|members| members.remove(name));
                assert_eq!(book.leave(of, name).await, left, "step {step}");
            }
        }
        if step % 20 == 0 {
            compare(&book, names, &members, &groups).await;
        }
    }
    compare(&book, names, &members, &groups).await;
}

async fn compare(
    book: &Book,
    names: &[&str],
    members: &BTreeMap<&str, bool>,
    groups: &BTreeMap<&str, BTreeSet<&str>>,
) {
    for name in names {
        let active = members.get(name) == Some(&true);
        assert_eq!(book.is_active(name).await, active, "{name}");
        let of: Vec<String> = groups
            .get(name)
            .into_iter()
            .flatten()
            .map(|m| (*m).to_owned())
            .collect();
        assert_eq!(book.members(name).await, of, "{name}");
        for other in names {
            let wanted = groups
                .get(name)
                .is_some_and(|members| members.contains(other));
            assert_eq!(book.is_in(name, other).await, wanted, "{other} in {name}");
        }
        if let Some(told) = book.groups(name).await {
            let of = groups.iter().filter(|(_, members)| members.contains(name));
            let of: Vec<String> = of.map(|(group, _)| (*group).to_owned()).collect();
            assert_eq!(told, of, "the groups of {name}");
        }
    }
}
