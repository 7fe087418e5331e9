//! Real servers.
//!
//! Those that the environment names; else one Postgres with one PgBouncer for all tests of a run,
//! started from what the machine has, and a Redis for each test. Where there is none, the test
//! fails and says what to do.

mod containers;
mod passage;
mod postgres;
mod private;
mod redis;
mod s3;
mod session;
mod tls;

pub use containers::PostgresContainer;
pub use passage::Passage;
pub use postgres::{Database, postgres, postgres_from};
pub use private::PrivatePostgres;
pub use redis::{PrivateRedis, RedisServer, redis};
pub use s3::{MotoServer, S3_VARIABLE, S3Place, S3Server};
pub use session::Session;
pub use tls::{Authority, TlsFront};
