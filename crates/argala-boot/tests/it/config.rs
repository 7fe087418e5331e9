//! Layers, faults and secrets.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use argala_boot::config::{AuthKind, ConfigError, Fault, Loaded, Origin, Sources, StoreKind};
use secrecy::ExposeSecret;
use tempfile::TempDir;

const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("relay.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn with(&self, text: &str) -> Sources {
        Sources {
            file: Some(self.file(text)),
            ..Sources::default()
        }
    }

    fn load(&self, text: &str) -> Result<Loaded, ConfigError> {
        self.with(text).load()
    }

    fn faults(&self, text: &str) -> Vec<Fault> {
        self.load(text).expect_err("faulty").faults
    }
}

fn variable(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn lines(faults: &[Fault]) -> Vec<(usize, &str)> {
    faults
        .iter()
        .map(|fault| match &fault.origin {
            Some(Origin::File(_, line)) => (*line, fault.key.as_str()),
            _ => (0, fault.key.as_str()),
        })
        .collect()
}

#[test]
fn later_sources_beat_earlier_ones_key_by_key() {
    let stage = Stage::new();
    let mut sources = stage.with(&format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\n\
         [sweep]\ninterval = \"5s\"\n[directory]\ncache_ttl = \"1s\"\n\
         [rate_limits]\npush = {{ per_minute = 7 }}\n"
    ));
    sources.preset = vec![
        ("sweep.interval", "4s".to_owned()),
        ("log.format", "text".to_owned()),
    ];
    sources.variables = vec![
        variable("ARGALA__SWEEP__INTERVAL", "6s"),
        variable("ARGALA__HTTP__LISTEN", "127.0.0.1:1"),
        variable("ARGALA_DEV_AUTH", "1"),
        variable("HOME", "/nowhere"),
    ];
    sources.flags = vec![(
        "http.listen".to_owned(),
        "127.0.0.1:2".to_owned(),
        "--listen",
    )];
    let config = sources.load().unwrap().config;
    assert_eq!(config.http.listen.port(), 2, "flag over environment");
    assert_eq!(
        config.sweep.interval.0,
        Duration::from_secs(6),
        "environment over file"
    );
    assert_eq!(
        config.directory.cache_ttl.0,
        Duration::from_secs(1),
        "file over default"
    );
    assert_eq!(
        config.log.format,
        argala_boot::config::LogFormat::Text,
        "preset over default"
    );
    let push = config.rate_limits.rate_limits().push;
    assert_eq!(
        (push.per_minute, push.burst),
        (7, 1_200),
        "a table is laid over, not replaced"
    );
    assert_eq!(config.store.kind, StoreKind::Sqlite);
}

