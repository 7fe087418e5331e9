//! Devices.

use argala_core::{
    Rejection,
    ports::store::{DeviceMark, GraphDevicesQuery, Register, Registered, Revoke, Revoked},
    rules,
};
use argala_wire::{
    MemberId, Timestamp,
    devices::{Device, DeviceRef},
};

use super::State;

impl State {
    pub(super) fn of_member<'a>(
        &'a self,
        member: &'a MemberId,
    ) -> impl Iterator<Item = &'a Device> + 'a {
        let devices = self.devices.values();
        devices.filter(move |device| device.member_id == *member)
    }

    /// The active devices of `members`, sorted.
    pub(super) fn roster(&self, members: &[MemberId]) -> Vec<DeviceRef> {
        let on_it = |device: &&Device| device.is_active() && members.contains(&device.member_id);
        let devices = self.devices.values().filter(on_it);
        devices.map(Device::to_ref).collect()
    }

    pub(super) fn register(&mut self, request: &Register) -> Result<Registered, Rejection> {
        let device = &request.device;
        let of_member = self.of_member(&device.member_id);
        let active = of_member.filter(|device| device.is_active()).count() as u64;
        let decision = rules::register(request, self.devices.get(device), active)?;
        let answer = decision.into_answer();
        self.devices.insert(device.clone(), answer.device.clone());
        Ok(answer)
    }

    pub(super) fn devices_of_member(
        &self,
        member: &MemberId,
        after: Option<&DeviceMark>,
        limit: usize,
    ) -> Vec<Device> {
        let mark = |device: &Device| DeviceMark {
            registered_at: device.registered_at,
            device_id: device.device_id.clone(),
        };
        let mut devices: Vec<Device> = self.of_member(member).cloned().collect();
        devices.sort_by_key(mark);
        devices.retain(|device| after.is_none_or(|after| mark(device) > *after));
        devices.truncate(limit);
        for device in &mut devices {
            device.last_seen_at = self.seen.get(&device.to_ref()).copied();
        }
        devices
    }

    pub(super) fn revoke(&mut self, request: &Revoke) -> Result<Revoked, Rejection> {
        let target = DeviceRef {
            member_id: request.by.member_id.clone(),
            device_id: request.device_id.clone(),
        };
        let caller = self.devices.get(&request.by);
        let fresh = rules::revoke(caller, self.devices.get(&target))?;
        let mut flagged = Vec::new();
        if fresh {
            let device = self.devices.get_mut(&target).expect("the rule saw it");
            device.revoked_at = Some(request.now);
            for (key, shelf) in &mut self.graphs {
                if shelf.held_by(&target).contains(&shelf.graph.epoch) {
                    shelf.graph.revocation_owed = true;
                    flagged.push(key.clone());
                }
                for ((_, device), row) in &mut shelf.wraps {
                    if *device == target {
                        row.wrap = None;
                    }
                }
            }
        }
        Ok(Revoked { fresh, flagged })
    }

    pub(super) fn revoked_among(&self, devices: &[DeviceRef]) -> Vec<DeviceRef> {
        let revoked = |device: &&DeviceRef| {
            let row = self.devices.get(*device);
            row.is_some_and(|row| !row.is_active())
        };
        devices.iter().filter(revoked).cloned().collect()
    }

    pub(super) fn record_seen(&mut self, seen: &[(DeviceRef, Timestamp)]) {
        for (device, at) in seen {
            if !self.devices.contains_key(device) {
                continue;
            }
            let kept = self.seen.entry(device.clone()).or_insert(*at);
            *kept = (*kept).max(*at);
        }
    }

    pub(super) fn graph_devices(&self, query: &GraphDevicesQuery) -> Vec<Device> {
        let mut wanted = self.roster(&query.members);
        if query.former
            && let Some(shelf) = self.graphs.get(&query.key)
        {
            wanted.extend(shelf.wraps.keys().map(|(_, device)| device.clone()));
        }
        wanted.sort();
        wanted.dedup();
        wanted.retain(|device| query.after.as_ref().is_none_or(|after| device > after));
        wanted.truncate(query.limit);
        let rows = wanted.iter().filter_map(|device| self.devices.get(device));
        rows.cloned().collect()
    }
}
