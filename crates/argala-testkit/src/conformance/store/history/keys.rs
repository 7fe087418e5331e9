//! Devices and keys.

use std::collections::BTreeMap;

use argala_core::{
    Fault,
    ports::{
        Store,
        store::{Grant, GraphDevicesQuery, Register, Revoke, Rotate},
    },
    rules::rotate::fingerprint,
};
use argala_wire::{Sealed, StorageKey, Timestamp, devices::DeviceRef};

use super::History;
use crate::{TestDevice, conformance::store::at};

impl History {
    pub(super) async fn register(&mut self) {
        let device = self.device();
        let device = if self.random.one_in(8) {
            TestDevice::with_keys(device.to_ref(), 1)
        } else {
            device
        };
        let request = Register {
            label: self
                .random
                .one_in(3)
                .then(|| Sealed(vec![self.random.below(3) as u8])),
            max_devices: 2 + self.random.below(3),
            ..device.register(self.at())
        };
        let got = self.scene.store().register(request.clone()).await;
        let wanted = self.reference.register(request).await;
        let _ = self.same("register", got, wanted);
    }

    pub(super) async fn revoke(&mut self) {
        let request = Revoke {
            by: self.device().to_ref(),
            device_id: self.device().to_ref().device_id,
            now: self.at(),
        };
        let got = self.scene.store().revoke(request.clone()).await;
        let wanted = self.reference.revoke(request).await;
        let _ = self.same("revoke", got, wanted);
    }

    pub(super) async fn rotate(&mut self) {
        let key = self.graph();
        let repeated = self
            .rotates
            .get(&key)
            .filter(|_| self.random.one_in(5))
            .cloned();
        let request = match repeated {
            Some(request) => request,
            None => self.new_rotate(key.clone()).await,
        };
        let got = self.scene.store().rotate(request.clone()).await;
        let wanted = self.reference.rotate(request.clone()).await;
        if self.same("rotate", got, wanted).is_ok() {
            self.rotates.insert(key, request);
        }
    }

    pub(super) async fn new_rotate(&self, key: StorageKey) -> Rotate {
        let members = self.members();
        let query = GraphDevicesQuery {
            key: key.clone(),
            members: members.clone(),
            former: false,
            after: None,
            limit: 99,
        };
        let roster = self
            .reference
            .graph_devices(&query)
            .await
            .expect("it does not fail");
        let mut wraps: Vec<_> = roster
            .iter()
            .map(|device| {
                let device = TestDevice::with_keys(device.to_ref(), 0);
                device.rotate_wrap(&format!("w{}", self.random.below(9)))
            })
            .collect();
        if self.random.one_in(8) {
            wraps.pop();
        }
        let next = self.epoch(&key).await + 1;
        Rotate {
            key,
            by: self.device().to_ref(),
            members,
            epoch: if self.random.one_in(8) {
                self.random.below(5)
            } else {
                next
            },
            fingerprint: fingerprint(&wraps),
            wraps,
            incarnation: 1 + self.random.below(1_000),
            now: self.at(),
        }
    }

    pub(super) async fn grant(&mut self) {
        let key = self.graph();
        let epochs = self.epoch(&key).await + 2;
        let mut targets = BTreeMap::new();
        for _ in 0..self.random.below(8) {
            let (epoch, device) = (self.random.below(epochs), self.device());
            let content = format!("g{}", self.random.below(2));
            targets.insert((epoch, device.to_ref()), device.grant_wrap(epoch, &content));
        }
        let request = Grant {
            key,
            by: self.device().to_ref(),
            members: self.members(),
            wraps: targets.into_values().collect(),
            now: self.at(),
        };
        let got = self.scene.store().grant(request.clone()).await;
        let wanted = self.reference.grant(request).await;
        let _ = self.same("grant", got, wanted);
    }

    pub(super) async fn flag(&mut self) {
        let key = self.graph();
        let epoch = self.epoch(&key).await + self.random.below(2);
        let owed = self.random.one_in(2);
        let got = self.scene.store().flag_directory(&key, epoch, owed).await;
        let wanted = self.reference.flag_directory(&key, epoch, owed).await;
        let _ = self.same(
            "flag",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
    }

    pub(super) async fn see(&mut self) {
        let seen: Vec<(DeviceRef, Timestamp)> = (0..self.random.below(4))
            .map(|_| (self.device().to_ref(), at(self.random.below(self.now + 1))))
            .collect();
        let got = self.scene.store().record_seen(&seen).await;
        let wanted = self.reference.record_seen(&seen).await;
        let _ = self.same(
            "seen",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
    }
}
