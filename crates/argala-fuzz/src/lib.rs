//! What must hold of any bytes whatever.
//!
//! Each target is a function that takes bytes as a fuzzer makes them and panics where something
//! that must hold does not: the panic is the report. Two drivers feed them. `cargo xtask fuzz`
//! gives them to libFuzzer, whose programs are in `fuzz/`; the tests of this crate run the seeds
//! in `fuzz/corpus/` and neighbours of them in every run, on stable Rust, in a few seconds.
//!
//! Where a rule can be said in a few lines it is said a second time here (`plain`, `ranges`,
//! `digests`, `shapes` and in the targets), out of the protocol and the standards and not out of
//! the code that is tested, and the two are compared.
//!
//! For tests only; nothing that ships depends on it.

mod bodies;
mod credentials;
mod cursors;
mod digests;
mod headers;
mod names;
mod plain;
mod ranges;
mod relay;
mod requests;
#[cfg(test)]
mod seeds;
mod shapes;

pub use bodies::{answers, bodies};
pub use credentials::credentials;
pub use cursors::cursors;
pub use headers::headers;
pub use names::{graphs, ids, storage_keys};
pub use requests::requests;

/// What became of an input. Neither is a fault; but a seed that is meant to be good has to be
/// taken, or nothing behind the first check is tried with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken for what it is meant to be.
    Taken,
    /// It was refused.
    Refused,
}

impl Verdict {
    const fn of(is_taken: bool) -> Self {
        if is_taken { Self::Taken } else { Self::Refused }
    }
}

/// A target by its name, which is also that of its program and of the folder of its seeds.
pub type Target = (&'static str, fn(&[u8]) -> Verdict);

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
