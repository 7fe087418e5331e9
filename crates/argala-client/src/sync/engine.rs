//! The engine: brings a folder and a graph in step.
//!
//! A run goes in rounds: read the folder, pull to the end and do what the planner says about each
//! change, then push what is left to tell. A push that another device was quicker than, or a file
//! that changed under the engine's hands, asks for another round.
//!
//! **A run may end anywhere.** What is agreed on is remembered only after it is true on disk or at
//! the relay, so that an interrupted run leaves a memory that is older than the truth, never one
//! that is ahead of it; and whatever the truth has more than the memory, the planner recognises by
//! its content. The one thing that content cannot tell, whose push it was that came through, is
//! remembered before it is made ([`StateOp::Sent`]).

use std::collections::{BTreeMap, BTreeSet};

use argala_wire::{GraphId, records::PushReason};

use super::{
    content::Content,
    error::{Blocked, SyncError},
    outgoing,
    path::RelPath,
    payload::{self, FolderSecret},
    plan,
    remote::Remote,
    report::{Event, Left, Observer, RefusedFile, Report},
    state::{Folder, State, StateOp, StateStore},
    tree::{FileTree, TreeFault, Unread},
    view::{Scan, View},
};
use crate::{Error, Outcome, Position, Refusal, Write};

/// How many rounds a run makes at the most. Each but the last was overtaken by somebody; whoever
/// edits that fast will sync again.
const ROUNDS: u32 = 16;
/// How often a file may change under the engine's hands before it is left for the next run.
const RACES: u32 = 3;
/// How often the folder's record is looked for when somebody else makes it at the same time.
const FOLDER_TRIES: u32 = 4;

/// What a folder is synced with, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The graph.
    pub graph: GraphId,
    /// Whether to change nothing, and only tell what would be changed.
    pub dry_run: bool,
    /// Whether a file that is here is pushed over a version of which the relay does not have all
    /// parts. Whoever has that version whole takes it for an edit; else the file is left as it is.
    pub replace_broken: bool,
}

/// One run of the engine.
pub(crate) struct Run<'a, T: FileTree, R, S> {
    pub(super) tree: &'a mut T,
    pub(super) remote: &'a mut R,
    pub(super) store: &'a mut S,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) options: &'a Options,
    pub(super) device: String,
    pub(super) secret: FolderSecret,
    pub(super) view: View,
    pub(super) report: Report,
    /// Paths with which nothing more is done in this round, and why where somebody should know.
    pub(super) waiting: BTreeMap<RelPath, Option<Blocked>>,
    /// Paths with which nothing more is done in this run.
    pub(super) given_up: BTreeMap<RelPath, Blocked>,
    /// Paths whose push was refused in this run.
    pub(super) declined: BTreeSet<RelPath>,
    raced: BTreeMap<RelPath, u32>,
    /// Paths of whose version a part was not there, in this run.
    pub(super) missed: BTreeSet<RelPath>,
    /// Conflicts met: the seq expected, and the seq that the relay has.
    pub(super) conflicts: BTreeMap<RelPath, (u64, u64)>,
    /// The folder's secret, where the graph lost the one we know and was given another.
    pub(super) replaced_by: Option<FolderSecret>,
    /// Whether something was stored that a loss of power may take back.
    unsettled: bool,
    /// Whether another round is needed.
    pub(super) again: bool,
    /// Whether this device lacks the current key, so that nothing can be pushed.
    pub(super) behind: bool,
}

/// Brings the folder and the graph in step, and tells what was done.
///
/// # Errors
/// [`SyncError`] where the run could not go on. It may be repeated at any time.
pub async fn sync<T: FileTree, R: Remote, S: StateStore>(
    tree: &mut T,
    remote: &mut R,
    store: &mut S,
    observer: &mut dyn Observer,
    options: &Options,
) -> Result<Report, SyncError> {
    loop {
        let replaced = match run(tree, remote, store, observer, options).await? {
            Ended::Done(report) => return Ok(*report),
            Ended::Replaced(secret) => secret,
        };
        let graph = options.graph.clone();
        let folder = Folder {
            graph,
            secret: replaced,
            lost: None,
        };
        store.append(&[StateOp::StartOver(folder)], true)?;
    }
}

/// What the folder has that the graph was not told yet, as one number: equal for equal news, and
/// `None` where there are none. Reads the folder and asks nobody.
///
/// # Errors
/// [`SyncError::Disk`] where the folder or the state cannot be read.
pub async fn news<T: FileTree, S: StateStore>(
    tree: &mut T,
    store: &mut S,
) -> Result<Option<u64>, SyncError> {
    let state = store.load()?;
    let scan = read_folder(tree, &state).await?;
    // No file is named after this device here; the name is of no consequence.
    let view = View::new(state, scan, tree.folds(), "");
    Ok(outgoing::news(&view))
}

