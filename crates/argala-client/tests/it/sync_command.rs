//! `argala sync`, as a process of its own.

use std::{fs, path::Path, time::Duration};

use argala_wire::{Code, limits::Quotas};
use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
    sync::mpsc,
};

use crate::{
    command::{Shell, file},
    sync::{files, noise},
    world::{Asked, Meddle, World, problem},
};

/// Two devices that hold the group's keys.
async fn two(world: &World) -> (Shell, Shell) {
    let sam = Shell::new(world, "sam/laptop");
    let alex = Shell::new(world, "alex/phone");
    sam.run(&["register"]).await.is(0);
    alex.run(&["register"]).await.is(0);
    sam.run(&["devices", "g:acme"]).await.is(0);
    alex.run(&["devices", "g:acme"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    (sam, alex)
}

#[tokio::test]
async fn it_says_what_it_did_in_text_and_json() {
    let world = World::new().await;
    let (sam, alex) = two(&world).await;
    let (desk, phone) = (world.path("desk"), world.path("phone"));
    fs::create_dir_all(desk.join("d")).expect("made");
    fs::write(desk.join("d/a.md"), "Milk").expect("written");
    fs::write(desk.join("bell\u{7}"), "rings").expect("written");
    std::os::unix::fs::symlink("d", desk.join("link")).expect("linked");

    let dry = sam
        .json(&["sync", "g:acme", file(&desk), "--dry-run"])
        .await;
    assert_eq!(dry["dryRun"], true);
    assert_eq!(dry["pushed"], json!(["bell\u{7}", "d/a.md"]));
    assert!(!desk.join(".argala-sync").exists());
    assert_eq!(sam.json(&["graphs"]).await["graphs"][0]["head"], 0);

    let done = sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    assert!(done.out.contains("2 pushed"), "{done:?}");
    assert!(
        done.out
            .contains("not synced\tlink\tsymbolic links are not synced")
    );
    // The folder is made where there is none.
    let value = alex.json(&["sync", "g:acme", file(&phone)]).await;
    assert_eq!(value["written"], json!(["bell\u{7}", "d/a.md"]));
    assert_eq!(value["inStep"], true);
    assert_eq!(files(&phone).len(), 2);

    fs::write(desk.join("d/a.md"), "Milk, from sam").expect("written");
    fs::write(phone.join("d/a.md"), "Milk, from alex").expect("written");
    fs::remove_file(phone.join("bell\u{7}")).expect("removed");
    sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    let done = alex.run(&["sync", "g:acme", file(&phone)]).await.is(0);
    let kept = "conflict\td/a.md\tthe other version is kept as d/a (conflict from phone).md";
    assert!(done.out.contains(kept), "{done:?}");
    let dry = sam
        .run(&["sync", "g:acme", file(&desk), "--dry-run"])
        .await
        .is(0);
    assert!(dry.out.contains("would remove\tbell\u{fffd}\n"), "{dry:?}");
    assert!(desk.join("bell\u{7}").exists());
    sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    assert_eq!(files(&desk), files(&phone));
}

#[tokio::test]
async fn it_refuses_what_would_do_harm() {
    let world = World::new().await;
    let (sam, alex) = two(&world).await;
    let folder = world.path("desk");
    fs::create_dir(&folder).expect("made");
    // The world's folder holds every key file.
    let around = world.path("");
    let done = sam.run(&["sync", "g:acme", file(&around)]).await.is(2);
    assert!(done.err.contains("key file"), "{done:?}");
    let nowhere = world.path("no/where");
    sam.run(&["sync", "g:acme", file(&nowhere)]).await.is(1);
    sam.run(&["sync", "g:acme", file(&folder)]).await.is(0);
    let other = sam.run(&["sync", "d:sam", file(&folder)]).await;
    assert!(other.is(2).err.contains("synced with g:acme"));
    let stranger = Shell::new(&world, "alex/new");
    stranger.run(&["register"]).await.is(0);
    let theirs = world.path("theirs");
    let done = stranger.run(&["sync", "g:acme", file(&theirs)]).await.is(5);
    assert!(done.err.contains("grant"), "{done:?}");
    alex.run(&["devices", "g:acme"]).await.is(0);
    alex.run(&["grant", "g:acme"]).await.is(0);
    stranger.run(&["sync", "g:acme", file(&theirs)]).await.is(0);
}

#[tokio::test]
async fn what_is_left_undone_shows_in_the_exit_code() {
    let quotas = Quotas {
        max_records_per_graph: 2,
        ..Quotas::default()
    };
    let world = World::with(|builder| builder.quotas(quotas)).await;
    let (sam, _) = two(&world).await;
    let folder = world.path("desk");
    fs::create_dir(&folder).expect("made");
    fs::write(folder.join("a"), "fits").expect("written");
    fs::write(folder.join("b"), "does not").expect("written");
    let done = sam.run(&["sync", "g:acme", file(&folder)]).await.is(5);
    assert!(done.out.contains("refused\tb\tquota_records"), "{done:?}");
    assert!(done.out.contains("not all in step"), "{done:?}");
}

/// Killed at one request after another, with the request on its way: the next run goes on, and in
/// the end both folders are the same, with no conflict about a device's own doing.
#[tokio::test]
async fn a_killed_sync_is_taken_up_again() {
    let quotas = Quotas {
        max_blob_bytes: 100_000,
        ..Quotas::default()
    };
    let world = World::with(|builder| builder.quotas(quotas)).await;
    let (sam, alex) = two(&world).await;
    let (desk, phone) = (world.path("desk"), world.path("phone"));
    fs::create_dir(&desk).expect("made");
    for number in 0..300 {
        fs::write(desk.join(format!("{number}")), format!("{number}")).expect("written");
    }
    fs::write(desk.join("large"), noise(250_000, 1)).expect("written");
    let mut killed = 0;
    for (shell, folder) in [(&sam, &desk), (&alex, &phone)] {
        for at in 0.. {
            let (reached, mut at_last) = mpsc::unbounded_channel();
            let mut count = 0;
            world.meddler.set(move |_| {
                count += 1;
                if count <= at {
                    return Meddle::Pass;
                }
                // Its receiver may be gone with the process.
                let _ = reached.send(());
                Meddle::Pass
            });
            let mut child = shell
                .command(&["sync", "g:acme", file(folder)])
                .spawn()
                .expect("starts");
            let ended = tokio::select! {
                _ = at_last.recv() => None,
                status = child.wait() => Some(status.expect("ends")),
            };
            let Some(status) = ended else {
                child.kill().await.expect("killed");
                killed += 1;
                continue;
            };
            assert_eq!(status.code(), Some(0));
            break;
        }
    }
    world.meddler.rest();
    assert!(killed >= 8, "killed {killed} times");
    let value = sam.json(&["sync", "g:acme", file(&desk)]).await;
    assert_eq!(value["conflicts"], json!([]));
    assert_eq!(files(&desk).len(), 301);
    assert_eq!(files(&desk), files(&phone));
    let staging = phone.join(".argala-sync/tmp");
    assert_eq!(fs::read_dir(staging).expect("lists").count(), 0);
}

/// Waits until `done`, for as long as a slow machine may take.
async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A watching sync, and its reports, a line each.
fn watching(shell: &Shell, folder: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = shell
        .command(&["--output", "json", "sync", "g:acme", file(folder)])
        .args(["--watch", "--interval", "0.1"])
        .spawn()
        .expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (child, lines)
}

#[tokio::test]
async fn watching_follows_the_graph_and_the_folder() {
    let world = World::new().await;
    let (sam, alex) = two(&world).await;
    let (desk, phone) = (world.path("desk"), world.path("phone"));
    fs::create_dir(&desk).expect("made");
    let (mut child, mut lines) = watching(&alex, &phone);
    let first = lines.next_line().await.expect("reads").expect("a report");
    assert!(first.contains("\"inStep\":true"), "{first}");

    fs::write(desk.join("a"), "from the desk").expect("written");
    sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    eventually("a poke brings the file", || phone.join("a").exists()).await;

    world.meddler.take();
    fs::write(phone.join("b"), "from the phone").expect("written");
    let pushed = || {
        let asked = world.meddler.take();
        asked.iter().any(|asked| asked.is(Method::POST, "/push"))
    };
    eventually("a look at the folder finds the file", pushed).await;
    // Two at a time would tread on each other; the key file is free, though.
    let second = alex.run(&["sync", "g:acme", file(&phone)]).await.is(1);
    assert!(second.err.contains("another sync"), "{second:?}");
    alex.run(&["status"]).await.is(0);

    let pid = child.id().expect("runs").to_string();
    let interrupted = tokio::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(interrupted.await.expect("runs").success());
    assert_eq!(child.wait().await.expect("ends").code(), Some(0));
    sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    assert_eq!(files(&desk), files(&phone));
}

/// That the giver of a key has been listed is no news of the graph or the folder.
#[tokio::test]
async fn watching_goes_on_once_the_giver_of_a_key_was_listed() {
    let world = World::new().await;
    let (sam, alex) = two(&world).await;
    let seven = Shell::new(&world, "user:7/late");
    let (late, phone) = (world.path("late"), world.path("phone"));
    alex.run(&["sync", "g:acme", file(&phone)]).await.is(0);
    seven.run(&["register"]).await.is(0);
    sam.run(&["devices", "g:acme"]).await.is(0);
    sam.run(&["grant", "g:acme"]).await.is(0);
    seven.run(&["devices", "g:acme"]).await.is(0);
    seven.run(&["rotate", "g:acme"]).await.is(0);
    fs::create_dir(&late).expect("made");
    fs::write(late.join("a"), "from a newcomer").expect("written");
    seven.run(&["sync", "g:acme", file(&late)]).await.is(0);

    let (mut child, mut lines) = watching(&alex, &phone);
    let first = lines.next_line().await.expect("reads").expect("a report");
    assert!(first.contains("\"reason\":\"unreadable\""), "{first}");
    assert!(!phone.join("a").exists());
    alex.run(&["devices", "g:acme"]).await.is(0);
    eventually("the key is taken", || phone.join("a").exists()).await;
    // The same report again is none.
    let second = lines.next_line().await.expect("reads").expect("a report");
    assert!(second.contains("\"written\":[\"a\"]"), "{second}");
    child.kill().await.expect("ends");
}

/// That the relay has a part again is no news of the graph or the folder either.
#[tokio::test]
async fn watching_goes_on_once_the_relay_has_the_part() {
    let world = World::new().await;
    let (sam, alex) = two(&world).await;
    let (desk, phone) = (world.path("desk"), world.path("phone"));
    fs::create_dir(&desk).expect("made");
    fs::write(desk.join("large"), noise(290_000, 1)).expect("written");
    sam.run(&["sync", "g:acme", file(&desk)]).await.is(0);
    world.meddler.set(|asked| {
        match asked.method == Method::GET && asked.path.contains("/blobs/") {
            true => Meddle::Answer(problem(Code::BlobNotFound, |_| ())),
            false => Meddle::Pass,
        }
    });
    let (mut child, mut lines) = watching(&alex, &phone);
    let first = lines.next_line().await.expect("reads").expect("a report");
    assert!(first.contains("\"reason\":\"broken\""), "{first}");
    // Twice by the first sync, and twice by that which the open stream of pokes causes.
    let mut denied = 0;
    let both = || {
        let asked = world.meddler.take();
        let part = |asked: &&Asked| asked.method == Method::GET && asked.path.contains("/blobs/");
        denied += asked.iter().filter(part).count();
        denied >= 4
    };
    eventually("nothing more is news", both).await;
    world.meddler.rest();
    eventually("the part is had", || phone.join("large").exists()).await;
    child.kill().await.expect("ends");
}
