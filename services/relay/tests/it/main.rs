//! The real binary, as an operator, a client and a supervisor meet it.

#![cfg(test)]

mod admin;
mod cluster;
mod commands;
mod device;
mod durability;
mod http;
mod limits;
mod load;
mod logs;
mod postgres;
mod process;
mod redis;
mod s3;
mod secrecy;
mod shutdown;
mod tls;
mod tokens;
mod upkeep;
