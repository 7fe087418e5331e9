//! `status`, `graphs`.

use std::io;

use argala_client::{
    Doubt,
    keyfile::KnownDevice,
    session::{GraphStatus, Status},
};
use argala_wire::GraphId;
use serde_json::{Value, json};

use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
    output::{error_value, name},
};

pub(crate) async fn graphs(context: &Context) -> Result<Exit, Failure> {
    let client = context.client(&context.credential()?)?;
    let graphs = client.graphs().await?;
    context.output.result(
        || json!({ "graphs": graphs }),
        |out| {
            for graph in &graphs {
                let mut line = format!(
                    "{}\tepoch {}\thead {}",
                    graph.graph_id, graph.epoch, graph.head
                );
                if graph.behind {
                    line.push_str("\tkeys are behind");
                }
                if graph.rotation_owed {
                    line.push_str("\towes a rotation");
                }
                writeln!(out, "{line}")?;
            }
            Ok(())
        },
    )?;
    Ok(Exit::Done)
}

fn graph_value(graph: &GraphStatus) -> Value {
    json!({
        "graphId": graph.graph,
        "epoch": graph.epoch,
        "head": graph.head,
        "rotationOwed": graph.rotation_owed,
        "behind": graph.behind,
        "epochs": graph.epochs,
        "held": graph.held,
        "rejected": graph.rejected,
    })
}

fn doubt_value(status: &Status, doubt: &Doubt) -> Value {
    let mut value = json!(doubt);
    if let (Some(key), Some(fields)) = (doubt.storage_key(), value.as_object_mut()) {
        // A graph is called as this member calls it, here as everywhere.
        fields.remove("storageKey");
        let graph = key.graph_id_for(&status.device.member_id);
        fields.insert("graphId".to_owned(), json!(graph));
    }
    value
}

/// A device that nobody has been shown yet, as a script reads it.
fn unlisted_value(known: &KnownDevice) -> Value {
    json!({
        "device": known.device,
        "kind": known.kind,
        "fingerprint": known.keys().fingerprint(&known.device).to_string(),
    })
}

fn status_value(status: &Status) -> Value {
    json!({
        "device": status.device,
        "fingerprint": status.fingerprint.to_string(),
        "offline": status.offline.as_ref().map(error_value),
        "keys": { "behind": status.behind().collect::<Vec<_>>() },
        "held": status.held(),
        "rejected": status.rejected(),
        "doubts": status.doubts.iter().map(|doubt| doubt_value(status, doubt)).collect::<Vec<_>>(),
        "newDevices": status.unlisted.iter().map(unlisted_value).collect::<Vec<_>>(),
        "graphs": status.graphs.iter().map(graph_value).collect::<Vec<_>>(),
    })
}

fn graph_line(graph: &GraphStatus) -> String {
    let mut line = graph.graph.to_string();
    if let (Some(epoch), Some(head)) = (graph.epoch, graph.head) {
        line.push_str(&format!("\tepoch {epoch}\thead {head}"));
    }
    let marks = [
        (graph.behind, "keys are behind".to_owned()),
        (graph.rotation_owed, "owes a rotation".to_owned()),
        (graph.held > 0, format!("{} writes held", graph.held)),
        (
            graph.rejected > 0,
            format!("{} records refused", graph.rejected),
        ),
    ];
    for (_, mark) in marks.iter().filter(|mark| mark.0) {
        line.push_str(&format!("\t{mark}"));
    }
    line
}

pub(crate) async fn status(context: &Context, args: &args::Status) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    if args.forget_doubts {
        let count = session.forget_doubts()?;
        context.output.result(
            || json!({ "forgotten": count }),
            |out| writeln!(out, "{count} doubts about the relay are forgotten."),
        )?;
        return Ok(Exit::Done);
    }
    if let Some(graph) = &args.graph {
        if args.forget_rejected {
            let count = session.forget_rejected(graph)?;
            context.output.result(
                || json!({ "graphId": graph, "forgotten": count }),
                |out| writeln!(out, "{graph}: {count} refused records are forgotten."),
            )?;
            return Ok(Exit::Done);
        }
        if args.rejected {
            return rejected(context, &session, graph);
        }
    }
    let mut status = session.status().await?;
    if let Some(graph) = &args.graph {
        status.graphs.retain(|listed| listed.graph == *graph);
    }
    context
        .output
        .result(|| status_value(&status), |out| text(out, &status))?;
    let whole = status.held() == 0
        && status.rejected() == 0
        && status.behind().next().is_none()
        && status.doubts.is_empty()
        && status.unlisted.is_empty();
    Ok(match status.offline {
        Some(_) => Exit::Offline,
        None if whole => Exit::Done,
        None => Exit::Partial,
    })
}

fn text(out: &mut dyn io::Write, status: &Status) -> io::Result<()> {
    writeln!(out, "{}  {}", name(&status.device), status.fingerprint)?;
    if let Some(error) = &status.offline {
        writeln!(out, "{error}")?;
    }
    for graph in &status.graphs {
        writeln!(out, "{}", graph_line(graph))?;
    }
    for doubt in &status.doubts {
        writeln!(out, "DOUBT\t{}\t{doubt}", doubt.name())?;
    }
    for known in &status.unlisted {
        let device = name(&known.device);
        let fingerprint = known.keys().fingerprint(&known.device);
        writeln!(out, "NEW\t{device}\t{fingerprint}")?;
    }
    let (behind, held) = (status.behind().count(), status.held());
    writeln!(
        out,
        "keys.behind {behind}, held {held}, rejected {}, doubts {}, new devices {}",
        status.rejected(),
        status.doubts.len(),
        status.unlisted.len()
    )
}

fn rejected(
    context: &Context,
    session: &argala_client::Session,
    graph: &GraphId,
) -> Result<Exit, Failure> {
    let rejected = session.rejected(graph)?;
    context.output.result(
        || {
            let list: Vec<Value> = rejected
                .iter()
                .map(|rejected| {
                    json!({
                        "direction": rejected.direction,
                        "id": rejected.id,
                        "reason": rejected.reason,
                        "detail": rejected.detail,
                        "seq": rejected.seq,
                        "by": rejected.by,
                    })
                })
                .collect();
            json!({ "graphId": graph, "rejected": list })
        },
        |out| {
            for rejected in &rejected {
                let by = rejected.by.as_ref().map(name).unwrap_or_default();
                let way = json!(rejected.direction);
                let way = way.as_str().unwrap_or_default();
                writeln!(out, "{way}\t{}\t{}\t{by}", rejected.reason, rejected.id)?;
            }
            Ok(())
        },
    )?;
    Ok(if rejected.is_empty() {
        Exit::Done
    } else {
        Exit::Partial
    })
}
