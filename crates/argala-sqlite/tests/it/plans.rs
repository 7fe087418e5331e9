//! Every statement finds its rows by an index.

use std::collections::BTreeSet;

use crate::scene::{Scene, run_everything};

/// What may be read from one end to the other: what the statement itself brings along, what it
/// has picked by an index before, and the table of one row.
fn may_scan(step: &str) -> bool {
    let given = step.contains("VIRTUAL TABLE")
        || step.contains("CONSTANT ROW")
        || step.contains("-ROW VALUES CLAUSE");
    let picked = [
        "SCAN (subquery",
        "SCAN v",
        "SCAN mine",
        "SCAN p",
        "SCAN due",
        "SCAN {rows}",
    ]
    .iter()
    .any(|start| step == *start || step.starts_with(&format!("{start}-")));
    given || picked || step == "SCAN meta"
}

#[tokio::test]
async fn every_statement_searches() {
    let scene = Scene::new();
    run_everything(&scene).await;
    let statements: BTreeSet<String> = scene.statements.take().into_iter().collect();
    let connection = scene.beside();
    let mut planned = 0;
    let mut faults = Vec::new();
    for sql in &statements {
        let first = sql.split_whitespace().next().unwrap_or_default();
        if !["SELECT", "INSERT", "UPDATE", "DELETE"].contains(&first) {
            continue;
        }
        planned += 1;
        let mut explain = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let steps = explain
            .raw_query()
            .mapped(|row| row.get::<_, String>(3))
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        for step in &steps {
            if step.starts_with("SCAN") && !may_scan(step) {
                faults.push(format!("{step}\n  in {sql}\n  of {steps:#?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(planned > 60, "every operation ran: {planned} statements");
}
