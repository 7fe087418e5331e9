//! A way to a server that a test can close without either end noticing.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::JoinHandle,
};

/// A TCP proxy that stops forwarding when it is told to, as a network does that swallows packets:
/// no connection is closed, none is refused, and nothing arrives.
#[derive(Debug)]
pub struct Passage {
    port: u16,
    state: Arc<watch::Sender<State>>,
    task: JoinHandle<()>,
    carried: Arc<AtomicU64>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    open: bool,
    /// Connections that were made before this many closings stay closed for ever.
    forgotten: u64,
    closings: u64,
}

impl Passage {
    /// Opens one to a port of `127.0.0.1`.
    ///
    /// # Panics
    /// Where there is no port left.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let (state, watched) = watch::channel(State {
            open: true,
            forgotten: 0,
            closings: 0,
        });
        let carried = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&carried);
        let task = tokio::spawn(async move {
            // Dropped with this task, and every connection with it.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let watched = watched.clone();
                let counted = Arc::clone(&counted);
                connections.spawn(connect(near, port, watched, counted));
            }
        });
        Self {
            port: own,
            state: Arc::new(state),
            task,
            carried,
        }
    }

    /// The port of `127.0.0.1` to connect to.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// How many bytes have passed, both ways together.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Lets nothing through any more.
    pub fn close(&self) {
        self.state.send_modify(|state| {
            state.open = false;
            state.closings += 1;
        });
    }

    /// Lets everything through again, what has waited included.
    pub fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    /// Lets new connections through; those from before are dead and are never told.
    pub fn open_for_new(&self) {
        self.state.send_modify(|state| {
            state.forgotten = state.closings;
            state.open = true;
        });
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn connect(
    near: TcpStream,
    port: u16,
    mut state: watch::Receiver<State>,
    carried: Arc<AtomicU64>,
) {
    let born = state.borrow().closings;
    let may = |state: &State| state.open && born >= state.forgotten;
    if state.wait_for(may).await.is_err() {
        return;
    }
    let far = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(far) = TcpStream::connect(far).await else {
        return;
    };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    // The end of either way is the end of both.
    tokio::select! {
        () = carry(near_in, far_out, born, state.clone(), &carried) => {}
        () = carry(far_in, near_out, born, state, &carried) => {}
    }
}

async fn carry(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    born: u64,
    mut state: watch::Receiver<State>,
    carried: &AtomicU64,
) {
    let mut bytes = vec![0; 16 * 1_024];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes).await else {
            // Even an end is not told while nothing passes.
            let _ = state
                .wait_for(|state| state.open && born >= state.forgotten)
                .await;
            return;
        };
        let may = |state: &State| state.open && born >= state.forgotten;
        if state.wait_for(may).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
        carried.fetch_add(read as u64, Ordering::Relaxed);
    }
}
