//! What RFC 9530 and RFC 9651 make of `Content-Digest`, read a second time.

use crate::{plain::base64, ranges::lines};

/// What a PUT announces of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    /// No SHA-256.
    Nothing,
    /// This SHA-256.
    Sha256([u8; 32]),
    /// A `sha-256` that is none.
    NoSha256,
    /// What is no dictionary.
    NoDictionary,
}

/// What these headers announce. Of a key that is given twice the last counts.
pub(crate) fn announced(headers: &[(&str, &str)]) -> Announced {
    let mut found = Announced::Nothing;
    for line in lines(headers, "content-digest") {
        let Some(members) = dictionary(line) else {
            return Announced::NoDictionary;
        };
        for (key, bytes) in members {
            if key == "sha-256" {
                let digest = bytes.and_then(|bytes| bytes.try_into().ok());
                found = digest.map_or(Announced::NoSha256, Announced::Sha256);
            }
        }
    }
    found
}

/// A key, and the bytes of a byte sequence.
type Member<'a> = (&'a str, Option<Vec<u8>>);

fn dictionary(line: &str) -> Option<Vec<Member<'_>>> {
    let mut text = Text(line.trim_matches(' '));
    let mut members = Vec::new();
    while !text.0.is_empty() {
        let key = text.key()?;
        let bytes = match text.eat('=') {
            true if text.0.starts_with('(') => text.list().map(|()| None)?,
            true => text.item()?,
            false => None,
        };
        text.parameters()?;
        members.push((key, bytes));
        text.skip(&[' ', '\t']);
        if text.0.is_empty() {
            break;
        }
        if !text.eat(',') {
            return None;
        }
        text.skip(&[' ', '\t']);
        if text.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// What is left to read of a line.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn eat(&mut self, c: char) -> bool {
        let tail = self.0.strip_prefix(c);
        self.0 = tail.unwrap_or(self.0);
        tail.is_some()
    }

    fn skip(&mut self, blanks: &[char]) {
        self.0 = self.0.trim_start_matches(blanks);
    }

    /// What stands before the first character that is not `legal`.
    fn run(&mut self, legal: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !legal(c)).unwrap_or(self.0.len());
        let (run, tail) = self.0.split_at(end);
        self.0 = tail;
        run
    }

    fn key(&mut self) -> Option<&'a str> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        let key = self.run(legal);
        let first = |c: char| c.is_ascii_lowercase() || c == '*';
        key.starts_with(first).then_some(key)
    }

    fn parameters(&mut self) -> Option<()> {
        while self.eat(';') {
            self.skip(&[' ']);
            self.key()?;
            if self.eat('=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn list(&mut self) -> Option<()> {
        self.eat('(').then_some(())?;
        loop {
            self.skip(&[' ']);
            if self.eat(')') {
                return Some(());
            }
            self.item()?;
            self.parameters()?;
            if !self.0.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    /// One bare item; its bytes where it is a byte sequence.
    fn item(&mut self) -> Option<Option<Vec<u8>>> {
        match self.0.chars().next()? {
            ':' => return self.bytes().map(Some),
            '"' => self.string()?,
            '%' => self.display()?,
            '?' => {
                self.eat('?');
                (self.eat('0') || self.eat('1')).then_some(())?;
            }
            '@' => {
                self.eat('@');
                (!self.number()?).then_some(())?;
            }
            c if c == '-' || c.is_ascii_digit() => {
                self.number()?;
            }
            c if c == '*' || c.is_ascii_alphabetic() => {
                self.run(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c));
            }
            _ => return None,
        }
        Some(None)
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        self.eat(':');
        let text = self.run(|c| c != ':');
        self.eat(':').then_some(())?;
        // Padding may be left away, and what is left over of the last character may be anything.
        let bare = text.trim_end_matches('=');
        let right = bare.len().next_multiple_of(4) - bare.len();
        let (bytes, _) = base64(bare, *b"+/")?;
        (text.len() - bare.len() <= right).then_some(bytes)
    }

    fn string(&mut self) -> Option<()> {
        self.eat('"');
        loop {
            self.run(|c| (' '..='~').contains(&c) && c != '"' && c != '\\');
            if self.eat('"') {
                return Some(());
            }
            (self.eat('\\') && (self.eat('"') || self.eat('\\'))).then_some(())?;
        }
    }

    fn display(&mut self) -> Option<()> {
        (self.eat('%') && self.eat('"')).then_some(())?;
        let mut bytes = Vec::new();
        loop {
            bytes.extend(
                self.run(|c| (' '..='~').contains(&c) && c != '"' && c != '%')
                    .bytes(),
            );
            if self.eat('"') {
                return String::from_utf8(bytes).is_ok().then_some(());
            }
            self.eat('%').then_some(())?;
            let (code, tail) = self.0.split_at_checked(2)?;
            let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
            code.chars().all(hex).then_some(())?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            self.0 = tail;
        }
    }

    /// Whether the number has decimals.
    fn number(&mut self) -> Option<bool> {
        self.eat('-');
        let digits = |c: char| c.is_ascii_digit();
        let whole = self.run(digits).len();
        if self.eat('.') {
            let decimals = self.run(digits).len();
            ((1..=12).contains(&whole) && (1..=3).contains(&decimals)).then_some(true)
        } else {
            (1..=15).contains(&whole).then_some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_NOTHING: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    fn of(lines: &[&str]) -> Announced {
        let headers: Vec<_> = lines.iter().map(|line| ("content-digest", *line)).collect();
        announced(&headers)
    }

    #[test]
    fn dictionaries_of_the_standard() {
        let legal = [
            "",
            "a",
            "en=\"Applepie\", da=:w4ZibGV0w6ZydGU=:",
            "a=?0, b, c; foo=bar",
            "rating=1.5, feelings=(joy sadness)",
            "a=(1 2), b=3, c=4;aa=bb, d=(5 6);valid",
            "a=1;b=@1659578233, c=%\"This is intended for display to %c3%bcsers.\"",
            "a=\"x\\\\\\\"\" , *b=*/x:y",
        ];
        for line in legal {
            assert_eq!(of(&[line]), Announced::Nothing, "{line}");
        }
        for line in [
            "a,",
            "=1",
            "A=1",
            "a=(1",
            "a=(1\"b\")",
            "a=1.",
            "a=\"\\x\"",
            "a=:!:",
            "a b",
        ] {
            assert_eq!(of(&[line]), Announced::NoDictionary, "{line}");
        }
    }

    #[test]
    fn ours_is_told_from_others() {
        let ours = format!("sha-256=:{OF_NOTHING}:");
        let Announced::Sha256(digest) = of(&[&ours]) else {
            panic!("not read");
        };
        assert_eq!(digest[..2], [0xe3, 0xb0]);
        let among = format!("md5=:AAAA:, {ours};x=1, sha-512=:AAAA:");
        assert_eq!(of(&["a=1", &among]), Announced::Sha256(digest));
        for line in ["sha-256", "sha-256=1", "sha-256=:AAAA:", "sha-256;a"] {
            assert_eq!(of(&[line]), Announced::NoSha256, "{line}");
            assert_eq!(of(&[&ours, line]), Announced::NoSha256, "{line}");
            assert_eq!(of(&[line, &ours]), Announced::Sha256(digest), "{line}");
        }
        for line in ["sha-256=:!!!!:", "md5=:x, sha-256=:", "b=1x,sha-256=1"] {
            assert_eq!(of(&[line]), Announced::NoDictionary, "{line}");
        }
        let loose = format!("sha-256=:{}:", OF_NOTHING.replace("U=", "V"));
        assert_eq!(of(&[&loose]), Announced::Sha256(digest));
    }
}
