//! Sealing what this machine keeps for itself beside the key file.

use argala_wire::StorageKey;
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

use super::{Bound, OpenError, random};

const NONCE: usize = 24;
/// How many bytes longer than its body a held write is.
pub(crate) const OVERHEAD: usize = NONCE + 16;

fn bound(graph: &StorageKey, number: u64) -> Vec<u8> {
    Bound::to("argala/held-write/v1")
        .field(graph.as_str())
        .field(number.to_be_bytes())
        .0
}

/// Seals the body of the held write with this `number`.
pub(crate) fn seal(key: &[u8; 32], graph: &StorageKey, number: u64, body: &[u8]) -> Vec<u8> {
    let nonce = random::<NONCE>();
    let message = Payload {
        msg: body,
        aad: &bound(graph, number),
    };
    let sealed = XChaCha20Poly1305::new(key.into())
        .encrypt(&XNonce::from(nonce), message)
        .expect("a write is far below what one seal can carry");
    [&nonce[..], &sealed].concat()
}

/// Opens the body of the held write with this `number`.
pub(crate) fn open(
    key: &[u8; 32],
    graph: &StorageKey,
    number: u64,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or(OpenError)?;
    let message = Payload {
        msg: sealed,
        aad: &bound(graph, number),
    };
    XChaCha20Poly1305::new(key.into())
        .decrypt(&XNonce::from(*nonce), message)
        .map(Zeroizing::new)
        .map_err(|_| OpenError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_write_opens_in_its_place_alone() {
        let graph: StorageKey = "g:acme".parse().expect("legal");
        let other: StorageKey = "g:acm".parse().expect("legal");
        let key = random();
        let sealed = seal(&key, &graph, 4, b"body");
        assert_eq!(sealed.len(), 4 + OVERHEAD);
        assert_eq!(*open(&key, &graph, 4, &sealed).expect("opens"), b"body");
        assert!(open(&key, &graph, 5, &sealed).is_err());
        assert!(open(&key, &other, 4, &sealed).is_err());
        assert!(open(&random(), &graph, 4, &sealed).is_err());
        assert!(open(&key, &graph, 4, &sealed[..20]).is_err());
    }
}
