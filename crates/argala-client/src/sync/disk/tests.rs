use std::{
    fs,
    future::Future,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::PathBuf,
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::*;
use crate::sync::{Stamp, state::StateStore};

/// The real disk never keeps anybody waiting.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("waits"),
    }
}

struct Folder {
    /// Removed when the test ends; the synced folder is one level below.
    _around: tempfile::TempDir,
    outside: PathBuf,
    path: PathBuf,
    tree: DiskTree,
}

impl Folder {
    fn new() -> Self {
        let around = tempfile::tempdir().expect("a folder");
        let outside = around.path().join("outside");
        let path = around.path().join("synced");
        fs::create_dir(&outside).expect("made");
        fs::create_dir(&path).expect("made");
        let (tree, _) = DiskTree::open(&path, false).expect("opens");
        Self {
            _around: around,
            outside,
            path,
            tree,
        }
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }

    fn scan(&mut self) -> Scan {
        now(self.tree.scan(&Unread::new())).expect("scans")
    }

    /// Writes a file as the engine would.
    fn write(
        &mut self,
        name: &str,
        over: Option<&str>,
        text: &str,
        executable: bool,
    ) -> Result<(RelPath, LocalFile), TreeFault> {
        now(async {
            let mut staged = self.tree.stage().await?;
            self.tree.append(&mut staged, text.as_bytes()).await?;
            let over = over.map(content);
            let new = content(text).with_executable(executable);
            (self.tree.finish(staged, &path(name), over.as_ref(), new)).await
        })
    }

    /// Whatever a step did, nothing is left of it but its result.
    fn assert_tidy(&self) {
        let staging = self.path.join(own::OWN).join("tmp");
        assert_eq!(fs::read_dir(staging).expect("lists").count(), 0);
        assert_eq!(fs::read_dir(&self.outside).expect("lists").count(), 0);
    }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).expect("legal")
}

fn content(text: &str) -> Content {
    Content {
        hash: super::super::ContentHash::of(text.as_bytes()),
        size: text.len() as u64,
        executable: false,
    }
}

fn blocked<T>(result: Result<T, TreeFault>) -> Option<Blocked> {
    match result {
        Err(TreeFault::Blocked(why)) => Some(why),
        _ => None,
    }
}

fn is_changed<T>(result: &Result<T, TreeFault>) -> bool {
    matches!(result, Err(TreeFault::Changed))
}

#[test]
fn a_scan_reads_files_and_counts_what_it_skips() {
    let mut folder = Folder::new();
    folder.put("a", "one");
    folder.put("d/e/b", "two");
    folder.put(".argala-mine", "ours by name");
    folder.put("d/.argala-tmp-7", "left behind");
    fs::create_dir(folder.path.join("empty")).expect("made");
    fs::write(folder.outside.join("secret"), "x").expect("written");
    symlink(&folder.outside, folder.path.join("link")).expect("linked");
    symlink("a", folder.path.join("d/also")).expect("linked");
    let _socket = UnixListener::bind(folder.path.join("socket")).expect("bound");
    let odd = std::ffi::OsStr::from_bytes(b"odd-\xff");
    let odd_is_possible = fs::write(folder.path.join(odd), "x").is_ok();
    let scan = folder.scan();
    assert_eq!(
        scan.files.keys().map(RelPath::as_str).collect::<Vec<_>>(),
        ["a", "d/e/b"]
    );
    assert_eq!(scan.files[&path("a")].content, content("one"));
    assert_eq!(
        scan.skipped.into_iter().collect::<Vec<_>>(),
        [
            (path("d/also"), Blocked::Symlink),
            (path("link"), Blocked::Symlink),
            (path("socket"), Blocked::Special),
        ]
    );
    assert_eq!(scan.unnameable, u64::from(odd_is_possible));
    assert_eq!(folder.text("d/.argala-tmp-7"), None, "it was left behind");
    assert!(folder.text(".argala-mine").is_some(), "it may be anybody's");
    fs::remove_file(folder.outside.join("secret")).expect("removed");
    folder.assert_tidy();
}

