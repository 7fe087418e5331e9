//! `docs/test-vectors/encryption.json`: bytes that every client with this encryption must open.
//!
//! Sealing is full of chance, so the file is not written anew but opened. `ARGALA_WRITE_VECTORS=1
//! cargo test -p argala-client --test it vectors` seals another one.

use std::{fs, path::PathBuf};

use argala_client::{
    Kind,
    crypto::{
        DeviceKeys, GraphKey, PublicKeys,
        blob::{BlobContext, CHUNK, NonceDigest, Opener, Sealer},
        record::{self, RecordCipher},
        recovery::RecoveryCode,
        wrap::{self, WrapContext},
    },
};
use argala_testkit::{blob_id, device_ref, member, record_id};
use argala_wire::{Sealed, StorageKey, devices::DeviceRef};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/test-vectors")
}

fn read(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(name)).expect("there is such a file");
    serde_json::from_str(&text).expect("JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    Sealed::from_base64url(value.as_str().expect("text"))
        .expect("base64url")
        .0
}

fn key(value: &Value) -> [u8; 32] {
    bytes(value).try_into().expect("32 bytes")
}

fn text(bytes: &[u8]) -> Value {
    Sealed::from(bytes).to_base64url().into()
}

/// A device of `devices.json`, its secrets included.
fn device(device: &str) -> (DeviceRef, DeviceKeys) {
    let devices = read("devices.json");
    let mut devices = devices["devices"].as_array().expect("a list").iter();
    let found = devices
        .find(|found| found["deviceId"] == device)
        .expect("published");
    let keys = DeviceKeys::from_secrets(
        &key(&found["encryptionSecretKey"]),
        &key(&found["signingSecretKey"]),
    );
    let name = device_ref(found["memberId"].as_str().expect("text"), device);
    let kind = serde_json::from_value(found["body"]["kind"].clone()).expect("a kind");
    let body = keys.registration(&name, kind, None);
    assert_eq!(serde_json::to_value(&body).expect("JSON"), found["body"]);
    (name, keys)
}

/// Who wraps which epoch of which graph for whom: a pair's, the giver's own for another device and
/// for a recovery code, a name that is escaped with the last epoch that JSON can tell, oneself.
const WRAPS: [(&str, &str, &str, u64); 5] = [
    ("sam-laptop", "alex-phone", "d:alex:sam", 3),
    ("sam-laptop", "sam-phone", "d:sam:sam", 1),
    ("sam-phone", "recovery-1", "d:sam:sam", 2),
    ("a/b:c", "alex-phone", "g:50%25", (1 << 53) - 1),
    ("alex-phone", "alex-phone", "g:acme", 1),
];

fn seal_wrap((by, to, graph, epoch): (&str, &str, &str, u64), graph_key: &GraphKey) -> Value {
    let ((by, by_keys), (to, to_keys)) = (device(by), device(to));
    let graph: StorageKey = graph.parse().expect("a key");
    let context = WrapContext {
        graph: &graph,
        epoch,
        to: &to,
        by: &by,
    };
    let wrap = wrap::seal(&context, graph_key, &by_keys, &to_keys.public()).expect("seals");
    json!({
        "graph": { "storageKey": graph, "epoch": epoch, "key": text(graph_key.as_bytes()) },
        "by": by,
        "to": to,
        "wrap": wrap.to_base64url(),
    })
}

fn graph_of(value: &Value) -> StorageKey {
    let key = value["storageKey"]
        .as_str()
        .and_then(|key| key.parse().ok());
    key.expect("a key")
}

/// Opens a wrap as whom it is for, and holds that it opens for nothing else.
fn open_wrap(vector: &Value) {
    let name = |value: &Value| value["deviceId"].as_str().expect("text").to_owned();
    let ((by, by_keys), (to, to_keys)) =
        (device(&name(&vector["by"])), device(&name(&vector["to"])));
    let graph = graph_of(&vector["graph"]);
    let context = WrapContext {
        graph: &graph,
        epoch: vector["graph"]["epoch"].as_u64().expect("a number"),
        to: &to,
        by: &by,
    };
    let sealed = bytes(&vector["wrap"]);
    let graph_key = GraphKey::from_bytes(key(&vector["graph"]["key"]));
    let opened = wrap::open(&context, &sealed, &to_keys, &by_keys.public());
    assert_eq!(opened, Ok(graph_key));
    let (other, other_keys) = device("a/b:c");
    let stranger = if by == other { &to_keys } else { &other_keys };
    let opened = wrap::open(&context, &sealed, &to_keys, &stranger.public());
    assert!(opened.is_err(), "{by:?} was not the giver");
}

/// Sizes around which chunks are cut: none, a full one that is the last, one byte more.
const SIZES: [usize; 3] = [0, CHUNK, CHUNK + 1];

/// `size` bytes of this text over and over.
const REPEATED: &str = "argala blob ";

/// A file too large to be printed: what comes out of sealing it is the same whoever seals it.
fn large(graph_key: &GraphKey, graph: &StorageKey, epoch: u64, size: usize) -> Value {
    let blob = blob_id("large-0123456789");
    let context = BlobContext {
        graph,
        epoch,
        blob: &blob,
    };
    let plain: Vec<u8> = REPEATED.bytes().cycle().take(size).collect();
    let mut digest = NonceDigest::new(graph_key, &context);
    digest.update(&plain);
    let mut sealer = Sealer::new(graph_key, &context, digest.finish());
    let mut sealed = sealer.header().to_vec();
    let mut chunks = plain.chunks(CHUNK).peekable();
    if size == 0 {
        sealed.extend(sealer.chunk(b"", true));
    }
    while let Some(chunk) = chunks.next() {
        let last = chunks.peek().is_none();
        sealed.extend(sealer.chunk(chunk, last));
    }
    json!({
        "blobId": blob,
        "size": size,
        "repeated": REPEATED,
        "sealedSize": sealed.len(),
        "sealedSha256": text(&Sha256::digest(&sealed)),
    })
}

