//! Scripts: each one command and one round trip, in which Redis does nothing else.

use std::sync::LazyLock;

use fred::{
    clients::{Client, WithOptions},
    error::Error,
    interfaces::LuaInterface as _,
    util::sha1_hash,
};

/// A script and what Redis calls it.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

/// Counts a request.
pub(crate) static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("take.lua")));
/// Notes that a replica lives.
pub(crate) static BEAT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("beat.lua")));
/// Notes that a replica lives no more.
pub(crate) static LEAVE: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('ZREM', KEYS[1], ARGV[1])"));
/// Adds to a counter.
pub(crate) static COUNT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("count.lua")));

impl Script {
    fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: sha1_hash(text),
        }
    }

    /// Runs it on one key. It is sent by name; a server that does not know it, since it was
    /// started anew or is another one, is sent the text and knows it then.
    pub(crate) async fn run(
        &self,
        client: &WithOptions<Client>,
        key: &str,
        arguments: Vec<String>,
    ) -> Result<i64, Error> {
        let known = client
            .evalsha(self.hash.as_str(), key, arguments.clone())
            .await;
        match known {
            Err(error) if error.details().starts_with("NOSCRIPT") => {
                client.eval(self.text, key, arguments).await
            }
            answer => answer,
        }
    }
}
