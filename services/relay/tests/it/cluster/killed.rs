//! A replica is killed.

use std::thread;

use super::keyed;
use crate::load::Load;

/// Invariant 2, on several replicas.
#[test]
fn a_replica_that_is_killed_loses_nothing_that_was_acknowledged() {
    let (cluster, sam) = keyed(&[]);
    let through = cluster.public();
    let load = Load::through_a_balancer(&sam);
    thread::scope(|scope| {
        load.start(scope, &through);
        load.wait_for_more(100);
        cluster.replicas[2].signal("KILL");
        // Those that are left take all of it.
        load.wait_for_more(100);
        load.stop();
    });
    load.reconcile(cluster.at(0));
    load.reconcile(cluster.at(1));
}