fn seal() -> Value {
    let (sam, sam_keys) = device("sam-laptop");
    let graph: StorageKey = "d:alex:sam".parse().expect("a key");
    let (graph_key, epoch) = (GraphKey::generate(), 3);
    let kind = Kind::new("text").expect("a kind");
    let cipher = RecordCipher::new(&graph_key, &graph, epoch);
    let record = cipher.seal(&record_id("a/b:c"), false, &kind, 7, "Grüße".as_bytes());
    let tombstone = cipher.seal(&record_id("a/b:c"), true, &kind, 8, b"");
    let own: StorageKey = "d:sam:sam".parse().expect("a key");
    let label = record::seal_label(&graph_key, &own, epoch, "Sam’s laptop");
    let blob = blob_id("0123456789abcdef");
    let context = BlobContext {
        graph: &graph,
        epoch,
        blob: &blob,
    };
    let mut digest = NonceDigest::new(&graph_key, &context);
    digest.update(b"a small file");
    let mut sealer = Sealer::new(&graph_key, &context, digest.finish());
    let mut sealed = sealer.header().to_vec();
    sealed.extend(sealer.chunk(b"a small file", true));
    let code = RecoveryCode::generate();
    let recovery = code.device_keys(&member("sam")).public();
    json!({
        "about": "The reference encryption of argala-client; its documentation describes each \
            form. The devices are those of devices.json. Bytes are base64url.",
        "graph": {
            "storageKey": graph,
            "epoch": epoch,
            "key": text(graph_key.as_bytes()),
        },
        "wraps": WRAPS.map(|of| seal_wrap(of, &GraphKey::generate())),
        "record": {
            "id": "a/b:c",
            "deleted": false,
            "ciphertext": text(&record),
            "kind": kind,
            "counter": 7,
            "text": "Grüße",
        },
        "tombstone": {
            "id": "a/b:c",
            "deleted": true,
            "ciphertext": text(&tombstone),
            "kind": kind,
            "counter": 8,
            "text": "",
        },
        "label": { "storageKey": own, "sealed": text(&label), "text": "Sam’s laptop" },
        "fingerprint": {
            "memberId": sam.member_id,
            "deviceId": sam.device_id,
            "fingerprint": sam_keys.public().fingerprint(&sam).to_string(),
        },
        "blob": { "blobId": blob, "sealed": text(&sealed), "text": "a small file" },
        "largeBlobs": SIZES.map(|size| large(&graph_key, &graph, epoch, size)),
        "recovery": {
            "memberId": "sam",
            "code": *code.reveal(),
            "encryptionKey": text(&recovery.encryption),
            "signingKey": text(&recovery.signing),
        },
    })
}

#[test]
fn the_published_bytes_open() {
    if std::env::var_os("ARGALA_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&seal()).expect("JSON");
        fs::write(folder().join("encryption.json"), format!("{text}\n")).expect("writes");
    }
    let vectors = read("encryption.json");
    let (sam, sam_keys) = device("sam-laptop");
    let graph = graph_of(&vectors["graph"]);
    let epoch = vectors["graph"]["epoch"].as_u64().expect("a number");
    let graph_key = GraphKey::from_bytes(key(&vectors["graph"]["key"]));

    let wraps = vectors["wraps"].as_array().expect("a list");
    assert_eq!(wraps.len(), WRAPS.len());
    wraps.iter().for_each(open_wrap);

    let cipher = RecordCipher::new(&graph_key, &graph, epoch);
    for record in [&vectors["record"], &vectors["tombstone"]] {
        let id = record_id(record["id"].as_str().expect("text"));
        let deleted = record["deleted"].as_bool().expect("a flag");
        let opened = cipher
            .open(&id, deleted, &bytes(&record["ciphertext"]))
            .expect("opens");
        assert_eq!(
            record["text"],
            String::from_utf8(opened.body).expect("text")
        );
        assert_eq!(record["kind"], opened.kind.as_str());
        assert_eq!(record["counter"], opened.counter);
    }

    let label = &vectors["label"];
    let own = graph_of(label);
    let opened = record::open_label(&graph_key, &own, &bytes(&label["sealed"]));
    assert_eq!(label["text"], opened.expect("opens"));

    let told = &vectors["fingerprint"]["fingerprint"];
    assert_eq!(*told, sam_keys.public().fingerprint(&sam).to_string());

    let sealed = SIZES.map(|size| large(&graph_key, &graph, epoch, size));
    assert_eq!(vectors["largeBlobs"], Value::from_iter(sealed));

    let blob = &vectors["blob"];
    let id = blob_id(blob["blobId"].as_str().expect("text"));
    let context = BlobContext {
        graph: &graph,
        epoch,
        blob: &id,
    };
    let sealed = bytes(&blob["sealed"]);
    let (header, chunks) = sealed.split_first_chunk().expect("a header");
    let mut opener = Opener::new(&graph_key, &context, header);
    opener
        .update(chunks, |_| panic!("one chunk"))
        .expect("opens");
    assert_eq!(
        blob["text"].as_str().map(str::as_bytes),
        opener.finish().ok().as_deref()
    );

    let recovery = &vectors["recovery"];
    let code = RecoveryCode::read(recovery["code"].as_str().expect("text")).expect("a code");
    let keys = PublicKeys {
        encryption: key(&recovery["encryptionKey"]),
        signing: key(&recovery["signingKey"]),
    };
    assert_eq!(code.device_keys(&member("sam")).public(), keys);
}
