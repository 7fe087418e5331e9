//! Objects as files and in buckets, from outside.
#![cfg(test)]

mod contract;
mod crash;
mod files;
#[cfg(target_os = "linux")]
mod memory;
mod s3;
