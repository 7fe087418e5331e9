//! Everything that the relay speaks to, encrypted.

use std::{fs, path::Path};

use argala_testkit::servers::{Authority, PrivatePostgres, PrivateRedis, S3Server, TlsFront};
use tokio::runtime::Runtime;

use crate::{
    device::TestDevice,
    postgres::runtime,
    process::{Served, ok_with},
};

const BUCKET: &str = "argala-blobs";
const BLOB: &str = "/graphs/d:sam/blobs/blob-number-one-of-sam";

/// A Postgres, a Redis and an S3 whose certificates nobody but their authority vouches for.
struct Encrypted {
    authority: Authority,
    postgres: PrivatePostgres,
    redis: PrivateRedis,
    s3: S3Server,
    redis_front: TlsFront,
    s3_front: TlsFront,
    runtime: Runtime,
}

impl Encrypted {
    fn start() -> Self {
        let runtime = runtime();
        let authority = Authority::new();
        let (postgres, redis, s3, redis_front, s3_front) = runtime.block_on(async {
            let postgres = PrivatePostgres::start().await;
            let (certificate, key) = authority.sign("127.0.0.1");
            let certificate = postgres.file("server.crt", &certificate);
            let key = postgres.file("server.key", &key);
            postgres.configure("ssl", "on");
            postgres.configure("ssl_cert_file", &certificate.display().to_string());
            postgres.configure("ssl_key_file", &key.display().to_string());
            postgres.restart().await;
            let redis = PrivateRedis::start().await;
            let s3 = S3Server::start().await;
            let port = s3.place().endpoint.rsplit(':').next().unwrap().parse();
            let redis_front = TlsFront::to(redis.ports()[0], &authority).await;
            let s3_front = TlsFront::to(port.unwrap(), &authority).await;
            (postgres, redis, s3, redis_front, s3_front)
        });
        s3.make_bucket(BUCKET);
        Self {
            authority,
            postgres,
            redis,
            s3,
            redis_front,
            s3_front,
            runtime,
        }
    }

    /// A configuration in `folder` by which a relay uses all of them.
    fn configure(&self, folder: &Path) -> String {
        let roots = folder.join("authority.pem");
        fs::write(&roots, self.authority.certificate()).unwrap();
        let place = self.s3.place();
        format!(
            "[store]\nkind = \"postgres\"\n\
             url = \"{}{}sslmode=verify-full&sslrootcert={}\"\n\
             [redis]\nurl = \"rediss://127.0.0.1:{}\"\n\
             [limiter]\nkind = \"redis\"\n[pokes]\nkind = \"redis\"\n\
             [blobs]\nkind = \"s3\"\nbucket = \"{BUCKET}\"\nforce_path_style = true\n\
             endpoint = \"https://127.0.0.1:{}\"\naccess_key_id = \"{}\"\n\
             secret_access_key = \"{}\"\nspool_path = \"spool\"\n\
             [auth.jwt]\nsecret = \"a-secret-of-at-least-thirty-two-bytes\"\n",
            self.postgres.url(),
            if self.postgres.url().contains('?') {
                '&'
            } else {
                '?'
            },
            roots.display(),
            self.redis_front.port(),
            self.s3_front.port(),
            place.id,
            place.secret,
        )
    }

    /// How many keys Redis has.
    fn keys(&self) -> String {
        self.runtime.block_on(self.redis.ask(0, "DBSIZE"))
    }
}

/// smithy-rs 4086: with two providers of cryptography in one process, and neither chosen, the first
/// handshake panics.
#[test]
fn smithy_rs_4086_one_process_speaks_tls_to_postgres_redis_and_s3_and_verifies_a_token() {
    let (folder, servers) = (tempfile::tempdir().unwrap(), Encrypted::start());
    let config = servers.configure(folder.path());
    fs::write(folder.path().join("relay.toml"), &config).unwrap();
    let roots = folder.path().join("authority.pem");
    let trust = [("SSL_CERT_FILE", roots.to_str().unwrap())];
    let operator = |args: &[&str]| {
        let args = [args, &["--config", "relay.toml"]].concat();
        ok_with(&args, folder.path(), &trust)
    };
    operator(&["migrate"]);
    operator(&["admin", "member", "add", "sam"]);
    let minted = [
        "admin", "token", "mint", "--member", "sam", "--device", "laptop",
    ];
    let credential = format!("Bearer {}", operator(&minted).trim());
    let sam = TestDevice::with_credential("sam", "laptop", &credential);
    let bytes = vec![b'x'; 300_000];

    let mut served = Served::with_config_and(folder.path(), &config, &trust);
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let put = served.public.put(BLOB, &sam.headers(), &bytes);
    assert_eq!(put.status, 201, "{put:?}");
    let got = served.public.get(BLOB, &sam.headers());
    assert!(got.status == 200 && got.body == bytes);
    assert_eq!(servers.s3.objects(BUCKET).len(), 1);
    assert_ne!(servers.keys(), ":0", "limits are counted there");
    assert!(served.stop().0.success());

    // Who does not trust them gets nowhere, and says nothing to them.
    servers.runtime.block_on(servers.redis.ask(0, "FLUSHALL"));
    let mut served = Served::with_config_and(folder.path(), &config, &[]);
    assert_eq!(served.public.get(BLOB, &sam.headers()).status, 503);
    assert_eq!(servers.keys(), ":0");
    let (status, log) = served.stop();
    assert!(status.success() && !log.contains("panicked"), "{log}");
}
