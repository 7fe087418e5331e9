//! Names: when two are the same to some file system, and what a file is called whose own name is
//! taken.

use std::borrow::Cow;

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

use super::path::{MAX_NAME_BYTES, MAX_PATH_BYTES, RelPath};

/// The form in which two names are equal if *any* file system in use takes them for one: canonical
/// decomposition, and case folded by way of upper case.
///
/// It may merge more than a particular file system does; that costs a file a plain name on such a
/// device, never its content. Characters are folded one by one, so that the form of a prefix is a
/// prefix of the form.
pub(crate) fn fold(name: &str) -> Cow<'_, str> {
    if name.is_ascii() {
        return if name.bytes().any(|b| b.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        };
    }
    let nfd = const { DecomposingNormalizerBorrowed::new_nfd() };
    let lower: String = nfd
        .normalize(name)
        .chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    Cow::Owned(nfd.normalize(&lower).into_owned())
}

/// The composed form: equal for two names that a person could not tell apart by their code points'
/// order alone.
pub(crate) fn composed(name: &str) -> Cow<'_, str> {
    if name.is_ascii() {
        return Cow::Borrowed(name);
    }
    const { ComposingNormalizerBorrowed::new_nfc() }.normalize(name)
}

/// What the version of `path` is called that lost against another: `notes.md`, lost by
/// sam-laptop, becomes `notes (conflict from sam-laptop).md`, and the `n`-th such one
/// `notes (conflict from sam-laptop 2).md`. `n` counts from 1.
pub(crate) fn conflict(path: &RelPath, device: &str, n: u32) -> RelPath {
    let device = spoken(device);
    let (mut stem, extension) = split(path.leaf());
    // A conflict about a conflict's loser does not pile up the words.
    let words = format!(" (conflict from {device}");
    if let Some(at) = stem.rfind(&words) {
        let rest = &stem[at + words.len()..];
        let number = rest.strip_suffix(')').map(str::trim_start);
        if at > 0 && number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            stem = &stem[..at];
        }
    }
    let suffix = match n {
        0 | 1 => format!("{words})"),
        n => format!("{words} {n})"),
    };
    named(path.parent().as_ref(), stem, &suffix, extension)
}

/// What `name` in the folder `parent` is called on a device whose file system takes it for another
/// file's: `a.md` beside `A.md` becomes `a (other spelling).md`. `n` counts from 1.
pub(crate) fn other_spelling(parent: Option<&RelPath>, name: &str, n: u32) -> RelPath {
    let (stem, extension) = split(name);
    let suffix = match n {
        0 | 1 => " (other spelling)".to_owned(),
        n => format!(" (other spelling {n})"),
    };
    named(parent, stem, &suffix, extension)
}

/// Stem and extension, the dot with the latter. `.profile` has no extension, and what follows the
/// last dot of a sentence is none either.
fn split(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(dot) if dot > 0 && name.len() - dot <= 16 => name.split_at(dot),
        _ => (name, ""),
    }
}

/// Joins the parts, the stem cut where the whole would be too long for a file system.
fn named(parent: Option<&RelPath>, stem: &str, suffix: &str, extension: &str) -> RelPath {
    let room = match parent {
        Some(parent) => MAX_PATH_BYTES.saturating_sub(parent.as_str().len() + 1),
        None => MAX_PATH_BYTES,
    };
    let room = room.min(MAX_NAME_BYTES);
    let mut end = stem
        .len()
        .min(room.saturating_sub(suffix.len() + extension.len()));
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    let name = format!("{}{suffix}{extension}", &stem[..end]);
    RelPath::within(parent, &name)
        // Only where the folder's own path leaves no room: at the top there is.
        .or_else(|_| RelPath::within(None, &name))
        .unwrap_or_else(|_| unreachable!("a cut stem, a short suffix and an extension fit"))
}

/// A device's id as part of a file's name: without what some file system gives a meaning, and not
/// too long.
fn spoken(device: &str) -> String {
    let mut text: String = device
        .chars()
        .map(|c| match c {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            c if c.is_control() => '-',
            c => c,
        })
        .collect();
    let mut end = text.len().min(64);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect("legal")
    }

    #[test]
    fn the_loser_is_named_with_the_device() {
        let name = |text, device, n| conflict(&path(text), device, n).to_string();
        assert_eq!(
            name("d/notes.md", "sam-laptop", 1),
            "d/notes (conflict from sam-laptop).md"
        );
        assert_eq!(
            name("notes", "sam-laptop", 2),
            "notes (conflict from sam-laptop 2)"
        );
        assert_eq!(name(".profile", "x", 1), ".profile (conflict from x)");
        assert_eq!(
            name("a (conflict from x).md", "x", 2),
            "a (conflict from x 2).md"
        );
        assert_eq!(
            name("a (conflict from x 2).md", "x", 3),
            "a (conflict from x 3).md"
        );
        assert_eq!(
            name("a (conflict from x).md", "y", 1),
            "a (conflict from x) (conflict from y).md"
        );
        assert_eq!(name("a", "../user:7", 1), "a (conflict from ..-user-7)");
    }

    #[test]
    fn what_some_file_system_takes_for_one_folds_to_one() {
        for (one, other) in [
            ("README", "readme"),
            ("é", "e\u{301}"),
            ("É", "e\u{301}"),
            ("straße", "STRASSE"),
            ("ΣΑΣ", "σας"),
            ("\u{212a}", "k"),
            ("ŉ", "ʼN"),
        ] {
            assert_eq!(fold(one), fold(other), "{one} {other}");
        }
        assert_ne!(fold("a"), fold("b"));
        assert_eq!(composed("e\u{301}"), "é");
        assert_ne!(composed("E\u{301}"), composed("é"));
    }

    proptest! {
        /// A name is never too long and never leaves its folder, whatever it is made from.
        #[test]
        fn made_up_names_are_names(
            stem in "[a-zé.() ]{1,250}", device in "\\PC{0,128}", n in 1u32..2_000,
        ) {
            let Ok(of) = RelPath::within(Some(&path("d/e")), &stem) else { return Ok(()) };
            let name = conflict(&of, &device, n);
            prop_assert_eq!(name.parent(), of.parent());
            prop_assert_ne!(&name, &of);
            let spelling = other_spelling(of.parent().as_ref(), of.leaf(), n);
            prop_assert_eq!(spelling.parent(), of.parent());
        }

        /// Counting up always yields another name, so the search for a free one ends.
        #[test]
        fn numbers_tell_names_apart(stem in "[a-z.() ]{1,254}", n in 1u32..50, m in 1u32..50) {
            let Ok(of) = RelPath::parse(&stem) else { return Ok(()) };
            prop_assert_eq!(conflict(&of, "x", n) == conflict(&of, "x", m), n == m);
        }

        #[test]
        fn folding_is_settled_after_one_step(name in "\\PC{0,12}") {
            let once = fold(&name).into_owned();
            prop_assert_eq!(fold(&once), once.as_str());
        }

        #[test]
        fn prefixes_fold_to_prefixes(one in "\\PC{0,6}", two in "\\PC{0,6}") {
            let whole = format!("{one}/{two}");
            prop_assert_eq!(fold(&whole), format!("{}/{}", fold(&one), fold(&two)));
        }
    }
}
