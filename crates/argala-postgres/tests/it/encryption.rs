//! Connections that are encrypted, and to whom: `sslmode` as libpq has it.

use argala_core::ports::Store;
use argala_postgres::{OpenError, Options, Postgres, migrate};
use argala_testkit::servers::{Authority, PrivatePostgres, Session};

/// A server that encrypts, with a certificate for `name`.
async fn server(authority: &Authority, name: &str) -> PrivatePostgres {
    let server = PrivatePostgres::start().await;
    let (certificate, key) = authority.sign(name);
    let certificate = server.file("server.crt", &certificate);
    let key = server.file("server.key", &key);
    server.configure("ssl", "on");
    server.configure("ssl_cert_file", &certificate.display().to_string());
    server.configure("ssl_key_file", &key.display().to_string());
    server.restart().await;
    server
}

fn with(url: &str, parameters: &str) -> Options {
    let and = if url.contains('?') { '&' } else { '?' };
    Options::new(format!("{url}{and}{parameters}"))
}

async fn opens(options: &Options) -> bool {
    match Postgres::open(options).await {
        Ok(db) => {
            db.ping().await.unwrap();
            true
        }
        Err(OpenError::Unreachable(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_trusts_whom_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, authority: &Authority| {
        let path = folder.path().join(name);
        std::fs::write(&path, authority.certificate()).unwrap();
        path.display().to_string()
    };
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (our_file, their_file) = (file("ours.pem", &ours), file("theirs.pem", &theirs));
    let named = server(&ours, "127.0.0.1").await;
    let misnamed = server(&ours, "database.example").await;
    for server in [&named, &misnamed] {
        migrate(&with(&server.url(), "sslmode=require"))
            .await
            .unwrap();
    }
    for (mode, roots, of_named, of_misnamed) in [
        ("disable", None, true, true),
        ("prefer", None, true, true),
        ("require", None, true, true),
        ("require", Some(&our_file), true, true),
        ("require", Some(&their_file), false, false),
        ("verify-ca", Some(&our_file), true, true),
        ("verify-ca", Some(&their_file), false, false),
        ("verify-full", Some(&our_file), true, false),
        ("verify-full", Some(&their_file), false, false),
    ] {
        let roots = roots.map_or_else(String::new, |file| format!("&sslrootcert={file}"));
        let parameters = format!("sslmode={mode}{roots}");
        assert_eq!(
            opens(&with(&named.url(), &parameters)).await,
            of_named,
            "{parameters}"
        );
        assert_eq!(
            opens(&with(&misnamed.url(), &parameters)).await,
            of_misnamed,
            "{parameters}"
        );
    }

    let encrypted = async |parameters: &str| {
        let mut options = with(&named.url(), parameters);
        options.connections = 1;
        let db = Postgres::open(&options).await.unwrap();
        let beside = Session::open(&named.url()).await;
        let encrypted = beside
            .text(
                "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                 WHERE application_name = 'argala' AND state = 'idle'",
            )
            .await;
        db.close().await;
        encrypted
    };
    assert_eq!(encrypted("sslmode=prefer").await, "t");
    assert_eq!(encrypted("sslmode=require").await, "t");
    let nothing = with(
        &named.url(),
        "sslmode=verify-full&sslrootcert=/no/such/file",
    );
    assert!(matches!(
        Postgres::open(&nothing).await.map(drop),
        Err(OpenError::Tls(_))
    ));
}

#[tokio::test]
async fn a_server_that_cannot_encrypt_is_refused_where_it_must() {
    let server = PrivatePostgres::start().await;
    migrate(&with(&server.url(), "sslmode=prefer"))
        .await
        .unwrap();
    assert!(opens(&with(&server.url(), "sslmode=prefer")).await);
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(!opens(&with(&server.url(), &format!("sslmode={mode}"))).await);
    }
}
