//! Single stories, told in full: what a person would expect to see.

use argala_wire::{DeviceId, MemberId, RecordId, devices::DeviceRef};

use super::world::World;
use crate::{
    Kind, Write,
    sync::{Blocked, RelPath, Report},
};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("legal")
}

fn world() -> World {
    World::new([false; 3])
}

impl World {
    fn put(&mut self, device: usize, name: &str, text: &str) {
        let mut disk = self.devices[device].disk.borrow_mut();
        let written = disk.write(&path(name), text.into(), false);
        written.expect("nothing is in the way");
    }

    fn take_away(&mut self, device: usize, name: &str) {
        self.devices[device].disk.borrow_mut().remove(&path(name));
    }

    fn text(&self, device: usize, name: &str) -> Option<String> {
        let bytes = self.devices[device].disk.borrow().bytes(&path(name))?;
        Some(String::from_utf8(bytes).expect("text"))
    }

    fn names(&self, device: usize) -> Vec<String> {
        let files = self.devices[device].disk.borrow().files();
        files.into_keys().map(|path| path.to_string()).collect()
    }

    fn all_sync(&mut self) -> Vec<Report> {
        [0, 1, 2, 0, 1, 2].map(|index| self.sync(index)).into()
    }
}

#[test]
fn records_of_another_sort_are_passed_over_and_nothing_is_amiss() {
    let mut world = world();
    world.put(0, "a", "one");
    world.all_sync();
    let by = DeviceRef {
        member_id: MemberId::new("alex").expect("legal"),
        device_id: DeviceId::new("tablet").expect("legal"),
    };
    let note = Write {
        id: RecordId::new("standup").expect("legal"),
        kind: Kind::new("text").expect("legal"),
        body: b"at ten".to_vec(),
        deleted: false,
        expect: None,
    };
    world.relay.borrow_mut().push(&by, &note);
    let report = world.sync(0);
    assert_eq!(report.other_records, 1);
    assert!(!report.needs_attention(), "{report:?}");
}

const LONG: &str = "long enough that it does not fit into a record, and needs several blobs";

#[test]
fn both_versions_are_kept_and_the_later_one_is_named_with_its_device() {
    let mut world = world();
    world.put(0, "d/notes.md", "before");
    world.all_sync();
    world.put(0, "d/notes.md", "from d0");
    world.put(1, "d/notes.md", "from d1");
    world.sync(0);
    let report = world.sync(1);
    assert_eq!(report.conflicts.len(), 1);
    assert_eq!(report.conflicts[0].path, path("d/notes.md"));
    world.all_sync();
    for device in 0..3 {
        assert_eq!(world.text(device, "d/notes.md").as_deref(), Some("from d0"));
        let kept = world.text(device, "d/notes (conflict from d1).md");
        assert_eq!(kept.as_deref(), Some("from d1"));
    }
}

#[test]
fn the_same_edit_on_two_devices_is_no_conflict() {
    let mut world = world();
    world.put(0, "a", LONG);
    world.put(1, "a", LONG);
    let reports = world.all_sync();
    assert!(reports.iter().all(|report| report.conflicts.is_empty()));
    assert_eq!(world.names(2), ["a"]);
    assert_eq!(world.check_blobs(), Ok(()));
}

#[test]
fn a_deletion_loses_to_an_edit_whichever_comes_first() {
    for deleter in [0, 1] {
        let mut world = world();
        world.put(0, "a", "before");
        world.all_sync();
        world.take_away(deleter, "a");
        world.put(1 - deleter, "a", "after");
        world.all_sync();
        for device in 0..3 {
            assert_eq!(world.text(device, "a").as_deref(), Some("after"));
            assert_eq!(world.names(device), ["a"]);
        }
    }
}

