//! `relay admin recount`, `restored` and `erase`.

use std::io::IsTerminal as _;

use anyhow::{Result, bail};
use argala_boot::{
    config::Config,
    logs,
    operator::{Erasal, Operator},
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    cli::{EraseCommand, Output, RecountArgs},
    output::{answer, table},
};

/// A bar on a terminal, and nothing elsewhere.
fn bar(output: Output, what: &'static str) -> ProgressBar {
    if output == Output::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
    let bar = ProgressBar::new(0).with_message(what);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

fn advance(bar: &ProgressBar) -> impl Fn(u64, u64) + Sync + '_ {
    move |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// What is done to whole databases is written down.
async fn open(config: Config) -> Result<Operator> {
    logs::start(&config.log).map_err(|error| anyhow::anyhow!("cannot log: {error}"))?;
    Ok(Operator::open(config).await?)
}

pub(crate) async fn recount(args: RecountArgs, config: Config, output: Output) -> Result<()> {
    let operator = open(config).await?;
    let bar = bar(output, "recounting");
    let told = operator
        .recount(args.graph.as_ref(), args.fix, &advance(&bar))
        .await?;
    bar.finish_and_clear();
    answer(output, &told, |told| {
        let mut text = format!("{} graphs were recounted\n", told.graphs);
        if told.wrong.is_empty() {
            text.push_str("their counters are exact");
            return text;
        }
        let names = ["GRAPH", "WHAT", "STORED", "COUNTED"];
        let mut rows = Vec::new();
        for graph in &told.wrong {
            let what = ["records", "tombstones", "ciphertext bytes", "blob bytes"];
            for ((what, stored), counted) in what.into_iter().zip(graph.stored).zip(graph.counted) {
                if stored != counted {
                    rows.push([
                        graph.storage_key.to_string(),
                        what.to_owned(),
                        stored.to_string(),
                        counted.to_string(),
                    ]);
                }
            }
        }
        text.push_str(&table(names, &rows));
        if told.fixed {
            text.push_str("mended");
        }
        text
    })?;
    if !told.wrong.is_empty() && !told.fixed {
        bail!("counters are wrong; --fix mends them");
    }
    Ok(())
}

pub(crate) async fn restored(config: Config, output: Output) -> Result<()> {
    let operator = open(config).await?;
    let bar = bar(output, "renewing");
    let told = operator.restored(&advance(&bar)).await?;
    bar.finish_and_clear();
    answer(output, &told, |told| {
        format!(
            "{} graphs have a new incarnation, and epochs are {} higher\nto do: {}",
            told.graphs, told.epochs, told.to_do
        )
    })
}

pub(crate) async fn erase(command: EraseCommand, config: Config, output: Output) -> Result<()> {
    let operator = open(config).await?;
    let bar = bar(output, "erasing");
    let told = match command {
        EraseCommand::Graph { graph, dry_run } => {
            operator
                .erase_graph(&graph, dry_run, &advance(&bar))
                .await?
        }
        EraseCommand::Member { member, dry_run } => {
            operator
                .erase_member(&member, dry_run, &advance(&bar))
                .await?
        }
    };
    bar.finish_and_clear();
    answer(output, &told, described)
}

fn described(told: &Erasal) -> String {
    let mut text = if told.dry_run {
        "would be erased:\n".to_owned()
    } else {
        "erased:\n".to_owned()
    };
    for graph in &told.graphs {
        text.push_str(&format!("  {graph}, all of it\n"));
    }
    for graph in &told.shared {
        text.push_str(&format!("  {graph}, their part of it\n"));
    }
    for (count, what) in [
        (told.records, "records"),
        (told.blobs, "blobs"),
        (told.wraps, "rows about keys"),
        (told.idempotency_keys, "idempotency keys"),
        (told.devices, "devices"),
    ] {
        if count > 0 {
            text.push_str(&format!("  {count} {what}\n"));
        }
    }
    text.push_str(if told.dry_run {
        "would be left:"
    } else {
        "left:"
    });
    for left in &told.left {
        text.push_str(&format!("\n  {left}"));
    }
    text
}
