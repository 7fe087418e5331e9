//! What proxies do to streams and to large bodies.

use std::time::Duration;

use argala_servers::{Balancer, Behind};
use argala_wire::StorageKey;

use super::port;
use crate::{
    device::TestDevice,
    http::{Events, Target},
    process::{Served, now},
};

/// Longer than nginx waits for a word from whom it passes a request on to.
const IDLE: Duration = Duration::from_secs(90);

/// Proxies cut streams that are silent for a minute, and hold back what they buffer.
#[test]
fn behind_nginx_an_idle_stream_survives_90_s_and_a_poke_arrives_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &[]);
    let nginx = Balancer::start_nginx(&[Behind {
        port: port(&served.public),
        health_port: port(&served.admin),
    }]);
    let nginx = nginx.expect("an nginx");
    let through = Target {
        address: format!("127.0.0.1:{}", nginx.port()),
        prefix: served.public.prefix.clone(),
    };
    let (sam, tablet) = (
        TestDevice::dev("sam", "laptop"),
        TestDevice::dev("sam", "tablet"),
    );
    sam.register(&through).ok();
    sam.rotate(&through, "d:sam", &[&sam]).ok();
    tablet.register(&through).ok();
    let mut stream = Events::open(&through, &tablet.headers());
    let since = now();
    while since.elapsed() < IDLE {
        assert!(
            stream.is_open(IDLE - since.elapsed()),
            "cut after {:?}",
            since.elapsed()
        );
    }
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(&graph, "after-the-silence", b"content");
    sam.push(&through, "d:sam", &[record]).ok();
    let answered = now();
    assert!(stream.wait_for("d:sam"), "the stream has ended");
    assert!(answered.elapsed() < Duration::from_secs(1));
    assert!(served.stop().0.success());
}