async fn read_folder<T: FileTree>(tree: &mut T, state: &State) -> Result<Scan, SyncError> {
    let unread: Unread = (state.base.iter())
        .filter_map(|(path, base)| Some((base.name(path).clone(), (base.stamp?, base.content?))))
        .collect();
    let mut scan = tree.scan(&unread).await?;
    if !tree.keeps_executable() {
        lend_bits(&mut scan, state);
    }
    Ok(scan)
}

/// How a run ended.
enum Ended {
    Done(Box<Report>),
    /// The folder was made again under this secret: all has to begin anew.
    Replaced(FolderSecret),
}

async fn run<T: FileTree, R: Remote, S: StateStore>(
    tree: &mut T,
    remote: &mut R,
    store: &mut S,
    observer: &mut dyn Observer,
    options: &Options,
) -> Result<Ended, SyncError> {
    let mut state = store.load()?;
    let secret = match &state.folder {
        Some(folder) if folder.graph != options.graph => {
            return Err(SyncError::OtherGraph(folder.graph.clone()));
        }
        Some(folder) => folder.secret.clone(),
        None => {
            let folder = Folder {
                graph: options.graph.clone(),
                secret: find_folder(remote, options).await?,
                lost: None,
            };
            let secret = folder.secret.clone();
            let op = StateOp::Folder(folder);
            if !options.dry_run {
                store.append(std::slice::from_ref(&op), true)?;
            }
            state.apply(op);
            secret
        }
    };
    let device = remote.device().to_owned();
    let mut run = Run {
        view: View::new(state, Scan::default(), tree.folds(), &device),
        tree,
        remote,
        store,
        observer,
        options,
        device,
        secret,
        report: Report::default(),
        waiting: BTreeMap::new(),
        given_up: BTreeMap::new(),
        declined: BTreeSet::new(),
        raced: BTreeMap::new(),
        missed: BTreeSet::new(),
        conflicts: BTreeMap::new(),
        replaced_by: None,
        unsettled: false,
        again: false,
        behind: false,
    };
    match run.rounds().await {
        Ok(()) => {}
        Err(error) => {
            let replaced = run.replaced_by.filter(|_| !options.dry_run);
            return replaced.map(Ended::Replaced).ok_or(error);
        }
    }
    run.clean_up().await?;
    Ok(Ended::Done(Box::new(run.finish())))
}

/// Finds the record that names all others, or makes it.
async fn find_folder<R: Remote>(
    remote: &mut R,
    options: &Options,
) -> Result<FolderSecret, SyncError> {
    let id = payload::folder_id();
    for _ in 0..FOLDER_TRIES {
        let mut position = Position::default();
        let mut expect = 0;
        let mut held_back = 0;
        loop {
            let page = remote.pull(&position).await?.pulled;
            for item in page.items.iter().filter(|item| item.id == id) {
                expect = item.seq;
                if !item.deleted {
                    return payload::decode_folder(&item.body).ok_or(SyncError::Newer);
                }
            }
            if page.refused.iter().any(|refused| refused.id == id) {
                return Err(SyncError::FolderUnreadable);
            }
            held_back += page.filtered;
            position = page.position;
            if !page.more {
                break;
            }
        }
        if held_back > 0 {
            // One of them may be the record.
            return Err(SyncError::FolderUnreadable);
        }
        let secret = FolderSecret::new(remote.new_secret());
        if options.dry_run {
            return Ok(secret);
        }
        let write = folder_write(&secret, expect);
        match remote.push(&[write]).await?.first() {
            Some(Outcome::Accepted { .. }) => return Ok(secret),
            // Another device was quicker: its secret is the folder's.
            Some(Outcome::Refused(Refusal::Relay(PushReason::Conflict { .. }))) => {}
            Some(Outcome::Refused(refusal)) => {
                return Err(SyncError::FolderRefused(refusal.as_str()));
            }
            Some(Outcome::KeysBehind) | None => {
                let graph = options.graph.clone();
                return Err(Error::KeysBehind { graph }.into());
            }
        }
    }
    Err(SyncError::FolderUnreadable)
}

pub(super) fn folder_write(secret: &FolderSecret, expect: u64) -> Write {
    Write {
        id: payload::folder_id(),
        kind: payload::folder_kind(),
        body: payload::encode_folder(secret),
        deleted: false,
        expect: Some(expect),
    }
}

