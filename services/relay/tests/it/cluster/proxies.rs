//! What proxies do to streams and to large bodies.

use std::{
    io::{BufRead, BufReader},
    net::TcpStream,
    time::Duration,
};

use argala_servers::{Balancer, Behind};
use argala_wire::StorageKey;
use tempfile::TempDir;

use super::port;
use crate::{
    device::TestDevice,
    http::{Events, Target, header},
    process::{Served, now},
};

const SECOND: Duration = Duration::from_secs(1);

/// Longer than nginx waits for a word from whom it passes a request on to.
const IDLE: Duration = Duration::from_secs(90);

/// Proxies cut streams that are silent for a minute, and hold back what they buffer.
#[test]
fn nginx_an_idle_stream_survives_90_s_and_a_poke_arrives_within_a_second() {
    let mut behind = Nginx::start();
    let (through, sam, tablet) = (&behind.through, &behind.sam, &behind.tablet);
    let mut stream = Events::open(through, &tablet.headers());
    let since = now();
    while since.elapsed() < IDLE {
        assert!(
            stream.is_open(IDLE - since.elapsed()),
            "cut after {:?}",
            since.elapsed()
        );
    }
    push(sam, through, "after-the-silence");
    let answered = now();
    assert!(stream.wait_for("d:sam"), "the stream has ended");
    assert!(answered.elapsed() < SECOND);
    assert!(behind.served.stop().0.success());
}

/// It compresses streams where it is told to and the client takes it, whatever they say about being
/// transformed; what it has compressed it must not keep.
#[test]
fn nginx_a_poke_arrives_within_a_second_through_its_compression() {
    let mut behind = Nginx::start();
    let mut headers = behind.tablet.headers().to_vec();
    headers.extend([("accept", "text/event-stream"), ("accept-encoding", "gzip")]);
    let mut stream = BufReader::new(behind.through.begin("GET", "/pokes", &headers));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert_eq!(header(&head, "content-encoding"), Some("gzip"), "{head}");
    // The hello, and then nothing: the next keep-alive is due in twenty seconds.
    assert!(bytes_within(&mut stream, SECOND * 5) > 0, "no hello");
    while bytes_within(&mut stream, SECOND) > 0 {}
    push(&behind.sam, &behind.through, "compressed");
    let told = bytes_within(&mut stream, SECOND);
    assert!(told > 0, "the poke is held back");
    assert!(behind.served.stop().0.success());
}

/// How many bytes come at once, within that time.
fn bytes_within(stream: &mut BufReader<TcpStream>, within: Duration) -> usize {
    stream.get_ref().set_read_timeout(Some(within)).unwrap();
    let read = stream.fill_buf().map_or(0, <[u8]>::len);
    stream.consume(read);
    read
}

fn push(sam: &TestDevice, target: &Target, id: &str) {
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(&graph, id, b"content");
    sam.push(target, "d:sam", &[record]).ok();
}

/// A relay behind nginx, with two of sam's devices and the graph of their own.
struct Nginx {
    served: Served,
    through: Target,
    sam: TestDevice,
    tablet: TestDevice,
    _nginx: Balancer,
    _folder: TempDir,
}

impl Nginx {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::dev(folder.path(), &[]);
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
        Self {
            served,
            through,
            sam,
            tablet,
            _nginx: nginx,
            _folder: folder,
        }
    }
}