#[test]
fn what_is_deleted_stays_deleted() {
    let mut world = world();
    world.put(0, "d/a", LONG);
    world.put(0, "d/b", "short");
    world.all_sync();
    world.take_away(1, "d/a");
    world.take_away(1, "d/b");
    world.all_sync();
    assert!((0..3).all(|device| world.names(device).is_empty()));
    assert_eq!(world.check_blobs(), Ok(()));
    world.put(2, "d/a", "anew");
    world.all_sync();
    assert_eq!(world.text(0, "d/a").as_deref(), Some("anew"));
}

#[test]
fn names_that_differ_in_case_stand_side_by_side_everywhere() {
    let mut world = World::new([false, true, false]);
    world.put(0, "README", "loud");
    world.put(0, "readme", "quiet");
    world.put(0, "d/é", "composed");
    world.put(0, "d/e\u{301}", "decomposed");
    world.all_sync();
    assert_eq!(
        world.names(1),
        [
            "README",
            "d/e\u{301}",
            "d/é (other spelling)",
            "readme (other spelling)"
        ]
    );
    // An edit of the file under its other name is an edit of the file.
    world.put(1, "readme (other spelling)", "quieter");
    world.all_sync();
    assert_eq!(world.text(0, "readme").as_deref(), Some("quieter"));
    assert_eq!(world.text(0, "README").as_deref(), Some("loud"));
    // It gets its own name as soon as that is free, and nobody else is bothered with it.
    world.take_away(2, "README");
    let reports = world.all_sync();
    assert!(reports.iter().all(|report| report.conflicts.is_empty()));
    assert_eq!(
        world.names(1),
        ["d/e\u{301}", "d/é (other spelling)", "readme"]
    );
    assert_eq!(world.names(0), ["d/e\u{301}", "d/é", "readme"]);
}

#[test]
fn a_rename_in_case_only_is_a_rename() {
    let mut world = World::new([true, true, false]);
    world.put(0, "readme", "text");
    world.all_sync();
    {
        let mut disk = world.devices[0].disk.borrow_mut();
        assert!(disk.rename(&path("readme"), &path("README")));
    }
    let reports = world.all_sync();
    assert!(reports.iter().all(|report| report.conflicts.is_empty()));
    assert!((0..3).all(|device| world.names(device) == ["README"]));
}

#[test]
fn a_file_and_a_folder_of_one_name_both_survive() {
    let mut world = world();
    world.put(0, "a", "a file");
    world.put(1, "a/b", "in a folder");
    world.all_sync();
    for device in 0..3 {
        assert_eq!(world.names(device), ["a (conflict from d0)", "a/b"]);
    }
    // The other way round it is no conflict but an edit like any other.
    world.take_away(2, "a/b");
    world.put(2, "a", "a file again");
    let reports = world.all_sync();
    assert!(reports.iter().all(|report| report.conflicts.is_empty()));
    assert!((0..3).all(|device| world.names(device) == ["a", "a (conflict from d0)"]));
}

/// The file that was a folder, or the other way round, goes first, or it would be in the way on
/// devices that learn of it page by page.
#[test]
fn a_file_that_became_a_folder_is_no_conflict_wherever_the_page_ends() {
    for others in 0..7 {
        let mut world = world();
        world.put(0, "a", "a file");
        world.put(0, "b/c", "in a folder");
        world.all_sync();
        world.take_away(0, "a");
        world.put(0, "a/x", "in a folder now");
        world.take_away(0, "b/c");
        world.put(0, "b", "a file now");
        for other in 0..others {
            world.put(0, &format!("other {other}"), "text");
        }
        let reports = world.all_sync();
        assert!(reports.iter().all(|report| report.conflicts.is_empty()));
        assert_eq!(world.names(1), world.names(0));
    }
}

