//! Settings of a bucket, and which of them fit together.

use std::fs;

use argala_boot::config::{BlobsKind, Config, DeliveryKind, Fault, Loaded, Sources};
use secrecy::ExposeSecret;

/// What an operator's command would read: nothing but `[blobs]` is of interest here.
fn read(text: &str) -> Result<Loaded, Vec<Fault>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    fs::write(&file, format!("[blobs]\n{text}\n")).unwrap();
    let sources = Sources {
        file: Some(file),
        operating: true,
        ..Sources::default()
    };
    sources.load().map_err(|error| error.faults)
}

fn config(text: &str) -> Config {
    read(text).expect("good").config
}

const BUCKET: &str = "kind = \"s3\"\nbucket = \"argala-blobs\"\n";

#[test]
fn a_bucket_is_named_and_the_rest_has_defaults() {
    let blobs = config(BUCKET).blobs;
    assert_eq!(blobs.kind, BlobsKind::S3);
    assert_eq!(blobs.bucket.as_deref(), Some("argala-blobs"));
    assert_eq!(blobs.region, "us-east-1");
    assert!(!blobs.force_path_style);
    assert_eq!(blobs.delivery, DeliveryKind::Proxy);
    assert!(blobs.endpoint.is_none() && blobs.access_key_id.is_none());
}

#[test]
fn every_setting_of_a_bucket_can_be_given() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "hush\n").unwrap();
    let loaded = read(&format!(
        "{BUCKET}
endpoint = \"http://127.0.0.1:3900\"
region = \"garage\"
force_path_style = true
access_key_id = \"GK1\"
secret_access_key_file = \"{}\"
delivery = \"redirect\"
spool_path = \"/var/spool/argala\"
connect_timeout = \"1s\"
answer_timeout = \"2s\"
stall_timeout = \"3s\"",
        secret.display()
    ))
    .expect("good");
    let blobs = &loaded.config.blobs;
    assert!(blobs.force_path_style);
    assert_eq!(blobs.delivery, DeliveryKind::Redirect);
    let halves = [&blobs.access_key_id, &blobs.secret_access_key];
    let halves = halves.map(|half| half.as_ref().unwrap().expose_secret());
    assert_eq!(halves, ["GK1", "hush"]);
    assert_eq!(blobs.stall_timeout.0.as_secs(), 3);
    for shown in [loaded.to_toml(), loaded.to_json().to_string()] {
        assert!(!shown.contains("GK1") && !shown.contains("hush"), "{shown}");
    }
    assert!(!format!("{:?}", loaded.config).contains("hush"));
}

#[test]
fn every_mistake_is_told_by_its_key() {
    let s3 = |line: &str| format!("{BUCKET}{line}");
    for (text, key) in [
        ("kind = \"s3\"".to_owned(), "blobs.kind"),
        (s3("region = \"\""), "blobs.region"),
        (s3("endpoint = \"s3.example.org\""), "blobs.endpoint"),
        (s3("endpoint = \"ftp://s3.example.org\""), "blobs.endpoint"),
        (s3("endpoint = \"https://\""), "blobs.endpoint"),
        (
            s3("endpoint = \"https://a:b@s3.example.org\""),
            "blobs.endpoint",
        ),
        (
            s3("endpoint = \"https://s3.example.org/x\""),
            "blobs.endpoint",
        ),
        (s3("access_key_id = \"GK1\""), "blobs.secret_access_key"),
        (s3("secret_access_key = \"hush\""), "blobs.access_key_id"),
        (
            s3("access_key_id = \"\"\nsecret_access_key = \"hush\""),
            "blobs.access_key_id",
        ),
        (
            s3("access_key_id = \"GK1\"\nsecret_access_key = 7"),
            "blobs.secret_access_key",
        ),
        (
            s3("access_key_id = \"GK1\"\nsecret_access_key_file = \"/nowhere\""),
            "blobs.secret_access_key_file",
        ),
        (s3("delivery = \"drone\""), "blobs.delivery"),
        (s3("force_path_style = \"maybe\""), "blobs.force_path_style"),
        (s3("spool_path = \"\""), "blobs.spool_path"),
        (s3("connect_timeout = \"0s\""), "blobs.connect_timeout"),
        (s3("answer_timeout = \"0s\""), "blobs.answer_timeout"),
        (s3("stall_timeout = \"0s\""), "blobs.stall_timeout"),
        (
            "kind = \"s3\"\nbucket = \"Argala\"".to_owned(),
            "blobs.bucket",
        ),
        (
            "kind = \"s3\"\nbucket = \"a/b/c\"".to_owned(),
            "blobs.bucket",
        ),
        ("kind = \"s3\"\nbucket = \"ab\"".to_owned(), "blobs.bucket"),
        // What belongs to a bucket where there is none.
        ("bucket = \"argala-blobs\"".to_owned(), "blobs.bucket"),
        (
            "kind = \"filesystem\"\nendpoint = \"http://a\"".to_owned(),
            "blobs.endpoint",
        ),
        ("access_key_id = \"GK1\"".to_owned(), "blobs.access_key_id"),
        (
            "secret_access_key = \"hush\"".to_owned(),
            "blobs.secret_access_key",
        ),
        ("delivery = \"redirect\"".to_owned(), "blobs.delivery"),
    ] {
        let faults = read(&text).expect_err(&text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert_eq!(faults[0].key, key, "{text}: {}", faults[0]);
        let told = faults[0].to_string();
        assert!(!told.contains("hush") && !told.contains('\n'), "{told}");
    }
    // In a path a bucket may have a name that is no host's.
    let named = "kind = \"s3\"\nbucket = \"Argala_Blobs\"\nforce_path_style = true";
    assert!(read(named).is_ok());
}
