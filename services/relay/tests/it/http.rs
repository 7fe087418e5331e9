//! A client of a few lines, over a plain socket: what a test sends is what goes out.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use serde_json::Value;

use crate::process::SOON;

/// An address and what every path there begins with.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) prefix: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The answer's body, of which it is known that it is a success.
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Target {
    pub(crate) fn parse(url: &str) -> Self {
        let rest = url.trim().strip_prefix("http://").unwrap();
        let (address, prefix) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        Self {
            address: address.to_owned(),
            prefix: prefix.to_owned(),
        }
    }

    /// A fresh connection, whose reads do not wait for ever.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream
    }

    /// Sends the head of a request.
    pub(crate) fn begin(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> TcpStream {
        let mut head = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\n",
            self.prefix, self.address
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = self.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let length = body.len().to_string();
        let mut all = vec![
            ("connection", "close"),
            ("content-type", "application/json"),
            ("content-length", &length),
        ];
        all.extend_from_slice(headers);
        let mut stream = self.begin(method, path, &all);
        // One that is refused early may be cut off while it still sends.
        let _ = stream.write_all(body);
        answer(stream).expect("an answer")
    }

    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, b"")
    }

    /// Sends bytes as they are.
    pub(crate) fn put(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let length = body.len().to_string();
        let mut all = vec![
            ("connection", "close"),
            ("content-type", "application/octet-stream"),
            ("content-length", &length),
        ];
        all.extend_from_slice(headers);
        let mut stream = self.begin("PUT", path, &all);
        let _ = stream.write_all(body);
        answer(stream).expect("an answer")
    }

    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send("POST", path, headers, body.to_string().as_bytes())
    }
}

/// Reads a whole answer; `None` where the connection ends without one.
pub(crate) fn answer(stream: TcpStream) -> Option<Answer> {
    answer_to("GET", stream)
}

/// The same to a request of this method: one to `HEAD` has no body, whatever its head says.
pub(crate) fn answer_to(method: &str, stream: TcpStream) -> Option<Answer> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let read = reader.read_line(&mut head).ok()?;
        if read == 0 {
            return None;
        }
        if head.ends_with("\r\n\r\n") {
            break;
        }
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = header(&head, "content-length").and_then(|length| length.parse().ok());
    let mut body = Vec::new();
    match length {
        Some(length) if method != "HEAD" => {
            body.resize(length, 0);
            reader.read_exact(&mut body).ok()?;
        }
        _ => {
            reader.read_to_end(&mut body).ok()?;
        }
    }
    Some(Answer { status, head, body })
}

/// A header of an answer's head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// An event stream: its lines as they come.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    /// All that was read, the answer's head included.
    pub(crate) said: String,
}

impl Events {
    /// Opens a stream of pokes, and waits for its hello.
    pub(crate) fn open(target: &Target, headers: &[(&str, &str)]) -> Self {
        // Its end is then the connection's.
        let mut all = vec![("accept", "text/event-stream"), ("connection", "close")];
        all.extend_from_slice(headers);
        let reader = BufReader::new(target.begin("GET", "/pokes", &all));
        let mut events = Self {
            reader,
            said: String::new(),
        };
        assert!(events.wait_for("argala.hello"), "no hello");
        events
    }

    /// Reads on to a line that holds `text`; `false` where the stream ends without one.
    pub(crate) fn wait_for(&mut self, text: &str) -> bool {
        let mut line = String::new();
        loop {
            line.clear();
            match self.reader.read_line(&mut line) {
                Ok(0) => return false,
                Ok(_) => self.said.push_str(&line),
                Err(error) => panic!("waiting for {text}: {error}"),
            }
            if line.contains(text) {
                return true;
            }
        }
    }

    /// Reads the next line, if one comes within that time; `false` where the stream has ended.
    pub(crate) fn is_open(&mut self, within: std::time::Duration) -> bool {
        let within = within.max(std::time::Duration::from_millis(1));
        self.reader
            .get_ref()
            .set_read_timeout(Some(within))
            .unwrap();
        let mut line = String::new();
        let is_open = match self.reader.read_line(&mut line) {
            Ok(read) => read > 0,
            Err(error) => matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
        };
        self.reader.get_ref().set_read_timeout(Some(SOON)).unwrap();
        is_open
    }

    /// Reads to the end of the stream, which comes long before this client gives up.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }
}
