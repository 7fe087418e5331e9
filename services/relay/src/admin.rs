//! `relay admin`: what an operator does to a relay's data.

use anyhow::Result;
use argala_boot::{
    Clock as _, Device, SystemClock,
    config::Config,
    operator::{self, Changed, Operator},
};

use crate::{
    cli::{
        AdminArgs, AdminCommand, DeviceCommand, GraphCommand, GroupCommand, MemberCommand, Output,
        Settings, TokenCommand,
    },
    output::{answer, table},
    run::sources,
    upkeep,
};

/// Does what `args` ask and prints the answer.
pub(crate) async fn run(args: AdminArgs) -> Result<()> {
    let output = args.output;
    let mut sources = sources(&Settings {
        config: args.config,
        set: args.set,
    });
    sources.operating = true;
    if let Some(data) = &args.data {
        for (key, value) in argala_boot::dev::paths(data) {
            sources.flags.push((key.to_owned(), value, "--data"));
        }
    }
    let config = sources.load()?.config;
    match args.command {
        AdminCommand::Member(command) => member(command, config, output).await,
        AdminCommand::Group(command) => group(command, config, output).await,
        AdminCommand::Device(command) => device(command, config, output).await,
        AdminCommand::Graph(command) => graph(command, config, output).await,
        AdminCommand::Recount(args) => upkeep::recount(args, config, output).await,
        AdminCommand::Restored => upkeep::restored(config, output).await,
        AdminCommand::Erase(command) => upkeep::erase(command, config, output).await,
        AdminCommand::Token(TokenCommand::Mint {
            member,
            device,
            ttl,
        }) => {
            let token = operator::mint(&config, &member, &device, SystemClock.now(), ttl)?;
            answer(output, &token, |token| token.token.clone())
        }
    }
}

/// Says what was done, or that there was nothing to do.
fn done(output: Output, changed: Changed, did: &str, was: &str) -> Result<()> {
    answer(output, &changed, |changed| {
        if changed.changed { did } else { was }.to_owned()
    })
}

async fn member(command: MemberCommand, config: Config, output: Output) -> Result<()> {
    match command {
        MemberCommand::Add { member } => {
            let changed = Operator::open_or_create(config)
                .await?
                .add_member(&member)
                .await?;
            done(output, changed, "added", "was a member already")
        }
        MemberCommand::Remove { member } => {
            let changed = Operator::open(config).await?.remove_member(&member).await?;
            done(output, changed, "removed", "was no active member")
        }
        MemberCommand::List => {
            let members = Operator::open(config).await?.members().await?;
            answer(output, &members, |members| {
                let rows = members.iter().map(|row| {
                    let state = if row.active { "active" } else { "removed" };
                    [row.member_id.to_string(), state.to_owned()]
                });
                table(["MEMBER", "STATE"], &rows.collect::<Vec<_>>())
            })
        }
    }
}

async fn group(command: GroupCommand, config: Config, output: Output) -> Result<()> {
    match command {
        GroupCommand::Create { group } => {
            let changed = Operator::open_or_create(config)
                .await?
                .create_group(&group)
                .await?;
            done(output, changed, "created", "was there already")
        }
        GroupCommand::Join { group, member } => {
            let changed = Operator::open(config)
                .await?
                .join_group(&group, &member)
                .await?;
            done(output, changed, "joined", "was of the group already")
        }
        GroupCommand::Leave { group, member } => {
            let changed = Operator::open(config)
                .await?
                .leave_group(&group, &member)
                .await?;
            done(output, changed, "left", "was not of the group")
        }
        GroupCommand::List => {
            let groups = Operator::open(config).await?.groups().await?;
            answer(output, &groups, |groups| {
                let rows = groups.iter().map(|row| {
                    let members: Vec<_> = row.members.iter().map(ToString::to_string).collect();
                    [row.group_id.to_string(), members.join(", ")]
                });
                table(["GROUP", "MEMBERS"], &rows.collect::<Vec<_>>())
            })
        }
    }
}

async fn device(command: DeviceCommand, config: Config, output: Output) -> Result<()> {
    let operator = Operator::open(config).await?;
    match command {
        DeviceCommand::List { member } => {
            let devices = operator.devices(&member).await?;
            answer(output, &devices, |devices| {
                let time = |at: Option<argala_boot::Timestamp>| {
                    at.map_or_else(|| "-".to_owned(), |at| at.to_string())
                };
                let row = |device: &Device| {
                    [
                        device.device_id.to_string(),
                        device.kind.as_str().to_owned(),
                        device.registered_at.to_string(),
                        time(device.last_seen_at),
                        time(device.revoked_at),
                    ]
                };
                let rows: Vec<_> = devices.iter().map(row).collect();
                table(
                    ["DEVICE", "KIND", "REGISTERED", "LAST SEEN", "REVOKED"],
                    &rows,
                )
            })
        }
        DeviceCommand::Revoke { member, device } => {
            let revoked = operator.revoke(&member, &device).await?;
            answer(output, &revoked, |revoked| {
                if !revoked.changed {
                    return "was revoked already".to_owned();
                }
                let mut text = "revoked".to_owned();
                for graph in &revoked.graphs_flagged {
                    text.push_str(&format!("\n{graph} owes a rotation"));
                }
                text
            })
        }
    }
}

async fn graph(command: GraphCommand, config: Config, output: Output) -> Result<()> {
    let operator = Operator::open(config).await?;
    match command {
        GraphCommand::Show { graph } => {
            let row = operator.graph(&graph).await?;
            answer(output, &row, |row| {
                let rows = [
                    ("storage key", row.storage_key.to_string()),
                    ("epoch", row.epoch.to_string()),
                    ("head", row.head.to_string()),
                    ("rotation owed", row.rotation_owed.to_string()),
                    ("records", row.records.to_string()),
                    ("tombstones", row.tombstones.to_string()),
                    ("ciphertext bytes", row.ciphertext_bytes.to_string()),
                    ("blob bytes", row.blob_bytes.to_string()),
                ];
                let rows = rows.map(|(name, value)| format!("{name:16}  {value}"));
                rows.join("\n")
            })
        }
        GraphCommand::Usage { graph } => {
            let usage = operator.usage(&graph).await?;
            answer(output, &usage, |usage| {
                let rows = usage.iter().map(|row| {
                    let percent = 100.0 * row.used as f64 / row.limit.max(1) as f64;
                    [
                        row.what.to_owned(),
                        row.used.to_string(),
                        row.limit.to_string(),
                        format!("{percent:.1} %"),
                    ]
                });
                table(["WHAT", "USED", "LIMIT", ""], &rows.collect::<Vec<_>>())
            })
        }
    }
}
