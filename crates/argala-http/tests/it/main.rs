//! The router, over a real database, as callers see it.
#![cfg(test)]

mod addresses;
mod blobs;
mod devices;
mod embed;
mod events;
mod garbage;
mod graphs;
mod keys;
mod logs;
mod media;
mod model;
mod order;
mod pokes;
mod problems;
mod records;
mod sizes;
mod world;
