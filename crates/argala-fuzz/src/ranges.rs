//! What RFC 9110 makes of the headers of a GET, read a second time.

/// What a GET is to be answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All of it.
    Whole,
    /// From the first of these bytes to the last of them.
    Part(usize, usize),
    /// A 416.
    Outside,
}

/// The values of the header `name`, one for each line.
pub(crate) fn lines<'a>(headers: &[(&str, &'a str)], name: &str) -> Vec<&'a str> {
    let of = headers.iter().filter(|(given, _)| *given == name);
    of.map(|(_, value)| *value).collect()
}

/// Which part of a blob of `size` bytes is asked for (section 14.2); `tag` is its entity tag, in
/// quotes.
///
/// The contract leaves several ranges, and what is no range, to be answered with all of it.
pub(crate) fn wanted(headers: &[(&str, &str)], size: usize, tag: &str) -> Wanted {
    let &[range] = &lines(headers, "range")[..] else {
        return Wanted::Whole;
    };
    // Section 13.1.5: only where the caller has a part of this very blob, by the strong comparison.
    if lines(headers, "if-range").iter().any(|given| *given != tag) {
        return Wanted::Whole;
    }
    let Some((unit, set)) = range.split_once('=') else {
        return Wanted::Whole;
    };
    let blank = |c| c == ' ' || c == '\t';
    if !unit.trim_matches(blank).eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    let ends: Vec<&str> = set.trim_matches(blank).split('-').collect();
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let &[first, last] = &ends[..] else {
        return Wanted::Whole;
    };
    if !digits(first) || !digits(last) || (first.is_empty() && last.is_empty()) {
        return Wanted::Whole;
    }
    // Beyond 64 bits all numbers are alike: no blob is that large.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let size = size as u64;
    let (from, to) = if first.is_empty() {
        let length = number(last).min(size);
        (size - length, size - 1)
    } else if last.is_empty() {
        (number(first), size - 1)
    } else if number(last) < number(first) {
        return Wanted::Whole;
    } else {
        (number(first), number(last).min(size - 1))
    };
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) if from <= to => Wanted::Part(from, to),
        _ => Wanted::Outside,
    }
}

/// Whether `If-None-Match` names `tag`, which is in quotes (section 13.1.2); `None` where the
/// standard does not say, because it cannot be read.
pub(crate) fn known(headers: &[(&str, &str)], tag: &str) -> Option<bool> {
    let mut found = false;
    for line in lines(headers, "if-none-match") {
        if line == "*" {
            found = true;
            continue;
        }
        // A comma may stand in a tag: what is between quotes is of every second piece.
        let pieces: Vec<&str> = line.split('"').collect();
        if pieces.len().is_multiple_of(2) {
            return None;
        }
        for (at, piece) in pieces.iter().enumerate() {
            let legal = if at % 2 == 1 {
                found |= tag == format!("\"{piece}\"");
                piece.chars().all(|c| c == '!' || c > '"') && !piece.contains('\u{7f}')
            } else {
                is_between(piece, at == 0, at + 1 == pieces.len())
            };
            if !legal {
                return None;
            }
        }
    }
    Some(found)
}

/// Whether `piece` may stand between two tags of a list, or before the first, or behind the last:
/// commas and blanks, at least one comma between two, and a `W/` that a tag follows.
fn is_between(piece: &str, is_first: bool, is_last: bool) -> bool {
    let bare = match piece.strip_suffix("W/") {
        Some(bare) if !is_last => bare,
        _ => piece,
    };
    let blanks = bare.chars().all(|c| " \t,".contains(c));
    blanks && (is_first || is_last || bare.contains(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        let of = |range: &str| wanted(&[("range", range)], 10_000, "\"t\"");
        assert_eq!(of("bytes=0-499"), Wanted::Part(0, 499));
        assert_eq!(of("bytes=500-999"), Wanted::Part(500, 999));
        assert_eq!(of("bytes=-500"), Wanted::Part(9_500, 9_999));
        assert_eq!(of("bytes=9500-"), Wanted::Part(9_500, 9_999));
        assert_eq!(of("bytes=9999-99999"), Wanted::Part(9_999, 9_999));
        assert_eq!(of("bytes=-99999"), Wanted::Part(0, 9_999));
        assert_eq!(of("bytes=10000-"), Wanted::Outside);
        assert_eq!(of("bytes=-0"), Wanted::Outside);
        for range in ["bytes=0-0,-1", "bytes=2-1", "bytes=-", "seconds=1-2", ""] {
            assert_eq!(of(range), Wanted::Whole, "{range}");
        }
    }

    #[test]
    fn tags_of_a_list() {
        let of = |list: &str| known(&[("if-none-match", list)], "\"t\"");
        for list in ["\"t\"", "W/\"t\"", "\"a,b\", \"t\"", ", \"t\" ,", "*"] {
            assert_eq!(of(list), Some(true), "{list}");
        }
        for list in ["\"a\"", "", "W/\"T\"", "\"a\",\"b\""] {
            assert_eq!(of(list), Some(false), "{list}");
        }
        for list in ["t", "\"t\"\"a\"", "\"t", "\"t\" W/", "w/\"t\"", "*, \"t\""] {
            assert_eq!(of(list), None, "{list}");
        }
    }
}
