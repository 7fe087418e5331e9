//! The folder sync against the real relay, on real disks.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use argala_client::{
    GraphAccess, Session, Write,
    sync::{
        Blocked, DiskTree, Options, Report, SessionRemote, Silent, SyncError, file_kind,
        folder_kind, sync,
    },
};
use argala_testkit::{device_ref, record_id};
use argala_wire::{Code, codec::Format, limits::Quotas};
use http::Method;
use serde_json::json;

use crate::world::{Meddle, World, acme, problem, quick};

/// A device with a folder.
pub(crate) struct Desk {
    pub(crate) session: Session,
    pub(crate) folder: PathBuf,
}

impl Desk {
    pub(crate) async fn new(world: &World, member: &str, name: &str) -> Self {
        let mut desk = Self::unregistered(world, member, name).await;
        desk.session.register(None).await.expect("registers");
        desk
    }

    async fn unregistered(world: &World, member: &str, name: &str) -> Self {
        let device = device_ref(member, name);
        let client = world.client(&device).with_retry(quick());
        let path = world.key_file(member, name);
        let session = Session::create(client, &path, device, std::time::Duration::ZERO);
        let session = session.await.expect("a key file");
        let folder = world.path(&format!("{member}-{name}"));
        fs::create_dir(&folder).expect("made");
        Self {
            session: session.declare([file_kind(), folder_kind()]),
            folder,
        }
    }

    /// Lists the group's devices, before which no key is sealed for them.
    async fn look(&mut self) {
        let listed = self.session.graph_devices(&acme(), false).await;
        let listed = listed.expect("told");
        self.session.note_listed(&listed).expect("saves");
    }

    async fn try_sync(&mut self) -> Result<Report, SyncError> {
        let (mut tree, mut journal) = DiskTree::open(&self.folder, false)?;
        let mut remote = SessionRemote::new(&mut self.session, acme()).await?;
        let options = Options {
            graph: acme(),
            dry_run: false,
            replace_broken: false,
        };
        let mut silent = Silent;
        sync(&mut tree, &mut remote, &mut journal, &mut silent, &options).await
    }

    /// A sync after which nothing is left to do.
    #[track_caller]
    fn sync(&mut self) -> impl Future<Output = Report> {
        let caller = std::panic::Location::caller();
        async move {
            let report = self.try_sync().await;
            let report = report.unwrap_or_else(|why| panic!("at {caller}: {why}"));
            assert!(!report.needs_attention(), "at {caller}: {report:?}");
            report
        }
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.folder.join(name)).expect("removed");
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.folder)
    }
}

/// Every file below `folder` but the client's own, and links.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).expect("lists") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(folder).expect("inside");
            let name = name.to_str().expect("text").to_owned();
            if name == ".argala-sync" {
                continue;
            }
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(name, fs::read(path).expect("reads"));
            }
        }
    }
    files
}

