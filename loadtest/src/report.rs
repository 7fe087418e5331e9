//! What was measured, as text.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::{
    compare::{BARE, RELAY, UNGROUPED},
    measure::{Graphs, Load, Run},
};

/// One load, and the median run of each arm.
pub(crate) struct Cell {
    pub(crate) load: Load,
    pub(crate) runs: BTreeMap<&'static str, Run>,
}

/// What a load is called.
pub(crate) fn name(load: Load) -> String {
    match load {
        Load::Push { records, graphs } => {
            let graphs = match graphs {
                Graphs::Many => "1,000 graphs",
                Graphs::One => "one graph",
            };
            format!("push {records}, {graphs}")
        }
        Load::Pull { page } => format!("pull pages of {page}"),
    }
}

/// One line an arm.
pub(crate) fn lines(cell: &Cell) -> String {
    let mut text = format!("{}\n", name(cell.load));
    for (arm, run) in &cell.runs {
        let ratio =
            ratio(cell, arm, BARE).map_or_else(String::new, |it| format!("{it:5.2} × bare"));
        writeln!(
            text,
            "  {arm:<16} {:>10.0} records/s {:>8.0} requests/s  p50 {:>7.2} ms  p99 {:>7.2} ms  {:>6.0} + {:>5.0} µs  {ratio}",
            run.rate(),
            run.requests as f64 / run.took.as_secs_f64(),
            millis(run, 0.5),
            millis(run, 0.99),
            micros(run.spent.here, run),
            micros(run.spent.server, run),
        )
        .expect("a string takes all");
    }
    text
}

/// A request's share of it.
fn micros(spent: Duration, run: &Run) -> f64 {
    spent.as_secs_f64() * 1e6 / run.requests as f64
}

fn millis(run: &Run, quantile: f64) -> f64 {
    run.latency.value_at_quantile(quantile) as f64 / 1e3
}

fn ratio(cell: &Cell, arm: &str, to: &str) -> Option<f64> {
    Some(cell.runs.get(arm)?.rate() / cell.runs.get(to)?.rate())
}

/// A table in Markdown, with the ratios that targets are set in.
pub(crate) fn table(cells: &[Cell], how: &str) -> String {
    let mut text = format!(
        "{how}.\n\n| load | arm | records/s | p50 ms | p99 ms | processor here, µs | processor, server, µs | to bare | to ungrouped |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    let told = |ratio: Option<f64>| ratio.map_or_else(String::new, |it| format!("{it:.2}"));
    for cell in cells {
        for (arm, run) in &cell.runs {
            let bare = (*arm != BARE).then(|| ratio(cell, arm, BARE)).flatten();
            let ungrouped = (*arm == RELAY)
                .then(|| ratio(cell, arm, UNGROUPED))
                .flatten();
            writeln!(
                text,
                "| {} | {arm} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {} |",
                name(cell.load),
                run.rate(),
                millis(run, 0.5),
                millis(run, 0.99),
                micros(run.spent.here, run),
                micros(run.spent.server, run),
                told(bare),
                told(ungrouped)
            )
            .expect("a string takes all");
        }
    }
    text
}
