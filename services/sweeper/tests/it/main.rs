//! The binary from outside.
#![cfg(test)]

mod command;
mod postgres;
mod process;
mod relay;