/// Bytes that do not repeat.
pub(crate) fn noise(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Quotas under which a file of a few hundred kilobytes has several parts.
fn small_blobs() -> Quotas {
    Quotas {
        max_blob_bytes: 100_000,
        ..Quotas::default()
    }
}

/// Two desks, both with the keys of the group.
async fn two(world: &World) -> (Desk, Desk) {
    let mut sam = Desk::new(world, "sam", "laptop").await;
    let alex = Desk::new(world, "alex", "phone").await;
    sam.look().await;
    sam.session.rotate(&acme()).await.expect("rotates");
    (sam, alex)
}

async fn blob_bytes(desk: &Desk) -> u64 {
    let graph = desk.session.api().graph(&acme()).await;
    graph.expect("asked").blob_bytes
}

#[tokio::test]
async fn two_folders_become_one_and_stay_so() {
    let world = World::with(|builder| builder.quotas(small_blobs())).await;
    let (mut sam, mut alex) = two(&world).await;
    sam.put("notes/a.md", "Milk");
    sam.put("notes/empty", "");
    sam.put("notes/ünï/c.txt", "deep");
    sam.put("film.bin", noise(450_000, 1));
    sam.put("run.sh", "#!/bin/sh\n");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(sam.folder.join("run.sh"), executable).expect("set");
    alex.put("photo.bin", noise(300_000, 2));
    assert_eq!(sam.sync().await.pushed.len(), 5);
    let report = alex.sync().await;
    assert_eq!((report.written.len(), report.pushed.len()), (5, 1));
    sam.sync().await;
    assert_eq!(sam.files().len(), 6);
    assert_eq!(sam.files(), alex.files());
    let mode = |desk: &Desk, name: &str| {
        let metadata = fs::metadata(desk.folder.join(name)).expect("there");
        metadata.permissions().mode() & 0o100 != 0
    };
    assert!(mode(&alex, "run.sh") && !mode(&alex, "notes/a.md"));
    let film = blob_bytes(&sam).await;
    assert!((750_000..760_000).contains(&film), "{film}");

    // Nothing changed: nothing is said.
    for desk in [&mut sam, &mut alex] {
        assert!(!desk.sync().await.changed_anything());
    }

    sam.put("film.bin", noise(280_000, 3));
    sam.put("notes/a.md", "Milk, from sam");
    alex.put("notes/a.md", "Milk, from alex");
    alex.remove("notes/empty");
    fs::rename(alex.folder.join("photo.bin"), alex.folder.join("p.bin")).expect("moved");
    alex.sync().await;
    let report = sam.sync().await;
    assert_eq!(report.conflicts.len(), 1);
    alex.sync().await;
    assert_eq!(sam.files(), alex.files());
    assert_eq!(sam.text("notes/a.md").as_deref(), Some("Milk, from alex"));
    let kept = alex.text("notes/a (conflict from laptop).md");
    assert_eq!(kept.as_deref(), Some("Milk, from sam"));
    assert!(!alex.files().contains_key("notes/empty"));
    assert_eq!(alex.files()["p.bin"], noise(300_000, 2));
    // What was replaced takes no room any longer.
    let left = blob_bytes(&sam).await;
    assert!((580_000..590_000).contains(&left), "{left}");

    for name in sam.files().into_keys() {
        sam.remove(&name);
    }
    sam.sync().await;
    alex.sync().await;
    assert_eq!(alex.files(), BTreeMap::new());
    assert_eq!(blob_bytes(&sam).await, 0);
}

#[tokio::test]
async fn a_folder_outlives_its_keys() {
    let world = World::with(|builder| builder.quotas(small_blobs())).await;
    let (mut sam, mut alex) = two(&world).await;
    sam.put("old.md", "sealed with the first key");
    sam.put("large", noise(150_000, 1));
    sam.sync().await;
    sam.session.rotate(&acme()).await.expect("rotates");
    sam.put("old.md", "sealed with the second key");
    sam.put("new.md", "too");
    let report = sam.sync().await;
    assert_eq!(report.pushed.len(), 2);
    alex.sync().await;
    assert_eq!(alex.files(), sam.files());

    // A device of later days knows nothing, and says so, until it is granted the keys.
    let mut desk = Desk::new(&world, "sam", "desk").await;
    desk.put("mine.md", "written before");
    let error = desk.try_sync().await.expect_err("no key");
    assert!(matches!(error, SyncError::FolderUnreadable), "{error}");
    sam.look().await;
    sam.session.grant(&acme(), None).await.expect("grants");
    desk.sync().await;
    sam.sync().await;
    assert_eq!(desk.files(), sam.files());
    assert_eq!(desk.files().len(), 4);
}

/// A record of another member who speaks the protocol and means ill.
#[tokio::test]
async fn a_hostile_record_writes_nothing_and_stops_nothing() {
    let world = World::new().await;
    let (mut sam, mut alex) = two(&world).await;
    sam.put("a", "text");
    sam.sync().await;
    let bodies = [
        json!({ "v": 1, "path": "../evil", "size": 0 }),
        json!({ "v": 1, "path": "/tmp/evil", "size": 0 }),
        json!({ "v": 1, "path": ".argala-sync/state.json", "size": 0 }),
        json!({ "v": 1, "path": "a", "size": 0 }),
        json!({ "v": 9 }),
        json!("nonsense"),
    ];
    let writes: Vec<Write> = bodies
        .iter()
        .enumerate()
        .map(|(number, body)| Write {
            id: record_id(&format!("evil-{number}")),
            kind: file_kind(),
            body: Format::Cbor.encode(body),
            deleted: false,
            expect: None,
        })
        .collect();
    sam.session.push(&acme(), &writes).await.expect("pushed");
    sam.put("b", "after the evil ones");
    sam.try_sync().await.expect("goes on");
    let report = alex.try_sync().await.expect("goes on");
    let mut reasons: Vec<_> = report.refused.iter().map(|r| r.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            "id_mismatch",
            "malformed",
            "newer_client",
            "path_not_allowed",
            "path_not_allowed",
            "path_not_allowed"
        ]
    );
    assert!(
        report
            .refused
            .iter()
            .all(|r| r.by.as_deref() == Some("laptop"))
    );
    assert!(report.needs_attention());
    assert_eq!(alex.files(), sam.files());
    assert!(!world.path("evil").exists());
}