/// Cut off just after the relay took a push, a device finds its own version there; it is no
/// conflict that the file was edited since.
#[test]
fn an_own_push_that_was_not_heard_of_is_no_conflict() {
    let mut met = 0;
    for fuel in 0..40 {
        let mut world = world();
        world.put(0, "a", "before");
        world.all_sync();
        world.put(0, "a", "pushed");
        let head = world.relay.borrow().head();
        let report = world.sync_until(0, fuel, false);
        let unheard = report.is_none() && world.relay.borrow().head() > head;
        world.put(0, "a", "edited since");
        let reports = world.all_sync();
        assert!(reports.iter().all(|report| report.conflicts.is_empty()));
        assert_eq!(world.text(1, "a").as_deref(), Some("edited since"));
        met += u32::from(unheard);
    }
    assert!(met > 0, "no run was cut off there");
}

/// The same of a deletion: what was put back since is not taken away again.
#[test]
fn an_own_deletion_that_was_not_heard_of_takes_nothing_away() {
    let mut met = 0;
    for fuel in 0..40 {
        let mut world = world();
        world.put(0, "a", "text");
        world.all_sync();
        world.take_away(0, "a");
        let head = world.relay.borrow().head();
        let report = world.sync_until(0, fuel, true);
        let unheard = report.is_none() && world.relay.borrow().head() > head;
        world.put(0, "a", "text");
        world.all_sync();
        assert_eq!(world.text(0, "a").as_deref(), Some("text"));
        assert_eq!(world.text(1, "a").as_deref(), Some("text"));
        met += u32::from(unheard);
    }
    assert!(met > 0, "no run was cut off there");
}

#[test]
fn an_upload_goes_on_where_it_was_cut_off() {
    let mut world = world();
    world.put(0, "a", LONG);
    for fuel in 0..60 {
        world.sync_until(0, fuel, fuel % 2 == 0);
    }
    world.all_sync();
    assert_eq!(world.text(1, "a").as_deref(), Some(LONG));
    assert_eq!(world.check_blobs(), Ok(()));
}

#[test]
fn a_refused_record_is_counted_and_stops_no_other() {
    let mut world = world();
    world.put(0, "old", "before");
    world.all_sync();
    world.relay.borrow_mut().mood.full = true;
    world.put(0, "new", "does not fit");
    world.put(0, "old", "after");
    let report = world.sync(0);
    assert_eq!(report.refused.len(), 1);
    assert_eq!(report.refused[0].path, Some(path("new")));
    assert_eq!(report.refused[0].reason, "quota_records");
    assert_eq!(report.pushed, [path("old")]);
    assert!(report.needs_attention() && !report.in_step);
    world.relay.borrow_mut().mood.full = false;
    world.all_sync();
    assert_eq!(world.text(1, "new").as_deref(), Some("does not fit"));
}

#[test]
fn a_moved_file_is_not_deleted_until_it_has_arrived() {
    let mut world = world();
    world.put(0, "a", "precious");
    world.all_sync();
    world.relay.borrow_mut().mood.full = true;
    world.take_away(0, "a");
    world.put(0, "b", "precious");
    let report = world.sync(0);
    assert_eq!(report.deleted, []);
    world.sync(1);
    assert_eq!(world.text(1, "a").as_deref(), Some("precious"));
    world.relay.borrow_mut().mood.full = false;
    world.all_sync();
    assert_eq!(world.names(1), ["b"]);
}

#[test]
fn no_room_for_a_blob_concerns_that_file_alone() {
    let mut world = world();
    world.relay.borrow_mut().mood.no_room = true;
    world.put(0, "large", LONG);
    world.put(0, "small", "text");
    let report = world.sync(0);
    assert_eq!(report.refused[0].reason, "quota_exceeded");
    assert_eq!(report.pushed, [path("small")]);
    world.relay.borrow_mut().mood.no_room = false;
    world.all_sync();
    assert_eq!(world.text(1, "large").as_deref(), Some(LONG));
    assert_eq!(world.check_blobs(), Ok(()));
}

