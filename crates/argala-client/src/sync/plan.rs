//! The planner: what is to be done about one change that the graph tells of.
//!
//! Pure: it reads a [`View`] and says what should happen; the [engine](super::engine) makes it
//! happen. The rules:
//!
//! - A file that was not touched here takes the graph's version, or goes with it.
//! - A file that was changed here and there keeps both: the graph's version gets the name, since
//!   others may have it already, and the one from here goes on as a file of its own, named with
//!   this device.
//! - A deletion never wins against an edit, whichever came first.
//! - A path cannot be a file and a folder: the file goes on under a name of its own.

use super::{
    content::Content,
    error::Blocked,
    path::RelPath,
    view::{Here, LocalFile, View},
};

/// One change of the graph, as far as the planner must know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: RelPath,
    /// The seq of the record's newest version; 0 where the record is gone without a trace.
    pub(crate) seq: u64,
    /// The device that wrote it.
    pub(crate) by: Box<str>,
    /// What it holds; `None` for a tombstone.
    pub(crate) content: Option<Content>,
    /// Whether the seq may be of another time than ours, the relay having been restored.
    pub(crate) unsure: bool,
}

/// One thing to do to the folder. Each names the content that it expects to find, so that an edit
/// made since the scan is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileOp {
    /// Moves a file to a free name.
    Move {
        from: RelPath,
        over: Content,
        to: RelPath,
    },
    /// Writes the change's bytes, to a free name or over `over`.
    Write {
        to: RelPath,
        over: Option<Content>,
        executable: bool,
    },
    /// Sets or clears the executable bit.
    SetExecutable {
        at: RelPath,
        over: Content,
        executable: bool,
    },
    /// Removes a file.
    Remove { at: RelPath, over: Content },
}

/// What is agreed on once the steps are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// The change's version; its file, if any, has this name.
    Live(Option<RelPath>),
    /// That there is no such file.
    Dead,
}

/// What to do about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: it is known already.
    Known,
    /// These steps, in this order.
    Do { ops: Vec<FileOp>, then: Then },
    /// Nothing now, for this reason; it is to be asked again.
    Block(Blocked),
}

/// Says what to do about `change`. `device` names this device.
pub(crate) fn plan(view: &View, change: &Change, device: &str) -> Plan {
    match change.content {
        Some(content) => live(view, change, content, device),
        None => gone(view, change),
    }
}

/// What this device last agreed on, as far as the change can be compared with it.
fn agreed(view: &View, change: &Change) -> Option<Content> {
    let base = view.state.base.get(&change.path)?;
    let follows = change.seq == 0 || base.seq < change.seq;
    base.content.filter(|_| follows && !change.unsure)
}

fn live(view: &View, change: &Change, content: Content, device: &str) -> Plan {
    let path = &change.path;
    if let Some(base) = view.state.base.get(path)
        && base.seq == change.seq
        && base.content == Some(content)
    {
        return Plan::Known;
    }
    // Our own push, of which we did not hear: what is here now came after it.
    let ours = view.state.sent.get(path) == Some(&Some(content));
    let agreed = if ours {
        Some(content)
    } else {
        agreed(view, change)
    };
    match view.here(path) {
        Here::Hidden(why) => Plan::Block(why),
        Here::Absent if agreed == Some(content) => done(Then::Live(None)),
        Here::Absent => create(view, change, content, device),
        Here::File(name, file) => {
            let here = file.content;
            let bit = executable(&content, &here, agreed.as_ref());
            let unedited_there = agreed.is_some_and(|agreed| agreed.same_bytes(&content));
            if here.same_bytes(&content) || unedited_there {
                let ops = (bit != here.executable).then(|| FileOp::SetExecutable {
                    at: name.clone(),
                    over: here,
                    executable: bit,
                });
                return Plan::Do {
                    ops: ops.into_iter().collect(),
                    then: Then::Live(Some(name)),
                };
            }
            let write = |over, executable| FileOp::Write {
                to: name.clone(),
                over,
                executable,
            };
            if agreed.is_some_and(|agreed| agreed.same_bytes(&here)) {
                return Plan::Do {
                    ops: vec![write(Some(here), bit)],
                    then: Then::Live(Some(name)),
                };
            }
            let aside = FileOp::Move {
                from: name.clone(),
                over: here,
                to: view.free_conflict_name(&name, device),
            };
            Plan::Do {
                ops: vec![aside, write(None, content.executable)],
                then: Then::Live(Some(name)),
            }
        }
    }
}

