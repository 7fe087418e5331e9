//! The configuration as an operator meets it.

#![cfg(test)]

mod buckets;
mod config;
mod documents;
mod stores;
