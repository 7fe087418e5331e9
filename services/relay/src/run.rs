//! Doing what the command line asks.

use anyhow::Result;
use argala_boot::{
    config::{
        self, Config, DEFAULTS, DEV_AUTH_VARIABLE, Fault, Loaded, Origin, Sources, StoreKind,
    },
    dev, logs,
    server::{Server, Stopped},
};
use serde_json::{Value, json};

use crate::{
    admin,
    cli::{Cli, Command, ConfigCommand, DevArgs, Listen, Output, ServeArgs, Settings},
    migrate,
    output::say,
};

/// A command that does not run unless it is asked for more plainly.
#[derive(Debug)]
pub(crate) struct Refused;

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`relay dev` lets anybody be anybody, so it only runs with {DEV_AUTH_VARIABLE}=1 in \
             the environment"
        )
    }
}

impl std::error::Error for Refused {}

/// Runs one command to its end.
pub(crate) async fn run(cli: Cli) -> Result<Stopped> {
    match cli.command {
        Command::Dev(args) => return develop(args).await,
        Command::Serve(args) => return serve(args).await,
        Command::Migrate(args) => migrate::run(args).await?,
        Command::Config(command) => configuration(command)?,
        Command::Openapi => say(&serde_json::to_string_pretty(&argala_boot::openapi())?)?,
        Command::Admin(args) => admin::run(args).await?,
    }
    Ok(Stopped::Finished)
}

/// The sources of a process with these settings and nothing more.
pub(crate) fn sources(settings: &Settings) -> Sources {
    let mut sources = Sources::of_process(settings.config.as_deref());
    for (key, value) in &settings.set {
        sources.flags.push((key.clone(), value.clone(), "--set"));
    }
    sources
}

fn with_listeners(mut sources: Sources, listen: &Listen) -> Sources {
    for (key, value, flag) in [
        ("http.listen", &listen.listen, "--listen"),
        ("admin.listen", &listen.admin_listen, "--admin-listen"),
    ] {
        if let Some(value) = value {
            sources.flags.push((key.to_owned(), value.clone(), flag));
        }
    }
    sources
}

async fn serve(args: ServeArgs) -> Result<Stopped> {
    let config = with_listeners(sources(&args.settings), &args.listen)
        .load()?
        .config;
    start_log(&config)?;
    let server = Server::open(config, async |_| Ok(())).await?;
    announce(&server)?;
    Ok(server.run().await)
}

async fn develop(args: DevArgs) -> Result<Stopped> {
    if !config::dev_auth_is_allowed() {
        return Err(Refused.into());
    }
    let mut sources = with_listeners(sources(&args.settings), &args.listen);
    sources.preset = dev::preset(&args.data);
    let config = sources.load()?.config;
    start_log(&config)?;
    let data = match config.store.kind {
        StoreKind::Sqlite => args.data.display().to_string(),
        // Its URL may hold a password.
        StoreKind::Postgres => "the database of store.url".to_owned(),
    };
    let server = Server::open(config, async |ports| dev::seed(&*ports.directory).await).await?;
    announce(&server)?;
    say(&dev::guide(&server.base_url(), &data))?;
    Ok(server.run().await)
}

fn start_log(config: &Config) -> Result<()> {
    logs::start(&config.log).map_err(|error| anyhow::anyhow!("cannot log: {error}"))
}

/// One line for scripts, with the real port, and one for the other listener.
fn announce(server: &Server) -> Result<()> {
    say(&format!(
        "listening on {}\nadmin on {}",
        server.base_url(),
        server.admin_url()
    ))
}

fn configuration(command: ConfigCommand) -> Result<()> {
    match command {
        ConfigCommand::Check { settings, output } => {
            let outcome = sources(&settings).load();
            match (output, outcome) {
                (Output::Text, outcome) => {
                    outcome?;
                    say("the configuration is good")
                }
                (Output::Json, Ok(_)) => say(&json!({"ok": true, "faults": []}).to_string()),
                (Output::Json, Err(error)) => {
                    let faults: Vec<_> = error.faults.iter().map(fault).collect();
                    say(&serde_json::to_string_pretty(
                        &json!({"ok": false, "faults": faults}),
                    )?)?;
                    Err(error.into())
                }
            }
        }
        ConfigCommand::Print { defaults: true, .. } => say(DEFAULTS),
        ConfigCommand::Print {
            settings, output, ..
        } => {
            let loaded = sources(&settings).load()?;
            say(&shown(&loaded, output)?)
        }
    }
}

fn shown(loaded: &Loaded, output: Output) -> Result<String> {
    Ok(match output {
        Output::Text => loaded.to_toml(),
        Output::Json => serde_json::to_string_pretty(&loaded.to_json())?,
    })
}

/// A fault for programs.
fn fault(fault: &Fault) -> Value {
    let mut told = json!({"key": fault.key, "message": fault.message});
    match &fault.origin {
        Some(Origin::File(path, line)) => {
            told["file"] = path.display().to_string().into();
            told["line"] = (*line).into();
        }
        Some(Origin::Variable(name)) => told["variable"] = name.as_str().into(),
        Some(Origin::Flag(name)) => told["flag"] = (*name).into(),
        Some(Origin::Default) | None => {}
    }
    told
}
