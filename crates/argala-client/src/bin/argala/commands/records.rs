//! `push`, `pull`.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
};

use argala_client::{
    Error, GraphAccess, Item, Kind, Outcome, Position, Refusal, Refused, Write as WriteRecord,
    session::{Flushed, PushOptions},
};
use argala_wire::{RecordId, Sealed};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    args,
    context::{Context, TEXT},
    exit::{Exit, Failure},
    output::name,
};

/// Under which name `pull` remembers how far it has come.
const READER: &str = "pull";

/// One line of `--jsonl`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: RecordId,
    kind: Option<Kind>,
    text: Option<String>,
    base64url: Option<Sealed>,
    #[serde(default)]
    deleted: bool,
    expect: Option<u64>,
}

fn read_lines(path: &Path, kind: &Kind) -> Result<Vec<WriteRecord>, Failure> {
    let about = || format!("reading {}", path.display());
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(Error::io(about()))?)
    };
    let mut writes = Vec::new();
    for (at, line) in BufReader::new(reader).lines().enumerate() {
        let line = line.map_err(Error::io(about()))?;
        if line.trim().is_empty() {
            continue;
        }
        // Not the reader's own message: it repeats what the line says.
        let fault = || Failure::usage(format!("line {} is no record", at + 1));
        let line: Line = serde_json::from_str(&line).map_err(|_| fault())?;
        let body = match (line.text, line.base64url, line.deleted) {
            (Some(text), None, _) => text.into_bytes(),
            (None, Some(bytes), _) => bytes.0,
            (None, None, true) => Vec::new(),
            _ => return Err(fault()),
        };
        writes.push(WriteRecord {
            id: line.id,
            kind: line.kind.unwrap_or_else(|| kind.clone()),
            body,
            deleted: line.deleted,
            expect: line.expect,
        });
    }
    Ok(writes)
}

fn writes(args: &args::Push) -> Result<Vec<WriteRecord>, Failure> {
    if let Some(path) = &args.jsonl {
        return read_lines(path, &args.kind);
    }
    let Some(id) = args.id.clone() else {
        return Ok(Vec::new());
    };
    let body = match (&args.text, &args.file) {
        _ if args.delete => Vec::new(),
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => {
            let about = format!("reading {}", path.display());
            std::fs::read(path).map_err(Error::io(about))?
        }
        (None, None) => {
            let mut body = Vec::new();
            let read = std::io::stdin().read_to_end(&mut body);
            read.map_err(Error::io("reading standard input"))?;
            body
        }
    };
    Ok(vec![WriteRecord {
        id,
        kind: args.kind.clone(),
        body,
        deleted: args.delete,
        expect: args.expect,
    }])
}

pub(crate) async fn push(context: &Context, args: args::Push) -> Result<Exit, Failure> {
    let writes = writes(&args)?;
    let mut session = context.session().await?;
    let graph = &args.graph;
    if args.atomic || args.if_head.is_some() {
        let options = PushOptions {
            if_head: args.if_head,
            atomic: args.atomic,
        };
        let outcomes = session.push_with(graph, &writes, options).await?;
        return report(context, &flushed(&writes, &outcomes));
    }
    if args.retry_rejected {
        session.try_rejected_again(graph)?;
    }
    match session.write(graph, &writes).await {
        Ok(flushed) => report(context, &flushed),
        Err(error) => {
            // The failure is told by whoever calls; that nothing is lost is told here.
            let held = session.waiting(graph)?.held();
            if held > 0 {
                context.output.remark(format_args!(
                    "argala: {held} writes to {graph} are held; the next push sends them"
                ));
            }
            Err(error.into())
        }
    }
}

fn flushed(writes: &[WriteRecord], outcomes: &[Outcome]) -> Flushed {
    let mut flushed = Flushed::default();
    for (write, outcome) in writes.iter().zip(outcomes) {
        let id = write.id.clone();
        match outcome {
            Outcome::Accepted { seq } => flushed.accepted.push((id, *seq)),
            Outcome::Refused(why) => flushed.rejected.push((id, *why)),
            Outcome::KeysBehind => {
                let why = argala_wire::records::PushReason::NotHolder;
                flushed.rejected.push((id, Refusal::Relay(why)));
            }
        }
    }
    flushed
}

