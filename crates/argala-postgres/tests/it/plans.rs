//! Every statement finds its rows by an index, and those on what grows with the records name
//! their graph.

use std::collections::BTreeSet;

use argala_testkit::servers::Session;

use crate::scene::{Scene, run_everything};

/// What is divided by graph.
const DIVIDED: [&str; 4] = ["records", "wraps", "blobs", "blob_fetches"];

/// The statements of a database's ordinary life, each once.
async fn statements(scene: &Scene) -> Vec<String> {
    run_everything(scene).await;
    let sent: BTreeSet<String> = scene.statements.take().into_iter().collect();
    let statements: Vec<_> = sent.into_iter().filter(|sql| is_planned(sql)).collect();
    assert!(
        statements.len() > 55,
        "every operation ran: {} statements",
        statements.len()
    );
    statements
}

/// Whether a statement is of the kind that has a plan.
pub(crate) fn is_planned(sql: &str) -> bool {
    let first = sql.split_whitespace().next().unwrap_or_default();
    ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"].contains(&first)
}

/// A statement's text in one line.
pub(crate) fn in_short(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Prepares a statement under a number of its own; what asks for the plan that it has then. Where
/// `plan_cache_mode` is what the store sets, that is the plan for whatever its parameters are.
pub(crate) async fn prepare(session: &Session, number: usize, sql: &str) -> String {
    session.run(&format!("PREPARE s{number} AS {sql}")).await;
    let parameters = (1..)
        .take_while(|number| sql.contains(&format!("${number}")))
        .map(|_| "NULL")
        .collect::<Vec<_>>()
        .join(", ");
    if parameters.is_empty() {
        format!("EXPLAIN (COSTS OFF) EXECUTE s{number}")
    } else {
        format!("EXPLAIN (COSTS OFF) EXECUTE s{number}({parameters})")
    }
}

#[tokio::test]
async fn every_statement_searches() {
    let scene = Scene::new().await;
    let statements = statements(&scene).await;
    let beside = scene.beside().await;
    // Where a table is still read from end to end, there is no index for what is asked.
    beside
        .run("SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan")
        .await;
    let mut faults = Vec::new();
    for (at, sql) in statements.iter().enumerate() {
        let explain = prepare(&beside, at, sql).await;
        let plan = beside.column(&explain).await;
        for step in plan.iter().flatten() {
            let step = step.trim();
            if step.contains("Seq Scan on ") && !step.contains("Seq Scan on relay_schema") {
                faults.push(format!("{step}\n  in {}", in_short(sql)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What follows the name of a table where a statement reads or writes it.
fn mentions(sql: &str, table: &str) -> bool {
    let words: Vec<&str> = sql
        .split(|c: char| c.is_whitespace() || c == '(' || c == ')' || c == ',')
        .filter(|word| !word.is_empty())
        .collect();
    words
        .windows(2)
        .any(|pair| ["FROM", "JOIN", "INTO", "UPDATE"].contains(&pair[0]) && pair[1] == table)
}

#[tokio::test]
async fn what_is_divided_is_asked_by_graph() {
    let scene = Scene::new().await;
    let mut named = 0;
    for sql in statements(&scene).await {
        let sql = in_short(&sql);
        if !DIVIDED.iter().any(|table| mentions(&sql, table)) {
            continue;
        }
        // A sweep looks for what is due wherever it is, by its time.
        let is_sweep = ["expires_at <= $1", "marked_at < $1"]
            .iter()
            .any(|due| sql.contains(due));
        let names =
            sql.contains("graph = ") || sql.contains("INSERT INTO") && sql.contains("(graph, ");
        assert!(names || is_sweep, "{sql}");
        named += usize::from(names);
    }
    assert!(named > 20, "{named} statements name their graph");
}
