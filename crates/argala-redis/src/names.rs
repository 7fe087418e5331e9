//! What keys and channels are called.

use std::sync::Arc;

use argala_wire::MemberId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All but what needs no care anywhere: a colon parts names, and braces mean something to a
/// cluster.
const CAREFUL: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'@');

/// A member's id as part of a name, so that no two are alike and none looks like anything else.
pub(crate) fn encode(member: &MemberId) -> String {
    utf8_percent_encode(member.as_str(), CAREFUL).to_string()
}

/// Names below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: Arc<str>,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    pub(crate) fn key(&self, parts: &[&str]) -> String {
        let mut key = self.prefix.to_string();
        for part in parts {
            key.push(':');
            key.push_str(part);
        }
        key
    }

    /// Where a member's pokes go.
    pub(crate) fn channel(&self, member: &MemberId) -> String {
        self.key(&["poke", &encode(member)])
    }

    /// Where all replicas listen.
    pub(crate) fn everybody(&self) -> String {
        self.key(&["resync"])
    }

    /// Whose channel that is.
    pub(crate) fn member(&self, channel: &str) -> Option<MemberId> {
        let rest = channel.strip_prefix(&*self.prefix)?;
        let encoded = rest.strip_prefix(":poke:")?;
        let text = percent_decode_str(encoded).decode_utf8().ok()?;
        MemberId::new(text.as_ref()).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_channel_tells_its_member(id in "[^\\p{C}\\p{Z}]{1,20}") {
            let names = Names::new("argala");
            prop_assume!(MemberId::new(id.as_str()).is_ok());
            let member = MemberId::new(id.as_str()).expect("just tried");
            let channel = names.channel(&member);
            let plain = channel.bytes().all(|b| b.is_ascii_graphic() && b != b'{');
            prop_assert!(plain, "{channel}");
            prop_assert_eq!(names.member(&channel), Some(member));
        }
    }

    #[test]
    fn other_channels_are_nobodys() {
        let names = Names::new("argala");
        for channel in [
            "argala:resync",
            "argala:poke:",
            "other:poke:sam",
            "argala:poke:%FF",
        ] {
            assert_eq!(names.member(channel), None, "{channel}");
        }
    }
}