#[test]
fn the_environment_may_hold_text_numbers_and_lists() {
    let sources = Sources {
        variables: vec![
            variable("ARGALA__AUTH__KIND", r#"["jwt", "dev"]"#),
            variable(
                "ARGALA__AUTH__JWT__SECRET",
                "12345678901234567890123456789012",
            ),
            variable("ARGALA__QUOTAS__MAX_RECORDS_PER_GRAPH", "5"),
            variable("ARGALA__QUOTAS__MAX_BLOB_BYTES", "1048576"),
            variable("ARGALA__QUOTAS__MAX_PUSH_BYTES", "16 MiB"),
            variable("ARGALA__AUTH__JWT__AUDIENCE", r#"["a", "b"]"#),
        ],
        dev_auth: true,
        ..Sources::default()
    };
    let config = sources.load().unwrap().config;
    assert_eq!(config.auth.kind.0, [AuthKind::Jwt, AuthKind::Dev]);
    let secret = config.auth.jwt.secret.unwrap();
    assert_eq!(secret.expose_secret(), "12345678901234567890123456789012");
    assert_eq!(config.quotas.max_records_per_graph, 5);
    assert_eq!(config.quotas.max_blob_bytes.0, 1 << 20);
    assert_eq!(config.quotas.max_push_bytes.0, 16 << 20);
    assert_eq!(config.auth.jwt.audience.unwrap().0, ["a", "b"]);
}

#[test]
fn every_fault_is_told_at_once_with_its_line() {
    let stage = Stage::new();
    let faults = stage.faults(
        "[http]\n\
         listen = \"nowhere\"\n\
         prefix = \"argala\"\n\
         colour = \"blue\"\n\
         \n\
         [directory]\n\
         kind = \"sql\"\n\
         [quotas]\n\
         max_record_bytes = \"lots\"\n\
         max_records_per_push = 0\n\
         [rate_limits]\n\
         keys = { per_minute = 0, burst = 1 }\n\
         [shutdown]\n\
         grace = \"0s\"\n\
         [metrics]\n\
         a = 1\n\
         b = 2\n\
         [auth.jwt]\n\
         secret = \"short\"\n",
    );
    let mut told = lines(&faults);
    told.sort_unstable();
    assert_eq!(
        told,
        [
            (2, "http.listen"),
            (3, "http.prefix"),
            (4, "http.colour"),
            (7, "directory.kind"),
            (9, "quotas.max_record_bytes"),
            (10, "quotas.max_records_per_push"),
            (12, "rate_limits.keys.per_minute"),
            (14, "shutdown.grace"),
            (15, "metrics"),
            (19, "auth.jwt.secret"),
        ]
    );
    let text = ConfigError { faults }.to_string();
    let name = stage.folder.path().join("relay.toml");
    assert!(
        text.contains(&format!("{}:2: http.listen: ", name.display())),
        "{text}"
    );
    assert!(
        text.contains("this build has no directory \"sql\"; it has \"table\""),
        "{text}"
    );
}

#[test]
fn the_environment_and_flags_are_told_by_name() {
    let sources = Sources {
        variables: vec![
            variable("ARGALA__SWEEP__INTERVAL", "soon"),
            variable("ARGALA__REDIS__URLS", "redis://:hush@nowhere"),
        ],
        flags: vec![("directory.kind".to_owned(), "sql".to_owned(), "--set")],
        ..Sources::default()
    };
    let text = sources.load().expect_err("faulty").to_string();
    for line in [
        "environment variable ARGALA__SWEEP__INTERVAL: sweep.interval: not a duration",
        "environment variable ARGALA__REDIS__URLS: redis.urls: unknown key",
        "--set: directory.kind: this build has no directory \"sql\"; it has \"table\"",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("hush"), "{text}");
}

#[test]
fn syntax_errors_have_lines_and_what_can_be_read_is_still_checked() {
    let stage = Stage::new();
    let text = format!(
        "[http]\nlisten = \nprefix = \"x\"\n[auth.jwt]\nsecret = \"{SECRET}\"\n[sweep]\ninterval = 5\n"
    );
    let faults = stage.faults(&text);
    let told = lines(&faults);
    assert!(told.contains(&(2, "")), "{told:?}");
    assert!(told.contains(&(7, "sweep.interval")), "{told:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_one_fault() {
    let sources = Sources {
        file: Some(PathBuf::from("/nowhere/relay.toml")),
        operating: true,
        ..Sources::default()
    };
    let error = sources.load().expect_err("no file");
    assert_eq!(error.faults.len(), 1);
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/relay.toml:1: cannot be read"),
        "{error}"
    );
}

#[test]
fn no_fault_repeats_a_secret() {
    let stage = Stage::new();
    // So short that even where it is read it is faulty.
    let hush = "hushhus";
    for text in [
        format!("[auth.jwt]\nsecret = \"{hush}\"\n"),
        format!("[auth.jwt]\nsecret = [\"{hush}\"]\n"),
        format!("[auth.jwt]\nsecret = \"{hush}\n"),
        format!("[auth]\njwt = \"{hush}\"\n"),
        format!("auth = \"{hush}\"\n"),
        format!("[auth.jwt]\nsecrets = \"{hush}\"\n"),
        format!("[auth.jwt.secret]\n{hush} = 1\n"),
    ] {
        let error = stage.load(&text).expect_err("faulty");
        // A key that somebody made of a secret is theirs to have told; a value is not.
        if !text.contains("[auth.jwt.secret]") {
            assert!(!error.to_string().contains(hush), "{text}: {error}");
        }
        assert!(!format!("{error:?}").contains(hush), "{text}: {error:?}");
    }
}

#[test]
fn settings_that_are_printed_while_debugging_tell_no_secret() {
    let stage = Stage::new();
    let text = format!("[auth.jwt]\nsecret = \"{SECRET}\"\n");
    let loaded = stage.load(&text).unwrap();
    assert!(!format!("{loaded:?}").contains(SECRET));
}

#[test]
fn secrets_may_lie_in_files_and_are_never_shown() {
    let stage = Stage::new();
    let path = stage.folder.path().join("jwt");
    fs::write(&path, format!("{SECRET}\n")).unwrap();
    let loaded = stage
        .load(&format!(
            "[auth.jwt]\nsecret_file = {:?}\n",
            path.display().to_string()
        ))
        .unwrap();
    let secret = loaded.config.auth.jwt.secret.as_ref().unwrap();
    assert_eq!(secret.expose_secret(), SECRET, "without the line's end");

    let inline = stage
        .load(&format!("[auth.jwt]\nsecret = \"{SECRET}\"\n"))
        .unwrap();
    for loaded in [loaded, inline] {
        assert!(!loaded.to_toml().contains(SECRET));
        assert!(!loaded.to_json().to_string().contains(SECRET));
        assert!(!format!("{:?}", loaded.config).contains(SECRET));
    }
}

#[test]
fn a_secret_is_given_once() {
    let stage = Stage::new();
    let faults = stage.faults(&format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\nsecret_file = \"/nowhere\"\n"
    ));
    assert_eq!(lines(&faults), [(3, "auth.jwt.secret_file")]);
    let faults = stage.faults("[auth.jwt]\nsecret_file = \"/nowhere\"\n");
    assert_eq!(
        lines(&faults),
        [(2, "auth.jwt.secret_file")],
        "and not that there is none"
    );
}

#[test]
fn a_redis_is_named_by_a_url_that_nobody_is_shown() {
    let stage = Stage::new();
    let file = stage.folder.path().join("redis-url");
    fs::write(&file, "redis://:hushhush@cache.internal:6379/0\n").unwrap();
    let text = format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\n[limiter]\nkind = \"redis\"\n\
         [redis]\nurl_file = \"{}\"\n",
        file.display()
    );
    let loaded = stage.load(&text).unwrap();
    let url = loaded.config.redis.url.as_ref().unwrap();
    assert_eq!(
        url.expose_secret(),
        "redis://:hushhush@cache.internal:6379/0"
    );
    for shown in [
        format!("{loaded:?}"),
        loaded.to_toml(),
        loaded.to_json().to_string(),
    ] {
        assert!(!shown.contains("hushhush"), "{shown}");
    }
    for (url, told) in [
        ("http://hushhush", "redis.url: must begin with redis://"),
        (
            "redis-sentinel://hushhush:1",
            "redis.url: needs ?sentinelServiceName=",
        ),
        (
            "redis-cluster://hushhush:1/3",
            "redis.url: names a database",
        ),
        ("redis://:hushhush@host:port", "redis.url: is no URL"),
    ] {
        fs::write(&file, url).unwrap();
        let error = stage.load(&text).expect_err(url).to_string();
        assert!(error.contains(told), "{url}: {error}");
        assert!(!error.contains("hushhush"), "{url}: {error}");
    }
}

