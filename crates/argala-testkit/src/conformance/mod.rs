//! Suites that hold any adapter to the contract of its port.
//!
//! Each case is an async function that takes a fresh adapter. A macro for each port stamps all of
//! them as tests of their own, where the adapter's crate calls it with an async function that
//! makes one:
//!
//! ```ignore
//! async fn fresh() -> Fresh<dyn SweepStore> {
//!     let folder = tempfile::tempdir().unwrap();
//!     let store = Sqlite::open(folder.path().join("relay.db"), &Options::default()).unwrap();
//!     Fresh::new(Arc::new(store), folder)
//! }
//!
//! mod store {
//!     argala_testkit::store_conformance!(super::fresh);
//! }
//! ```
//!
//! Nothing in here knows what an adapter is made of.

pub mod blob;
pub mod counter;
pub mod directory;
pub mod interleaving;
pub mod lifetime;
pub mod limiter;
pub mod poke;
pub mod race;
pub mod relay;
pub mod store;

use std::{any::Any, future::Future, sync::Arc, time::Duration};

/// How long one case may take before it counts as hanging.
const CASE: Duration = Duration::from_secs(400);

/// An adapter that nothing was stored in yet, by way of one or several handles to the same
/// backend (the replicas of a cluster), and whatever must live as long as it.
pub struct Fresh<P: ?Sized> {
    replicas: Vec<Arc<P>>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl<P: ?Sized> Fresh<P> {
    /// One adapter; `kept` is dropped after it (a temporary folder, say).
    pub fn new(adapter: Arc<P>, kept: impl Any + Send + Sync) -> Self {
        Self::of(vec![adapter], kept)
    }

    /// Several handles to one backend, as the replicas of a cluster have them.
    ///
    /// # Panics
    /// Where there are none.
    pub fn of(replicas: Vec<Arc<P>>, kept: impl Any + Send + Sync) -> Self {
        assert!(!replicas.is_empty(), "there is at least one handle");
        Self {
            replicas,
            _kept: Box::new(kept),
        }
    }

    /// The handle whose turn it is: cases call this with a number that rises, so that what one
    /// replica wrote is read by another.
    #[must_use]
    pub fn replica(&self, turn: usize) -> &Arc<P> {
        &self.replicas[turn % self.replicas.len()]
    }
}

/// Runs one case on a runtime of its own: several threads, so that races are races.
///
/// # Panics
/// Where the case fails, or does not end in time.
pub fn run<P, F, C>(fresh: impl FnOnce() -> F, case: impl FnOnce(Fresh<P>) -> C)
where
    P: ?Sized,
    F: Future<Output = Fresh<P>>,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let ended = runtime.block_on(async {
        let case = async { case(fresh().await).await };
        tokio::time::timeout(CASE, case).await
    });
    assert!(ended.is_ok(), "the case hangs");
}

/// Makes a test of each case of one module.
#[doc(hidden)]
#[macro_export]
macro_rules! stamp_cases {
    ($fresh:path, $suite:ident: $($case:ident),+ $(,)?) => {$(
        #[test]
        fn $case() {
            $crate::conformance::run($fresh, $crate::conformance::$suite::$case);
        }
    )+};
    ($fresh:path, $suite:ident::$topic:ident: $($case:ident),+ $(,)?) => {$(
        #[test]
        fn $case() {
            $crate::conformance::run($fresh, $crate::conformance::$suite::$topic::$case);
        }
    )+};
}

/// Makes one test of all cases of one module.
#[doc(hidden)]
#[macro_export]
macro_rules! run_cases {
    ($fresh:path, $suite:ident: $($case:ident),+ $(,)?) => {
        #[test]
        fn every_case() {
            $(
                println!("{}", stringify!($case));
                $crate::conformance::run($fresh, $crate::conformance::$suite::$case);
            )+
        }
    };
}
