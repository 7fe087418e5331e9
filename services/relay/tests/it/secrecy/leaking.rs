//! The search would find what the relay does not do: something planted, logged as code would log
//! it, by the log that the relay writes.

use std::{
    io,
    sync::{Arc, Mutex},
};

use argala_boot::{
    config::{Log, LogFormat},
    logs,
};
use argala_wire::{RecordId, Sealed};
use hyper::body::Bytes;

use super::planted::{Garden, Sort};

/// Where a log is written that is looked at.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the relay's log says of what is done.
fn logged(format: LogFormat, what: impl FnOnce()) -> Vec<u8> {
    let log = Log {
        format,
        level: "trace".to_owned(),
    };
    let page = Page::default();
    let subscriber = {
        let page = page.clone();
        logs::subscriber(&log, move || page.clone()).unwrap()
    };
    tracing::subscriber::with_default(subscriber, what);
    let written = page.0.lock().unwrap();
    written.clone()
}

/// What writes something down.
type Written<'a> = Box<dyn FnOnce() + 'a>;

/// What a fault of somebody's could write down.
struct Leak {
    ciphertext: Vec<u8>,
    token: &'static str,
    record: &'static str,
}

impl Leak {
    /// Each by its name, as code would write it.
    fn all(&self) -> Vec<(&'static str, Written<'_>)> {
        let Self {
            ciphertext,
            token,
            record,
        } = self;
        let bytes = Bytes::copy_from_slice(ciphertext);
        let shown = bytes.clone();
        let id: RecordId = record.parse().unwrap();
        vec![
            ("ciphertext", Box::new(move || tracing::trace!(?bytes))),
            (
                "ciphertext",
                Box::new(move || tracing::warn!("refused: {shown:?}")),
            ),
            (
                "ciphertext",
                Box::new(move || tracing::info!(body = ?ciphertext)),
            ),
            (
                "ciphertext",
                Box::new(move || tracing::info!(body = ?&ciphertext[..16])),
            ),
            (
                "ciphertext",
                Box::new(move || {
                    let text = Sealed(ciphertext.clone()).to_base64url();
                    tracing::debug!(begins = &text[..16]);
                }),
            ),
            (
                "ciphertext",
                Box::new(move || {
                    let body = format!("{:?}", Some(Bytes::copy_from_slice(ciphertext)));
                    tracing::error!(cause = ?io::Error::other(body), "failed");
                }),
            ),
            (
                "ciphertext",
                Box::new(move || {
                    let sealed = Sealed(ciphertext.clone());
                    let _span =
                        tracing::info_span!("push", sealed = sealed.to_base64url()).entered();
                    tracing::info!("within a span");
                }),
            ),
            ("token", Box::new(move || tracing::debug!("Bearer {token}"))),
            (
                "token",
                Box::new(move || tracing::debug!(begins = &token[..16])),
            ),
            (
                "record id",
                Box::new(move || tracing::debug!(record = ?id.as_str())),
            ),
            (
                "record id",
                Box::new(move || {
                    let path = record.replace('/', "%2F").replace(' ', "%20");
                    tracing::debug!(%path);
                }),
            ),
        ]
    }
}

#[test]
fn what_is_logged_is_found() {
    let leak = Leak {
        ciphertext: (0..60).map(|at: u8| at.wrapping_mul(87) ^ 0x5c).collect(),
        token: "eyJoZWFkIjoxfQ.c29tZS1jbGFpbXMtb2Ytc2Ft.c2lnbmVkLWJ5LW5vYm9keQ",
        record: "notes/of \"friday\"\\evening",
    };
    let mut garden = Garden::default();
    garden.plant(Sort::Ciphertext, "ciphertext", &leak.ciphertext);
    garden.plant(Sort::Nowhere, "token", leak.token.as_bytes());
    garden.plant(Sort::RecordId, "record id", leak.record.as_bytes());
    let search = garden.search();
    for format in [LogFormat::Json, LogFormat::Text] {
        for (name, write) in leak.all() {
            let log = logged(format, write);
            let found: Vec<_> = search.found(&log).into_iter().collect();
            assert_eq!(found, [name], "{}", String::from_utf8_lossy(&log));
        }
        let log = logged(format, || tracing::info!("nothing of it"));
        assert!(log.len() > 20 && search.found(&log).is_empty());
    }
}
