//! A poke from one replica reaches a stream on another.

use argala_wire::StorageKey;

use super::keyed;
use crate::{device::TestDevice, http::Events, process::now};

/// Invariant 10, and how long it takes.
#[test]
fn a_poke_reaches_a_stream_on_another_replica() {
    const POKES: usize = 30;
    let (cluster, sam) = keyed(&[]);
    let tablet = TestDevice::dev("sam", "tablet");
    tablet.register(cluster.at(2)).ok();
    let mut stream = Events::open(cluster.at(2), &tablet.headers());
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let mut took = Vec::new();
    for number in 0..POKES {
        let id = format!("poke-{number}");
        let record = sam.record(&graph, &id, b"content");
        sam.push(cluster.at(0), "d:sam", &[record]).ok();
        let answered = now();
        assert!(stream.wait_for("d:sam"), "the stream has ended");
        took.push(answered.elapsed());
    }
    took.sort_unstable();
    println!(
        "a push answered at one replica, its poke on a stream of another: median {:?}, worst {:?}",
        took[POKES / 2],
        took[POKES - 1]
    );
    cluster.stop();
}
