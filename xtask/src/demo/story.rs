//! What happens in the demo, act by act, and what has to be true after each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::actor::{Actor, NOTES};
use super::evidence::{Evidence, Keys, base64url};
use super::folders::{contents, require_equal, seed, write};
use super::stage::{SOON, Stage};
use crate::cargo::root;
use crate::stopwatch::{Stopwatch, spoken};

/// The group's graph, as all its members call it.
const GRAPH: &str = "g:acme";

/// The graph that only sam's devices read, as sam calls it.
const OWN_GRAPH: &str = "d:sam";

/// How soon a poke has to have woken a watch.
const POKE: Duration = Duration::from_secs(1);

/// How soon the streams of a revoked device have to be closed (protocol, section 4).
const CUT: Duration = Duration::from_secs(5);

/// A record that is no file.
const NOTE: &str = "Standup moves to a quarter past ten, room Tigris";

/// The name of a device, which its relay must not learn.
const LABEL: &str = "The laptop on Sam's kitchen table";

/// The devices of the story: two of sam's, one of alex's.
struct Cast {
    laptop: Actor,
    phone: Actor,
    tablet: Actor,
}

/// Plays the whole story and ends the relay, however it went.
pub(crate) fn play(stage: &mut Stage) -> Result<()> {
    act("An operator prepares a relay");
    stage.relay(&["config", "check"])?;
    stage.prepare()?;
    let relays = stage.start()?;
    let url = relays.url();
    let mut evidence = Evidence::default();
    let played = acts(stage, &url, &mut evidence);
    if played.is_ok() {
        stage.relay(&["admin", "graph", "show", GRAPH])?;
    }
    println!("\noperator$ kill -TERM (the relay)");
    let log = relays.terminate()?;
    if let Err(error) = played {
        println!("\nThe end of the relay's log:");
        log.lines()
            .rev()
            .take(20)
            .collect::<Vec<_>>()
            .iter()
            .rev()
            .for_each(|l| println!("    {l}"));
        return Err(error);
    }
    act("What the relay has kept, now that it has stopped");
    for (name, folder) in stage.relay_folders() {
        evidence.require_none(&folder, name)?;
    }
    evidence.require_none_in(&log, "the relay's log")
}

fn acts(stage: &mut Stage, url: &str, evidence: &mut Evidence) -> Result<()> {
    let cast = Cast {
        laptop: stage.device("sam", "laptop", url)?,
        phone: stage.device("sam", "phone", url)?,
        tablet: stage.device("alex", "tablet", url)?,
    };
    first_device(&cast, evidence)?;
    others_join(&cast)?;
    everybody_edits(&cast)?;
    poke(&cast)?;
    revoke(&cast)?;
    search(stage, &cast, evidence)
}

fn first_device(cast: &Cast, evidence: &mut Evidence) -> Result<()> {
    act("sam registers a laptop, makes the group's first key, and syncs a folder");
    seed(&cast.laptop.notes(), &root()?)?;
    cast.laptop.run(&["register"])?;
    cast.laptop.run(&["rotate", OWN_GRAPH])?;
    cast.laptop.run(&["register", "--label", LABEL])?;
    cast.laptop.run(&["rotate", GRAPH])?;
    sync(&cast.laptop)?;
    // Before anybody edits: a relay must not keep what was replaced or deleted, either.
    evidence.add_folder(&cast.laptop.notes())
}

fn others_join(cast: &Cast) -> Result<()> {
    act("sam's phone and alex's tablet join, and are granted the keys");
    let joining = [
        (&cast.phone, json!([OWN_GRAPH, GRAPH])),
        (&cast.tablet, json!([GRAPH])),
    ];
    for (device, lacks) in joining {
        let registered = device.json(&["register"])?;
        let fingerprint = registered["fingerprint"]
            .as_str()
            .context("no fingerprint")?;
        // The exit code says the same: something is left to do.
        let status = device.exits(&["status", "--output", "json"], 5)?.json()?;
        let behind = &status["keys"]["behind"];
        ensure!(
            *behind == lacks,
            "keys that are behind: {behind}, not {lacks}"
        );
        // What the two owners would read to each other.
        cast.laptop.run(&["devices", GRAPH])?;
        cast.laptop.run(&[
            "devices",
            "--verify",
            &device.name(),
            "--fingerprint",
            fingerprint,
        ])?;
    }
    cast.laptop.run(&["grant", OWN_GRAPH])?;
    cast.laptop.run(&["grant", GRAPH])?;
    cast.phone.run(&["pull", OWN_GRAPH])?;
    let own = cast.phone.run(&["devices"])?;
    ensure!(
        own.out.contains(LABEL),
        "the phone has to read the laptop's name"
    );
    for device in [&cast.phone, &cast.tablet] {
        sync(device)?;
        same_folder(&cast.laptop, device)?;
    }
    Ok(())
}

