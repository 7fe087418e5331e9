//! What holds of the repository as a whole: which crate may know which, and what a tracked
//! file may contain.

#![cfg(test)]

mod crates;
mod files;
mod known_bugs;
mod repository;
