//! What `relay dev` starts with and what it prints.

use std::path::Path;

use argala_core::ports::DirectoryTables;
use argala_wire::{GroupId, MemberId};
use serde_json::{Value, json};

use crate::ports::OpenError;

/// The members that the directory starts with.
const MEMBERS: [&str; 2] = ["sam", "alex"];
/// The group that they are of.
const GROUP: &str = "acme";

/// What a development relay wants otherwise than the defaults.
#[must_use]
pub fn preset(data: &Path) -> Vec<(&'static str, String)> {
    let mut preset = vec![
        ("admin.listen", "127.0.0.1:0".to_owned()),
        ("auth.kind", "dev".to_owned()),
        ("relay.signatures", "optional".to_owned()),
        ("log.format", "text".to_owned()),
    ];
    preset.extend(paths(data));
    preset
}

/// Where a development relay keeps its data.
#[must_use]
pub fn paths(data: &Path) -> [(&'static str, String); 3] {
    let below = |name: &str| data.join(name).to_string_lossy().into_owned();
    [
        ("store.path", below("relay.db")),
        ("blobs.path", below("blobs")),
        ("blobs.spool_path", below("spool")),
    ]
}

/// Fills an empty directory with two members and their group. One that holds anything is left as
/// it is: somebody may have taken a member out on purpose.
///
/// # Errors
/// Where the store fails.
pub async fn seed(directory: &dyn DirectoryTables) -> Result<(), OpenError> {
    let empty = directory.list_members(None, 1).await?.is_empty()
        && directory.list_groups(None, 1).await?.is_empty();
    if !empty {
        return Ok(());
    }
    let legal = "the names above are legal ids";
    let group = GroupId::new(GROUP).expect(legal);
    directory.create_group(&group).await?;
    for member in MEMBERS {
        let member = MemberId::new(member).expect(legal);
        directory.add_member(&member).await?;
        directory.join_group(&group, &member).await?;
    }
    Ok(())
}

/// Devices whose secret keys are published, with the body that registers each.
const DEVICES: &str = include_str!("../../../docs/test-vectors/devices.json");
/// Records that they have signed.
const RECORDS: &str = include_str!("../../../docs/test-vectors/records.json");

/// What is printed once a development relay serves at `base_url` what it keeps in `data`: a credential for each member,
/// and lines for a shell that take a fresh relay through its first steps. Every line may be
/// pasted again: the second time it is answered as the first.
///
/// # Panics
/// Where the published vectors are not what they are documented to be, which a test would find.
#[must_use]
pub fn guide(base_url: &str, data: &str) -> String {
    let shape = "the published vectors are complete";
    let devices: Value = serde_json::from_str(DEVICES).expect(shape);
    let records: Value = serde_json::from_str(RECORDS).expect(shape);
    let (sam, alex) = (&devices["devices"][0], &devices["devices"][1]);
    let [of_sam, of_alex] = [sam, alex].map(credential);

    let wrap = |device: &Value| {
        json!({
            "memberId": device["memberId"],
            "deviceId": device["deviceId"],
            // A client seals the graph's key for the device here; the relay cannot tell.
            "wrap": "c2VhbGVkIGtleQ",
        })
    };
    let rotate = json!({"epoch": 1, "wraps": [wrap(sam), wrap(alex)]});
    let record = &records["cases"][0];
    let record = json!({
        "id": record["id"],
        "epoch": record["epoch"],
        "ciphertext": record["ciphertext"],
        "sig": record["sig"],
    });
    let push = json!({"records": [record]});
    let post = |path: &str, credential: &str, body: &Value| {
        format!(
            "curl -sS --fail-with-body -w '\\n' {base_url}{path} -H '{credential}' \
             -H 'Content-Type: application/json' -d '{body}'"
        )
    };
    let lines = [
        post("/devices", &of_sam, &sam["body"]),
        post("/devices", &of_alex, &alex["body"]),
        post("/graphs/g:acme/rotate", &of_sam, &rotate),
        post("/graphs/g:acme/push", &of_sam, &push),
        format!("curl -sS --fail-with-body -w '\\n' {base_url}/graphs/g:acme/pull -H '{of_alex}'"),
        format!("curl -sN -m 5 {base_url}/pokes -H '{of_alex}' || true"),
    ];
    format!(
        "\
A relay to try things out with; its data is in {data}. Whoever asks is believed.

  sam   {of_sam}
  alex  {of_alex}
  Both are members, and of the group acme.

The first steps, for a shell; all of it may be pasted again. The devices of sam and alex publish
their keys (the published ones of docs/test-vectors), sam gives the group its first key, sam pushes
a record, alex pulls it, and alex listens for pokes for five seconds.

{}
",
        lines.join("\n")
    )
}

/// The header that a published device sends.
fn credential(device: &Value) -> String {
    let text = |key: &str| device[key].as_str().unwrap_or_default().to_owned();
    format!(
        "Authorization: Dev {}/{}",
        text("memberId"),
        text("deviceId")
    )
}