#[test]
fn what_is_printed_reads_back_and_tells_where_it_came_from() {
    let stage = Stage::new();
    let mut sources = stage.with("[http]\nlisten = \"127.0.0.1:1\"\n[sweep]\ngrace = \"2h\"\n");
    sources.operating = true;
    sources.variables = vec![variable("ARGALA__QUOTAS__MAX_BLOB_BYTES", "1 MiB")];
    let printed = sources.load().unwrap().to_toml();
    assert!(printed.contains("relay.toml:2"), "{printed}");
    assert!(
        printed.contains(
            "max_blob_bytes = \"1 MiB\"  # environment variable ARGALA__QUOTAS__MAX_BLOB_BYTES"
        ),
        "{printed}"
    );
    let mut again = stage.with(&printed);
    again.operating = true;
    let config = again.load().unwrap().config;
    assert_eq!(config.http.listen.port(), 1);
    assert_eq!(config.quotas.max_blob_bytes.0, 1 << 20);
    assert_eq!(config.sweep.grace.0, Duration::from_secs(7_200));
}

#[test]
fn the_bare_word_of_a_caller_is_believed_only_where_that_is_allowed() {
    let stage = Stage::new();
    let faults = stage.faults("[auth]\nkind = \"dev\"\n");
    assert_eq!(lines(&faults), [(2, "auth.kind")]);
    assert!(
        faults[0].message.contains("ARGALA_DEV_AUTH=1"),
        "{}",
        faults[0]
    );
    let mut sources = stage.with("[auth]\nkind = \"dev\"\n");
    sources.dev_auth = true;
    assert!(sources.load().is_ok());
}

