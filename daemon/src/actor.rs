//! The one task that touches checkpoint files.
//!
//! Every read and write of a checkpoint is a message to it, and it does one at a time, in the order in which
//! they came: so two sessions can't trip over each other, and no lock is needed inside the process. It has a
//! thread of its own, because files block. What may take long, the examination of a work tree, is done
//! before the message is sent. A caller that went away changes nothing: a save that began is finished.

use std::path::PathBuf;

use protocol::ids::{Selector, SessionId};
use tokio::sync::{mpsc, oneshot};

use crate::checkpoint::facts::Facts;
use crate::checkpoint::input::{SaveRequest, quote};
use crate::checkpoint::merge::{self, Context, Earlier};
use crate::checkpoint::model::{Checkpoint, GitState};
use crate::checkpoint::redact::Clean;
use crate::store::{DirectoryError, Found, LoadError, SaveError, Store, Stored};

/// Messages that may wait; beyond that, callers do.
const MAILBOX: usize = 256;

/// A save, ready to be merged and written.
#[derive(Debug)]
pub(crate) struct Save {
    pub(crate) root: PathBuf,
    pub(crate) selector: Selector,
    pub(crate) request: Clean<SaveRequest>,
    pub(crate) resumed_from: Option<String>,
    pub(crate) facts: Facts,
    pub(crate) context: Context,
}

/// A save that is on disk.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
    pub(crate) tasks: usize,
    pub(crate) modified_files: usize,
    pub(crate) recent_commands: usize,
    pub(crate) git: Option<GitState>,
    pub(crate) warnings: Vec<String>,
}

enum Message {
    Load {
        root: PathBuf,
        selector: Selector,
        reply: oneshot::Sender<Result<Stored, LoadError>>,
    },
    List {
        root: PathBuf,
        reply: oneshot::Sender<Result<Vec<Found>, DirectoryError>>,
    },
    Save {
        save: Box<Save>,
        reply: oneshot::Sender<Result<Saved, SaveError>>,
    },
}

/// The way to the actor.
#[derive(Clone, Debug)]
pub(crate) struct Actor(mpsc::Sender<Message>);

impl Actor {
    /// Starts it. It ends when the last handle is gone and what was sent is done; the thread can be joined.
    pub(crate) fn start() -> std::io::Result<(Actor, std::thread::JoinHandle<()>)> {
        let (sender, mut mailbox) = mpsc::channel(MAILBOX);
        let thread = std::thread::Builder::new()
            .name("actor".to_owned())
            .spawn(move || {
                while let Some(message) = mailbox.blocking_recv() {
                    handle(message);
                }
            })?;
        Ok((Actor(sender), thread))
    }

    /// Reads one checkpoint.
    pub(crate) async fn load(
        &self,
        root: PathBuf,
        selector: Selector,
    ) -> Result<Stored, LoadError> {
        self.ask(|reply| Message::Load {
            root,
            selector,
            reply,
        })
        .await
    }

    /// Reads all checkpoints of a root.
    pub(crate) async fn list(&self, root: PathBuf) -> Result<Vec<Found>, DirectoryError> {
        self.ask(|reply| Message::List { root, reply }).await
    }

