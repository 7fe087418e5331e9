//! A group's graph, a place for the bytes of its blobs, and relays and sweepers on both.

use std::fs;

use argala_testkit::servers::{Database, S3Server, Session};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{WRONG, count, keyed, migrated, runtime};
use crate::{
    process::{SOON, Settings, pause, run_with},
    relay::Relay,
};

pub(super) const BUCKET: &str = "argala-blobs";

/// Where the bytes of blobs lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Database,
    Bucket,
}

pub(super) struct Stage {
    settings: Settings,
    pub(super) session: Session,
    /// The bucket's server, where there is one.
    bucket: Option<S3Server>,
    folder: TempDir,
    _database: Database,
    // Dropped last: what is above has tasks on it.
    pub(super) runtime: Runtime,
}

impl Stage {
    pub(super) fn new(place: Place) -> Self {
        let runtime = runtime();
        let database = runtime.block_on(migrated());
        let url = database.url();
        runtime.block_on(async { drop(keyed(&url).await) });
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::on(&url);
        let bucket = (place == Place::Bucket).then(|| {
            let server = runtime.block_on(S3Server::start());
            server.make_bucket(BUCKET);
            let place = server.place();
            let spool = folder.path().join("spool");
            for (key, value) in [
                ("BLOBS__KIND", "s3"),
                ("BLOBS__BUCKET", BUCKET),
                ("BLOBS__ENDPOINT", &place.endpoint),
                ("BLOBS__FORCE_PATH_STYLE", "true"),
                ("BLOBS__ACCESS_KEY_ID", &place.id),
                ("BLOBS__SECRET_ACCESS_KEY", &place.secret),
                ("BLOBS__SPOOL_PATH", spool.to_str().unwrap()),
            ] {
                settings.set(key, value);
            }
            server
        });
        Self {
            session: runtime.block_on(Session::open(&url)),
            settings,
            bucket,
            folder,
            _database: database,
            runtime,
        }
    }

    pub(super) fn relay(&self) -> Relay {
        Relay::start(&self.folder.path().join("kept"), &self.settings)
    }

    /// What a sweeper is told: it uploads nothing, and its disk may not be written to.
    pub(super) fn sweeping(&self) -> Settings {
        let mut settings = self.settings.clone();
        settings.set("BLOBS__SPOOL_PATH", "/dev/null/spool");
        settings
    }

    /// One pass by the real binary: what it tells.
    pub(super) fn sweep(&self, args: &[&str]) -> Value {
        let args = [&["once", "--output", "json"], args].concat();
        let output = run_with(&self.sweeping(), &args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub(super) fn run(&self, statements: &str) {
        self.runtime.block_on(self.session.run(statements));
    }

    pub(super) fn count(&self, question: &str) -> u64 {
        count(&self.runtime, &self.session, question)
    }

    /// Asks until the answer is at least `wanted`.
    pub(super) fn wait_for(&self, wanted: u64, question: impl Fn(&Self) -> u64) {
        let mut looks = SOON.as_millis() / 20;
        while question(self) < wanted {
            looks -= 1;
            assert!(looks > 0, "it never comes to be");
            pause();
        }
    }

    pub(super) fn bucket(&self) -> &S3Server {
        self.bucket.as_ref().expect("a stage with a bucket")
    }

    /// Objects that are whole.
    pub(super) fn whole(&self) -> u64 {
        match &self.bucket {
            Some(server) => server.objects(BUCKET).len() as u64,
            None => self.count("SELECT count(*) FROM objects WHERE whole"),
        }
    }

    /// Objects, and parts of them.
    pub(super) fn remains(&self) -> u64 {
        match &self.bucket {
            Some(_) => self.whole() + self.spooled(),
            None => {
                self.count("SELECT (SELECT count(*) FROM objects) + (SELECT count(*) FROM chunks)")
            }
        }
    }

    /// Uploads on their way to the bucket that have a name in the spool.
    fn spooled(&self) -> u64 {
        let spool = self.folder.path().join("spool");
        fs::read_dir(spool).map_or(0, |entries| entries.count() as u64)
    }

    /// What the group's graph is charged, which is what its rows add up to.
    pub(super) fn charged(&self) -> u64 {
        assert_eq!(self.count(WRONG), 0, "the counters are exact");
        self.count("SELECT blob_bytes FROM graphs WHERE storage_key = 'g:acme'")
    }
}
