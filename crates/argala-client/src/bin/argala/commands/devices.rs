//! `register`, `devices`, `revoke`.

use argala_client::{LOSS_WARNING, session::SeenDevice};
use argala_wire::devices::DeviceKind;
use serde_json::{Value, json};

use crate::{
    args,
    context::Context,
    exit::{Exit, Failure},
    output::{name, printable},
};

pub(crate) async fn register(context: &Context, args: &args::Register) -> Result<Exit, Failure> {
    let (mut session, made) = context.session_or_new().await?;
    if made {
        context.output.remark(format_args!("{LOSS_WARNING}"));
    }
    let registered = session.register(args.label.as_deref()).await?;
    let unnamed = args.label.is_some() && !registered.labelled;
    context.output.result(
        || {
            let mut value = json!({
                "device": registered.device,
                "fresh": registered.fresh,
                "keysMade": made,
                "fingerprint": registered.fingerprint.to_string(),
                "labelled": registered.labelled,
            });
            if made {
                value["warning"] = LOSS_WARNING.into();
            }
            value
        },
        |out| {
            let device = name(&registered.device);
            if registered.fresh {
                writeln!(out, "{device} is registered.")?;
            } else {
                writeln!(out, "{device} was registered before.")?;
            }
            writeln!(out, "Its fingerprint is {}", registered.fingerprint)?;
            if made {
                writeln!(out, "Make a recovery code now: argala recovery create")?;
            }
            if unnamed {
                writeln!(
                    out,
                    "Its name is sealed under the key of d:{}, which this device does not have. \
                     Rotate that graph and register again.",
                    registered.device.member_id
                )?;
            }
            Ok(())
        },
    )?;
    Ok(Exit::Done)
}

fn value(seen: &SeenDevice) -> Value {
    let mut value = json!(seen.device);
    value["fingerprint"] = seen.fingerprint.to_string().into();
    value["new"] = seen.new.into();
    value["changed"] = seen.changed.into();
    value["returned"] = seen.returned.into();
    value["verified"] = seen.verified.into();
    if let Some(label) = &seen.label {
        value["name"] = label.as_str().into();
    }
    value
}

fn line(seen: &SeenDevice, own: bool) -> String {
    let device = &seen.device;
    let mut line = format!("{}  {}", seen.fingerprint, name(&device.to_ref()));
    if let Some(label) = &seen.label {
        line.push_str(&format!("  “{}”", printable(label)));
    }
    let marks = [
        (device.kind == DeviceKind::Recovery, "recovery"),
        (!device.is_active(), "revoked"),
        (own, "this device"),
        (seen.verified && !own, "verified"),
        (seen.new, "NEW: never seen before"),
        (seen.changed, "CHANGED: other keys than before"),
        (seen.returned, "RETURNED: it was revoked before"),
    ];
    for (_, mark) in marks.iter().filter(|mark| mark.0) {
        line.push_str(&format!("  [{mark}]"));
    }
    line
}

pub(crate) async fn list(context: &Context, args: &args::Devices) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    if let (Some(device), Some(fingerprint)) = (&args.verify, &args.fingerprint) {
        session.verify(device, fingerprint)?;
        context.output.result(
            || json!({ "verified": device }),
            |out| writeln!(out, "{} is verified.", name(device)),
        )?;
        return Ok(Exit::Done);
    }
    if let Some(device) = &args.forget {
        session.forget_device(device)?;
        context.output.result(
            || json!({ "forgotten": device }),
            |out| writeln!(out, "The keys of {} are forgotten.", name(device)),
        )?;
        return Ok(Exit::Done);
    }
    let devices = match &args.graph {
        Some(graph) => session.graph_devices(graph, args.former).await?,
        None => session.own_devices().await?,
    };
    context.output.result(
        || json!({ "devices": devices.iter().map(value).collect::<Vec<_>>() }),
        |out| {
            let own = |seen: &SeenDevice| seen.device.to_ref() == *session.key_file().device();
            let mut lines = devices.iter().map(|seen| line(seen, own(seen)));
            lines.try_for_each(|line| writeln!(out, "{line}"))
        },
    )?;
    // What could not be written was shown to nobody.
    session.note_listed(&devices)?;
    if devices.iter().any(|seen| seen.new) {
        context.output.remark(format_args!(
            "Compare the fingerprints of new devices with their owners before you grant them keys."
        ));
    }
    let doubted = devices.iter().any(|seen| seen.changed || seen.returned);
    Ok(if doubted { Exit::Partial } else { Exit::Done })
}

pub(crate) async fn revoke(context: &Context, args: &args::Revoke) -> Result<Exit, Failure> {
    let mut session = context.session().await?;
    let revoked = session.revoke(&args.device).await?;
    context.output.result(
        || json!(revoked),
        |out| {
            writeln!(out, "{} is revoked, for good.", args.device)?;
            for graph in &revoked.graphs {
                writeln!(out, "{graph} owes a rotation")?;
            }
            if revoked.graphs_flagged > 0 {
                writeln!(
                    out,
                    "Until they are rotated, it could read what is written there now:"
                )?;
                writeln!(out, "  argala rotate --owed")?;
            }
            Ok(())
        },
    )?;
    Ok(Exit::Done)
}