    /// Merges and writes one checkpoint.
    pub(crate) async fn save(&self, save: Save) -> Result<Saved, SaveError> {
        self.ask(|reply| Message::Save {
            save: Box::new(save),
            reply,
        })
        .await
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> T {
        let (reply, answer) = oneshot::channel();
        // A dead actor ends the process (a panic in it must not leave a daemon that can't save).
        self.0
            .send(message(reply))
            .await
            .expect("the actor lives as long as its handles");
        answer.await.expect("the actor answers every message")
    }
}

fn handle(message: Message) {
    // Whoever asked may be gone: then the answer goes nowhere, and that is all.
    match message {
        Message::Load {
            root,
            selector,
            reply,
        } => drop(reply.send(load(root, &selector))),
        Message::List { root, reply } => drop(reply.send(list(root))),
        Message::Save {
            save: request,
            reply,
        } => drop(reply.send(save(*request))),
    }
}

fn load(root: PathBuf, selector: &Selector) -> Result<Stored, LoadError> {
    Store::open(&root)?.load(selector)
}

fn list(root: PathBuf) -> Result<Vec<Found>, DirectoryError> {
    Store::open(&root)?.list()
}

fn save(save: Save) -> Result<Saved, SaveError> {
    let store = Store::open(&save.root)?;
    // A refusal leaves no trace, so this one comes before anything is made.
    let resumed_from = match (&save.resumed_from, store.load(&save.selector)) {
        (Some(text), Err(LoadError::Missing)) => Some(selector(text)?),
        _ => None,
    };
    let writer = store.write()?;
    let store = writer.store();
    let mut warnings = Vec::new();
    let own = match store.load(&save.selector) {
        Ok(own) => {
            if let Some(reason) = &own.backup_reason {
                warnings.push(format!(
                    "The earlier checkpoint file could not be used ({reason}); its backup was."
                ));
            }
            Some(own.checkpoint)
        }
        Err(LoadError::Missing) => None,
        Err(LoadError::Unusable {
            reason,
            newer: true,
            path,
        }) => {
            return Err(SaveError::Refused(format!(
                "`{}` was left untouched: {reason}. Nothing was saved",
                path.display()
            )));
        }
        Err(LoadError::Unusable { reason, path, .. }) => {
            warnings.push(format!(
                "The earlier checkpoint `{}` could not be used ({reason}); it was kept aside.",
                path.display()
            ));
            None
        }
        Err(LoadError::Directory(error)) => return Err(error.into()),
    };
    if let (Selector::Session(id), Some(own)) = (&save.selector, &own)
        && let Some(owner) = foreign_owner(own, id)
    {
        return Err(SaveError::Refused(format!(
            "`{}` belongs to the session `{owner}`, not to `{id}` (a renamed file, or a file system that ignores case); it was left untouched and nothing was saved. Move it away, or pass another `session`",
            store.path(&save.selector).display()
        )));
    }
    let resumed = match (&own, resumed_from) {
        (None, Some(selector)) => resumed(store, selector, &mut warnings),
        _ => None,
    };
    let earlier = Earlier {
        own: own.as_ref(),
        resumed: resumed
            .as_ref()
            .map(|(selector, checkpoint)| (selector, checkpoint)),
    };
    let merged = merge::apply(&save.request, earlier, &save.facts, &save.context);
    warnings.extend(merged.warnings);
    let checkpoint = merged.checkpoint;
    let written = writer.save(&save.selector, &checkpoint)?;
    warnings.extend(written.warnings);
    Ok(Saved {
        path: written.path,
        bytes: written.bytes,
        tasks: checkpoint.goal.tasks.len(),
        modified_files: checkpoint.modified_files.len(),
        recent_commands: checkpoint.recent_commands.len(),
        git: checkpoint.git,
        warnings,
    })
}

/// Whose file it is, where it isn't this session's.
pub(crate) fn foreign_owner<'a>(
    checkpoint: &'a Checkpoint,
    id: &SessionId,
) -> Option<&'a SessionId> {
    checkpoint.session_id.as_ref().filter(|owner| *owner != id)
}

fn selector(text: &str) -> Result<Selector, SaveError> {
    text.parse().map_err(|_| {
        SaveError::Refused(format!(
            "`resumedFrom` is `{}`, which is no selector. Nothing was saved; pass a selector as list_session_checkpoints returns it (a session id, or `legacy`), or leave `resumedFrom` out",
            quote(text)
        ))
    })
}

/// The checkpoint that a session's first save builds on.
fn resumed(
    store: &Store,
    selector: Selector,
    warnings: &mut Vec<String>,
) -> Option<(Selector, Checkpoint)> {
    match store.load(&selector) {
        Ok(stored) => Some((selector, stored.checkpoint)),
        Err(error) => {
            warnings.push(format!(
                "The checkpoint `{selector}` named by `resumedFrom` can't be used ({error}); saved without it."
            ));
            None
        }
    }
}