fn report(context: &Context, flushed: &Flushed) -> Result<Exit, Failure> {
    context.output.result(
        || {
            let accepted = flushed.accepted.iter();
            let rejected = flushed.rejected.iter();
            json!({
                "accepted": accepted.map(|(id, seq)| json!({"id": id, "seq": seq}))
                    .collect::<Vec<_>>(),
                "rejected": rejected.map(|(id, why)| json!({"id": id, "reason": why.as_str()}))
                    .collect::<Vec<_>>(),
                "held": flushed.held,
            })
        },
        |out| {
            for (id, seq) in &flushed.accepted {
                writeln!(out, "{id} is stored, seq {seq}")?;
            }
            for (id, why) in &flushed.rejected {
                writeln!(out, "{id} was refused: {}", why.as_str())?;
            }
            if flushed.held > 0 {
                writeln!(
                    out,
                    "{} writes are held until this device has the key",
                    flushed.held
                )?;
            }
            if *flushed == Flushed::default() {
                writeln!(out, "There was nothing to send.")?;
            }
            Ok(())
        },
    )?;
    let whole = flushed.rejected.is_empty() && flushed.held == 0;
    Ok(if whole { Exit::Done } else { Exit::Partial })
}

fn item_value(item: &Item) -> Value {
    let mut value = json!({
        "id": item.id,
        "seq": item.seq,
        "epoch": item.epoch,
        "by": item.by,
        "at": item.at,
        "kind": item.kind,
    });
    if item.deleted {
        value["deleted"] = true.into();
    }
    match std::str::from_utf8(&item.body) {
        Ok(text) => value["text"] = text.into(),
        Err(_) => value["base64url"] = Sealed::from(&item.body[..]).to_base64url().into(),
    }
    value
}

fn refused_value(refused: &Refused) -> Value {
    json!({
        "id": refused.id,
        "seq": refused.seq,
        "by": refused.by,
        "reason": refused.why.as_str(),
    })
}

fn item_line(item: &Item) -> String {
    // Of another application's records, a person wants to know that they are there.
    let readable = matches!(item.kind.as_str(), TEXT | "json");
    let what = match std::str::from_utf8(&item.body) {
        _ if item.deleted => "(deleted)".to_owned(),
        Ok(text) if readable => text.trim_end().to_owned(),
        _ => format!("({} bytes)", item.body.len()),
    };
    let kind = match item.kind.as_str() {
        TEXT => String::new(),
        kind => format!(" [{kind}]"),
    };
    format!(
        "{}\t{}\t{}{kind}\t{what}",
        item.seq,
        name(&item.by),
        item.id
    )
}

pub(crate) async fn pull(context: &Context, args: args::Pull) -> Result<Exit, Failure> {
    let graph = args.graph;
    let mut session = context.session().await?.declare(args.kind);
    let mut position = if args.from_start {
        Position::default()
    } else {
        session.position(&graph, READER)
    };
    let (mut items, mut refused) = (Vec::new(), Vec::new());
    let mut filtered = 0;
    let last = loop {
        let page = session.pull(&graph, &position).await?;
        position = page.position.clone();
        filtered += page.filtered;
        items.extend(page.items.iter().map(item_value));
        refused.extend(page.refused.iter().map(refused_value));
        context.output.result_page(|out| {
            page.items
                .iter()
                .try_for_each(|item| writeln!(out, "{}", item_line(item)))
        })?;
        if !page.more {
            break page;
        }
    };
    let some = !refused.is_empty();
    context.output.result(
        || {
            json!({
                "graphId": graph,
                "items": items,
                "refused": refused,
                "filtered": filtered,
                "head": last.head,
                "behind": last.behind,
            })
        },
        |_| Ok(()),
    )?;
    // Only now: what nobody was shown must come again.
    if !args.from_start {
        session.set_position(&graph, READER, position)?;
    }
    if filtered > 0 {
        context.output.remark(format_args!(
            "argala: {filtered} records are held back until another device grants their keys"
        ));
    }
    Ok(if some || filtered > 0 {
        Exit::Partial
    } else {
        Exit::Done
    })
}
