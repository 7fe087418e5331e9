//! Replicas whose clocks differ.

use std::{path::PathBuf, thread};

use argala_wire::StorageKey;
use serde_json::json;

use super::{Cluster, REPLICAS, follow, key, seqs};
use crate::load::GENEROUS;

/// Where Debian and others put what shifts a process's clock.
fn library() -> String {
    let folders = ["x86_64-linux-gnu", "aarch64-linux-gnu", ""];
    folders
        .iter()
        .map(|folder| PathBuf::from("/usr/lib").join(folder).join("faketime"))
        .map(|folder| folder.join("libfaketime.so.1"))
        .find(|library| library.is_file())
        .expect("libfaketime (Debian: `apt-get install faketime`)")
        .display()
        .to_string()
}

#[test]
fn clocks_five_seconds_apart_change_nothing() {
    let library = library();
    let cluster = Cluster::start_each(&GENEROUS, |replica| {
        vec![
            ("LD_PRELOAD", library.clone()),
            ("FAKETIME", ["-5s", "+0s", "+5s"][replica].to_owned()),
            // Waits stay as long as they are.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    });
    let sam = key(&cluster);
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    // They do differ: who registers is told when.
    let at = |replica: usize| {
        let device = crate::device::TestDevice::dev("sam", &format!("clock-{replica}"));
        let told = device.register(cluster.at(replica)).ok();
        told["createdAt"].clone()
    };
    println!("{} {} {}", at(0), at(1), at(2));
    let targets = cluster.targets();
    thread::scope(|scope| {
        for replica in 0..REPLICAS {
            let (targets, sam, graph) = (&targets, &sam, &graph);
            scope.spawn(move || {
                for number in 0..20 {
                    let id = format!("{replica}-{number}");
                    let record = sam.record(graph, &id, id.as_bytes());
                    let headers = [
                        ("authorization", sam.credential.as_str()),
                        ("idempotency-key", id.as_str()),
                    ];
                    let body = json!({"records": [record]});
                    let here = targets[replica].post("/graphs/d:sam/push", &headers, &body);
                    // The same again, elsewhere: before or after, by that clock.
                    let there = &targets[(replica + 1) % REPLICAS];
                    let again = there.post("/graphs/d:sam/push", &headers, &body);
                    assert_eq!(here.ok(), again.ok());
                }
            });
        }
    });
    for replica in 0..REPLICAS {
        let all = follow(&sam, cluster.at(replica), "d:sam", |_| true);
        assert_eq!(seqs(&all), (1..=60).collect::<Vec<u64>>());
    }
    cluster.stop();
}
