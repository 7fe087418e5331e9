//! Who the client says it is.

use std::fmt;

use argala_wire::{DeviceId, MemberId, Sealed, devices::DeviceRef};
use percent_encoding::percent_decode_str;
use reqwest::header::HeaderValue;
use serde_json::Value;

use super::segment;
use crate::error::Error;

/// What every request carries to say which member and device it comes from (protocol, section 3).
#[derive(Clone)]
pub enum Credential {
    /// The dev server's, which believes whoever asks.
    Dev(DeviceRef),
    /// A token that the host application (or `relay admin token mint`) gave out for this device.
    Bearer(Token),
}

/// A bearer token; not printed.
#[derive(Clone)]
pub struct Token(String);

impl Credential {
    /// Reads `member/device`, each percent-encoded where it holds a slash or a percent sign.
    ///
    /// # Errors
    /// [`Error::Usage`] where it is not of that form.
    pub fn dev(text: &str) -> Result<Self, Error> {
        device_ref(text).map(Self::Dev)
    }

    /// Takes a bearer token, white space around it left out.
    ///
    /// # Errors
    /// [`Error::Usage`] where it could not stand in a header.
    pub fn bearer(token: &str) -> Result<Self, Error> {
        let token = token.trim();
        let legal = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
        legal
            .then(|| Self::Bearer(Token(token.to_owned())))
            .ok_or_else(|| Error::Usage("the token is empty or holds white space".to_owned()))
    }

    /// The member and device that the credential itself names: for a JWT by its claims `sub` and
    /// `did`, unverified, since only the relay can verify them. `None` where it names none.
    #[must_use]
    pub fn device(&self) -> Option<DeviceRef> {
        match self {
            Self::Dev(device) => Some(device.clone()),
            Self::Bearer(Token(token)) => {
                let claims = Sealed::from_base64url(token.split('.').nth(1)?)?;
                let claims: Value = serde_json::from_slice(claims.as_slice()).ok()?;
                let claim = |name: &str| claims.get(name)?.as_str();
                Some(DeviceRef {
                    member_id: MemberId::new(claim("sub")?).ok()?,
                    device_id: DeviceId::new(claim("did")?).ok()?,
                })
            }
        }
    }

    pub(super) fn header(&self) -> Result<HeaderValue, Error> {
        let text = match self {
            Self::Dev(device) => format!(
                "Dev {}/{}",
                segment(device.member_id.as_str()),
                segment(device.device_id.as_str())
            ),
            Self::Bearer(Token(token)) => format!("Bearer {token}"),
        };
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| Error::Usage("the credential cannot stand in a header".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Hides a token.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dev(device) => f.debug_tuple("Dev").field(device).finish(),
            Self::Bearer(_) => f.write_str("Bearer(…)"),
        }
    }
}

/// Reads `member/device`, each percent-encoded where it holds a slash or a percent sign.
///
/// # Errors
/// [`Error::Usage`] where it is not of that form.
pub fn device_ref(text: &str) -> Result<DeviceRef, Error> {
    let usage = || Error::Usage("a device is written as member/device".to_owned());
    let (member, device) = text.split_once('/').ok_or_else(usage)?;
    let decode = |part: &str| {
        let text = percent_decode_str(part)
            .decode_utf8()
            .map_err(|_| usage())?;
        Ok::<_, Error>(text.into_owned())
    };
    Ok(DeviceRef {
        member_id: MemberId::new(decode(member)?).map_err(|why| Error::Usage(why.to_string()))?,
        device_id: DeviceId::new(decode(device)?).map_err(|why| Error::Usage(why.to_string()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_slashes_are_written_encoded() {
        let credential = Credential::dev("auth0|42/a%2Fb%25").expect("legal");
        let device = credential.device().expect("names one");
        assert_eq!(device.member_id.as_str(), "auth0|42");
        assert_eq!(device.device_id.as_str(), "a/b%");
        let header = credential.header().expect("legal");
        assert_eq!(header.to_str().expect("ASCII"), "Dev auth0%7C42/a%2Fb%25");
        for text in ["sam", "sam/", "/a", "sam/..", "sam/%ff"] {
            assert!(Credential::dev(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_names_its_device_and_is_not_printed() {
        let claims = Sealed(br#"{"sub":"sam","did":"laptop","exp":1}"#.to_vec()).to_base64url();
        let token = Credential::bearer(&format!("x.{claims}.y\n")).expect("legal");
        let device = token.device().expect("names one");
        assert_eq!(device.member_id.as_str(), "sam");
        assert_eq!(device.device_id.as_str(), "laptop");
        assert!(!format!("{token:?}").contains(&claims));
        assert!(token.header().expect("legal").is_sensitive());
        assert!(
            Credential::bearer("opaque")
                .expect("legal")
                .device()
                .is_none()
        );
        assert!(Credential::bearer("a b").is_err());
        assert!(Credential::bearer(" ").is_err());
    }
}
