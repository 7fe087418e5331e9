//! Doing what the command line asks.

use std::io::{self, Write as _};

use anyhow::Result;
use argala_boot::{
    config::{Config, Sources},
    logs,
    server::Stopped,
    sweeping::{self, Once, Preview, Sweeper, SweeperError},
};
use serde::Serialize;

use crate::cli::{Cli, Command, Output, Settings};

/// Runs one command to its end.
pub(crate) async fn run(cli: Cli) -> Result<Stopped> {
    match cli.command {
        Command::Run {
            settings,
            admin_listen,
        } => {
            let mut sources = sources(&settings);
            if let Some(address) = admin_listen {
                let flag = ("admin.listen".to_owned(), address, "--admin-listen");
                sources.flags.push(flag);
            }
            let config = load(sources)?;
            let sweeper = Sweeper::open(config).await?;
            // One line for scripts, with the real port.
            say(&format!("admin on {}", sweeper.admin_url()))?;
            Ok(sweeper.run().await)
        }
        Command::Once {
            dry_run: false,
            settings,
            output,
            ..
        } => {
            let once = sweeping::once(&load(sources(&settings))?).await?;
            answer(output, &once, done)?;
            Ok(Stopped::Finished)
        }
        Command::Once {
            dry_run: true,
            limit,
            settings,
            output,
        } => {
            let preview = sweeping::preview(&load(sources(&settings))?, limit).await?;
            answer(output, &preview, due)?;
            Ok(Stopped::Finished)
        }
    }
}

/// Whether an error says that what was asked for cannot be meant.
pub(crate) fn is_wrong(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(SweeperError::Embedded | SweeperError::Never)
    )
}

fn sources(settings: &Settings) -> Sources {
    let mut sources = Sources::of_process(settings.config.as_deref());
    for (key, value) in &settings.set {
        sources.flags.push((key.clone(), value.clone(), "--set"));
    }
    // It serves nobody, so it needs nothing to tell callers by.
    sources.operating = true;
    sources
}

fn load(sources: Sources) -> Result<Config> {
    let config = sources.load()?.config;
    logs::start(&config.log).map_err(|error| anyhow::anyhow!("cannot log: {error}"))?;
    Ok(config)
}

/// What one pass has done.
fn done(once: &Once) -> String {
    if !once.swept {
        return "another sweeper is at work; nothing was done".to_owned();
    }
    let mut rows: Vec<(String, u64)> = once
        .forgotten
        .iter()
        .map(|(reason, count)| (format!("blobs {reason}"), *count))
        .collect();
    for (what, count) in [
        ("leaked objects", once.leaked_objects),
        ("tombstones", once.tombstones),
        ("idempotency keys", once.idempotency_keys),
        ("abandoned graphs", once.abandoned_graphs),
        ("rows of erased graphs", once.erased_rows),
        ("objects that could not be removed", once.failed),
        ("questions without an answer", once.doubts),
    ] {
        if count > 0 {
            rows.push((what.to_owned(), count));
        }
    }
    let mut text = if rows.is_empty() {
        "nothing was due".to_owned()
    } else {
        let lines = rows
            .iter()
            .map(|(what, count)| format!("{count:>8}  {what}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    if once.more {
        text.push_str("\nthere is more; the next pass goes on");
    }
    text
}

/// What a pass would do.
fn due(preview: &Preview) -> String {
    let names = ["WHAT", "WHY", "COUNT", "GRAPH", "OBJECT"].map(str::to_owned);
    let mut rows = vec![names];
    for due in &preview.due {
        let graph = due.graph.as_ref().map(ToString::to_string);
        let object = due.object.as_ref().map(ToString::to_string);
        rows.push([
            due.what.to_owned(),
            due.why.to_owned(),
            due.count.to_string(),
            graph.unwrap_or_default(),
            object.unwrap_or_default(),
        ]);
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if preview.due.is_empty() {
        text = "nothing is due\n".to_owned();
    }
    if preview.more {
        text.push_str("there may be more of some kind than is told (--limit)\n");
    }
    if preview.doubts > 0 {
        text.push_str("the directory or the blob store did not answer everything\n");
    }
    text
}

/// Prints one answer: `text` for people, `value` for programs.
fn answer<T: Serialize>(output: Output, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
    match output {
        Output::Text => say(&text(value)),
        Output::Json => say(&serde_json::to_string_pretty(value)?),
    }
}

/// Prints `text` and the end of its line, at once.
fn say(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.trim_end_matches('\n').as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    Ok(())
}