#[test]
fn no_step_goes_through_a_link() {
    let mut folder = Folder::new();
    fs::write(folder.outside.join("secret"), "secret").expect("written");
    symlink(&folder.outside, folder.path.join("link")).expect("linked");
    symlink("../outside/secret", folder.path.join("file")).expect("linked");
    let in_the_way = Some(Blocked::InTheWay);
    assert_eq!(
        blocked(folder.write("link/new", None, "x", false)),
        in_the_way
    );
    assert_eq!(
        blocked(folder.write("link/secret", Some("secret"), "x", false)),
        in_the_way
    );
    assert_eq!(blocked(folder.write("link", None, "x", false)), in_the_way);
    assert_eq!(blocked(folder.write("file", None, "x", false)), in_the_way);
    let over = content("secret");
    assert!(folder.write("file", Some("secret"), "x", false).is_err());
    assert!(now(folder.tree.open(&path("file"))).is_err());
    assert!(now(folder.tree.open(&path("link/secret"))).is_err());
    assert!(now(folder.tree.remove(&path("link/secret"), &over)).is_err());
    assert!(now(folder.tree.remove(&path("file"), &over)).is_err());
    assert!(
        now(folder
            .tree
            .rename(&path("link/secret"), &over, &path("got")))
        .is_err()
    );
    folder.put("a", "secret");
    assert!(now(folder.tree.rename(&path("a"), &over, &path("link/a"))).is_err());
    let bits = now(folder.tree.set_executable(&path("file"), &over, true));
    assert!(bits.is_err());
    let secret = folder.outside.join("secret");
    assert_eq!(fs::read_to_string(&secret).expect("reads"), "secret");
    fs::remove_file(secret).expect("removed");
    folder.assert_tidy();
}

#[test]
fn an_edit_since_the_scan_is_never_overwritten() {
    let mut folder = Folder::new();
    folder.put("a", "edited");
    let over = content("scanned");
    assert!(is_changed(&folder.write(
        "a",
        Some("scanned"),
        "new",
        false
    )));
    assert!(is_changed(&folder.write("a", None, "new", false)));
    assert!(is_changed(&now(folder.tree.remove(&path("a"), &over))));
    let moved = now(folder.tree.rename(&path("a"), &over, &path("b")));
    assert!(is_changed(&moved));
    let bits = now(folder.tree.set_executable(&path("a"), &over, true));
    assert!(is_changed(&bits));
    folder.put("b", "in the way");
    let moved = now(folder
        .tree
        .rename(&path("a"), &content("edited"), &path("b")));
    assert!(is_changed(&moved));
    assert!(is_changed(&folder.write(
        "gone",
        Some("was here"),
        "new",
        false
    )));
    assert_eq!(folder.text("a").as_deref(), Some("edited"));
    assert_eq!(folder.text("b").as_deref(), Some("in the way"));
    assert_eq!(folder.text("gone"), None);
    folder.assert_tidy();
}

#[test]
fn files_are_written_replaced_moved_and_removed_with_their_folders() {
    let mut folder = Folder::new();
    let (name, file) = folder.write("d/e/a", None, "one", false).expect("written");
    assert_eq!((name, file.content), (path("d/e/a"), content("one")));
    assert_eq!(file.stamp, None, "a stamp this fresh proves nothing");
    folder
        .write("d/e/a", Some("one"), "two", false)
        .expect("replaced");
    assert_eq!(folder.text("d/e/a").as_deref(), Some("two"));
    let moved = now(folder
        .tree
        .rename(&path("d/e/a"), &content("two"), &path("d/b")));
    assert_eq!(moved.expect("moved"), path("d/b"));
    fs::remove_dir(folder.path.join("d/e")).expect("empty, and nobody's");
    now(folder.tree.remove(&path("d/b"), &content("two"))).expect("removed");
    assert!(!folder.path.join("d").exists());
    // Folders without any file make room for one.
    fs::create_dir_all(folder.path.join("f/g/h")).expect("made");
    folder.write("f", None, "a file", false).expect("written");
    fs::create_dir_all(folder.path.join("i/j")).expect("made");
    symlink("x", folder.path.join("i/j/link")).expect("linked");
    let full = folder.write("i", None, "x", false);
    assert_eq!(blocked(full), Some(Blocked::InTheWay));
    folder.assert_tidy();
}