#[test]
fn pushes_wait_for_the_key_and_pulls_do_not() {
    let mut world = world();
    world.all_sync();
    world.put(1, "b", "from d1");
    world.sync(1);
    world.relay.borrow_mut().mood.behind = true;
    world.put(0, "a", "from d0");
    let report = world.sync(0);
    assert_eq!((report.held, report.written.len()), (1, 1));
    assert!(report.needs_attention());
    world.relay.borrow_mut().mood.behind = false;
    world.all_sync();
    assert_eq!(world.text(1, "a").as_deref(), Some("from d0"));
}

/// What the relay withholds is not what it has lost: nothing may be deleted for it.
#[test]
fn a_record_without_a_key_is_no_deletion() {
    let mut world = world();
    world.put(0, "a", "text");
    world.all_sync();
    let head = world.relay.borrow().head();
    // A walk from the start that does not show the record.
    world.relay.borrow_mut().sweep();
    world.put(1, "b", "more");
    world.sync(1);
    world.relay.borrow_mut().sweep();
    world.relay.borrow_mut().mood.withheld = 0..head + 1;
    let report = world.sync(0);
    assert!(report.held_back > 0);
    assert_eq!(world.names(0), ["a", "b"]);
    // Nor can it be overwritten unseen.
    world.put(0, "a", "edited");
    world.sync(0);
    world.relay.borrow_mut().mood.withheld = 0..0;
    world.all_sync();
    assert_eq!(world.text(2, "a").as_deref(), Some("edited"));
}

#[test]
fn a_record_that_is_not_believed_is_kept_counted_and_in_nobodys_way() {
    let mut world = world();
    world.sync(0);
    world.put(1, "forged", "by somebody");
    world.put(1, "good", "text");
    world.sync(1);
    let seq = world.relay.borrow().head() - 1;
    world.relay.borrow_mut().mood.forged = seq..seq + 1;
    let report = world.sync(0);
    assert_eq!(report.refused.len(), 1);
    assert_eq!(report.refused[0].reason, "signature_invalid");
    assert_eq!(world.names(0).len(), 1);
    // It is still counted when it is not pulled again, and gone once a good version follows.
    assert_eq!(world.sync(0).refused.len(), 1);
    let file = ["forged", "good"].map(|name| world.text(0, name).is_none());
    let name = if file[0] { "forged" } else { "good" };
    world.put(1, name, "signed now");
    world.sync(1);
    let report = world.sync(0);
    assert!(report.refused.is_empty());
    assert_eq!(world.text(0, name).as_deref(), Some("signed now"));
}

/// A file of its own at the path of a record that cannot be read: it is not pushed over what
/// nobody has seen, and said to be stuck.
#[test]
fn an_unseen_version_is_not_overwritten() {
    let mut world = world();
    world.sync(0);
    world.put(1, "a", "unseen");
    world.sync(1);
    let seq = world.relay.borrow().head();
    world.relay.borrow_mut().mood.forged = seq..seq + 1;
    world.put(0, "a", "from d0");
    world.put(0, "b", "goes through");
    let report = world.sync(0);
    assert_eq!(report.pushed, [path("b")]);
    assert_eq!(report.left.len(), 1);
    assert_eq!(report.left[0].reason, Blocked::Unseen);
    assert_eq!(world.text(0, "a").as_deref(), Some("from d0"));
}

/// What a sync left, and why.
fn left(report: &Report) -> Vec<(&str, Blocked)> {
    let left = report.left.iter();
    left.map(|it| (it.path.as_str(), it.reason)).collect()
}

