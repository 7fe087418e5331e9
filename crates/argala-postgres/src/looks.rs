//! Looks at devices that are asked for together go together.
//!
//! Every request begins with a look at the device that makes it, past every cache. One that comes
//! alone goes at once. Those that come while [`LANES`] statements are on their way wait for the
//! first that returns, and share the next one: what each is told was read after it had asked, so
//! that whatever was answered before is seen.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use argala_core::{StoreError, StoreResult};
use argala_wire::devices::{Device, DeviceRef};
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use crate::{devices, run::Database, session::Sql};

const OPERATION: &str = "find a device";
/// How many statements may be on their way at a time. Two, so that one is at work while the answer
/// to the other travels.
const LANES: usize = 2;
/// The most devices that share a statement.
const MAX_DEVICES: usize = 256;

/// Devices: members, devices.
const FIND_ALL: Sql = Sql {
    text: concat!(
        "SELECT ",
        devices::columns!(),
        " FROM unnest($1::text[], $2::text[]) AS asked (member, device)
          CROSS JOIN LATERAL (
              SELECT * FROM devices d WHERE d.member = asked.member AND d.device = asked.device
              OFFSET 0
          ) d"
    ),
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

struct Waiting {
    device: DeviceRef,
    reply: oneshot::Sender<StoreResult<Option<Device>>>,
}

#[derive(Default)]
struct Line {
    waiting: Vec<Waiting>,
    /// Statements on their way.
    lanes: usize,
}

/// Where looks wait for those before them.
pub(crate) struct Looks {
    database: Arc<Database>,
    line: Mutex<Line>,
}

impl Looks {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self {
            database,
            line: Mutex::default(),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Every change behind this lock is whole: no panic leaves it half done.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One device, revoked or not.
    pub(crate) async fn device(
        self: &Arc<Self>,
        device: &DeviceRef,
    ) -> StoreResult<Option<Device>> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            device: device.clone(),
            reply,
        };
        let lane = {
            let mut line = self.line();
            line.waiting.push(waiting);
            let free = line.lanes < LANES;
            line.lanes += usize::from(free);
            free.then(|| Lane {
                looks: Arc::clone(self),
                held: true,
            })
        };
        if let Some(lane) = lane {
            // Beside the caller, who may hang up while others wait.
            tokio::spawn(lane.run());
        }
        answer.await.unwrap_or_else(|_| {
            let why = "its task has ended without an answer";
            Err(StoreError::internal(OPERATION, why))
        })
    }

    async fn carry_out(&self, mut waiting: Vec<Waiting>) {
        waiting.retain(|it| !it.reply.is_closed());
        if waiting.is_empty() {
            return;
        }
        let members: Vec<_> = waiting
            .iter()
            .map(|it| it.device.member_id.as_str())
            .collect();
        let names: Vec<_> = waiting
            .iter()
            .map(|it| it.device.device_id.as_str())
            .collect();
        let found = self
            .database
            .find(OPERATION, &FIND_ALL, &[&members, &names], |rows| {
                rows.iter()
                    .map(|row| {
                        let device = devices::from_row(row)?;
                        let name = DeviceRef {
                            member_id: device.member_id.clone(),
                            device_id: device.device_id.clone(),
                        };
                        Ok((name, device))
                    })
                    .collect::<Result<HashMap<_, _>, _>>()
            })
            .await;
        match found {
            Ok(found) => {
                for Waiting { device, reply } in waiting {
                    // A caller that has gone away misses an answer, nothing else.
                    drop(reply.send(Ok(found.get(&device).cloned())));
                }
            }
            Err(error) => {
                let kind = error.kind;
                let mut told = Some(error);
                for Waiting { reply, .. } in waiting {
                    // The first is told what it was, and those beside it what kind of thing.
                    let why = "the statement that it shared failed";
                    let error = told
                        .take()
                        .unwrap_or_else(|| StoreError::new(kind, OPERATION, why));
                    drop(reply.send(Err(error)));
                }
            }
        }
    }
}

/// A statement's place, given back when it is dropped, whatever became of the statement.
struct Lane {
    looks: Arc<Looks>,
    held: bool,
}

impl Lane {
    async fn run(mut self) {
        loop {
            let waiting = {
                let mut line = self.looks.line();
                if line.waiting.is_empty() {
                    // Under the same lock, so that nobody comes in between.
                    line.lanes -= 1;
                    self.held = false;
                    return;
                }
                if line.waiting.len() > MAX_DEVICES {
                    line.waiting.drain(..MAX_DEVICES).collect()
                } else {
                    mem::take(&mut line.waiting)
                }
            };
            self.looks.carry_out(waiting).await;
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        // The task was cut off, or panicked. Where no other is left, those who wait are told so, and
        // the next who asks finds a free place.
        let mut line = self.looks.line();
        line.lanes -= 1;
        if line.lanes == 0 {
            line.waiting.clear();
        }
    }
}
