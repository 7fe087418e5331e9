//! What the wire crate promises to clients in other languages.
#![cfg(test)]

mod vectors;
