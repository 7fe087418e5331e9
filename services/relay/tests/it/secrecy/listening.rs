//! What streams of pokes say, in either form, from their first byte to their last.

use std::io::Read as _;

use serde_json::{Value, json};

use super::{
    planted::Search,
    stage::{Actor, Stage},
};
use crate::http::Events;

/// Two streams of one device's, which both are told what it is to pull.
pub(super) struct Listening {
    events: Events,
    socket: std::net::TcpStream,
    /// What the socket has said, its head included.
    said: Vec<u8>,
}

impl Listening {
    /// Opens both, and waits for both hellos.
    pub(super) fn open(stage: &Stage, by: &Actor) -> Self {
        let bearer = format!("Bearer {}", by.token);
        let target = &stage.served.public;
        let upgrade = [
            ("authorization", bearer.as_str()),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let mut listening = Self {
            events: Events::open(target, &upgrade[..1]),
            socket: target.begin("GET", "/pokes", &upgrade),
            said: Vec::new(),
        };
        listening.hear(|said| said.contains("argala.hello"));
        listening
    }

    fn hear(&mut self, is_enough: impl Fn(&str) -> bool) {
        let mut some = [0; 1024];
        while !is_enough(&String::from_utf8_lossy(&self.said)) {
            let read = self.socket.read(&mut some).unwrap();
            assert_ne!(read, 0, "it ended");
            self.said.extend_from_slice(&some[..read]);
        }
    }

    /// Waits until both have told of one more change, the `nth`.
    pub(super) fn are_poked(&mut self, nth: usize) {
        assert!(self.events.wait_for("argala.poke"));
        self.hear(|said| said.matches("argala.poke").count() >= nth);
    }

    /// Hears both out once the relay stops: they have said what the protocol lets them, in which
    /// nothing is that was planted.
    pub(super) fn end(mut self, search: &Search<'_>) {
        let mut said = std::mem::take(&mut self.events.said);
        said.push_str(&self.events.rest());
        search.holds_only(&[], said.as_bytes(), "a stream of events");
        let told = said.lines().filter_map(|line| line.strip_prefix("data:"));
        let told = told.map(|data| serde_json::from_str(data).unwrap());
        is_what_pokes_say(&told.collect::<Vec<_>>());

        // Its end may come as a reset: nobody here answers its closing.
        let _ = self.socket.read_to_end(&mut self.said);
        search.holds_only(&[], &self.said, "a WebSocket");
        is_what_pokes_say(&texts(&self.said));
    }
}

/// Nothing but hello, pokes and the closing resync.
fn is_what_pokes_say(told: &[Value]) {
    let expected = [
        json!({"type": "argala.hello"}),
        json!({"type": "argala.poke", "graphId": "g:acme"}),
        json!({"type": "argala.resync"}),
    ];
    for one in told {
        assert!(expected.contains(one), "{one}");
    }
    let pokes = told.iter().filter(|one| **one == expected[1]).count();
    assert!(pokes >= 3, "{told:?}");
    assert_eq!(told.first(), expected.first());
    assert_eq!(told.last(), expected.last());
}

/// The texts of a WebSocket's frames, which are short and not masked.
fn texts(said: &[u8]) -> Vec<Value> {
    let end = b"\r\n\r\n";
    let head = said.windows(4).position(|part| part == end).unwrap();
    let mut rest = &said[head + end.len()..];
    let mut texts = Vec::new();
    while let [kind, length, after @ ..] = rest {
        assert!(*length < 126, "a poke is short, and a server masks nothing");
        let (payload, next) = after.split_at(usize::from(*length));
        if *kind == 0x81 {
            texts.push(serde_json::from_slice(payload).unwrap());
        }
        rest = next;
    }
    texts
}
