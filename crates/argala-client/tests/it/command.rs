//! The `argala` command, as a process of its own.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::world::{World, acme};

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn is(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// A device that is used by the command.
pub(crate) struct Shell {
    url: String,
    name: &'static str,
    pub(crate) keyfile: PathBuf,
}

impl Shell {
    pub(crate) fn new(world: &World, name: &'static str) -> Self {
        Self {
            url: world.url.clone(),
            name,
            keyfile: world.path(&format!("{}.keys", name.replace('/', "-"))),
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argala"));
        command
            .env_clear()
            .env("ARGALA_URL", &self.url)
            .env("ARGALA_KEYFILE", &self.keyfile)
            .args(["--dev", self.name, "--tries", "2"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run_with(&self, args: &[&str], input: &str) -> Done {
        let mut child = self.command(args).spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("piped");
        // A command that reads nothing may have closed it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.expect("ends");
        Done {
            code: output.status.code().expect("no signal"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Done {
        self.run_with(args, "").await
    }

    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let mut all = vec!["--output", "json"];
        all.extend(args);
        self.run(&all).await.is(0).json()
    }
}

pub(crate) fn file(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[tokio::test]
async fn from_new_keys_to_a_read_record() {
    let world = World::new().await;
    let (sam, alex) = (
        Shell::new(&world, "sam/laptop"),
        Shell::new(&world, "alex/phone"),
    );
    let done = sam
        .run(&["register", "--label", "Sam's laptop"])
        .await
        .is(0);
    assert!(done.err.contains("lost the data for good"), "{done:?}");
    assert!(done.out.contains("sam/laptop is registered"), "{done:?}");
    let again = sam.run(&["register"]).await.is(0);
    assert!(!again.err.contains("lost the data"), "{again:?}");
    let made = alex.json(&["register"]).await;
    assert_eq!(
        (&made["fresh"], &made["keysMade"]),
        (&true.into(), &true.into())
    );
    assert!(made["warning"].as_str().expect("said").contains("for good"));

    sam.run(&["devices", "g:acme"]).await.is(0);
    assert_eq!(sam.json(&["rotate", "g:acme"]).await["epoch"], 1);
    let done = sam
        .run(&["push", "g:acme", "--id", "milk", "--text", "two litres"])
        .await
        .is(0);
    assert!(done.out.contains("seq 1"), "{done:?}");
    sam.run_with(&["push", "g:acme", "--id", "eggs"], "six")
        .await
        .is(0);
    let lines = "{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":\"b\",\"base64url\":\"_w\"}\n";
    sam.run_with(&["push", "g:acme", "--jsonl", "-"], lines)
        .await
        .is(0);

    let pulled = alex.json(&["pull", "g:acme"]).await;
    let items = pulled["items"].as_array().expect("a list");
    let text: Vec<_> = items
        .iter()
        .map(|item| (&item["id"], &item["text"]))
        .collect();
    assert_eq!(text[0], (&"milk".into(), &"two litres".into()));
    assert_eq!(text[1], (&"eggs".into(), &"six".into()));
    assert_eq!(items[3]["base64url"], "_w");
    assert_eq!(items[0]["by"]["deviceId"], "laptop");
    assert!(
        alex.json(&["pull", "g:acme"]).await["items"]
            .as_array()
            .expect("a list")
            .is_empty()
    );
    let shown = alex.run(&["pull", "g:acme", "--from-start"]).await.is(0);
    assert!(shown.out.contains("milk\ttwo litres"), "{shown:?}");
    sam.run(&[
        "push", "g:acme", "--id", "milk", "--delete", "--expect", "1",
    ])
    .await
    .is(0);
    assert_eq!(
        alex.json(&["pull", "g:acme"]).await["items"][0]["deleted"],
        true
    );

    let graphs = alex.json(&["graphs"]).await;
    assert_eq!(graphs["graphs"][0]["graphId"], "g:acme");
    let devices = sam.json(&["devices", "g:acme"]).await;
    assert_eq!(devices["devices"].as_array().expect("a list").len(), 2);
    let status = sam.json(&["status"]).await;
    assert_eq!(
        (&status["held"], &status["rejected"]),
        (&0.into(), &0.into())
    );
    assert_eq!(status["keys"]["behind"], serde_json::json!([]));
}

#[tokio::test]
async fn exit_codes_are_what_the_help_says() {
    let mut world = World::new().await;
    let sam = Shell::new(&world, "sam/laptop");
    let kim = Shell::new(&world, "kim/laptop");
    sam.run(&["pull", "g:acme"]).await.is(1);
    sam.run(&["register"]).await.is(0);
    kim.run(&["register"]).await.is(0);
    sam.run(&["rotate"]).await.is(2);
    sam.run(&["push", "nowhere"]).await.is(2);
    sam.run_with(&["push", "g:acme", "--jsonl", "-"], "{\"id\":\"a\"}")
        .await
        .is(2);
    let refused = kim.run(&["--output", "json", "pull", "g:acme"]).await.is(3);
    let error: Value = serde_json::from_str(refused.err.trim()).expect("JSON");
    assert_eq!(error["error"]["problem"]["code"], "graph_not_found");

    // Held, and so done in part.
    let held = sam
        .run(&["push", "g:acme", "--id", "a", "--text", "secret"])
        .await
        .is(5);
    assert!(held.err.contains("writes are held"), "{held:?}");
    sam.run(&["status"]).await.is(5);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    sam.run(&["push", "g:acme"]).await.is(0);
    sam.run(&["status"]).await.is(0);
    let refused = sam
        .run(&[
            "push", "g:acme", "--id", "a", "--text", "x", "--expect", "9",
        ])
        .await;
    assert!(refused.is(5).out.contains("conflict"));
    let status = sam.run(&["--output", "json", "status"]).await.is(5).json();
    assert_eq!(status["rejected"], 1);
    let listed = sam.run(&["status", "g:acme", "--rejected"]).await.is(5);
    assert!(listed.out.contains("push\tconflict\ta"), "{listed:?}");
    sam.run(&["status", "g:acme", "--forget-rejected"])
        .await
        .is(0);
    sam.run(&["status"]).await.is(0);
    sam.run(&["watch", "--timeout", "0.2"]).await.is(6);

    // Another device's credential is no use with this key file.
    let mixed = Shell {
        name: "alex/phone",
        ..Shell::new(&world, "sam/laptop")
    };
    mixed.run(&["status"]).await.is(2);

    world.stop().await;
    let offline = sam
        .run(&["push", "g:acme", "--id", "b", "--text", "top secret"])
        .await
        .is(4);
    assert!(
        offline.err.contains("1 writes to g:acme are held"),
        "{offline:?}"
    );
    assert!(!offline.err.contains("top secret"));
    let status = sam.run(&["--output", "json", "status"]).await.is(4).json();
    assert_eq!(status["held"], 1);
}

/// A list that could not be written out was shown to nobody, whatever stood in the way.
#[tokio::test]
async fn what_was_not_shown_was_not_listed() {
    let world = World::new().await;
    let (sam, alex) = (
        Shell::new(&world, "sam/laptop"),
        Shell::new(&world, "alex/phone"),
    );
    sam.run(&["register"]).await.is(0);
    alex.run(&["register"]).await.is(0);
    for args in [
        &["devices", "g:acme"][..],
        &["--output", "json", "devices", "g:acme"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = sam.command(args);
        command.stdin(Stdio::null()).stdout(full.expect("there"));
        let ended = command.status().await.expect("ends");
        assert_ne!(ended.code(), Some(0));
        sam.run(&["rotate", "g:acme"]).await.is(5);
    }
    let listed = sam.run(&["devices", "g:acme"]).await.is(0);
    assert!(listed.out.contains("NEW"), "{listed:?}");
    sam.run(&["rotate", "g:acme"]).await.is(0);
}

#[tokio::test]
async fn files_go_as_blobs_and_nothing_secret_is_said() {
    let world = World::new().await;
    let (sam, alex) = (
        Shell::new(&world, "sam/laptop"),
        Shell::new(&world, "alex/phone"),
    );
    sam.run(&["register"]).await.is(0);
    alex.run(&["register"]).await.is(0);
    sam.run(&["devices", "g:acme"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    let (from, to) = (world.path("from"), world.path("to"));
    let content = b"the plaintext of this file".repeat(9_000);
    std::fs::write(&from, &content).expect("writes");
    let put = sam.json(&["put", "g:acme", file(&from)]).await;
    let id = put["blobId"].as_str().expect("text");
    let sha256 = put["sha256"].as_str().expect("text");
    alex.run(&["get", "g:acme", id, file(&to), "--sha256", sha256])
        .await
        .is(0);
    assert!(std::fs::read(&to).expect("there") == content);
    alex.run(&["get", "g:acme", id, file(&to), "--sha256", &"0".repeat(64)])
        .await
        .is(1);
    let expire = [
        "put",
        "g:acme",
        file(&from),
        "--policy",
        "expire",
        "--ttl",
        "60",
    ];
    assert!(sam.json(&expire).await["expiresAt"].is_string());
    sam.run(&["forget", "g:acme", id]).await.is(0);
    sam.run(&["forget", "g:acme", id]).await.is(3);

    let keys: Value =
        serde_json::from_slice(&std::fs::read(&sam.keyfile).expect("there")).expect("JSON");
    let secrets = [
        keys["encryptionSecret"].as_str().expect("text"),
        keys["signingSecret"].as_str().expect("text"),
        keys["graphs"]["g:acme"]["epochs"]["1"]["key"]
            .as_str()
            .expect("text"),
    ];
    for args in [
        &["status"][..],
        &["devices"],
        &["--output", "json", "devices", "g:acme"],
    ] {
        let done = sam.run(args).await;
        for secret in secrets {
            assert!(
                !done.out.contains(secret) && !done.err.contains(secret),
                "{args:?}"
            );
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&sam.keyfile)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let wide = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&sam.keyfile, wide).expect("ours");
        let refused = sam.run(&["status"]).await.is(1);
        assert!(refused.err.contains("chmod 600"), "{refused:?}");
    }
}

#[tokio::test]
async fn a_waiting_watch_is_woken_and_a_revoked_device_is_out() {
    let world = World::new().await;
    let (sam, alex) = (
        Shell::new(&world, "sam/laptop"),
        Shell::new(&world, "alex/phone"),
    );
    let old = Shell::new(&world, "sam/old");
    for shell in [&sam, &alex, &old] {
        shell.run(&["register"]).await.is(0);
    }
    sam.run(&["devices", "g:acme"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    let mut child = alex
        .command(&["watch", "--once", "--timeout", "20"])
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(
        lines.next_line().await.expect("reads").as_deref(),
        Some("watching")
    );
    sam.run(&["push", "g:acme", "--id", "a", "--text", "wake up"])
        .await
        .is(0);
    assert_eq!(
        lines.next_line().await.expect("reads").as_deref(),
        Some("g:acme")
    );
    assert_eq!(child.wait().await.expect("ends").code(), Some(0));

    let revoked = sam.json(&["revoke", "old"]).await;
    assert_eq!(revoked["graphsFlagged"], 1);
    let report = sam.json(&["rotate", "--owed"]).await;
    assert_eq!(report["rotated"][0]["graphId"], "g:acme");
    assert_eq!(report["rotated"][0]["epoch"], 2);
    assert_eq!(
        (&report["failed"], &report["owed"]),
        (&serde_json::json!([]), &serde_json::json!([]))
    );
    old.run(&["pull", "g:acme"]).await.is(3);
    old.run(&["watch", "--once"]).await.is(3);
}

#[tokio::test]
async fn recovery_on_the_command_line() {
    let world = World::new().await;
    let sam = Shell::new(&world, "sam/laptop");
    sam.run(&["register"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    sam.run(&["push", "g:acme", "--id", "a", "--text", "kept"])
        .await
        .is(0);
    let created = sam.json(&["recovery", "create"]).await;
    assert_eq!(created["device"]["deviceId"], "recovery-1");
    assert!(
        created["warning"]
            .as_str()
            .expect("said")
            .contains("for good")
    );
    let code = created["code"].as_str().expect("text").to_owned();

    let new = Shell::new(&world, "sam/new");
    let mut wrong = code.clone();
    let last = wrong.pop().expect("a digit");
    wrong.push(if last == '7' { '8' } else { '7' });
    let refused = new.run_with(&["recovery", "restore"], &wrong).await.is(2);
    assert!(!refused.err.contains(&wrong), "{refused:?}");
    let restored = new
        .run_with(&["--output", "json", "recovery", "restore"], &code)
        .await
        .is(0);
    assert_eq!(restored.json()["graphs"], serde_json::json!(["g:acme"]));
    let pulled = new.json(&["pull", "g:acme"]).await;
    assert_eq!(pulled["items"][0]["text"], "kept");
    let second = sam.json(&["recovery", "create"]).await;
    assert_eq!(second["device"]["deviceId"], "recovery-2");
    let info = world.client(&argala_testkit::device_ref("sam", "laptop"));
    assert!(
        info.graph(&acme())
            .await
            .expect("told")
            .grants_owed
            .is_empty()
    );
}
