//! The poke stream (protocol, section 7), as server-sent events.

use std::time::Duration;

use argala_wire::pokes::PokeMessage;
use reqwest::{Response, header::ACCEPT};

use super::{Client, describe};
use crate::error::Error;

/// A relay that says nothing for so long is gone: it sends a keep-alive every 20 seconds.
const SILENCE: Duration = Duration::from_secs(50);
/// The longest line that is taken: a poke names one graph, at most a few hundred bytes.
const LONGEST_LINE: usize = 16 * 1024;

/// An open stream of pokes. It ends when the credential expires, the device is revoked, the relay
/// shuts down or the connection is cut; [`Watch`](crate::Watch) opens it anew.
pub struct PokeStream {
    response: Response,
    events: Events,
}

impl PokeStream {
    /// The next message; `None` at the stream's end. Messages of a type that this build does not
    /// know are passed over.
    ///
    /// # Errors
    /// [`Error::Offline`] where the connection was cut or fell silent.
    pub async fn next(&mut self) -> Result<Option<PokeMessage>, Error> {
        loop {
            if let Some(message) = self.events.next() {
                return Ok(Some(message));
            }
            let chunk = tokio::time::timeout(SILENCE, self.response.chunk()).await;
            let silent = || Error::Offline("the poke stream fell silent".to_owned());
            match chunk.map_err(|_| silent())? {
                Ok(Some(bytes)) => self.events.take(&bytes)?,
                Ok(None) => return Ok(None),
                Err(error) => return Err(Error::Offline(describe(error))),
            }
        }
    }
}

impl Client {
    /// `GET /pokes`: opens the stream. The first message is a hello.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn pokes(&self) -> Result<PokeStream, Error> {
        let url = self.url(&["pokes"]);
        let request = || self.http.get(&url).header(ACCEPT, "text/event-stream");
        Ok(PokeStream {
            response: self.open(request).await?,
            events: Events::default(),
        })
    }
}

/// Reads events out of bytes that arrive in pieces of any size.
#[derive(Default)]
struct Events {
    pending: Vec<u8>,
    data: String,
    ready: std::collections::VecDeque<PokeMessage>,
}

impl Events {
    fn next(&mut self) -> Option<PokeMessage> {
        self.ready.pop_front()
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pending.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(len) = self.pending[from..].iter().position(|&b| b == b'\n') {
            let line = self.pending[from..from + len].to_vec();
            from += len + 1;
            self.line(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        self.pending.drain(..from);
        if self.pending.len() + self.data.len() > LONGEST_LINE {
            return Err(Error::Answer("a poke is too long".to_owned()));
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            // Blank after a comment, an `id` or a `retry` alone: nothing to dispatch.
            if let Ok(message) = serde_json::from_str(&self.data) {
                self.ready.push_back(message);
            }
            self.data.clear();
            return;
        }
        let Some(value) = line.strip_prefix(b"data:") else {
            return;
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(&String::from_utf8_lossy(value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = ": keep-alive\n\nevent: poke\ndata: {\"type\":\"argala.hello\"}\n\n\
        id: 7\r\ndata:{\"type\":\"argala.poke\",\r\ndata: \"graphId\":\"d:alex\",\"color\":1}\r\n\r\n\
        data: {\"type\":\"argala.later\"}\n\ndata: {\"type\":\"argala.resync\"}\n\ndata: cut";

    fn messages() -> Vec<PokeMessage> {
        vec![
            PokeMessage::Hello,
            PokeMessage::Poke {
                graph_id: "d:alex".parse().expect("legal"),
            },
            PokeMessage::Resync,
        ]
    }

    proptest! {
        #[test]
        fn events_are_the_same_in_pieces_of_any_size(step in 1_usize..STREAM.len()) {
            let mut events = Events::default();
            for piece in STREAM.as_bytes().chunks(step) {
                events.take(piece).expect("short");
            }
            let read: Vec<_> = std::iter::from_fn(|| events.next()).collect();
            prop_assert_eq!(read, messages());
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let mut refused = false;
        for _ in 0..100 {
            refused |= events.take(&[b'x'; 1_000]).is_err();
        }
        assert!(refused);
    }
}
