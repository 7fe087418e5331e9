//! One file for each group of commands.

mod blobs;
mod devices;
mod keys;
mod records;
mod recovery;
mod status;
mod sync;
mod sync_watch;
mod watch;

use crate::{
    args::{Command, Recovery},
    context::Context,
    exit::{Exit, Failure},
};

/// Carries out one command.
pub(crate) async fn run(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Register(args) => devices::register(context, &args).await,
        Command::Devices(args) => devices::list(context, &args).await,
        Command::Revoke(args) => devices::revoke(context, &args).await,
        Command::Graphs => status::graphs(context).await,
        Command::Rotate(args) => keys::rotate(context, &args).await,
        Command::Grant(args) => keys::grant(context, &args).await,
        Command::Push(args) => records::push(context, args).await,
        Command::Pull(args) => records::pull(context, args).await,
        Command::Put(args) => blobs::put(context, args).await,
        Command::Get(args) => blobs::get(context, &args).await,
        Command::Forget(args) => blobs::forget(context, &args).await,
        Command::Sync(args) => sync::sync(context, &args).await,
        Command::Watch(args) => watch::watch(context, &args).await,
        Command::Status(args) => status::status(context, &args).await,
        Command::Recovery(Recovery::Create(args)) => recovery::create(context, &args).await,
        Command::Recovery(Recovery::Restore(args)) => recovery::restore(context, &args).await,
    }
}
