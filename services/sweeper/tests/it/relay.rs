//! A relay to be killed: this program once more, serving as the relay's binary does.

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use argala_boot::{
    config::{DEV_AUTH_VARIABLE, Sources},
    dev,
    server::Server,
};

use crate::process::{SOON, Settings};

/// Names the folder of a relay's data, where this program is to be one.
const CHILD: &str = "SWEEPER_TEST_RELAY";

/// What sam's laptop says of itself.
const SAM: &str = "Dev sam/laptop";

/// No test by itself: the process that the others start.
#[tokio::test]
async fn serve_until_killed() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let mut sources = Sources::of_process(None);
    sources.preset = dev::preset(Path::new(&folder));
    let config = sources.load().unwrap().config;
    let server = Server::open(config, async |_| Ok(())).await.unwrap();
    println!("listening on {}", server.base_url());
    server.run().await;
}

/// A relay that serves.
pub(crate) struct Relay {
    child: Child,
    address: String,
    prefix: String,
}

impl Relay {
    /// Starts one that keeps in `folder` what it does not keep elsewhere.
    pub(crate) fn start(folder: &Path, settings: &Settings) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["relay::serve_until_killed", "--exact", "--nocapture"])
            .envs(settings.variables())
            .env("ARGALA__HTTP__LISTEN", "127.0.0.1:0")
            .env(DEV_AUTH_VARIABLE, "1")
            .env(CHILD, folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on http://")?.1.to_owned()));
        let url = url.expect("it says where it listens");
        let (address, prefix) = url.split_once('/').unwrap();
        Self {
            child,
            address: address.to_owned(),
            prefix: format!("/{prefix}"),
        }
    }

    /// Sends the head of a request for a blob of the group's.
    fn begin(&self, method: &str, blob: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(
            stream,
            "{method} {}/graphs/g:acme/blobs/{blob} HTTP/1.1\r\nhost: {}\r\n\
             authorization: {SAM}\r\ncontent-type: application/octet-stream\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n",
            self.prefix, self.address
        )
        .unwrap();
        stream
    }

    /// Announces all of an upload and sends nothing of it yet.
    pub(crate) fn begin_put(&self, blob: &str, length: usize) -> TcpStream {
        self.begin("PUT", blob, length)
    }

    /// Uploads a blob; the status that it is answered with.
    pub(crate) fn put(&self, blob: &str, bytes: &[u8]) -> u16 {
        let mut stream = self.begin_put(blob, bytes.len());
        stream.write_all(bytes).unwrap();
        answer(stream).0
    }

    /// A blob's bytes, or the body of what else was answered; the status.
    pub(crate) fn get(&self, blob: &str) -> (u16, Vec<u8>) {
        answer(self.begin("GET", blob, 0))
    }

    /// Kills it; returns once it is gone.
    pub(crate) fn kill(mut self) {
        // SIGKILL: nothing of it runs after this.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(mut stream: TcpStream) -> (u16, Vec<u8>) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|part| part == b"\r\n\r\n");
    let body = all.split_off(end.expect("an answer") + 4);
    let head = String::from_utf8(all).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}
