//! A server that speaks as much HTTP as it takes to answer S3's questions badly.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use argala_testkit::servers::S3Place;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    /// By their names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// What is done about it.
pub(super) enum Then {
    /// These bytes, and goodbye.
    Answer(Vec<u8>),
    /// These bytes, and the connection is torn down.
    Reset(Vec<u8>),
    /// These bytes, and nothing more.
    Silence(Vec<u8>),
}

pub(super) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status} Told\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A refusal in S3's form.
pub(super) fn refusal(status: u16, code: &str) -> Then {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    Then::Answer(answer(
        status,
        "content-type: application/xml\r\n",
        body.as_bytes(),
    ))
}

pub(super) struct Stub {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

type Behaviour = dyn Fn(usize, &Asked) -> Then + Send + Sync;

impl Stub {
    /// One that does `then` about the request of that number, the first being 0.
    pub(super) async fn start(
        then: impl Fn(usize, &Asked) -> Then + Send + Sync + 'static,
    ) -> Self {
        Self::reading(usize::MAX, then).await
    }

    /// One that reads `most` bytes of the first body and does not wait for the rest.
    pub(super) async fn reading(
        most: usize,
        then: impl Fn(usize, &Asked) -> Then + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (noted, then): (_, Arc<Behaviour>) = (Arc::clone(&asked), Arc::new(then));
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, most, Arc::clone(&noted), Arc::clone(&then)));
            }
        });
        Self {
            address,
            asked,
            task,
        }
    }

    pub(super) fn place(&self) -> S3Place {
        S3Place {
            endpoint: format!("http://{}", self.address),
            id: "id".to_owned(),
            secret: "secret".to_owned(),
        }
    }

    /// What has been asked so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut socket: TcpStream,
    most: usize,
    noted: Arc<Mutex<Vec<Asked>>>,
    then: Arc<Behaviour>,
) {
    let Some((asked, number)) = read(&mut socket, most, &noted).await else {
        return;
    };
    let (bytes, after) = match then(number, &asked) {
        Then::Answer(bytes) => (bytes, false),
        Then::Reset(bytes) => {
            let _ = socket.write_all(&bytes).await;
            socket.set_zero_linger().unwrap();
            return;
        }
        Then::Silence(bytes) => (bytes, true),
    };
    let _ = socket.write_all(&bytes).await;
    if after {
        std::future::pending::<()>().await;
    }
    let _ = socket.shutdown().await;
}

/// The request, and its number; `None` where the connection was opened for nothing.
async fn read(
    socket: &mut TcpStream,
    most: usize,
    noted: &Mutex<Vec<Asked>>,
) -> Option<(Asked, usize)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let mut asked = Asked {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        ..Asked::default()
    };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().to_owned();
        asked.headers.insert(name.to_ascii_lowercase(), value);
    }
    asked.body = bytes[end + 4..].to_vec();
    let length = asked.headers.get("content-length");
    let length = length.map_or(0, |length| length.parse().unwrap());
    let number = {
        let mut noted = noted.lock().unwrap();
        noted.push(asked.clone());
        noted.len() - 1
    };
    let wanted = if number == 0 {
        most.min(length)
    } else {
        length
    };
    while asked.body.len() < wanted {
        if socket.read_buf(&mut asked.body).await.ok()? == 0 {
            break;
        }
    }
    noted.lock().unwrap()[number] = asked.clone();
    Some((asked, number))
}