fn everybody_edits(cast: &Cast) -> Result<()> {
    act("Both members edit and delete, the same files too, without knowing of each other");
    let (laptop, tablet) = (cast.laptop.notes(), cast.tablet.notes());
    let plans = "Reisepläne/Zürich – Mai.txt";
    append(&laptop, "CONTRIBUTING.md", "\nA line that sam has added.\n")?;
    append(
        &tablet,
        "docs/adr/README.md",
        "\nA line that alex has added.\n",
    )?;
    append(&laptop, "agenda.txt", "3. What sam wants to talk about\n")?;
    append(&tablet, "agenda.txt", "3. What alex wants to talk about\n")?;
    append(&tablet, plans, "Alex: lieber 10 Uhr 10\n")?;
    delete(&laptop, plans)?;
    delete(&laptop, "docs/adr/template.md")?;
    delete(&tablet, "empty.txt")?;
    write(
        &laptop,
        "plans/budget 2027.csv",
        b"what,how much\ncoffee,1200\ntea,80\n",
    )?;
    write(
        &tablet,
        "plans/offsite.txt",
        "Vorschlag: drei Tage am Fluss\n".as_bytes(),
    )?;

    for device in [&cast.laptop, &cast.tablet, &cast.laptop, &cast.phone] {
        sync(device)?;
    }
    same_folder(&cast.laptop, &cast.tablet)?;
    same_folder(&cast.laptop, &cast.phone)?;

    let files = contents(&laptop)?;
    let says = |name: &str, what: &str| {
        files
            .get(Path::new(name))
            .is_some_and(|bytes| String::from_utf8_lossy(bytes).contains(what))
    };
    ensure!(
        says("CONTRIBUTING.md", "A line that sam has added."),
        "an edit is lost"
    );
    ensure!(
        says("docs/adr/README.md", "A line that alex has added."),
        "an edit is lost"
    );
    ensure!(
        says(plans, "lieber 10 Uhr 10"),
        "a deletion has won against an edit"
    );
    for gone in ["docs/adr/template.md", "empty.txt"] {
        ensure!(
            !files.contains_key(Path::new(gone)),
            "{gone} was deleted and is back"
        );
    }
    for added in ["plans/budget 2027.csv", "plans/offsite.txt"] {
        ensure!(
            files.contains_key(Path::new(added)),
            "{added} has not arrived"
        );
    }
    let versions: Vec<(&Path, String)> = files
        .iter()
        .filter(|(path, _)| path.to_string_lossy().starts_with("agenda"))
        .map(|(path, bytes)| (path.as_path(), String::from_utf8_lossy(bytes).into_owned()))
        .collect();
    println!("\n    of agenda.txt, both versions are kept:");
    for (path, _) in &versions {
        println!("      {}", path.display());
    }
    ensure!(versions.len() == 2, "a conflict has to leave two versions");
    for who in ["sam", "alex"] {
        let kept = versions
            .iter()
            .filter(|(_, text)| text.contains(&format!("What {who} wants")));
        ensure!(
            kept.count() == 1,
            "what {who} wrote has to be in one version"
        );
    }
    Ok(())
}

fn poke(cast: &Cast) -> Result<()> {
    act("A poke wakes a device that waits");
    let mut watch = cast.tablet.start(&["watch", "--once", "--timeout", "60"])?;
    watch.wait_for("alex's watch", SOON, |line| line.text == "watching")?;
    cast.laptop
        .run(&["push", GRAPH, "--id", "standup", "--text", NOTE])?;
    let answered = Stopwatch::start();
    let answer = cast.tablet.finish(watch, SOON)?;
    let took = answered.elapsed();
    ensure!(
        answer.code() == Some(0) && answer.out.lines().any(|line| line == GRAPH),
        "the watch has to name the graph"
    );
    println!(
        "    the watch had ended {} after the push was answered",
        spoken(took)
    );
    ensure!(took <= POKE, "a poke has to arrive within {POKE:?}");
    let pulled = cast.tablet.run(&["pull", GRAPH])?;
    ensure!(
        pulled.out.contains(NOTE),
        "what was pushed has to be pulled"
    );
    Ok(())
}

