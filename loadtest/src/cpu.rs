//! What work costs in processor time: this process's own, and the server's, where it is on this
//! machine. Unlike time on the wall, it hardly depends on what else the machine does.

use std::{fs, time::Duration};

use anyhow::Result;

use crate::arms::bare;

/// How long a tick of `/proc/*/stat` is.
const TICK: Duration = Duration::from_millis(10);

/// Whose time is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// The server's first process, parent of all others.
    server: Option<u32>,
}

/// Time that has been spent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    /// By this process: the callers, and the relay where there is one.
    pub(crate) here: Duration,
    /// By the server's processes.
    pub(crate) server: Duration,
}

impl Cpu {
    /// Finds the server at `url`, where it is on this machine.
    pub(crate) async fn of(url: &str) -> Result<Self> {
        let client = bare::connect(url).await?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        let backend: i32 = row.get(0);
        let stat = fs::read_to_string(format!("/proc/{backend}/stat")).ok();
        let server = stat
            .filter(|stat| stat.contains("(postgres)"))
            .and_then(|stat| Some(Stat::parse(&stat)?.parent));
        Ok(Self { server })
    }

    /// What has been spent up to now; nothing where the system does not tell.
    pub(crate) fn spent(&self) -> Spent {
        let here = fs::read_to_string("/proc/self/stat").ok();
        let here = here.and_then(|stat| Stat::parse(&stat));
        // What its processes have spent that have ended is told of their parent.
        let parent = self.server.and_then(|parent| {
            Stat::parse(&fs::read_to_string(format!("/proc/{parent}/stat")).ok()?)
        });
        let mut server = parent.map_or(0, |stat| stat.ended);
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let stat = fs::read_to_string(process.path().join("stat")).ok();
            if let Some(stat) = stat.and_then(|stat| Stat::parse(&stat))
                && self.server == Some(stat.parent)
            {
                server += stat.ticks;
            }
        }
        Spent {
            here: TICK * here.map_or(0, |stat| stat.ticks),
            server: TICK * server,
        }
    }
}

impl Spent {
    /// What has been spent since.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            here: self.here.saturating_sub(before.here),
            server: self.server.saturating_sub(before.server),
        }
    }
}

struct Stat {
    parent: u32,
    ticks: u32,
    /// The same of those of its children that have ended.
    ended: u32,
}

impl Stat {
    /// Reads a line of `/proc/*/stat`: what follows the name, which may hold anything.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
        Some(Self {
            parent: number(1)?,
            ticks: number(11)?.checked_add(number(12)?)?,
            ended: number(13)?.checked_add(number(14)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "7 (a ) b) S 3 7 7 0 -1 0 0 0 0 0 20 22 1 2 20 0 1 0 9 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.parent, stat.ticks, stat.ended), (3, 42, 3));
    }
}
