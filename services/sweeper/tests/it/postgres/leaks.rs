//! Objects in a bucket that no row names.

use std::time::Duration;

use super::stage::{BUCKET, Place, Stage};
use crate::process::Running;

const BLOB: &str = "a-blob-that-has-its-row";
/// Longer than what may be an upload under way.
const LONG: Duration = Duration::from_secs(2 * 60 * 60);

#[test]
fn what_no_row_names_goes_and_what_is_not_ours_stays() {
    let stage = Stage::new(Place::Bucket);
    let relay = stage.relay();
    assert_eq!(relay.put(BLOB, b"content"), 201);
    let server = stage.bucket();
    let [named] = &server.objects(BUCKET)[..] else {
        panic!("one object");
    };
    let (instance, _) = named.split_once('/').unwrap();
    let stray = format!("{instance}/{:032x}", 1);
    let young = format!("{instance}/{:032x}", 2);
    let foreign = [
        // Of other databases, one of which has a name that begins as ours does.
        format!("0123456789abcdef0123456789abcdef/{:032x}", 1),
        format!("{instance}0/{:032x}", 1),
        format!("{}/{:032x}", &instance[1..], 1),
        // Of nobody's making.
        format!("{instance}/notes.txt"),
        format!("{instance}/ABCDEF"),
        format!("{instance}/more/{:032x}", 1),
        format!("{:032x}", 1),
        "backup.tar".to_owned(),
    ];
    for name in foreign.iter().chain([&stray]) {
        server.plant(BUCKET, name, b"stray");
        server.age(BUCKET, name, LONG);
    }
    server.plant(BUCKET, &young, b"stray");
    server.age(BUCKET, named, LONG);
    let holds = |name: &String| server.holds(BUCKET, name);

    let told = stage.sweep(&["--dry-run"]);
    let due = told["due"].as_array().unwrap();
    assert_eq!(due.len(), 1, "{told}");
    assert_eq!(
        (&due[0]["why"], &due[0]["object"]),
        (&"leaked".into(), &stray.as_str().into())
    );
    assert!(holds(&stray));

    let told = stage.sweep(&[]);
    assert_eq!(
        (&told["leakedObjects"], &told["failed"]),
        (&1.into(), &0.into()),
        "{told}"
    );
    assert!(!holds(&stray) && holds(&young) && holds(named));
    assert!(foreign.iter().all(holds), "what is not ours stays");
    assert_eq!(stage.sweep(&[])["leakedObjects"], 0);

    server.age(BUCKET, &young, LONG);
    let mut running = Running::start_with(&stage.sweeping());
    stage.wait_for(1, |_| u64::from(!holds(&young)));
    running.signal("TERM");
    assert_eq!(running.wait().0.code(), Some(0));
    assert!(holds(named) && foreign.iter().all(holds));
    assert_eq!(relay.get(BLOB), (200, b"content".to_vec()));
}