impl<T: FileTree, R: Remote, S: StateStore> Run<'_, T, R, S> {
    async fn rounds(&mut self) -> Result<(), SyncError> {
        let rounds = if self.options.dry_run { 1 } else { ROUNDS };
        for round in 0..rounds {
            self.again = false;
            self.waiting.clear();
            self.scan().await?;
            self.pull_all().await?;
            if round == 0 {
                self.settle_sent();
            }
            self.restore_names().await?;
            self.flush(true)?;
            self.push_all().await?;
            self.flush(true)?;
            if !self.again || self.behind {
                break;
            }
        }
        Ok(())
    }

    async fn scan(&mut self) -> Result<(), SyncError> {
        self.observer.see(Event::Scanning);
        let scan = read_folder(self.tree, &self.view.state).await?;
        self.observer.see(Event::Scanned {
            files: scan.files.len(),
        });
        self.report.unnameable = scan.unnameable;
        self.view.rescanned(scan, &self.device);
        Ok(())
    }

    /// Everything was pulled, so that an earlier run's pushes have shown, or did not arrive.
    fn settle_sent(&mut self) {
        let sent: Vec<RelPath> = self.view.state.sent.keys().cloned().collect();
        for path in sent {
            if self.waiting.contains_key(&path) {
                continue;
            }
            // A record may have named the blobs, and whoever replaced it has deleted them.
            let base = self.view.state.base.get(&path);
            let parts = base.map_or_else(Vec::new, |base| base.parts.clone());
            self.end_upload(&path, &parts);
            self.view.record(StateOp::Unsent(path));
        }
    }

    /// Gives files their own names that could not have them when they were written.
    async fn restore_names(&mut self) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        for (path, name, file) in plan::restorable(&self.view) {
            if self.waiting.contains_key(&path) {
                continue;
            }
            match self.tree.rename(&name, &file.content, &path).await {
                Ok(actual) => self.view.renamed_to(&path, &name, &actual),
                Err(TreeFault::Fatal(error)) => return Err(error),
                // It can keep the name it has.
                Err(TreeFault::Changed | TreeFault::Blocked(_)) => {}
            }
        }
        Ok(())
    }

    /// Stores what is not stored yet.
    pub(super) fn flush(&mut self, durable: bool) -> Result<(), SyncError> {
        let log = self.view.take_log();
        self.unsettled |= !log.is_empty();
        if self.options.dry_run || !self.unsettled || (log.is_empty() && !durable) {
            return Ok(());
        }
        self.unsettled = !durable;
        self.store.append(&log, durable)
    }

    /// The file was not as expected: another round reads it again.
    pub(super) fn race(&mut self, path: &RelPath) {
        let count = self.raced.entry(path.clone()).or_insert(0);
        *count += 1;
        if *count < RACES {
            self.waiting.insert(path.clone(), None);
            self.again = true;
        } else {
            self.given_up.insert(path.clone(), Blocked::Changing);
            self.waiting.insert(path.clone(), Some(Blocked::Changing));
        }
    }

    pub(super) fn block(&mut self, path: &RelPath, why: Blocked) {
        self.waiting.insert(path.clone(), Some(why));
    }

    /// Notes a step's fault; what is no single file's fault ends the run.
    pub(super) fn fault(&mut self, path: &RelPath, fault: TreeFault) -> Result<(), SyncError> {
        match fault {
            TreeFault::Changed => self.race(path),
            TreeFault::Blocked(why) => self.block(path, why),
            TreeFault::Fatal(error) => return Err(error),
        }
        Ok(())
    }

    /// Paths that are not pushed now.
    pub(super) fn left_out(&self) -> BTreeSet<RelPath> {
        let given_up = self.given_up.keys().chain(&self.declined);
        self.waiting.keys().chain(given_up).cloned().collect()
    }

    fn finish(self) -> Report {
        let mut report = self.report;
        report.unpushed = outgoing::news(&self.view);
        let mut left: BTreeMap<RelPath, Blocked> = self.given_up;
        for (path, why) in self.waiting {
            if let Some(why) = why {
                left.entry(path).or_insert(why);
            }
        }
        let listed = |list: BTreeMap<RelPath, Blocked>| -> Vec<Left> {
            list.into_iter()
                .map(|(path, reason)| Left { path, reason })
                .collect()
        };
        report.left = listed(left);
        report.skipped = listed(self.view.skipped);
        for refused in self.view.state.refused.values() {
            report.refused.push(RefusedFile {
                path: None,
                by: Some(refused.by.to_string()),
                reason: refused.why.to_string(),
            });
        }
        report.garbage = self.view.state.garbage.len() as u64;
        report.in_step = !self.again
            && report.left.is_empty()
            && self.declined.is_empty()
            && report.held == 0
            && report.held_back == 0;
        report
    }
}

/// Where the file system has no executable bit, each file keeps the one it is known by.
fn lend_bits(scan: &mut Scan, state: &State) {
    for file in scan.files.values_mut() {
        file.content.executable = false;
    }
    for (path, base) in &state.base {
        let known = base
            .content
            .is_some_and(|Content { executable, .. }| executable);
        if let Some(file) = scan.files.get_mut(base.name(path)) {
            file.content.executable = known;
        }
    }
}
