//! What a tracked file may contain.

use std::path::Path;

use crate::repository::{text, tracked};

/// A file longer than this covers more than one topic.
const MAX_LINES: usize = 600;

/// Code that people read; data such as test vectors may be as long as it needs to be.
fn is_code(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| ["rs", "sql", "toml", "sh"].iter().any(|e| end == *e))
}

#[test]
fn no_code_file_is_too_long_to_read() {
    let mut faults = Vec::new();
    for path in tracked() {
        let home = ["crates", "services", "xtask", "migrations", "loadtest"];
        if !home.iter().any(|folder| path.starts_with(folder)) || !is_code(&path) {
            continue;
        }
        let lines = text(&path).unwrap_or_default().lines().count();
        if lines > MAX_LINES {
            faults.push(format!(
                "{} has {lines} lines, {MAX_LINES} at most",
                path.display()
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_names_a_place_on_the_machine_it_was_written_on() {
    let mut faults = Vec::new();
    for path in tracked() {
        let Some(text) = text(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if machine_path(line) {
                faults.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whether a line has an absolute path below a home or work folder of some machine.
fn machine_path(line: &str) -> bool {
    // Spelled apart, so that this file does not report itself.
    [concat!("/ro", "ot/"), concat!("/wo", "rk/")]
        .iter()
        .any(|place| {
            line.match_indices(place).any(|(at, _)| {
                // `docs/work/` is a folder of ours, `$ROOT/root/` one that somebody chose.
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.}$".contains(c))
            })
        })
}

#[test]
fn lints_are_expected_with_a_reason_and_no_work_is_left_for_later() {
    let mut faults = Vec::new();
    for path in tracked() {
        if path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        let text = text(&path).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            if let Some(fault) = leftover(line) {
                faults.push(format!("{}:{}: {fault}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with a line of Rust, if anything.
fn leftover(line: &str) -> Option<&'static str> {
    let line = line.split("//").next().unwrap_or(line).trim();
    let starts = |start: &str| line.starts_with(start);
    if starts(concat!("#[al", "low(")) || starts(concat!("#![al", "low(")) {
        Some("expect the lint, with a reason")
    } else if starts(concat!("#[ign", "ore]")) {
        Some("say why the test is ignored")
    } else if line.contains(concat!("to", "do!(")) || line.contains(concat!("unimple", "mented!("))
    {
        Some("unfinished work")
    } else {
        None
    }
}

#[test]
fn the_rules_of_this_file_see_what_they_forbid() {
    assert!(machine_path(concat!("see /ro", "ot/notes.md")));
    assert!(machine_path(concat!("include!(\"/wo", "rk/x.rs\")")));
    assert!(!machine_path(concat!("docs/wo", "rk/plan.md")));
    assert!(leftover(concat!("    #[al", "low(dead_code)]")).is_some());
    assert!(leftover(concat!("#![al", "low(dead_code)]")).is_some());
    assert!(leftover(concat!("#[ign", "ore]")).is_some());
    assert!(leftover(concat!("#[ign", "ore = \"needs a network\"]")).is_none());
    assert!(leftover(concat!("_ => to", "do!(),")).is_some());
    assert!(leftover(concat!("// no to", "do!() here")).is_none());
    assert!(leftover("#[expect(dead_code, reason = \"…\")]").is_none());
}