/// Blobs that are gone make one file unreadable; who wants may put another in its place, and who has
/// it may edit it.
#[test]
fn a_file_whose_blobs_are_gone_is_shown_and_can_be_replaced() {
    let mut world = world();
    world.put(0, "a", LONG);
    world.put(0, "b", "text");
    world.sync(0);
    world.relay.borrow_mut().lose_blobs();
    let report = world.sync(1);
    assert_eq!(left(&report), [("a", Blocked::Broken)]);
    assert!(!report.in_step);
    assert_eq!(world.names(1), ["b"]);
    world.put(1, "a", "written again");
    let report = world.sync(1);
    assert_eq!(left(&report), [("a", Blocked::Broken)]);
    assert!(report.pushed.is_empty());
    world.replace_broken = true;
    let report = world.sync(1);
    assert_eq!(report.pushed, [path("a")]);
    assert!(report.left.is_empty() && report.in_step);
    world.replace_broken = false;
    world.all_sync();
    assert_eq!(world.text(0, "a").as_deref(), Some("written again"));

    world.put(0, "a", LONG);
    world.sync(0);
    world.relay.borrow_mut().lose_blobs();
    assert_eq!(left(&world.sync(1)), [("a", Blocked::Broken)]);
    world.put(0, "a", &format!("{LONG}, and edited"));
    world.all_sync();
    assert_eq!(world.check(), Ok(()));
    assert_eq!(world.check_blobs(), Ok(()));
}

/// An older version is not pushed over one of which somebody else has all; nor is an edit of it, nor
/// what was away while the relay said that it had nothing.
#[test]
fn an_older_version_is_not_pushed_over_one_that_could_not_be_had() {
    let mut world = world();
    world.put(0, "a", "older");
    world.all_sync();
    world.put(0, "a", LONG);
    world.put(0, "b", "text");
    world.sync(0);
    world.relay.borrow_mut().mood.denies = true;
    for here in ["older", "edited"] {
        world.put(1, "a", here);
        let report = world.sync(1);
        assert_eq!(left(&report), [("a", Blocked::Broken)]);
        assert!(report.pushed.is_empty() && !report.in_step);
        assert_eq!(world.text(1, "a").as_deref(), Some(here));
        world.sync(0);
        assert_eq!(world.text(0, "a").as_deref(), Some(LONG));
    }
    assert_eq!(world.text(1, "b").as_deref(), Some("text"));
    world.take_away(1, "a");
    assert_eq!(left(&world.sync(1)), [("a", Blocked::Broken)]);
    world.relay.borrow_mut().mood.denies = false;
    world.put(1, "a", "older");
    assert!(world.sync(1).pushed.is_empty());
    world.all_sync();
    for device in 0..3 {
        assert_eq!(world.text(device, "a").as_deref(), Some(LONG));
    }
}

/// To be asked for a part once and to have it the next time is nothing that anybody hears of.
#[test]
fn a_file_that_was_denied_comes_by_itself() {
    let mut world = world();
    world.put(0, "a", LONG);
    world.sync(0);
    world.relay.borrow_mut().mood.denies = true;
    assert_eq!(left(&world.sync(1)), [("a", Blocked::Broken)]);
    world.relay.borrow_mut().mood.denies = false;
    let report = world.sync(1);
    assert_eq!(report.written, [path("a")]);
    assert!(report.in_step && !report.needs_attention());
}

#[test]
fn the_executable_bit_travels_and_is_no_edit_of_the_bytes() {
    let mut world = world();
    world.put(0, "run", LONG);
    world.all_sync();
    let before = world.relay.borrow().blobs();
    world.devices[0]
        .disk
        .borrow_mut()
        .flip_executable(&path("run"));
    world.put(1, "run", "edited");
    let reports = world.all_sync();
    assert!(reports.iter().all(|report| report.conflicts.is_empty()));
    assert_eq!(world.text(0, "run").as_deref(), Some("edited"));
    assert_eq!(world.check(), Ok(()));
    assert_ne!(world.relay.borrow().blobs(), before);
    assert_eq!(world.check_blobs(), Ok(()));
}

#[test]
fn a_conflict_about_a_conflict_gets_the_next_number() {
    let mut world = world();
    for round in 0..3 {
        world.put(0, "a", &format!("d0 {round}"));
        world.put(1, "a", &format!("d1 {round}"));
        world.all_sync();
    }
    assert_eq!(
        world.names(2),
        [
            "a",
            "a (conflict from d1 2)",
            "a (conflict from d1 3)",
            "a (conflict from d1)"
        ]
    );
}
