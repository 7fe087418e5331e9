//! The engine against every order of things: random edits on three devices, syncs that run into
//! one another, and devices that are cut off anywhere.

mod disk;
mod fuel;
mod memory;
mod relay;
mod stories;
mod world;

use proptest::prelude::*;

use self::world::World;
use super::RelPath;

/// Few names, so that they meet: equal, equal but for case, equal but for normalisation, a file
/// where another device has a folder.
const NAMES: [&str; 12] = [
    "a",
    "A",
    "a/x",
    "A/x",
    "a/X",
    "b",
    "b/c/y",
    "d/é",
    "d/e\u{301}",
    "D/É",
    "notes.md",
    "Notes.md",
];

/// Of those, the ones that no device ever has to spell otherwise than by the last component: a
/// person who names a new file after such a folder's true name makes a conflict by hand.
const PLAIN_NAMES: [usize; 9] = [0, 2, 5, 6, 7, 8, 9, 10, 11];

#[derive(Debug, Clone)]
enum Step {
    Write(usize, usize, bool),
    Delete(usize, usize),
    Rename(usize, usize, usize),
    Flip(usize, usize),
    /// Begins a sync that is cut off after so many steps.
    Start(usize, Option<u32>, bool),
    /// Lets a sync that is under way go on for so many steps.
    Turn(usize, u32),
    Sync(usize),
    Sweep,
    BackUp,
    Restore,
}

fn edit(name: impl Strategy<Value = usize> + Clone) -> impl Strategy<Value = Step> {
    let (device, nth) = (0..3usize, 0..20usize);
    prop_oneof![
        5 => (device.clone(), name.clone(), any::<bool>()).prop_map(|(d, n, l)| Step::Write(d, n, l)),
        2 => (device.clone(), nth.clone()).prop_map(|(d, n)| Step::Delete(d, n)),
        2 => (device.clone(), nth.clone(), name).prop_map(|(d, n, to)| Step::Rename(d, n, to)),
        1 => (device, nth).prop_map(|(d, n)| Step::Flip(d, n)),
    ]
}

fn syncing() -> impl Strategy<Value = Step> {
    let device = 0..3usize;
    prop_oneof![
        2 => (device.clone(), proptest::option::of(0..60u32), any::<bool>())
            .prop_map(|(d, f, p)| Step::Start(d, f, p)),
        4 => (device.clone(), 1..12u32).prop_map(|(d, n)| Step::Turn(d, n)),
        3 => device.prop_map(Step::Sync),
    ]
}

fn path(index: usize) -> RelPath {
    RelPath::parse(NAMES[index]).expect("legal")
}

fn take(world: &mut World, step: &Step) {
    match *step {
        Step::Write(device, name, long) => world.write(device, &path(name), long),
        Step::Delete(device, nth) => world.delete(device, nth),
        Step::Rename(device, nth, to) => world.rename(device, nth, &path(to)),
        Step::Flip(device, nth) => world.flip(device, nth),
        Step::Start(device, fuel, power) => world.start(device, fuel, power),
        Step::Turn(device, turns) => {
            world.turn(device, turns);
        }
        Step::Sync(device) => {
            world.sync(device);
        }
        Step::Sweep => world.relay.borrow_mut().sweep(),
        Step::BackUp => world.back_up(),
        Step::Restore => world.restore(),
    }
}

fn steps(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step, 1..50)
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// Whatever three devices do, and whenever each of them is cut off: in the end all have the
    /// same files, no edit is lost, no deletion won against an edit, and the relay keeps no blob
    /// that nobody needs.
    #[test]
    fn three_devices_converge_and_lose_nothing(
        folds: [bool; 3],
        steps in steps(prop_oneof![6 => edit(0..NAMES.len()), 5 => syncing(), 1 => Just(Step::Sweep)]),
    ) {
        let mut world = World::new(folds);
        for step in &steps {
            take(&mut world, step);
        }
        let end = world.settle().and_then(|()| world.check()).and_then(|()| world.check_blobs());
        prop_assert_eq!(end, Ok(()));
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// The same where the relay falls back to a backup in between.
    #[test]
    fn a_restored_relay_loses_nothing_that_a_device_has(
        folds: [bool; 3],
        steps in steps(prop_oneof![
            6 => edit(0..NAMES.len()), 5 => syncing(), 1 => Just(Step::BackUp), 1 => Just(Step::Restore),
        ]),
    ) {
        let mut world = World::new(folds);
        for step in &steps {
            take(&mut world, step);
        }
        let end = world.settle().and_then(|()| world.check());
        prop_assert_eq!(end, Ok(()));
    }

    /// One after another, nothing is a conflict: each device gets what the one before it did, and
    /// nothing that was deleted comes back.
    #[test]
    fn in_turns_every_device_just_follows(folds: [bool; 3], edits in steps(edit(proptest::sample::select(&PLAIN_NAMES[..])))) {
        let mut world = World::new(folds);
        for step in &edits {
            take(&mut world, step);
            let (Step::Write(device, ..) | Step::Delete(device, ..) | Step::Rename(device, ..)
                | Step::Flip(device, ..)) = *step else { continue };
            let mut want: Vec<_> = world.devices[device].disk.borrow().files().into_values().collect();
            want.sort();
            for index in [device, 0, 1, 2] {
                let report = world.sync(index);
                prop_assert!(report.conflicts.is_empty(), "{:?}", report.conflicts);
                prop_assert!(report.in_step);
                let mut got: Vec<_> = world.devices[index].disk.borrow().files().into_values().collect();
                got.sort();
                prop_assert_eq!(&got, &want);
            }
        }
        prop_assert_eq!(world.settle().and_then(|()| world.check()), Ok(()));
    }
}
