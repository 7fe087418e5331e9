//! A relay that lies, as somebody at a terminal learns of it: from the output, from the exit code,
//! and from `status` afterwards, in text and in JSON.

use std::time::Duration;

use argala_client::{
    KeyFile,
    api::PullQuery,
    crypto::{DeviceKeys, GraphKey, wrap},
};
use argala_testkit::device_ref;
use argala_wire::{BlobId, Sealed};
use http::Method;
use serde_json::{Value, json};

use crate::{
    blobs::sealed,
    command::{Done, Shell, file},
    deceit::{flip, sealed_otherwise},
    deceit_roster::{bring_back, slip_in},
    world::{Meddle, World, acme},
};

/// Sam and Alex at their terminals, both with the keys of the group, and one record there.
async fn pair() -> (World, Shell, Shell) {
    let world = World::new().await;
    let (sam, alex) = (
        Shell::new(&world, "sam/laptop"),
        Shell::new(&world, "alex/phone"),
    );
    sam.run(&["register"]).await.is(0);
    alex.run(&["register"]).await.is(0);
    sam.run(&["devices", "g:acme"]).await.is(0);
    alex.run(&["devices", "g:acme"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    sam.run(&["push", "g:acme", "--id", "a", "--text", "one"])
        .await
        .is(0);
    (world, sam, alex)
}

/// Has every answer to `method` and `end` changed so.
fn lie(
    world: &World,
    method: Method,
    end: &'static str,
    change: impl Fn(&mut Value) + Clone + Send + 'static,
) {
    world.meddler.set(move |asked| {
        let change = change.clone();
        match asked.is(method.clone(), end) {
            true => Meddle::Change(Box::new(move |answer| change(answer))),
            false => Meddle::Pass,
        }
    });
}

/// A lie about a record is told by `pull` at once and by `status` ever after, until the record
/// comes as it was written.
async fn is_shown(reason: &str, change: impl Fn(&mut Value) + Clone + Send + 'static) {
    let (world, _, alex) = pair().await;
    is_shown_in(&world, &alex, reason, change).await;
}

/// The same of a group that is there.
async fn is_shown_in(
    world: &World,
    alex: &Shell,
    reason: &str,
    change: impl Fn(&mut Value) + Clone + Send + 'static,
) {
    // Alex knows everybody's keys, so that a lie about names is all there is to it.
    alex.run(&["devices", "g:acme"]).await.is(0);
    lie(world, Method::GET, "/pull", move |page| {
        change(&mut page["records"][0]);
    });
    let pulled = alex
        .run(&["--output", "json", "pull", "g:acme"])
        .await
        .is(5);
    let said = pulled.json();
    assert_eq!(said["items"], json!([]), "{said}");
    assert_eq!(said["refused"][0]["reason"], reason);
    let event: Value = serde_json::from_str(pulled.err.trim()).expect("one line of JSON");
    assert_eq!(
        (&event["event"], &event["reason"], &event["graphId"]),
        (&"record.rejected".into(), &reason.into(), &"g:acme".into())
    );
    let text = alex.run(&["pull", "g:acme", "--from-start"]).await.is(5);
    assert!(!text.out.contains("one"), "{text:?}");
    assert!(
        text.err.contains(&format!("refused ({reason})")),
        "{text:?}"
    );

    world.meddler.rest();
    let status = alex.run(&["--output", "json", "status"]).await.is(5).json();
    assert_eq!(status["rejected"], 1);
    assert_eq!(status["graphs"][0]["rejected"], 1);
    let text = alex.run(&["status"]).await.is(5);
    assert!(text.out.contains("1 records refused"), "{text:?}");
    let listed = alex.run(&["status", "g:acme", "--rejected"]).await.is(5);
    assert!(
        listed.out.contains(&format!("pull\t{reason}\t")),
        "{listed:?}"
    );

    // The truth takes its place, except for what lies under an id that nobody wrote.
    alex.run(&["pull", "g:acme", "--from-start"]).await.is(0);
    alex.run(&["status"]).await.is(0);
}

#[tokio::test]
async fn a_record_that_was_touched_is_shown() {
    is_shown("signature_invalid", |r| flip(&mut r["ciphertext"])).await;
    is_shown("unsigned", |r| {
        r.as_object_mut().expect("a map").remove("sig");
    })
    .await;
    is_shown("signature_invalid", |r| r["deleted"] = true.into()).await;
}

#[tokio::test]
async fn a_record_under_another_key_is_shown() {
    let (world, sam, alex) = pair().await;
    let file = KeyFile::open(&sam.keyfile, Duration::ZERO).await;
    let record = sealed_otherwise("a", file.expect("opens").keys());
    let record = serde_json::to_value(record).expect("JSON");
    is_shown_in(&world, &alex, "unreadable", move |r| {
        r["ciphertext"] = record["ciphertext"].clone();
        r["sig"] = record["sig"].clone();
    })
    .await;
}

#[tokio::test]
async fn a_record_by_another_name_is_shown() {
    is_shown("by_mismatch", |r| {
        r["by"] = json!({"memberId": "alex", "deviceId": "phone"});
    })
    .await;
    is_shown("unknown_device", |r| {
        r["by"] = json!({"memberId": "kim", "deviceId": "x"});
        flip(&mut r["sig"]);
    })
    .await;
}

#[tokio::test]
async fn records_that_were_swapped_are_shown() {
    let (world, sam, alex) = pair().await;
    sam.run(&["push", "g:acme", "--id", "b", "--text", "two"])
        .await
        .is(0);
    lie(&world, Method::GET, "/pull", |page| {
        page["records"][0]["id"] = "b".into();
        page["records"][1]["id"] = "a".into();
    });
    let pulled = alex
        .run(&["--output", "json", "pull", "g:acme"])
        .await
        .is(5)
        .json();
    assert_eq!(pulled["items"], json!([]));
    for refused in pulled["refused"].as_array().expect("a list") {
        assert_eq!(refused["reason"], "signature_invalid");
    }
    let status = alex.run(&["--output", "json", "status"]).await.is(5).json();
    assert_eq!(status["rejected"], 2);
}

#[tokio::test]
async fn an_items_past_is_shown_as_what_it_is() {
    let (world, sam, alex) = pair().await;
    let api = world.client(&device_ref("sam", "laptop"));
    let page = api.pull(&acme(), &PullQuery::default()).await;
    let mut old = serde_json::to_value(&page.expect("pulls").records[0]).expect("JSON");
    old["seq"] = 3.into();
    sam.run(&["push", "g:acme", "--id", "a", "--text", "new"])
        .await
        .is(0);
    alex.run(&["pull", "g:acme"]).await.is(0);
    lie(&world, Method::GET, "/pull", move |page| {
        page["records"] = json!([old]);
        page["head"] = 3.into();
    });
    let pulled = alex
        .run(&["--output", "json", "pull", "g:acme"])
        .await
        .is(5)
        .json();
    assert_eq!(pulled["refused"][0]["reason"], "replayed");
    let status = alex.run(&["--output", "json", "status"]).await.is(5).json();
    assert_eq!(status["rejected"], 1);
}

/// The doubts that `status` shows, by name.
async fn doubts(shell: &Shell, code: i32) -> Vec<Value> {
    let status = shell.run(&["--output", "json", "status"]).await.is(code);
    status.json()["doubts"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_key_that_the_relay_made_up_is_shown() {
    let (world, _, alex) = pair().await;
    // The relay makes a wrap for Alex in Sam's name.
    let device = alex.json(&["devices"]).await["devices"][0].clone();
    let key = |name: &str| -> [u8; 32] {
        let text = device[name].as_str().expect("text");
        let bytes = Sealed::from_base64url(text).expect("bytes").0;
        bytes.try_into().expect("32 bytes")
    };
    let public = argala_client::crypto::PublicKeys {
        encryption: key("encryptionKey"),
        signing: key("signingKey"),
    };
    let graph = "g:acme".parse().expect("a key");
    let context = wrap::WrapContext {
        graph: &graph,
        epoch: 2,
        to: &device_ref("alex", "phone"),
        by: &device_ref("sam", "laptop"),
    };
    let forger = DeviceKeys::generate();
    let forged = wrap::seal(&context, &GraphKey::generate(), &forger, &public).expect("seals");
    let forged = forged.to_base64url();
    lie(&world, Method::GET, "/wraps", move |answer| {
        let mut wrap = answer["wraps"][0].clone();
        wrap["epoch"] = 2.into();
        wrap["wrap"] = forged.clone().into();
        answer["epoch"] = 2.into();
        answer["wraps"].as_array_mut().expect("a list").push(wrap);
    });
    let secret = ["push", "g:acme", "--id", "b", "--text", "secret"];
    let pushed = alex.run(&secret).await.is(5);
    assert!(
        pushed.err.contains("does not open and is not used"),
        "{pushed:?}"
    );
    assert!(pushed.out.contains("1 writes are held"), "{pushed:?}");

    world.meddler.rest();
    let shown = doubts(&alex, 5).await;
    let by = json!({"memberId": "sam", "deviceId": "laptop"});
    assert_eq!(
        shown,
        [json!({"what": "wrap.rejected", "graphId": "g:acme", "epoch": 2, "by": by})]
    );
    let text = alex.run(&["status"]).await.is(5);
    assert!(text.out.contains("DOUBT\twrap.rejected"), "{text:?}");
    // Nothing went out under the forged key, and all goes out under the true one.
    alex.run(&["push", "g:acme"]).await.is(0);
    assert_eq!(
        doubts(&alex, 5).await.len(),
        1,
        "it is not forgotten by itself"
    );
    alex.run(&["status", "--forget-doubts"]).await.is(0);
    assert!(doubts(&alex, 0).await.is_empty());
}

#[tokio::test]
async fn a_forged_roster_is_shown() {
    let (world, sam, alex) = pair().await;
    let evil = DeviceKeys::generate().public();
    let phone = json!({"memberId": "alex", "deviceId": "phone"});
    let doubt = [json!({"what": "device.changed", "device": phone})];
    for (field, key) in [
        ("encryptionKey", evil.encryption),
        ("signingKey", evil.signing),
    ] {
        let key = Sealed::from(&key[..]).to_base64url();
        lie(&world, Method::GET, "/devices", move |answer| {
            for device in answer["devices"].as_array_mut().expect("a list") {
                if device["memberId"] == "alex" {
                    device[field] = key.clone().into();
                }
            }
        });
        let refused = sam.run(&["rotate", "g:acme"]).await.is(1);
        assert!(
            refused
                .err
                .contains("other keys than before for alex/phone"),
            "{refused:?}"
        );
        let error = sam
            .run(&["--output", "json", "grant", "g:acme"])
            .await
            .is(1);
        assert_eq!(failure(&error)["devices"], json!([phone]));
        let listed = sam.run(&["devices", "g:acme"]).await.is(5);
        assert!(listed.out.contains("CHANGED"), "{listed:?}");
        assert_eq!(doubts(&sam, 5).await, doubt);

        world.meddler.rest();
        sam.run(&["rotate", "g:acme"]).await.is(0);
        assert_eq!(
            doubts(&sam, 5).await,
            doubt,
            "that it happened stays to be seen"
        );
        alex.run(&["pull", "g:acme"]).await.is(0);
        // Alex says that the keys are as they should be, and Sam is shown them again.
        sam.run(&["devices", "--forget", "alex/phone"]).await.is(0);
        sam.run(&["devices", "g:acme"]).await.is(0);
        assert!(doubts(&sam, 0).await.is_empty());
    }
}

/// What a command in JSON said of why it failed.
fn failure(done: &Done) -> Value {
    let last = done.err.lines().last().expect("said");
    let value: Value = serde_json::from_str(last).expect("JSON");
    value["error"].clone()
}

#[tokio::test]
async fn a_device_that_the_relay_slips_in_is_shown_before_it_gets_a_key() {
    let (world, sam, _) = pair().await;
    let ghost = device_ref("alex", "ghost");
    let keys = DeviceKeys::generate().public();
    let print = keys.fingerprint(&ghost).to_string();
    slip_in(&world, &ghost, keys);
    let refused = sam.run(&["rotate", "g:acme"]).await.is(5);
    assert!(refused.err.contains(&print), "{refused:?}");
    assert!(
        refused.err.contains("alex/ghost was never listed here"),
        "{refused:?}"
    );
    let refused = sam.run(&["--output", "json", "rotate", "g:acme"]).await;
    assert_eq!(failure(&refused.is(5))["devices"], json!([ghost]));
    let granted = sam.run(&["grant", "g:acme"]).await.is(5);
    assert!(
        granted.out.contains("gave nothing to alex/ghost"),
        "{granted:?}"
    );
    let granted = sam.run(&["--output", "json", "grant", "g:acme"]).await;
    let granted = granted.is(5).json();
    assert_eq!(
        (&granted["to"], &granted["unlisted"]),
        (&json!([]), &json!([ghost]))
    );
    sam.run(&["grant", "g:acme", "--to", "alex/ghost"])
        .await
        .is(5);
    // Not even what looks at the devices for a purpose of its own counts as having shown them.
    sam.run(&["recovery", "create"]).await.is(0);

    // It is in sight until it is listed, also when the relay hides it again.
    world.meddler.rest();
    let status = sam.run(&["--output", "json", "status"]).await.is(5).json();
    let new = json!([{"device": ghost, "kind": "device", "fingerprint": print}]);
    assert_eq!(status["newDevices"], new);
    let text = sam.run(&["status"]).await.is(5);
    assert!(
        text.out.contains(&format!("NEW\talex/ghost\t{print}\n")),
        "{text:?}"
    );
    assert!(text.out.contains("new devices 1"), "{text:?}");
    slip_in(&world, &ghost, keys);
    let listed = sam.run(&["devices", "g:acme"]).await.is(0);
    assert!(
        listed.out.contains(&format!("{print}  alex/ghost  [NEW")),
        "{listed:?}"
    );
    assert!(
        listed.err.contains("Compare the fingerprints"),
        "{listed:?}"
    );
    world.meddler.rest();
    let status = sam.json(&["status"]).await;
    assert_eq!(status["newDevices"], json!([]));
}

#[tokio::test]
async fn a_sync_tells_of_those_whom_it_meets() {
    let (world, sam, _) = pair().await;
    let folder = world.path("theirs");
    let new = Shell::new(&world, "alex/new");
    let made = new.json(&["register"]).await;
    let print = made["fingerprint"].as_str().expect("text");
    let listed = sam.run(&["devices", "g:acme"]).await.is(0);
    assert!(listed.out.contains(print), "{listed:?}");
    sam.run(&["grant", "g:acme"]).await.is(0);
    let sync = ["sync", "g:acme", file(&folder)];
    let done = new.run(&sync).await.is(0);
    let told = "sam/laptop was never seen before; its fingerprint is";
    assert!(done.err.contains(told), "{done:?}");
    let status = new.run(&["--output", "json", "status"]).await.is(5).json();
    let new_here = status["newDevices"].as_array().expect("a list");
    assert!(
        new_here
            .iter()
            .any(|new| new["device"] == json!(device_ref("sam", "laptop"))),
        "{status}"
    );
    new.run(&["devices", "g:acme"]).await.is(0);
    new.run(&["status"]).await.is(0);
}

#[tokio::test]
async fn a_revoked_device_that_is_back_is_shown() {
    let (world, sam, _) = pair().await;
    let old = Shell::new(&world, "sam/old");
    old.run(&["register"]).await.is(0);
    let listed = sam.json(&["devices"]).await;
    let mut told = listed["devices"].as_array().expect("a list").iter();
    let told = told.find(|device| device["deviceId"] == "old");
    let told = told.expect("listed").clone();
    sam.run(&["revoke", "old"]).await.is(0);
    bring_back(&world, told);
    let refused = sam.run(&["rotate", "g:acme"]).await.is(1);
    assert!(
        refused.err.contains("shows sam/old as active"),
        "{refused:?}"
    );
    for own in [&["devices"][..], &["devices", "g:acme"]] {
        let listed = sam.run(own).await.is(5);
        assert!(
            listed.out.contains("sam/old  [RETURNED: it was revoked"),
            "{listed:?}"
        );
    }
    let name = json!({"memberId": "sam", "deviceId": "old"});
    let doubt = [json!({"what": "device.returned", "device": name})];
    assert_eq!(doubts(&sam, 5).await, doubt);
    let text = sam.run(&["status"]).await.is(5);
    assert!(
        text.out
            .contains("DOUBT\tdevice.returned\tthe relay showed sam/old"),
        "{text:?}"
    );
    world.meddler.rest();
    sam.run(&["rotate", "g:acme"]).await.is(0);
    sam.run(&["status", "--forget-doubts"]).await.is(0);
    assert!(doubts(&sam, 0).await.is_empty());
}

#[tokio::test]
async fn a_blob_that_was_touched_or_swapped_is_shown() {
    let (world, sam, alex) = pair().await;
    let (from, to) = (world.path("from"), world.path("to"));
    let (one, two) = ("blob-of-the-test-1", "blob-of-the-test-2");
    for id in [one, two] {
        std::fs::write(&from, format!("the content of {id}")).expect("writes");
        sam.run(&["put", "g:acme", file(&from), "--id", id])
            .await
            .is(0);
    }
    let api = world.client(&device_ref("sam", "laptop"));
    let other = sealed(&api, &BlobId::new(two).expect("an id")).await;
    // What becomes of the bytes, given those of the other blob.
    type Change = fn(&mut Vec<u8>, &[u8]);
    let changes: [Change; 3] = [
        |bytes, other| *bytes = other.to_vec(),
        |bytes, _| *bytes.last_mut().expect("some") ^= 1,
        // An epoch that there is not, which is no reason to wait for its key.
        |bytes, _| bytes[8] = 9,
    ];
    for change in changes {
        let other = other.clone();
        world.meddler.set(move |asked| {
            let other = other.clone();
            match asked.is(Method::GET, "test-1") {
                true => Meddle::ChangeBytes(Box::new(move |bytes| change(bytes, &other))),
                false => Meddle::Pass,
            }
        });
        let done = alex.run(&["get", "g:acme", one, file(&to)]).await.is(1);
        let why = "the blob does not open: it is not what was sealed";
        assert!(done.err.contains(why), "{done:?}");
        let done = alex
            .run(&["--output", "json", "get", "g:acme", one, file(&to)])
            .await
            .is(1);
        assert_eq!(failure(&done)["message"], why);
        assert!(!to.exists());
    }
    world.meddler.rest();
    alex.run(&["get", "g:acme", one, file(&to)]).await.is(0);
}

#[tokio::test]
async fn an_epoch_that_goes_back_is_shown() {
    let (world, sam, alex) = pair().await;
    alex.run(&["pull", "g:acme"]).await.is(0);
    sam.run(&["rotate", "g:acme"]).await.is(0);
    alex.run(&["pull", "g:acme"]).await.is(0);
    world.meddler.set(|asked| {
        let told = ["/wraps", "/pull", "/graphs/g%3Aacme"];
        match asked.method == Method::GET && told.iter().any(|end| asked.path.ends_with(end)) {
            true => Meddle::Change(Box::new(|answer| answer["epoch"] = 1.into())),
            false => Meddle::Pass,
        }
    });
    let refused = alex.run(&["rotate", "g:acme"]).await.is(1);
    assert!(refused.err.contains("older epoch"), "{refused:?}");
    let doubt = [json!({"what": "epoch.went_back", "graphId": "g:acme", "held": 2})];
    assert_eq!(doubts(&alex, 5).await, doubt);
    // The list of graphs may tell the lie as well.
    alex.run(&["status", "--forget-doubts"]).await.is(0);
    lie(&world, Method::GET, "/graphs", |answer| {
        answer["graphs"][0]["epoch"] = 1.into();
    });
    assert_eq!(doubts(&alex, 5).await, doubt);
}