/// A relay that hands out other bytes for a part of a file than were put, or says that it has none.
#[tokio::test]
async fn a_part_that_is_not_what_was_put_is_told_and_replaces_nothing() {
    let world = World::with(|builder| builder.quotas(small_blobs())).await;
    let (mut sam, mut alex) = two(&world).await;
    sam.put("large", noise(290_000, 1));
    sam.sync().await;
    alex.sync().await;
    sam.put("large", noise(290_000, 2));
    sam.put("small", "comes all the same");
    sam.sync().await;
    let lies: [fn() -> Meddle; 3] = [
        || Meddle::ChangeBytes(Box::new(|bytes| bytes[40] ^= 1)),
        || Meddle::ChangeBytes(Box::new(|bytes| bytes[8] = 9)),
        || Meddle::Answer(problem(Code::BlobNotFound, |_| ())),
    ];
    for lie in lies {
        world.meddler.set(move |asked| {
            match asked.method == Method::GET && asked.path.contains("/blobs/") {
                true => lie(),
                false => Meddle::Pass,
            }
        });
        let report = alex.try_sync().await.expect("goes on");
        let left: Vec<_> = report
            .left
            .iter()
            .map(|left| (left.path.as_str(), left.reason))
            .collect();
        assert_eq!(left, [("large", Blocked::Broken)]);
        assert!(report.needs_attention() && report.pushed.is_empty());
        assert_eq!(alex.files()["large"], noise(290_000, 1));
        assert_eq!(alex.text("small").as_deref(), Some("comes all the same"));
    }
    world.meddler.rest();
    sam.sync().await;
    assert_eq!(sam.files()["large"], noise(290_000, 2));
    alex.sync().await;
    assert_eq!(alex.files(), sam.files());
}

#[tokio::test]
async fn the_relays_refusals_are_kept_counted_and_in_nobodys_way() {
    let quotas = Quotas {
        max_records_per_graph: 3,
        max_blob_bytes_per_graph: 400_000,
        ..Quotas::default()
    };
    let world = World::with(|builder| builder.quotas(quotas)).await;
    let (mut sam, mut alex) = two(&world).await;
    sam.put("a", "fits");
    sam.put("huge", noise(500_000, 1));
    sam.put("large", noise(300_000, 2));
    let report = sam.try_sync().await.expect("goes on");
    assert_eq!(report.pushed.len(), 2);
    assert_eq!(report.refused[0].reason, "quota_exceeded");
    sam.put("one too many", "text");
    let report = sam.try_sync().await.expect("goes on");
    let mut reasons: Vec<_> = report.refused.iter().map(|r| r.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["quota_exceeded", "quota_records"]);
    assert!(!report.in_step);
    alex.sync().await;
    assert_eq!(alex.files().len(), 2);
    // Room is made, and what was refused goes with the next sync.
    sam.remove("large");
    sam.try_sync().await.expect("goes on");
    sam.remove("huge");
    sam.put("one too many", "text");
    sam.sync().await;
    alex.sync().await;
    assert_eq!(alex.files(), sam.files());
    assert_eq!(blob_bytes(&sam).await, 0);
}

/// The line is cut in the midst of one answer after another, so that each request once was made
/// and not heard of. Nothing is lost, doubled or taken for a conflict.
#[tokio::test]
async fn a_cut_line_at_any_request_does_no_harm() {
    let world = World::with(|builder| builder.quotas(small_blobs())).await;
    let (mut sam, mut alex) = two(&world).await;
    let mut cut = 0;
    for at in 0.. {
        sam.put("a", format!("edit {at}"));
        sam.put("large", noise(290_000 + at, 7));
        sam.put(&format!("new {}", at % 3), format!("{at}"));
        if at % 2 == 1 {
            sam.remove("moved");
        } else {
            sam.put("moved", format!("{at}"));
        }
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        // From this request on there is no line at all: the client's own retries are no help.
        world.meddler.set(move |_| {
            if counted.fetch_add(1, Ordering::SeqCst) < at {
                Meddle::Pass
            } else {
                Meddle::Cut
            }
        });
        let result = sam.try_sync().await;
        world.meddler.rest();
        cut += u32::from(result.is_err());
        // Something is edited before it is tried again.
        sam.put("a", format!("edit {at} again"));
        let report = sam.sync().await;
        assert_eq!(report.conflicts, [], "cut at request {at}");
        let report = alex.sync().await;
        assert_eq!(report.conflicts, [], "cut at request {at}");
        assert_eq!(sam.files(), alex.files(), "cut at request {at}");
        if count.load(Ordering::SeqCst) <= at {
            break;
        }
    }
    assert!(cut >= 6, "only {cut} syncs were cut");
    let left = blob_bytes(&sam).await;
    assert!((290_000..292_000).contains(&left), "{left}");
}
