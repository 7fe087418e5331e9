//! What this replica tells the others.

use std::{
    collections::HashSet,
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use argala_core::ports::Poke;
use argala_wire::MemberId;
use fred::{
    clients::{Client, WithOptions},
    error::Error,
    interfaces::PubsubInterface as _,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::message::Message;
use crate::{
    link::{Link, State},
    names::Names,
};

/// Publications that are under way at once: each is written without waiting for those before.
const AT_ONCE: usize = 256;
/// Members whose pokes were lost, at the most; beyond it everybody's were.
const OWED: usize = 4_096;

/// Who was not told.
#[derive(Debug, Default)]
struct Owed {
    members: HashSet<MemberId>,
    everybody: bool,
}

impl Owed {
    fn add(&mut self, members: impl IntoIterator<Item = MemberId>) {
        if !self.everybody {
            self.members.extend(members);
        }
        if self.members.len() > OWED {
            self.everybody = true;
        }
        if self.everybody {
            self.members = HashSet::new();
        }
    }
}

pub(crate) struct Publisher {
    link: Arc<Link>,
    names: Names,
    /// What this replica calls itself.
    own: String,
    owed: Mutex<Owed>,
}

impl Publisher {
    pub(crate) fn new(link: Arc<Link>, names: Names, own: String) -> Self {
        Self {
            link,
            names,
            own,
            owed: Mutex::default(),
        }
    }

    /// Publishes a poke to each of its members; remembers whom it could not tell.
    pub(crate) async fn publish(&self, poke: &Poke) {
        let text = Message::poke(&self.own, poke).to_text();
        let told = match self.link.client() {
            Some(client) => {
                self.link
                    .ask(self.tell(&client, &poke.members, &text))
                    .await
            }
            None => None,
        };
        if told.is_none() {
            self.owe(poke.members.iter().cloned(), false);
        }
    }

    /// Tells whoever was not told to resync, each time there is a connection again.
    pub(crate) async fn make_up(self: Arc<Self>, closing: CancellationToken) {
        let mut state = self.link.watch();
        let made_up = async {
            loop {
                let is_up = matches!(&*state.borrow_and_update(), State::Up { .. });
                if is_up {
                    self.pay().await;
                }
                if state.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = made_up => {}
            () = closing.cancelled() => {}
        }
    }

    async fn pay(&self) {
        let owed = mem::take(&mut *self.owed());
        let text = Message::resync(&self.own).to_text();
        let Some(client) = self.link.client() else {
            return self.owe(owed.members, owed.everybody);
        };
        let paid = if owed.everybody {
            let all = self.tell_on(&client, self.names.everybody(), &text);
            self.link.ask(all).await
        } else {
            let members: Vec<_> = owed.members.iter().cloned().collect();
            self.link.ask(self.tell(&client, &members, &text)).await
        };
        if paid.is_none() {
            self.owe(owed.members, owed.everybody);
        }
    }

    fn owe(&self, members: impl IntoIterator<Item = MemberId>, everybody: bool) {
        let mut owed = self.owed();
        owed.everybody |= everybody;
        owed.add(members);
    }

    fn owed(&self) -> std::sync::MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(
        &self,
        client: &WithOptions<Client>,
        members: &[MemberId],
        text: &str,
    ) -> Result<(), Error> {
        // The channels' names first: the futures then borrow nothing that is short-lived.
        let channels: Vec<_> = members
            .iter()
            .map(|member| self.names.channel(member))
            .collect();
        stream::iter(channels)
            .map(|channel| self.tell_on(client, channel, text))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    async fn tell_on(
        &self,
        client: &WithOptions<Client>,
        channel: String,
        text: &str,
    ) -> Result<(), Error> {
        // A cluster would carry a plain publication to each of its nodes.
        let _heard: i64 = if self.link.is_clustered() {
            client.spublish(channel, text).await?
        } else {
            client.publish(channel, text).await?
        };
        Ok(())
    }
}
