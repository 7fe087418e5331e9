//! Which part of a blob a caller wants (RFC 9110, section 14).

use std::ops::Range;

use http::{HeaderMap, header};

/// What a request for a blob asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// These bytes: at least one, all inside the blob.
    Part(Range<u64>),
    /// A range that begins after the end.
    Outside,
}

/// What is wanted of a blob of `size` bytes whose entity tag, without quotes, is `tag`.
///
/// Several ranges, and whatever cannot be read as one, are answered with all of it: a server may
/// do so, and one that clients rarely test should.
pub(crate) fn wanted(headers: &HeaderMap, size: u64, tag: &str) -> Wanted {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Wanted::Whole;
    };
    // A date never is strong enough: we have no dates to compare with.
    let still = |value: &http::HeaderValue| value.as_bytes() == format!("\"{tag}\"").as_bytes();
    if headers
        .get_all(header::IF_RANGE)
        .iter()
        .any(|value| !still(value))
    {
        return Wanted::Whole;
    }
    range
        .to_str()
        .ok()
        .and_then(|text| parse(text, size))
        .unwrap_or(Wanted::Whole)
}

fn parse(text: &str, size: u64) -> Option<Wanted> {
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let range = match (first, last) {
        ("", last) => {
            let length = number(last)?;
            if length == 0 {
                return Some(Wanted::Outside);
            }
            size.saturating_sub(length)..size
        }
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(size)
        }
    };
    Some(if range.start < range.end {
        Wanted::Part(range)
    } else {
        Wanted::Outside
    })
}

/// A number of any length; one that does not fit lies outside every blob all the same.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(range: &str, if_range: Option<&str>) -> Wanted {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().expect("a header's value"));
        if let Some(value) = if_range {
            headers.insert(header::IF_RANGE, value.parse().expect("a header's value"));
        }
        wanted(&headers, 10, "tag")
    }

    #[test]
    fn single_ranges_are_parts() {
        for (range, want) in [
            ("bytes=0-0", Wanted::Part(0..1)),
            ("bytes=2-5", Wanted::Part(2..6)),
            ("Bytes=2-", Wanted::Part(2..10)),
            ("bytes=-3", Wanted::Part(7..10)),
            ("bytes=-99", Wanted::Part(0..10)),
            ("bytes=5-99999999999999999999999", Wanted::Part(5..10)),
            ("bytes=10-", Wanted::Outside),
            ("bytes=10-12", Wanted::Outside),
            ("bytes=99999999999999999999999-", Wanted::Outside),
            ("bytes=-0", Wanted::Outside),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=5-2", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("bytes", Wanted::Whole),
            ("items=0-1", Wanted::Whole),
        ] {
            assert_eq!(ask(range, None), want, "{range}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 10, "tag"), Wanted::Whole);
    }

    #[test]
    fn a_range_of_something_else_is_all_of_this() {
        assert_eq!(ask("bytes=0-1", Some("\"tag\"")), Wanted::Part(0..2));
        for other in [
            "\"other\"",
            "W/\"tag\"",
            "tag",
            "Wed, 21 Oct 2026 07:28:00 GMT",
        ] {
            assert_eq!(ask("bytes=0-1", Some(other)), Wanted::Whole, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_part_lies_inside(text in "bytes=[0-9]{0,21}-[0-9]{0,21}", size: u64) {
            if let Some(Wanted::Part(range)) = parse(&text, size) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }

        #[test]
        fn garbage_never_panics(text: String, size: u64) {
            let _ = parse(&text, size);
        }
    }
}
