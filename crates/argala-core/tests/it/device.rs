//! Registering and revoking (protocol, routes 1 and 3).

use argala_core::{
    Quota, Rejection,
    ports::store::{Register, Registered},
    rules::{Registration, active, register, revoke},
};
use argala_testkit::{EPOCH, TestDevice};
use argala_wire::{
    Sealed, Timestamp,
    devices::{Device, DeviceKind},
};
use proptest::prelude::*;

use crate::given::{Standing, caller};

fn answer(
    request: &Register,
    existing: Option<&Device>,
    count: u64,
) -> Result<Registered, Rejection> {
    register(request, existing, count).map(Registration::into_answer)
}

#[test]
fn only_a_registered_device_that_was_not_revoked_is_active() {
    let device = caller();
    let verdict = |standing: Standing| active(standing.row(&device).as_ref());
    assert_eq!(
        verdict(Standing::Unregistered),
        Err(Rejection::DeviceUnregistered)
    );
    assert_eq!(verdict(Standing::Revoked), Err(Rejection::DeviceRevoked));
    assert_eq!(verdict(Standing::Active), Ok(()));
}

#[test]
fn a_new_device_stands_as_it_was_sent() {
    let device = caller().recovery();
    let request = Register {
        label: Some(Sealed(b"sealed".to_vec())),
        ..device.register(EPOCH)
    };
    let decision = register(&request, None, 0).unwrap();
    assert!(matches!(decision, Registration::Insert(_)));
    let registered = decision.into_answer();
    assert!(registered.fresh);
    let wanted = Device {
        kind: DeviceKind::Recovery,
        label: request.label.clone(),
        ..device.registered(EPOCH)
    };
    assert_eq!(registered.device, wanted);
}

#[test]
fn a_repeat_changes_the_label_and_nothing_else() {
    let device = caller();
    let later = Timestamp::from_millis(EPOCH.as_millis() + 5);
    let labelled = |label: Option<&str>| label.map(|text| Sealed(text.as_bytes().to_vec()));
    for (before, sent, after) in [
        (None, None, None),
        (None, Some("a"), Some("a")),
        (Some("a"), None, Some("a")),
        (Some("a"), Some("a"), Some("a")),
        (Some("a"), Some("b"), Some("b")),
    ] {
        let row = Device {
            label: labelled(before),
            ..device.registered(EPOCH)
        };
        let request = Register {
            label: labelled(sent),
            ..device.register(later)
        };
        let decision = register(&request, Some(&row), 1).unwrap();
        assert_eq!(
            matches!(decision, Registration::Relabel(_)),
            before != after,
            "{before:?} and {sent:?}"
        );
        let registered = decision.into_answer();
        assert!(!registered.fresh);
        let wanted = Device {
            label: labelled(after),
            ..row
        };
        assert_eq!(registered.device, wanted, "{before:?} and {sent:?}");
    }
}

#[test]
fn other_keys_and_another_kind_are_refused_even_with_a_label() {
    let device = caller();
    let row = device.registered(EPOCH);
    let same = Register {
        label: Some(Sealed(b"new".to_vec())),
        ..device.register(EPOCH)
    };
    let other = TestDevice::with_keys(device.to_ref(), 1);
    let cases = [
        Register {
            encryption_key: other.public_encryption_key(),
            ..same.clone()
        },
        Register {
            signing_key: other.public_signing_key(),
            ..same.clone()
        },
        Register {
            kind: DeviceKind::Recovery,
            ..same.clone()
        },
    ];
    for request in cases {
        let refused = answer(&request, Some(&row), 1).map(|_| ());
        assert_eq!(refused, Err(Rejection::DeviceKeyMismatch));
    }
    assert!(answer(&same, Some(&row), 1).is_ok());
}

proptest! {
    /// A ceiling refuses what is new, and never what is there; revocation is final, whatever is
    /// sent; and the three never hide one another.
    #[test]
    fn ceiling_keys_and_revocation(
        standing in prop::sample::select(Standing::ALL.to_vec()),
        same_keys: bool,
        count in 0..40_u64,
        max_devices in 0..40_u64,
    ) {
        let device = caller();
        let sender = if same_keys { device.clone() } else { TestDevice::with_keys(device.to_ref(), 1) };
        let request = Register { max_devices, ..sender.register(EPOCH) };
        let row = standing.row(&device);
        let got = answer(&request, row.as_ref(), count).map(|registered| registered.fresh);
        let wanted = match standing {
            Standing::Revoked => Err(Rejection::DeviceRevoked),
            Standing::Active if same_keys => Ok(false),
            Standing::Active => Err(Rejection::DeviceKeyMismatch),
            Standing::Unregistered if count < max_devices => Ok(true),
            Standing::Unregistered => Err(Rejection::QuotaExceeded {
                what: Quota::Devices,
                limit: max_devices,
                used: count,
            }),
        };
        prop_assert_eq!(got, wanted);
    }
}

#[test]
fn revoking_asks_the_caller_first_and_does_nothing_twice() {
    let (by, target) = (caller(), TestDevice::new("sam", "phone"));
    for caller in Standing::ALL {
        for there in Standing::ALL {
            let got = revoke(caller.row(&by).as_ref(), there.row(&target).as_ref());
            let wanted = match (caller, there) {
                (Standing::Unregistered, _) => Err(Rejection::DeviceUnregistered),
                (Standing::Revoked, _) => Err(Rejection::DeviceRevoked),
                (_, Standing::Unregistered) => Err(Rejection::DeviceNotFound),
                (_, there) => Ok(there == Standing::Active),
            };
            assert_eq!(got, wanted, "{caller:?} revokes {there:?}");
        }
    }
}
