//! All that can be read.

use argala_core::{
    Fault,
    ports::{
        Store,
        store::{GraphDevicesQuery, GraphsQuery, WrapsQuery},
    },
};
use argala_wire::MemberId;

use super::{GROUPS, History, MEMBERS};
use crate::{TestDevice, blob_id, group, member};

impl History {
    /// Compares all that can be read.
    pub(super) async fn read_everything(&mut self) {
        let all: Vec<MemberId> = MEMBERS.iter().map(|name| member(name)).collect();
        for name in &all {
            let got = self.scene.store().devices_of_member(name, None, 99).await;
            let wanted = self.reference.devices_of_member(name, None, 99).await;
            let _ = self.same(
                "devices",
                got.map_err(Fault::from),
                wanted.map_err(Fault::from),
            );
        }
        for key in self.graphs.clone() {
            let (scene, reference) = (&self.scene, &self.reference);
            let got = (
                scene.store().standing(&key, &all).await.expect("answered"),
                scene.store().recount(&key).await.expect("answered"),
            );
            let wanted = (
                reference
                    .standing(&key, &all)
                    .await
                    .expect("it does not fail"),
                reference.recount(&key).await.expect("it does not fail"),
            );
            assert!(
                got == wanted,
                "{key}\n got {got:?}\nwant {wanted:?}\nafter\n{}",
                self.log.join("\n")
            );
            if let Some(recount) = wanted.1 {
                assert_eq!(
                    recount.stored, recount.counted,
                    "the reference counts right"
                );
            }
            let query = GraphDevicesQuery {
                key: key.clone(),
                members: all[..1].to_vec(),
                former: true,
                after: None,
                limit: 99,
            };
            let got = self.scene.store().graph_devices(&query).await;
            let wanted = self.reference.graph_devices(&query).await;
            let _ = self.same(
                "former",
                got.map_err(Fault::from),
                wanted.map_err(Fault::from),
            );
            for number in 0..3 {
                let id = blob_id(&format!("blob{number}"));
                let got = self.scene.store().blob(&key, &id, self.at()).await;
                let wanted = self.reference.blob(&key, &id, self.at()).await;
                let _ = self.same(
                    "blob",
                    got.map_err(Fault::from),
                    wanted.map_err(Fault::from),
                );
            }
        }
        for device in self.devices.clone() {
            self.read_as(&device).await;
        }
    }

    pub(super) async fn read_as(&mut self, device: &TestDevice) {
        for groups in [None, Some(vec![group(GROUPS[0])])] {
            let query = GraphsQuery {
                device: device.to_ref(),
                groups,
                after: None,
                limit: 99,
            };
            let got = self.scene.store().graphs_of(&query).await;
            let wanted = self.reference.graphs_of(&query).await;
            let _ = self.same(
                "graphs",
                got.map_err(Fault::from),
                wanted.map_err(Fault::from),
            );
        }
        for key in self.graphs.clone() {
            let query = WrapsQuery {
                key: key.clone(),
                device: device.to_ref(),
                after: 0,
                limit: 99,
            };
            let got = self.scene.store().wraps(&query).await;
            let wanted = self.reference.wraps(&query).await;
            let _ = self.same(
                "wraps",
                got.map_err(Fault::from),
                wanted.map_err(Fault::from),
            );
            let pull = self.scene.pull_request(&key, device, 1_000);
            let got = self.scene.store().pull(pull.clone()).await;
            let wanted = self.reference.pull(pull).await;
            let _ = self.same("pull", got, wanted);
        }
    }
}
