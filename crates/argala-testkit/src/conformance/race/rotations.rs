//! Rotating at the same time.

use std::sync::Arc;

use argala_core::{
    Fault, Outcome, Rejection,
    ports::{
        SweepStore,
        store::{Rotate, Rotated},
    },
};
use argala_wire::records::{PushReason, PushResult};

use super::{Start, all};
use crate::{
    TestDevice,
    conformance::{
        Fresh,
        store::{Scene, acme},
    },
};

/// Every device sends its own wraps for the same epoch.
async fn rotations(scene: &Scene, epoch: u64, devices: &[TestDevice]) -> Vec<Outcome<Rotated>> {
    let start = Start::of(devices.len());
    let tasks = devices.iter().enumerate().map(|(number, by)| {
        let mut holders: Vec<&TestDevice> = devices.iter().collect();
        holders.swap(0, number);
        let mut request: Rotate = scene.rotate_request(&acme(), epoch, &holders);
        request.by = by.to_ref();
        for wrap in &mut request.wraps {
            wrap.wrap = format!("by {number}").into_bytes().into();
        }
        request.fingerprint = argala_core::rules::rotate::fingerprint(&request.wraps);
        let store = scene.handle();
        start.spawn(async move { store.rotate(request).await })
    });
    all(tasks.collect()).await
}

async fn one_wins(scene: &Scene, epoch: u64, devices: &[TestDevice]) {
    let mut winner = None;
    for (number, outcome) in rotations(scene, epoch, devices)
        .await
        .into_iter()
        .enumerate()
    {
        match outcome {
            Ok(rotated) => {
                assert_eq!((rotated.epoch, rotated.replay), (epoch, false));
                assert!(winner.replace(number).is_none(), "one wins");
            }
            Err(Fault::Rejected(rejection)) => {
                assert_eq!(rejection, Rejection::EpochConflict { epoch });
            }
            Err(Fault::Store(error)) => panic!("{error:?}"),
        }
    }
    let winner = winner.expect("one wins");
    for device in devices {
        let wraps = scene.wraps(&acme(), &device.to_ref()).await;
        let last = wraps.last().expect("it was given one");
        assert_eq!(wraps.len() as u64, epoch);
        assert_eq!(last.wrap.as_slice(), format!("by {winner}").as_bytes());
        assert_eq!(last.by, devices[winner].to_ref());
    }
}

async fn crowd(scene: &Scene, count: usize) -> Vec<TestDevice> {
    let mut devices = Vec::new();
    for number in 0..count {
        devices.push(scene.device(&format!("m{number}"), "x").await);
    }
    devices
}

/// The others are told the epoch now in force, and none of their wraps stays.
pub async fn of_many_rotations_one_wins(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let devices = crowd(&scene, 8).await;
    scene
        .rotate(&acme(), 1, &devices.iter().collect::<Vec<_>>())
        .await;
    for epoch in 2..7 {
        one_wins(&scene, epoch, &devices).await;
    }
}

/// The graph is created once.
pub async fn of_many_first_rotations_one_wins(fresh: Fresh<dyn SweepStore>) {
    let scene = Scene::new(fresh);
    let devices = crowd(&scene, 8).await;
    one_wins(&scene, 1, &devices).await;
    let graph = scene
        .store()
        .graph(&acme())
        .await
        .expect("answered")
        .expect("there");
    assert_eq!((graph.epoch, graph.head, graph.incarnation), (1, 0, 1_001));
}

/// What lies before the epoch's first seq is of the older one, and what lies behind it is not.
pub async fn a_rotation_parts_the_records_of_two_epochs(fresh: Fresh<dyn SweepStore>) {
    let scene = Arc::new(Scene::new(fresh));
    let devices = crowd(&scene, 6).await;
    let holders: Vec<&TestDevice> = devices.iter().collect();
    scene.rotate(&acme(), 1, &holders).await;
    let start = Start::of(devices.len() + 1);
    let pushers: Vec<_> = devices
        .iter()
        .enumerate()
        .map(|(pusher, device)| {
            let (scene, device) = (Arc::clone(&scene), device.clone());
            start.spawn(async move {
                let mut epoch = 1;
                for number in 0..12 {
                    let id = format!("{pusher} {number}");
                    let record = device.record(&acme(), &id, epoch, b"x");
                    let told = scene
                        .push(&acme(), &device, vec![record])
                        .await
                        .answer
                        .results;
                    if let [
                        PushResult::Rejected {
                            reason: PushReason::StaleEpoch { epoch: now },
                            ..
                        },
                    ] = told[..]
                    {
                        epoch = now;
                    }
                }
            })
        })
        .collect();
    let rotating = {
        let scene = Arc::clone(&scene);
        let requests: Vec<Rotate> = (2..6)
            .map(|epoch| scene.rotate_request(&acme(), epoch, &holders))
            .collect();
        start.spawn(async move {
            let mut firsts = vec![1];
            for request in requests {
                let rotated = scene.store().rotate(request).await;
                firsts.push(rotated.expect("rotated").first_seq);
                tokio::task::yield_now().await;
            }
            firsts
        })
    };
    let firsts = rotating.await.expect("no panic");
    all(pushers).await;
    for record in scene.records(&acme(), &devices[0]).await {
        let began = firsts.partition_point(|first| *first <= record.seq) as u64;
        assert_eq!(record.epoch, began, "seq {} of {firsts:?}", record.seq);
    }
}
