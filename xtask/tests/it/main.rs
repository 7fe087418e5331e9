//! What holds of the repository as a whole: which crate may know which, and what a tracked
//! file may contain; and what a chore says where it cannot be done.

#![cfg(test)]

mod crates;
mod files;
mod fuzz;
mod known_bugs;
mod missing;
mod repository;
