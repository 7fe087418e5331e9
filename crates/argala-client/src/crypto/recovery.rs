//! Recovery codes: what a person writes down, and the device keys that come from it.
//!
//! 136 random bits and a checksum of 24, as 32 letters and digits of Crockford's base32 in eight
//! groups of four. The checksum notices a slip of the pen at once (all but one in 16 million), before
//! any relay is asked. Argon2id stretches the code into the keys of a device of kind `recovery`;
//! the member's id is its salt, so that one guess cannot be tried on all members at once.

use std::fmt;

use argala_wire::MemberId;
use argon2::{Algorithm, Argon2, Params, Version};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Bound, DeviceKeys, random};

const SECRET: usize = 17;
const CHECKSUM: usize = 3;
const DIGITS: usize = (SECRET + CHECKSUM) * 8 / 5;
/// Crockford's: no I, L, O or U, which are read as 1, 1 and 0 or not at all.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// 64 MiB, three passes, one lane: the second choice of RFC 9106, a second or so on a phone.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;

/// A recovery code. Whoever has it can read all that the member can.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct RecoveryCode([u8; SECRET]);

/// Why a text is no recovery code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Too few or too many characters.
    #[error("a recovery code has 32 letters and digits; some are missing or too many")]
    Length,
    /// A character that no code has.
    #[error("a recovery code holds only digits and the letters A to Z without U")]
    Alphabet,
    /// The checksum does not fit: a character is wrong.
    #[error("a character of the recovery code is wrong")]
    Checksum,
}

fn checksum(secret: &[u8; SECRET]) -> [u8; CHECKSUM] {
    let digest = Sha256::digest(Bound::to("argala/recovery-checksum/v1").field(secret).0);
    let mut out = [0; CHECKSUM];
    out.copy_from_slice(&digest[..CHECKSUM]);
    out
}

impl RecoveryCode {
    /// A new code.
    #[must_use]
    pub fn generate() -> Self {
        Self(random())
    }

    /// The code as it is shown once and written down: eight groups of four, joined by hyphens.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut out = Zeroizing::new(String::with_capacity(DIGITS + 7));
        let (mut bits, mut held, mut digits) = (0_u32, 0, 0);
        for byte in self.0.into_iter().chain(checksum(&self.0)) {
            bits = (bits << 8) | u32::from(byte);
            held += 8;
            while held >= 5 {
                held -= 5;
                if digits > 0 && digits % 4 == 0 {
                    out.push('-');
                }
                out.push(char::from(ALPHABET[(bits >> held) as usize & 31]));
                digits += 1;
            }
            bits &= (1 << held) - 1;
        }
        out
    }

    /// Reads a code as a person types it: in either case, with or without hyphens and spaces, an O
    /// for a zero, an I or L for a one.
    ///
    /// # Errors
    /// [`CodeError`], which says what to look for and repeats nothing of the code.
    pub fn read(text: &str) -> Result<Self, CodeError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET + CHECKSUM));
        let (mut bits, mut held, mut digits) = (0_u32, 0, 0);
        for c in text.chars().filter(|c| !matches!(c, '-' | ' ')) {
            let value = match c.to_ascii_uppercase() {
                'O' => 0,
                'I' | 'L' => 1,
                c => ALPHABET
                    .iter()
                    .position(|&letter| char::from(letter) == c)
                    .ok_or(CodeError::Alphabet)?,
            };
            digits += 1;
            if digits > DIGITS {
                return Err(CodeError::Length);
            }
            bits = (bits << 5) | u32::try_from(value).expect("below 32");
            held += 5;
            if held >= 8 {
                held -= 8;
                bytes.push(u8::try_from((bits >> held) & 255).expect("masked"));
                bits &= (1 << held) - 1;
            }
        }
        let (secret, sum) = bytes
            .split_first_chunk::<SECRET>()
            .ok_or(CodeError::Length)?;
        if sum.len() != CHECKSUM {
            return Err(CodeError::Length);
        }
        if sum != checksum(secret) {
            return Err(CodeError::Checksum);
        }
        Ok(Self(*secret))
    }

    /// The device keys that come from this code for `member`. Takes a second or so and 64 MiB.
    #[must_use]
    pub fn device_keys(&self, member: &MemberId) -> DeviceKeys {
        let params = Params::new(MEMORY_KIB, PASSES, 1, Some(64)).expect("in Argon2's bounds");
        let salt = Sha256::digest(Bound::to("argala/recovery/v1").field(member.as_str()).0);
        let mut seeds = Zeroizing::new([0_u8; 64]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(&self.0, &salt, seeds.as_mut())
            .expect("in Argon2's bounds");
        let (encryption, signing) = seeds.split_at(32);
        DeviceKeys::from_secrets(
            encryption.try_into().expect("32 of 64"),
            signing.try_into().expect("32 of 64"),
        )
    }
}

/// Hides the code.
impl fmt::Debug for RecoveryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryCode(…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(secret: [u8; SECRET]) -> RecoveryCode {
        RecoveryCode(secret)
    }

    #[test]
    fn the_code_is_read_as_people_type_it() {
        let code = code([0x11; SECRET]);
        let shown = code.reveal();
        assert_eq!(shown.len(), 39);
        assert_eq!(shown.split('-').count(), 8);
        for typed in [
            shown.to_lowercase(),
            shown.replace('-', ""),
            shown.replace('-', " "),
            shown.replace('1', "l").replace('0', "o"),
        ] {
            assert_eq!(RecoveryCode::read(&typed).as_ref(), Ok(&code), "{typed}");
        }
        assert_eq!(RecoveryCode::read(""), Err(CodeError::Length));
        assert_eq!(RecoveryCode::read(&shown[..38]), Err(CodeError::Length));
        assert_eq!(
            RecoveryCode::read(&format!("{}0", *shown)),
            Err(CodeError::Length)
        );
        assert_eq!(
            RecoveryCode::read(&shown.replace('-', "_")),
            Err(CodeError::Alphabet)
        );
    }

    #[test]
    fn a_code_gives_one_member_the_same_keys_every_time() {
        let code = code([7; SECRET]);
        let (sam, alex) = (MemberId::new("sam"), MemberId::new("alex"));
        let (sam, alex) = (sam.expect("legal"), alex.expect("legal"));
        let keys = code.device_keys(&sam).public();
        assert_eq!(code.device_keys(&sam).public(), keys);
        assert_ne!(code.device_keys(&alex).public(), keys);
    }

    proptest! {
        #[test]
        fn typos_are_noticed(
            secret: [u8; SECRET],
            at in 0..DIGITS,
            by in 1_usize..32,
            other in 0..DIGITS,
        ) {
            let code = code(secret);
            let shown = code.reveal();
            prop_assert_eq!(RecoveryCode::read(&shown), Ok(code));
            let digits: Vec<u8> = shown.bytes().filter(|&b| b != b'-').collect();
            let value = ALPHABET.iter().position(|&letter| letter == digits[at]).expect("ours");
            let mut wrong = digits.clone();
            wrong[at] = ALPHABET[(value + by) % 32];
            let wrong = String::from_utf8(wrong).expect("ASCII");
            prop_assert_eq!(RecoveryCode::read(&wrong), Err(CodeError::Checksum));
            let mut swapped = digits.clone();
            swapped.swap(at, other);
            let same = swapped == digits;
            let swapped = String::from_utf8(swapped).expect("ASCII");
            prop_assert_eq!(RecoveryCode::read(&swapped).is_ok(), same);
        }
    }
}