/// The executable bit of three versions: a change of it here is kept unless it was changed there.
fn executable(there: &Content, here: &Content, agreed: Option<&Content>) -> bool {
    match agreed {
        Some(agreed) if agreed.executable == there.executable => here.executable,
        _ => there.executable,
    }
}

fn done(then: Then) -> Plan {
    Plan::Do {
        ops: Vec::new(),
        then,
    }
}

/// The record has no file here: a new one, or one that was deleted here and edited elsewhere.
fn create(view: &View, change: &Change, content: Content, device: &str) -> Plan {
    let path = &change.path;
    let mut ops = Vec::new();
    let mut moving = None;
    if let Some((above, name, file)) = view.file_above(path) {
        let by = author(view, &above, &file).unwrap_or(device).to_owned();
        ops.push(FileOp::Move {
            from: name.clone(),
            over: file.content,
            to: view.free_conflict_name(&name, &by),
        });
        moving = Some(name);
    } else if view.has_files_below(path) {
        return beside_folder(view, change, content);
    }
    match view.place(path, moving.as_ref()) {
        Err(why) => Plan::Block(why),
        Ok(to) => {
            ops.push(FileOp::Write {
                to: to.clone(),
                over: None,
                executable: content.executable,
            });
            Plan::Do {
                ops,
                then: Then::Live(Some(to)),
            }
        }
    }
}

/// The device whose version of the file at `path` lies here unchanged.
fn author<'a>(view: &'a View, path: &RelPath, file: &LocalFile) -> Option<&'a str> {
    let base = view.state.base.get(path)?;
    let clean = base.content == Some(file.content);
    base.by.as_deref().filter(|_| clean)
}

/// The path is a folder here. The file becomes one of its own, beside the folder, and its record
/// is agreed on without a file: the next push deletes it.
fn beside_folder(view: &View, change: &Change, content: Content) -> Plan {
    let path = &change.path;
    let parent = match path.parent().map(|parent| view.place_folder(&parent)) {
        Some(Err(why)) => return Plan::Block(why),
        Some(Ok(parent)) => Some(parent),
        None => None,
    };
    let Ok(near) = RelPath::within(parent.as_ref(), path.leaf()) else {
        return Plan::Block(Blocked::Name);
    };
    for n in 1.. {
        let to = super::names::conflict(&near, &change.by, n);
        // Left by a run that was interrupted right here.
        let left = view.fresh.contains_key(&to)
            && (view.local.get(&to)).is_some_and(|file| file.content == content);
        if left {
            return done(Then::Live(None));
        }
        if view.is_free(&to) {
            let write = FileOp::Write {
                to,
                over: None,
                executable: content.executable,
            };
            return Plan::Do {
                ops: vec![write],
                then: Then::Live(None),
            };
        }
    }
    unreachable!("some number is free")
}

/// Files that have another name here than elsewhere though their own has become free: the record's
/// path, the name, and the name to be.
pub(crate) fn restorable(view: &View) -> Vec<(RelPath, RelPath, LocalFile)> {
    (view.renamed().into_iter())
        .filter_map(|(path, name)| {
            let Here::File(_, file) = view.here(&path) else {
                return None;
            };
            // A folder that is spelled otherwise keeps its spelling: others may lie in it.
            let beside = path.parent() == name.parent();
            let free = view.place(&path, Some(&name)).as_ref() == Ok(&path);
            (beside && free).then_some((path, name, file))
        })
        .collect()
}

fn gone(view: &View, change: &Change) -> Plan {
    let path = &change.path;
    if view.state.graves.get(path) == Some(&change.seq) {
        return Plan::Known;
    }
    // Our own deletion, of which we did not hear: a file that is here now came after it.
    let ours = view.state.sent.get(path) == Some(&None);
    match view.here(path) {
        Here::File(name, file) if !ours && agreed(view, change) == Some(file.content) => Plan::Do {
            ops: vec![FileOp::Remove {
                at: name,
                over: file.content,
            }],
            then: Then::Dead,
        },
        // An edit is kept; so is what could not be read, which may have been edited.
        Here::File(..) | Here::Hidden(_) | Here::Absent => done(Then::Dead),
    }
}