#[test]
fn permissions_are_kept_but_for_the_executable_bit() {
    let mut folder = Folder::new();
    let mode = |folder: &Folder, name: &str| {
        let metadata = fs::metadata(folder.path.join(name)).expect("there");
        metadata.permissions().mode() & 0o777
    };
    folder.put("private", "one");
    let private = fs::Permissions::from_mode(0o640);
    fs::set_permissions(folder.path.join("private"), private).expect("set");
    folder
        .write("private", Some("one"), "two", true)
        .expect("replaced");
    assert_eq!(mode(&folder, "private"), 0o750);
    folder.write("new", None, "x", false).expect("written");
    assert_eq!(mode(&folder, "new") & 0o711, 0o600);
    let bits = now(folder
        .tree
        .set_executable(&path("new"), &content("x"), true));
    assert!(bits.expect("set").content.executable);
    assert_eq!(mode(&folder, "new") & 0o700, 0o700);
    assert!(folder.scan().files[&path("new")].content.executable);
    let own = fs::metadata(folder.path.join(own::OWN)).expect("there");
    assert_eq!(own.permissions().mode() & 0o777, 0o700);
    // What is expected includes the bit.
    let replaced = folder.write("new", Some("x"), "y", false);
    assert!(is_changed(&replaced));
}

/// A file whose stamp is known is not read again; one whose stamp is too young to prove anything
/// has none.
#[test]
fn a_known_stamp_saves_reading() {
    let mut folder = Folder::new();
    folder.put("a", "what is there");
    assert_eq!(folder.scan().files[&path("a")].stamp, None);
    let on_disk = beneath::stat(&folder.tree.root, "a")
        .expect("asked")
        .expect("there");
    let stamp = beneath::stamp(&on_disk);
    let known = content("what was there");
    let unread = Unread::from([(path("a"), (stamp, known))]);
    let scan = now(folder.tree.scan(&unread)).expect("scans");
    assert_eq!(scan.files[&path("a")].content, known);
    let other = Stamp {
        inode: stamp.inode + 1,
        ..stamp
    };
    let unread = Unread::from([(path("a"), (other, known))]);
    let scan = now(folder.tree.scan(&unread)).expect("scans");
    assert_eq!(scan.files[&path("a")].content, content("what is there"));
    // By a clock that is further on, the stamp is old enough.
    let pass = Pass {
        root: &folder.tree.root,
        unread: &Unread::new(),
        now: stamp.ctime + 2_000_000_000,
        tidy: false,
        broken: None,
        scan: Scan::default(),
    };
    assert_eq!(
        pass.run().expect("scans").files[&path("a")].stamp,
        Some(stamp)
    );
}

#[test]
fn one_sync_at_a_time() {
    let folder = Folder::new();
    let second = DiskTree::open(&folder.path, false);
    assert!(matches!(second, Err(SyncError::Locked)));
    let path = folder.path.clone();
    drop(folder.tree);
    assert!(DiskTree::open(&path, false).is_ok());
}

#[test]
fn what_an_interrupted_run_was_writing_is_removed() {
    let folder = Folder::new();
    let left = folder.path.join(own::OWN).join("tmp").join("1");
    fs::write(&left, "half").expect("written");
    let path = folder.path.clone();
    drop(folder.tree);
    let (_tree, _journal) = DiskTree::open(&path, false).expect("opens");
    assert!(!left.exists());
}

#[test]
fn the_own_folder_may_not_be_a_link() {
    let around = tempfile::tempdir().expect("a folder");
    let (outside, synced) = (around.path().join("o"), around.path().join("s"));
    fs::create_dir(&outside).expect("made");
    fs::create_dir(&synced).expect("made");
    symlink(&outside, synced.join(own::OWN)).expect("linked");
    assert!(DiskTree::open(&synced, false).is_err());
    assert_eq!(fs::read_dir(&outside).expect("lists").count(), 0);
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let around = tempfile::tempdir().expect("a folder");
    let (mut tree, mut journal) = DiskTree::open(around.path(), true).expect("opens");
    assert_eq!(journal.load().expect("loads"), Default::default());
    now(tree.scan(&Unread::new())).expect("scans");
    drop((tree, journal));
    assert_eq!(fs::read_dir(around.path()).expect("lists").count(), 0);
}

#[test]
fn the_file_system_is_tried_out() {
    let folder = Folder::new();
    let loud = folder.path.join("LOUD");
    fs::write(&loud, "x").expect("written");
    let folds = folder.path.join("loud").exists();
    assert_eq!(folder.tree.nature.folds, folds);
    assert!(folder.tree.nature.keeps_executable);
}
