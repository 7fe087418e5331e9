//! Real servers for tests and chores, from what the machine has: a Postgres of one's own, and a
//! PgBouncer before it, a Redis. The programs are those that are installed, or else those of an
//! image, where a Docker engine answers.
//!
//! - [`shared`]: one server for all who ask on this machine, each from a process of its own. It
//!   starts with the first and ends when the last has gone.
//! - [`PrivatePostgres`], [`PrivateRedis`]: servers for one owner, who may kill them.
//! - [`Balancer`]: an HAProxy before relays of one owner.
//! - [`Moto`]: an S3 of one's own.
//!
//! Everything listens on `127.0.0.1` and lies in one folder below the system's temporary folder.
//! Nothing outlives its users, however they end: a watchdog stops what nobody holds any more.
//!
//! Never part of a service. It knows no other crate here and no async runtime, so that the chores
//! can use it without building a relay.

mod balancer;
mod bouncer;
mod containers;
mod disk;
mod fault;
mod ground;
mod moto;
mod postgres;
mod private;
mod private_redis;
mod programs;
mod redis;
mod shared;
mod watch;

pub use balancer::{Balancer, Behind};
pub use containers::postgres_image;
pub use fault::Fault;
pub use ground::is_root;
pub use moto::{Moto, moto_python};
pub use postgres::{PASSWORD, POSTGRES_SETTINGS, ROLE};
pub use private::PrivatePostgres;
pub use private_redis::{PrivateRedis, REDIS_VARIABLE};
pub use programs::{
    balancer_program, bouncer_program, look_for_bouncer, look_for_postgres, look_for_redis,
    nginx_program, postgres_programs, redis_program,
};
pub use shared::{BOUNCER_VARIABLE, Contained, Hold, POSTGRES_VARIABLE, Shared, shared};
