//! What must hold of any bytes whatever.
//!
//! Each target is a function that takes bytes as a fuzzer makes them and panics where something
//! that must hold does not: the panic is the report. Two drivers feed them. `cargo xtask fuzz`
//! gives them to libFuzzer, whose programs are in `fuzz/`; the tests of this crate run the seeds
//! in `fuzz/corpus/` and neighbours of them in every run, on stable Rust, in a few seconds.
//!
//! For tests only; nothing that ships depends on it.

mod bodies;
mod credentials;
mod names;
mod relay;
mod requests;
#[cfg(test)]
mod seeds;

pub use bodies::{answers, bodies};
pub use credentials::credentials;
pub use names::{graphs, ids, storage_keys};
pub use requests::{cursors, headers, requests};

/// A target by its name, which is also that of its program and of the folder of its seeds.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("ids", ids),
    ("graphs", graphs),
    ("storage_keys", storage_keys),
    ("cursors", cursors),
    ("bodies", bodies),
    ("answers", answers),
    ("requests", requests),
    ("credentials", credentials),
    ("headers", headers),
];
