//! An S3 of one's own, in this process.

use std::{
    env,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use s3s::{
    S3Result,
    auth::SimpleAuth,
    host::{S3Host, VirtualHost},
    service::S3ServiceBuilder,
};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

/// Names an S3 to use instead: `http://ID:SECRET@HOST:PORT`, whose user may create buckets.
pub const S3_VARIABLE: &str = "ARGALA_TEST_S3_URL";

/// Whom the server knows.
const ID: &str = "argala-test";
const SECRET: &str = "a secret of nobody's";

/// The name that the server answers to beside its address; buckets stand before it.
const DOMAIN: &str = "s3.test";

/// Where an S3 is, and who may use it.
#[derive(Debug, Clone)]
pub struct S3Place {
    /// `http://HOST:PORT`.
    pub endpoint: String,
    /// The public half of a key.
    pub id: String,
    /// Its secret half.
    pub secret: String,
}

impl S3Place {
    /// One of ours.
    fn of_nobody(host: &str) -> Self {
        Self {
            endpoint: format!("http://{host}"),
            id: ID.to_owned(),
            secret: SECRET.to_owned(),
        }
    }

    /// The one that the environment names.
    ///
    /// # Panics
    /// Where what it names is no such URL.
    #[must_use]
    pub fn named() -> Option<Self> {
        let url = env::var(S3_VARIABLE).ok()?;
        let parts = || {
            let (scheme, rest) = url.split_once("://")?;
            let (user, host) = rest.rsplit_once('@')?;
            let (id, secret) = user.split_once(':')?;
            Some(Self {
                endpoint: format!("{scheme}://{}", host.trim_end_matches('/')),
                id: id.to_owned(),
                secret: secret.to_owned(),
            })
        };
        Some(parts().unwrap_or_else(|| panic!("{S3_VARIABLE} is no http://ID:SECRET@HOST:PORT")))
    }
}

/// A moto in a process of its own, gone with this.
#[derive(Debug)]
pub struct MotoServer(argala_servers::Moto);

impl MotoServer {
    /// Starts one; blocks meanwhile.
    ///
    /// # Panics
    /// Where there is none to be had; the message says what to do.
    #[must_use]
    pub fn start() -> Self {
        Self(argala_servers::Moto::start().unwrap_or_else(|fault| panic!("{fault}")))
    }

    /// Where it is, for buckets in the path.
    #[must_use]
    pub fn place(&self) -> S3Place {
        // What begins so has no bucket before it, to moto.
        S3Place::of_nobody(&format!("localhost:{}", self.0.port()))
    }

    /// Where it is, for buckets in the host's name: a name that no resolver knows, of the address
    /// `127.0.0.1`.
    #[must_use]
    pub fn virtual_place(&self) -> S3Place {
        S3Place::of_nobody(&format!("{DOMAIN}:{}", self.0.port()))
    }
}

/// A server over a folder, gone with this. Needs the runtime it was started on.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    folder: PathBuf,
    _kept: Option<TempDir>,
    task: JoinHandle<()>,
}

impl S3Server {
    /// Starts one on a free port of `127.0.0.1`, over a new folder that goes with it.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Self::start_in(folder.path()).await;
        server._kept = Some(folder);
        server
    }

    /// Starts one on a free port of `127.0.0.1`, over a folder that is there and stays.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn start_in(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let files = FileSystem::new(&folder).expect("a folder that can be used");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a port");
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(ID, SECRET));
        service.set_host(Names(format!("{DOMAIN}:{}", address.port())));
        let service = service.build();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let served = auto::Builder::new(TokioExecutor::new());
                    // Whoever hangs up in the middle is a test.
                    let _ = served.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self {
            address,
            folder,
            _kept: None,
            task,
        }
    }

    /// Where it is, for buckets in the path.
    #[must_use]
    pub fn place(&self) -> S3Place {
        S3Place::of_nobody(&self.address.to_string())
    }

    /// Where it is, for buckets in the host's name: a name that no resolver knows, of the address
    /// `127.0.0.1`.
    #[must_use]
    pub fn virtual_place(&self) -> S3Place {
        S3Place::of_nobody(&format!("{DOMAIN}:{}", self.address.port()))
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// Where there is one of that name.
    pub fn make_bucket(&self, name: &str) {
        fs::create_dir(self.folder.join(name)).expect("a new bucket");
    }

    /// Removes an object behind everybody's back; whether there was one.
    #[must_use]
    pub fn lose(&self, bucket: &str, object: &str) -> bool {
        fs::remove_file(self.folder.join(bucket).join(object)).is_ok()
    }

    /// Puts an object there behind everybody's back.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn plant(&self, bucket: &str, object: &str, content: &[u8]) {
        let path = self.folder.join(bucket).join(object);
        let folder = path.parent().expect("an object lies in its bucket");
        fs::create_dir_all(folder).expect("a folder");
        fs::write(path, content).expect("an object");
    }

    /// Makes an object be as old as this.
    ///
    /// # Panics
    /// Where there is none of that name.
    pub fn age(&self, bucket: &str, object: &str, age: Duration) {
        let path = self.folder.join(bucket).join(object);
        let file = File::options().write(true).open(path).expect("an object");
        let written = file.metadata().and_then(|it| it.modified());
        let written = written.expect("a time") - age;
        file.set_modified(written).expect("another time");
    }

    /// Whether a bucket has an object, whatever its name.
    #[must_use]
    pub fn holds(&self, bucket: &str, object: &str) -> bool {
        self.folder.join(bucket).join(object).is_file()
    }

    /// The names of the objects in a bucket, sorted.
    ///
    /// # Panics
    /// Where there is no such bucket.
    #[must_use]
    pub fn objects(&self, bucket: &str) -> Vec<String> {
        let bucket = self.folder.join(bucket);
        let mut found = Vec::new();
        let mut folders = vec![bucket.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a bucket") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&bucket).expect("it lies in it");
                    found.push(name.to_string_lossy().into_owned());
                }
            }
        }
        // What the server has not finished has names of its own.
        found.retain(|name| argala_core::ports::ObjectKey::parse(name).is_some());
        found.sort();
        found
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The server's name, with its port. Before it stands a bucket; of its address, there is none.
struct Names(String);

impl S3Host for Names {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = VirtualHost::new(self.0.as_str());
        let bucket = host.strip_suffix(self.0.as_str());
        Ok(match bucket.and_then(|bucket| bucket.strip_suffix('.')) {
            Some(bucket) => name.with_bucket(bucket),
            None => name,
        })
    }
}
