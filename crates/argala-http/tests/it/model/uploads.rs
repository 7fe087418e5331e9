//! Requests about blobs, from the step that they stand for.

use super::{
    blobs::{content_digest, sha256, sha256_of},
    call::{Call, Device, Route},
    names::{SIZES, blob_id, content, pick},
    ops::What,
    script::Script,
};

impl Script<'_> {
    pub(super) fn put_blob(&self, by: &Device, what: &What) -> Call {
        let What::PutBlob {
            at,
            blob,
            content: number,
            policy,
            ttl,
            digest,
            length,
        } = what
        else {
            panic!("only a blob is put");
        };
        let mut raw = content(*number, &SIZES[1..]);
        let policy = [
            None,
            Some("keep"),
            Some("expire"),
            Some("deliver"),
            Some("forever"),
        ][usize::from(*policy)];
        // Without a ttl nothing expires, and with one nothing is kept.
        let needs_ttl = policy == Some("expire");
        let ttl = match (ttl, needs_ttl) {
            (0, true) => Some("3600"),
            (0, false) => None,
            (1, _) => Some("60"),
            (2, _) => Some("31536000"),
            (3, _) => Some("59"),
            (4, _) => Some("31536001"),
            (5, _) => Some("x"),
            (6, _) => Some("7200"),
            _ => None,
        };
        let digest = match digest {
            1 => Some(content_digest(&raw)),
            2 => Some(content_digest(b"something else")),
            3 => Some("sha-256=nothing".to_owned()),
            // Unpadded; beside others; another one alone, which nobody here checks.
            4 => Some(format!(
                "sha-256=:{}:",
                sha256_of(&raw).trim_end_matches('=')
            )),
            5 => Some(format!("sha-512=:AAAA:;q=1, {}", content_digest(&raw))),
            6 => Some("sha-512=:AAAA:".to_owned()),
            // No SHA-256; no bytes at all; a key as none is written.
            7 => Some("sha-256=:AAAA:".to_owned()),
            8 => Some("sha-256".to_owned()),
            9 => Some(format!("SHA-256=:{}:", sha256_of(&raw))),
            // Of two the last counts.
            10 => Some(format!(
                "{}, {}",
                content_digest(b"?"),
                content_digest(&raw)
            )),
            11 => Some(format!(
                "{}, {}",
                content_digest(&raw),
                content_digest(b"?")
            )),
            _ => None,
        };
        let length = match length {
            1 => None,
            2 => Some(raw.len() + 1),
            _ => Some(raw.len()),
        };
        if let What::PutBlob { length: 3, .. } = what {
            raw.push(1);
        }
        let mut call = Call::new(by, Route::PutBlob(self.address(by, *at), blob_id(*blob)))
            .with_query("policy", policy.map(str::to_owned))
            .with_query("ttl", ttl.map(str::to_owned))
            .with_header("content-digest", digest)
            .with_header("content-length", length.map(|length| length.to_string()));
        call.raw = raw;
        call
    }

    /// A blob that there is in a graph, or was until it expired; any id where there is none.
    pub(super) fn blob(&self, by: &Device, graph: &str, n: u8) -> String {
        let key = self.key(by, graph);
        let blobs = self.model.blobs.iter();
        let there: Vec<_> = blobs.filter(|blob| blob.key == key).collect();
        match pick(&there, n) {
            Some(blob) if n < 3 => blob.id.clone(),
            _ => blob_id(n),
        }
    }

    pub(super) fn get_blob(
        &self,
        by: &Device,
        graph: String,
        id: String,
        head: bool,
        range: u8,
        known: u8,
    ) -> Call {
        // One number tells both which range, and whether it is of the blob as it is.
        let known_range = range / 17;
        let key = self.key(by, &graph);
        let there = self
            .model
            .blobs
            .iter()
            .find(|blob| blob.key == key && blob.id == id);
        let tag = there.map(|blob| format!("\"{}\"", sha256(&blob.bytes)));
        let known = match known {
            1 => tag,
            2 => Some("*".to_owned()),
            3 => Some("\"another\"".to_owned()),
            4 => tag.map(|tag| format!("\"another\", W/{tag}")),
            5 => tag.map(|tag| format!(", \"a\" ,,{tag},")),
            // Without its quotes it is no tag.
            6 => tag.map(|tag| tag.trim_matches('"').to_owned()),
            _ => None,
        };
        let range = [
            "",
            "bytes=0-4",
            "bytes=5-",
            "bytes=-3",
            "bytes=12-",
            "bytes=0-1,3-4",
            "bytes=-0",
            "bytes=3-99999",
            "bytes=0-0",
            "bytes=-99999",
            "Bytes=2-5",
            "bytes=5-2",
            "bytes=-",
            "bytes=a-b",
            "items=0-4",
            "bytes=0-99999999999999999999999",
            "bytes=99999999999999999999999-",
        ][usize::from(range % 17)];
        // Of what else there is it would be a part that fits nothing.
        let if_range = match known_range {
            0 => None,
            1 => there.map(|blob| format!("\"{}\"", sha256(&blob.bytes))),
            _ => Some("\"another\"".to_owned()),
        };
        let route = if head {
            Route::HeadBlob
        } else {
            Route::GetBlob
        };
        Call::new(by, route(graph, id))
            .with_header("if-none-match", known)
            .with_header("if-range", if_range)
            .with_header(
                "range",
                Some(range.to_owned()).filter(|range| !range.is_empty()),
            )
    }
}
