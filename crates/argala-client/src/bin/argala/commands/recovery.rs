//! `recovery create`, `recovery restore`.

use std::io::BufRead;

use argala_client::{
    Error, LOSS_WARNING, Session,
    crypto::recovery::RecoveryCode,
    session::{Failed, RecoveryGrants},
};
use argala_wire::{DeviceId, devices::DeviceRef};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::keys::failed_value;
use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
    output::name,
};

/// The first id of `recovery-1`, `recovery-2`… that no device has or had.
async fn free_id(session: &Session) -> Result<DeviceId, Failure> {
    // Of the session they would count as listed, and nobody is shown them here.
    let devices = session.api().devices().await?;
    let taken = |id: &DeviceId| devices.iter().any(|device| device.device_id == *id);
    let id = (1_u32..)
        .map(|n| DeviceId::new(format!("recovery-{n}")).expect("legal"))
        .find(|id| !taken(id));
    Ok(id.expect("one of four milliards is free"))
}

fn grants_value(grants: &RecoveryGrants) -> (Vec<Value>, Vec<Value>) {
    let granted = grants.granted.iter().map(|granted| {
        json!({
            "graphId": granted.graph,
            "granted": granted.granted,
            "already": granted.already,
        })
    });
    (
        granted.collect(),
        grants.failed.iter().map(failed_value).collect(),
    )
}

fn failures(out: &mut dyn std::io::Write, grants: &RecoveryGrants) -> std::io::Result<()> {
    for Failed { graph, error } in &grants.failed {
        writeln!(out, "{graph}: its keys could not be given: {error}")?;
    }
    Ok(())
}

pub(crate) async fn create(
    context: &Context,
    args: &args::RecoveryDevice,
) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    let device_id = match &args.device {
        Some(id) => id.clone(),
        None => free_id(&session).await?,
    };
    let device = DeviceRef {
        member_id: session.key_file().device().member_id.clone(),
        device_id,
    };
    let credential = context.recovery_credential(&args.credential, &device)?;
    let client = context.client(&credential)?;
    let code = RecoveryCode::generate();
    let grants = session.create_recovery(&code, &device, &client).await?;
    let shown = code.reveal();
    context.output.result(
        || {
            let (granted, failed) = grants_value(&grants);
            json!({
                "code": *shown,
                "device": device,
                "granted": granted,
                "failed": failed,
                "warning": LOSS_WARNING,
            })
        },
        |out| {
            writeln!(out, "Your recovery code, for {}:", name(&device))?;
            writeln!(out, "\n    {}\n", *shown)?;
            writeln!(
                out,
                "Write it on paper and keep it where only you find it. It is not shown"
            )?;
            writeln!(out, "again. Whoever has it can read all that you can.")?;
            writeln!(out, "{LOSS_WARNING}")?;
            failures(out, &grants)
        },
    )?;
    let whole = grants.failed.is_empty();
    Ok(if whole { Exit::Done } else { Exit::Partial })
}

fn read_code(context: &Context, args: &args::Restore) -> Result<RecoveryCode, Failure> {
    let mut text = Zeroizing::new(String::new());
    if let Some(path) = &args.code_file {
        let about = format!("reading {}", path.display());
        *text = std::fs::read_to_string(path).map_err(Error::io(about))?;
    } else {
        context
            .output
            .remark(format_args!("Type the recovery code:"));
        let read = std::io::stdin().lock().read_line(&mut text);
        read.map_err(Error::io("reading standard input"))?;
    }
    RecoveryCode::read(text.trim()).map_err(|why| Failure::usage(why.to_string()))
}

pub(crate) async fn restore(context: &Context, args: &args::Restore) -> Result<Exit, Failure> {
    let code = read_code(context, args)?;
    let (mut session, made) = context.session_or_new().await?;
    session.register(None).await?;
    let device = session.find_recovery(&code).await?;
    let credential = context.recovery_credential(&args.credential, &device)?;
    let client = context.client(&credential)?;
    let recovered = session.restore(&code, &device, &client).await?;
    context.output.result(
        || {
            let (granted, failed) = grants_value(&recovered.grants);
            json!({
                "recovery": recovered.recovery,
                "graphs": recovered.graphs,
                "granted": granted,
                "failed": failed,
                "keysMade": made,
            })
        },
        |out| {
            for graph in &recovered.graphs {
                writeln!(out, "{graph} can be read and written again")?;
            }
            failures(out, &recovered.grants)?;
            writeln!(
                out,
                "The code stays good. Should somebody have seen it, revoke {} and make",
                recovered.recovery.device_id
            )?;
            writeln!(out, "a new one.")
        },
    )?;
    let whole = recovered.grants.failed.is_empty();
    Ok(if whole { Exit::Done } else { Exit::Partial })
}