#[test]
fn keys_and_algorithms_must_fit_each_other() {
    let stage = Stage::new();
    let long = "x".repeat(64);
    for (text, key) in [
        (format!("secret = \"{}\"", "x".repeat(7)), "auth.jwt.secret"),
        (
            format!("secret = \"{long}\"\nalgorithms = [\"EdDSA\"]"),
            "auth.jwt.algorithms",
        ),
        (
            format!("secret = \"{long}\"\nalgorithms = []"),
            "auth.jwt.algorithms",
        ),
        (
            format!("secret = \"{long}\"\nalgorithms = [\"none\"]"),
            "auth.jwt.algorithms",
        ),
        (
            "public_key = \"x\"\nalgorithms = [\"EdDSA\"]".to_owned(),
            "auth.jwt.public_key",
        ),
        ("algorithms = [\"HS256\"]".to_owned(), "auth.jwt"),
        (
            format!("secret = \"{long}\"\ndevice_claim = \"sub\""),
            "auth.jwt.device_claim",
        ),
        (
            format!("secret = \"{long}\"\naudience = []"),
            "auth.jwt.audience",
        ),
    ] {
        let faults = stage.faults(&format!("[auth.jwt]\n{text}\n"));
        let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
        assert_eq!(keys, [key], "{text}: {faults:?}");
    }
    assert!(
        stage
            .load(&format!(
                "[auth.jwt]\nsecret = \"{long}\"\nalgorithms = [\"HS512\"]\n"
            ))
            .is_ok()
    );
}

#[test]
fn single_rules_refuse_what_they_speak_of() {
    let stage = Stage::new();
    for (text, key) in [
        ("http.prefix = \"/a/\"", "http.prefix"),
        ("http.prefix = \"/{id}\"", "http.prefix"),
        ("http.trusted_proxies = [\"proxy\"]", "http.trusted_proxies"),
        ("http.max_connections = 0", "http.max_connections"),
        (
            "http.max_buffered_bytes = \"1 MiB\"",
            "http.max_buffered_bytes",
        ),
        ("http.header_timeout = \"0s\"", "http.header_timeout"),
        ("http.listen.port = 1", "http.listen"),
        ("admin.listen = \"127.0.0.1:8787\"", "admin.listen"),
        ("directory.cache_ttl = \"61s\"", "directory.cache_ttl"),
        ("directory.kind = \"sql\"", "directory.kind"),
        ("blobs.kind = \"carrier pigeon\"", "blobs.kind"),
        ("pokes.kind = \"carrier pigeon\"", "pokes.kind"),
        ("pokes.kind = \"redis\"", "pokes.kind"),
        ("limiter.kind = \"redis\"", "limiter.kind"),
        ("limiter.timeout = \"0s\"", "limiter.timeout"),
        ("limiter.timeout = \"2s\"", "limiter.timeout"),
        ("redis.url = \"redis://a:1\"", "redis.url"),
        ("redis.prefix = \"{a}\"", "redis.prefix"),
        ("redis.timeout = \"0s\"", "redis.timeout"),
        ("auth.kind = \"introspect\"", "auth.kind"),
        ("auth.kind = []", "auth.kind"),
        ("sweep.interval = \"10ms\"", "sweep.interval"),
        ("sweep.grace = \"0s\"", "sweep.grace"),
        ("log.level = \"loud=quiet\"", "log.level"),
        ("log.format = \"xml\"", "log.format"),
        ("relay.signatures = \"maybe\"", "relay.signatures"),
        (
            "quotas.max_record_bytes = \"8 MiB\"",
            "quotas.max_record_bytes",
        ),
        ("quotas.max_blob_bytes = \"3 GiB\"", "quotas.max_blob_bytes"),
        ("rate_limits.push.burst = 0", "rate_limits.push.burst"),
        ("rate_limits.push.burst = -1", "rate_limits.push.burst"),
        ("store.path = \"\"", "store.path"),
        ("http = 1", "http"),
    ] {
        let mut sources = stage.with(&format!("{text}\n"));
        sources.operating = true;
        let error = sources
            .load()
            .err()
            .unwrap_or_else(|| panic!("{text} is accepted"));
        let keys: Vec<_> = error
            .faults
            .iter()
            .map(|fault| fault.key.as_str())
            .collect();
        assert!(
            keys.iter().all(|found| found.starts_with(key)),
            "{text}: {error}"
        );
        assert_eq!(keys.len(), 1, "{text}: {error}");
    }
}

#[test]
fn an_operator_needs_no_credential_and_a_relay_does() {
    assert!(Sources::default().load().is_err());
    let sources = Sources {
        operating: true,
        ..Sources::default()
    };
    assert!(sources.load().is_ok());
}

#[test]
fn of_process_looks_at_settings_alone() {
    let sources = Sources::of_process(Some(Path::new("relay.toml")));
    assert!(
        sources
            .variables
            .iter()
            .all(|(name, _)| name.starts_with("ARGALA__"))
    );
}
