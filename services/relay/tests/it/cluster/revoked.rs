//! A device is revoked through one replica, and out of all of them.

use std::time::Duration;

use super::{REPLICAS, keyed};
use crate::{device::TestDevice, http::Events, process::now};

/// How soon the streams of a revoked device are closed (protocol, section 4).
const CUT: Duration = Duration::from_secs(5);

/// Invariant 5.
#[test]
fn a_device_that_is_revoked_at_one_replica_is_out_of_all_at_once() {
    let (cluster, sam) = keyed(&[]);
    for number in 0..8 {
        let phone = TestDevice::dev("sam", &format!("phone-{number}"));
        phone.register(cluster.at(number % REPLICAS)).ok();
        let others = [1, 2].map(|step| cluster.at((number + step) % REPLICAS));
        for other in others {
            other.get("/graphs", &phone.headers()).ok();
        }
        let stream = Events::open(others[0], &phone.headers());
        let path = format!("/devices/phone-{number}");
        let through = cluster.at(number % REPLICAS);
        let revoked = through.send("DELETE", &path, &sam.headers(), b"");
        assert!((200..300).contains(&revoked.status), "{revoked:?}");
        let since = now();
        for other in others {
            let refused = other.get("/graphs", &phone.headers());
            assert_eq!(refused.json()["code"], "device_revoked", "{refused:?}");
        }
        stream.rest();
        assert!(since.elapsed() <= CUT, "{:?}", since.elapsed());
    }
    cluster.stop();
}
