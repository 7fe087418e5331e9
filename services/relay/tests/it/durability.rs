//! Nothing that was acknowledged is lost.

use std::thread;

use crate::{
    device::TestDevice,
    load::{GENEROUS, Load},
    process::{SOON, Served},
};

const ENOUGH: usize = 200;

#[test]
fn killed_during_pushes_it_keeps_all_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &GENEROUS);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();

    let load = Load::by(&sam);
    thread::scope(|scope| {
        load.start(scope, &served.public);
        load.wait_for_more(ENOUGH);
        served.signal("KILL");
    });
    served.wait(SOON);
    assert_eq!(load.unavailable(), 0);

    let mut served = Served::dev(folder.path(), &[]);
    load.reconcile(&served.public);
    assert!(served.stop().0.success());
}