fn revoke(cast: &Cast) -> Result<()> {
    act("sam's phone is lost: it is revoked, and shut out of what comes after");
    let mut watch = cast.phone.start(&["watch"])?;
    watch.wait_for("the phone's watch", SOON, |line| line.text == "watching")?;
    cast.laptop.run(&["revoke", "phone"])?;
    let answered = Stopwatch::start();
    let cut = cast.phone.finish(watch, SOON)?;
    let took = answered.elapsed();
    ensure!(
        cut.is_refused(),
        "the watch of a revoked device has to end as refused"
    );
    println!(
        "    the phone's watch had ended {} after the revocation",
        spoken(took)
    );
    ensure!(
        took <= CUT,
        "the streams of a revoked device close within {CUT:?}"
    );

    ensure!(owes(cast)?, "the graph has to owe a rotation");
    let rotated = cast.laptop.json(&["rotate", "--owed"])?;
    for what in ["failed", "owed"] {
        ensure!(rotated[what] == json!([]), "{what}: {}", rotated[what]);
    }
    ensure!(!owes(cast)?, "the graph must not owe a rotation any more");

    let fresh = "plans/after the phone.txt";
    let text = "The new code of the door is the year the river froze, backwards.\n";
    write(&cast.laptop.notes(), fresh, text.as_bytes())?;
    let before = contents(&cast.phone.notes())?;
    sync(&cast.laptop)?;
    for command in [
        &["sync", GRAPH, NOTES][..],
        &["pull", GRAPH],
        &["graphs"],
        &["register"],
        &["watch"],
    ] {
        cast.phone.refused(command, "device_revoked")?;
    }
    ensure!(
        contents(&cast.phone.notes())? == before,
        "the phone's folder has changed"
    );
    sync(&cast.tablet)?;
    same_folder(&cast.laptop, &cast.tablet)?;

    println!("\n    What the phone holds of it:");
    let (mut new, mut old) = (Evidence::default(), Evidence::default());
    new.add("the new file's name", fresh.as_bytes());
    new.add("the new file's content", text.trim().as_bytes());
    for (graph, epoch, key) in Keys::of(&cast.laptop)?.graphs {
        let evidence = if epoch == 1 { &mut old } else { &mut new };
        evidence.add(format!("the key of epoch {epoch} of {graph}"), &key);
    }
    ensure!(
        old.len() == 2 && new.len() == 4,
        "two graphs have two epochs each"
    );
    new.require_all(cast.laptop.home(), "what is new, sam's laptop")?;
    new.require_none(cast.phone.home(), "what is new, sam's phone")?;
    // It held the old keys, so the search does find keys there.
    old.require_all(cast.phone.home(), "the keys before, sam's phone")
}

/// Whether the relay says that the group's graph owes a rotation.
fn owes(cast: &Cast) -> Result<bool> {
    let listed = cast.laptop.json(&["graphs"])?;
    let graphs = listed["graphs"].as_array().context("no graphs")?;
    let graph = graphs
        .iter()
        .find(|graph| graph["graphId"] == GRAPH)
        .context("no such graph")?;
    graph["rotationOwed"]
        .as_bool()
        .context("rotationOwed is missing")
}

fn search(stage: &Stage, cast: &Cast, evidence: &mut Evidence) -> Result<()> {
    act("What the relay holds of all this: nothing that can be read");
    println!("    Looked for raw, in hex and in base64, in every file and in the files' names.");
    let mut held = Evidence::default();
    for evidence in [&mut held, &mut *evidence] {
        evidence.add_folder(&cast.laptop.notes())?;
        evidence.add_keys(&cast.laptop)?;
    }
    held.require_all(cast.laptop.home(), "sam's laptop")?;
    for device in [&cast.phone, &cast.tablet] {
        evidence.add_keys(device)?;
    }
    evidence.add("the note", NOTE.as_bytes());
    evidence.add("the laptop's name", LABEL.as_bytes());
    evidence.add("the secret that signs tokens", &stage.token_secret);
    for token in &stage.tokens {
        evidence.add("a token", token.trim().as_bytes());
    }

    let mut public = Evidence::default();
    let listed = cast.laptop.json(&["devices", GRAPH])?;
    for device in listed["devices"].as_array().context("no devices")? {
        for name in ["encryptionKey", "signingKey"] {
            let key = device[name]
                .as_str()
                .and_then(base64url)
                .context("no public key")?;
            public.add(format!("the {name} of {}", device["deviceId"]), &key);
        }
    }
    public.require_all(&stage.relay_data(), "public keys, the relay's folder")?;
    for (name, folder) in stage.relay_folders() {
        evidence.require_none(&folder, name)?;
    }
    Ok(())
}

/// Brings a device's folder in step.
fn sync(device: &Actor) -> Result<()> {
    device.run(&["sync", GRAPH, NOTES]).map(drop)
}

fn same_folder(one: &Actor, other: &Actor) -> Result<()> {
    let (files, bytes) = require_equal(&one.notes(), &other.notes())?;
    println!(
        "    {} and {} have the same {files} files, byte for byte ({bytes} bytes)",
        one.name(),
        other.name()
    );
    Ok(())
}

fn append(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    let mut bytes =
        fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    bytes.extend_from_slice(text.as_bytes());
    println!("    … writes to {}", path.display());
    write(folder, name, &bytes)
}

fn delete(folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(name);
    println!("    … deletes {}", path.display());
    fs::remove_file(&path).with_context(|| format!("{} cannot be deleted", path.display()))
}

fn act(title: &str) {
    println!("\n──── {title}");
}
