//! The forms that values take in a configuration.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, de};

/// A number of bytes: an integer, or a text with a unit of 1024 (`"8 MiB"`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "not a size: write bytes, or a text like \"8 MiB\"";
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: u64 = number.replace('_', "").parse().map_err(|_| SHAPE)?;
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err(SHAPE),
        };
        number.checked_mul(factor).map(Self).ok_or(SHAPE)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes, or a text like \"8 MiB\"")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Size, E> {
                Ok(Size(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Size, E> {
                u64::try_from(number)
                    .map(Size)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A length of time, as text: `"250ms"`, `"5s"`, `"1h 30m"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration: Result<SignedDuration, _> = text.parse();
        duration
            .ok()
            .and_then(|duration| Duration::try_from(duration).ok())
            .map(Self)
            .ok_or("not a duration like \"5s\" or \"1h 30m\"")
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like \"5s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Addresses that share a prefix: `10.0.0.0/8`, or one address alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// An address of the network.
    pub address: IpAddr,
    /// How many leading bits its addresses share.
    pub prefix: u8,
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "not an address or network like \"10.0.0.0/8\"";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| SHAPE)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), |prefix| prefix.parse().map_err(|_| SHAPE))?;
        if prefix > bits {
            return Err(SHAPE);
        }
        Ok(Self { address, prefix })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(de::value::StrDeserializer::new(text))
                    .map(|one| OneOrMany(vec![one]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Self::Value, A::Error> {
                let mut many = Vec::new();
                while let Some(one) = list.next_element()? {
                    many.push(one);
                }
                Ok(OneOrMany(many))
            }
        }

        deserializer.deserialize_any(Visitor(std::marker::PhantomData))
    }
}

/// A choice of backend. What this build has is accepted; what the design knows and this build
/// lacks is refused by a sentence of its own, so that nobody searches for a misspelling.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $name:ident of $what:literal {
            $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
        }
        elsewhere [$($missing:literal),*]
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Those that this build has.
            pub const NAMES: &[&str] = &[$($text),*];
            const ELSEWHERE: &[&str] = &[$($missing),*];
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    other => Err($crate::config::values::refuse(
                        $what, other, Self::NAMES, Self::ELSEWHERE,
                    )),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(super) use choice;

/// Why `chosen` is none of `names`.
pub(super) fn refuse(what: &str, chosen: &str, names: &[&str], elsewhere: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let names = names.join(", ");
    if elsewhere.contains(&chosen) {
        format!("this build has no {what} \"{chosen}\"; it has {names}")
    } else {
        format!("there is no {what} \"{chosen}\"; there is {names}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_texts() {
        for (text, bytes) in [
            ("0", 0),
            ("1_000", 1_000),
            ("8 MiB", 8 << 20),
            ("8MiB", 8 << 20),
            (" 2 GiB ", 2 << 30),
            ("1 TiB", 1 << 40),
            ("7 B", 7),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in [
            "",
            "MiB",
            "8 MB",
            "-1",
            "1.5 MiB",
            "99999999999 TiB",
            "8 MiB x",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("0s", 0),
            ("1h 30m", 5_400_000),
            ("2h", 7_200_000),
            ("1.5s", 1_500),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Span(Duration::from_millis(millis))),
                "{text}"
            );
        }
        for text in ["", "5", "-5s", "s", "5 parsecs", "5s later"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_have_a_prefix_that_fits() {
        for text in ["10.0.0.0/8", "127.0.0.1", "::1", "fd00::/8", "0.0.0.0/0"] {
            assert!(text.parse::<Network>().is_ok(), "{text}");
        }
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "proxy",
            "10.0.0.0/",
            "/8",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        assert_eq!(
            "::1".parse::<Network>().map(|network| network.prefix),
            Ok(128)
        );
    }
}
