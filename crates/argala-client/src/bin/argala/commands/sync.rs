//! `sync`.

use std::{io, path::Path};

use argala_client::sync::{
    self, Blocked, DiskTree, Journal, Left, Observer, Options, RelPath, Report, SessionRemote,
    Silent, SyncError,
};
use serde_json::{Value, json};

use crate::{
    args,
    commands::sync_watch,
    context::Context,
    exit::{Exit, Failure},
    output::printable,
    progress::SyncBar,
};

/// How many files of one sort are named in text; JSON names all.
const NAMED: usize = 20;

/// An open folder, and how it is synced.
pub(super) struct Work<'a> {
    pub(super) context: &'a Context,
    args: &'a args::Sync,
    pub(super) tree: DiskTree,
    pub(super) journal: Journal,
}

pub(crate) async fn sync(context: &Context, args: &args::Sync) -> Result<Exit, Failure> {
    let mut work = Work::open(context, args)?;
    if args.watch {
        return sync_watch::watch(&mut work, args).await;
    }
    let report = work.once().await?;
    work.tell(&report)?;
    Ok(exit(&report))
}

/// What a finished sync exits with.
fn exit(report: &Report) -> Exit {
    if report.needs_attention() {
        Exit::Partial
    } else {
        Exit::Done
    }
}

impl<'a> Work<'a> {
    fn open(context: &'a Context, args: &'a args::Sync) -> Result<Self, Failure> {
        let folder = &args.folder;
        if !args.dry_run
            && let Err(error) = std::fs::create_dir(folder)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed(format!("making {}: {error}", folder.display())));
        }
        keep_keys_out(folder, &context.key_file()?)?;
        let (tree, journal) = DiskTree::open(folder, args.dry_run).map_err(failure)?;
        Ok(Self {
            context,
            args,
            tree,
            journal,
        })
    }

    /// Syncs once. The key file is free again afterwards.
    pub(super) async fn once(&mut self) -> Result<Report, Failure> {
        let mut session = self.context.session().await?;
        let graph = self.args.graph.clone();
        let mut remote = SessionRemote::new(&mut session, graph.clone()).await?;
        let options = Options {
            graph,
            dry_run: self.args.dry_run,
            replace_broken: self.args.replace_broken,
        };
        let mut bar = SyncBar::new();
        let mut silent = Silent;
        let observer: &mut dyn Observer = if self.context.wants_bar() {
            &mut bar
        } else {
            &mut silent
        };
        let (tree, journal) = (&mut self.tree, &mut self.journal);
        sync::sync(tree, &mut remote, journal, observer, &options)
            .await
            .map_err(failure)
    }

    /// Writes what a sync came to.
    pub(super) fn tell(&self, report: &Report) -> Result<(), Failure> {
        self.context
            .output
            .result(|| self.value(report), |out| self.text(out, report))
    }

    fn value(&self, report: &Report) -> Value {
        let mut value = json!(report);
        value["graphId"] = json!(self.args.graph);
        value["dryRun"] = self.args.dry_run.into();
        value
    }

    fn text(&self, out: &mut dyn io::Write, report: &Report) -> io::Result<()> {
        if self.args.dry_run {
            let sorts = [
                ("would write", &report.written),
                ("would remove", &report.removed),
                ("would push", &report.pushed),
                ("would delete in the graph", &report.deleted),
            ];
            for (sort, paths) in sorts {
                for path in paths {
                    writeln!(out, "{sort}\t{}", shown(path))?;
                }
            }
        }
        for kept in &report.conflicts {
            let (path, kept) = (shown(&kept.path), shown(&kept.kept));
            writeln!(out, "conflict\t{path}\tthe other version is kept as {kept}")?;
        }
        list(out, "not synced", &report.skipped)?;
        list(out, "left for now", &report.left)?;
        for refused in &report.refused {
            let path = refused.path.as_ref().map_or("a record".to_owned(), shown);
            let by = refused.by.as_deref();
            let by = by.map_or(String::new(), |by| format!(", from {}", printable(by)));
            writeln!(out, "refused\t{path}\t{}{by}", refused.reason)?;
        }
        let counts = [
            (report.unnameable, "files have names that are no text"),
            (report.held, "pushes wait for a key of the current epoch"),
            (report.held_back, "records wait for a key of their epoch"),
            (report.other_records, "records are not of a folder"),
            (report.garbage, "unused blobs could not be deleted yet"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "{count} {what}")?;
        }
        writeln!(
            out,
            "{}{} written and {} removed here, {} pushed and {} deleted there, {} conflicts{}",
            if self.args.dry_run { "would be: " } else { "" },
            report.written.len(),
            report.removed.len(),
            report.pushed.len(),
            report.deleted.len(),
            report.conflicts.len(),
            if report.in_step {
                ""
            } else {
                "; not all in step"
            },
        )
    }
}

fn list(out: &mut dyn io::Write, sort: &str, all: &[Left]) -> io::Result<()> {
    for Left { path, reason } in all.iter().take(NAMED) {
        writeln!(out, "{sort}\t{}\t{}", shown(path), Blocked::why(*reason))?;
    }
    if all.len() > NAMED {
        writeln!(
            out,
            "{sort}\t{} more (all: --output json)",
            all.len() - NAMED
        )?;
    }
    Ok(())
}

fn shown(path: &RelPath) -> String {
    printable(path.as_str())
}

/// Refuses a folder that holds this device's keys: the graph's other members would be sent them.
fn keep_keys_out(folder: &Path, keys: &Path) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    if let (Some(folder), Some(keys)) = (real(folder), real(keys))
        && keys.starts_with(&folder)
    {
        return Err(Failure::usage(
            "the folder holds this device's key file, which must never leave the device; \
             sync another folder, or move the key file",
        ));
    }
    Ok(())
}

fn failed(message: String) -> Failure {
    let exit = Exit::Failed;
    Failure::Other { message, exit }
}

pub(super) fn failure(error: SyncError) -> Failure {
    let exit = match error {
        SyncError::Client(error) => return Failure::Client(error),
        SyncError::OtherGraph(_) => Exit::Usage,
        SyncError::FolderRefused(_) => Exit::Refused,
        SyncError::FolderUnreadable => Exit::Partial,
        _ => Exit::Failed,
    };
    let message = error.to_string();
    Failure::Other { message, exit }
}
