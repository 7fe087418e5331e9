//! Printing answers.

use std::io::{self, Write as _};

use anyhow::Result;
use serde::Serialize;

use crate::cli::Output;

/// Prints one answer: `text` for people, `value` for programs.
pub(crate) fn answer<T: Serialize>(
    output: Output,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<()> {
    match output {
        Output::Text => say(&text(value)),
        Output::Json => say(&serde_json::to_string_pretty(value)?),
    }
}

/// Prints `text` and the end of its line, at once.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.trim_end_matches('\n').as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(())
}

/// Rows as aligned columns below their names.
pub(crate) fn table<const N: usize>(names: [&str; N], rows: &[[String; N]]) -> String {
    let names = names.map(str::to_owned);
    let mut widths = [0; N];
    for row in std::iter::once(&names).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Whether an error means that the reader of our output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error and what lies under it, in one sentence; a cause that is told already is not repeated.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !told.contains(&cause) {
            told.push_str(": ");
            told.push_str(&cause);
        }
    }
    told
}
