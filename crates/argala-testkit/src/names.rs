//! Identifiers from literals.

use argala_wire::{BlobId, DeviceId, GroupId, MemberId, RecordId, devices::DeviceRef};

/// The member called `text`.
///
/// # Panics
/// Where `text` is no member id; so do the other functions of their ids.
#[must_use]
pub fn member(text: &str) -> MemberId {
    MemberId::new(text).expect("a legal member id")
}

/// The group called `text`.
#[must_use]
pub fn group(text: &str) -> GroupId {
    GroupId::new(text).expect("a legal group id")
}

/// The device id `text`.
#[must_use]
pub fn device_id(text: &str) -> DeviceId {
    DeviceId::new(text).expect("a legal device id")
}

/// The device `device_id` of the member `member_id`.
#[must_use]
pub fn device_ref(member_id: &str, device: &str) -> DeviceRef {
    DeviceRef {
        member_id: member(member_id),
        device_id: device_id(device),
    }
}

/// The record id `text`.
#[must_use]
pub fn record_id(text: &str) -> RecordId {
    RecordId::new(text).expect("a legal record id")
}

/// A blob id that begins with `text`, filled up with `_` to the length that one must have.
#[must_use]
pub fn blob_id(text: &str) -> BlobId {
    BlobId::new(format!("{text:_<16}")).expect("a legal blob id")
}
