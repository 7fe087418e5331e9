//! `rotate`, `grant`.

use argala_client::session::{Failed, Rotated};
use serde_json::{Value, json};

use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
    output::{error_value, name},
};

fn rotated_value(rotated: &Rotated) -> Value {
    json!({
        "graphId": rotated.graph,
        "epoch": rotated.epoch,
        "devices": rotated.devices,
        "granted": rotated.granted,
    })
}

pub(crate) fn failed_value(failed: &Failed) -> Value {
    json!({ "graphId": failed.graph, "error": error_value(&failed.error) })
}

fn rotated_line(rotated: &Rotated) -> String {
    let Rotated {
        graph,
        epoch,
        devices,
        granted,
    } = rotated;
    let mut line = format!("{graph}: epoch {epoch} has begun, for {devices} devices");
    if *granted > 0 {
        line.push_str(&format!("; newer ones were given {granted} older keys"));
    }
    line
}

pub(crate) async fn rotate(context: &Context, args: &args::Rotate) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    if let Some(graph) = &args.graph {
        let rotated = session.rotate(graph).await?;
        context.output.result(
            || rotated_value(&rotated),
            |out| writeln!(out, "{}", rotated_line(&rotated)),
        )?;
        return Ok(Exit::Done);
    }
    let report = session.rotate_owed().await?;
    context.output.result(
        || {
            json!({
                "rotated": report.rotated.iter().map(rotated_value).collect::<Vec<_>>(),
                "failed": report.failed.iter().map(failed_value).collect::<Vec<_>>(),
                "owed": report.owed,
            })
        },
        |out| {
            for rotated in &report.rotated {
                writeln!(out, "{}", rotated_line(rotated))?;
            }
            for Failed { graph, error } in &report.failed {
                writeln!(out, "{graph}: failed: {error}")?;
            }
            for graph in &report.owed {
                writeln!(out, "{graph} still owes a rotation")?;
            }
            if report.rotated.is_empty() && report.owed.is_empty() {
                writeln!(out, "No graph owes a rotation.")?;
            }
            Ok(())
        },
    )?;
    let whole = report.failed.is_empty() && report.owed.is_empty();
    Ok(if whole { Exit::Done } else { Exit::Partial })
}

pub(crate) async fn grant(context: &Context, args: &args::Grant) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    let only = (!args.to.is_empty()).then_some(&args.to[..]);
    let granted = session.grant(&args.graph, only).await?;
    context.output.result(
        || {
            json!({
                "graphId": granted.graph,
                "to": granted.to,
                "granted": granted.granted,
                "already": granted.already,
                "rejected": granted.rejected,
                "unlisted": granted.unlisted,
            })
        },
        |out| {
            let (graph, count) = (&granted.graph, granted.granted);
            for device in &granted.unlisted {
                writeln!(
                    out,
                    "{graph}: gave nothing to {}, which was never listed here: argala devices {graph}",
                    name(device)
                )?;
            }
            if !granted.to.is_empty() {
                let to: Vec<String> = granted.to.iter().map(name).collect();
                writeln!(out, "{graph}: gave {count} keys to {}", to.join(", "))?;
            } else if granted.unlisted.is_empty() {
                writeln!(out, "{graph}: no device lacks the current key.")?;
            }
            for rejection in &granted.rejected {
                writeln!(
                    out,
                    "  not epoch {} to {}/{}: {:?}",
                    rejection.epoch, rejection.member_id, rejection.device_id, rejection.reason
                )?;
            }
            Ok(())
        },
    )?;
    let whole = granted.rejected.is_empty() && granted.unlisted.is_empty();
    Ok(if whole { Exit::Done } else { Exit::Partial })
}
