//! The one task that writes checkpoints.
//!
//! Every save is a message to it, and it does one at a time, in the order in which they came: it reads what
//! is there, merges, and writes, and so no two sessions trip over each other. It has a thread of its own,
//! because files block. What may take long, or may never end, comes before the message: the examination of the
//! work tree, and the wait for the root's lock. Reading needs no order and no lock (a reader meets the old file
//! or the new one), so it doesn't queue here. A caller that went away changes nothing: a save that began is
//! finished.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use protocol::ids::{Selector, SessionId};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::checkpoint::facts::Facts;
use crate::checkpoint::format;
use crate::checkpoint::input::{SaveRequest, quote};
use crate::checkpoint::merge::{self, Context, Earlier};
use crate::checkpoint::model::Checkpoint;
use crate::checkpoint::redact::Clean;
use crate::identity::IdSource;
use crate::replay::{Notes, RequestKey};
use crate::store::{LoadError, SaveError, Store, Writer};
use crate::tools::Answer;
use crate::tools::save::{self as tool, Outcome};

/// Messages that may wait; beyond that, callers do.
const MAILBOX: usize = 256;

/// A save, ready to be merged and written.
#[derive(Debug)]
pub(crate) struct Save {
    pub(crate) key: RequestKey,
    pub(crate) root: PathBuf,
    pub(crate) selector: Selector,
    /// Whether the selector's id was made up for this save.
    pub(crate) minted: bool,
    pub(crate) source: Option<IdSource>,
    pub(crate) request: Clean<SaveRequest>,
    pub(crate) resumed_from: Option<String>,
    pub(crate) facts: Facts,
    pub(crate) context: Context,
    /// What is odd so far.
    pub(crate) warnings: Vec<String>,
}

struct Message {
    save: Box<Save>,
    writer: Writer,
    reply: oneshot::Sender<Result<Answer, SaveError>>,
}

/// The way to the actor, and the queues of those who wait for a root's lock.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    mailbox: mpsc::Sender<Message>,
    queues: Arc<Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>>,
}

impl Actor {
    /// Starts it. It ends when the last handle is gone and what was sent is done; the thread can be joined.
    pub(crate) fn start(notes: Notes) -> std::io::Result<(Actor, std::thread::JoinHandle<()>)> {
        let (sender, mut mailbox) = mpsc::channel::<Message>(MAILBOX);
        let thread = std::thread::Builder::new()
            .name("actor".to_owned())
            .spawn(move || {
                let _guard = AbortOnPanic;
                while let Some(message) = mailbox.blocking_recv() {
                    let result = save(*message.save, message.writer, &notes);
                    // Whoever asked may be gone: then the answer goes nowhere, and that is all.
                    drop(message.reply.send(result));
                }
            })?;
        let actor = Actor {
            mailbox: sender,
            queues: Arc::default(),
        };
        Ok((actor, thread))
    }

    /// Merges and writes one checkpoint.
    pub(crate) async fn save(&self, save: Save) -> Result<Answer, SaveError> {
        // Those of this process queue in order; only the first of them competes with other processes.
        let queue = self.queue(&save.root);
        let turn = queue.lock().await;
        let opening = tokio::task::spawn_blocking(move || {
            let store = Store::open(&save.root)?;
            // A refusal leaves no trace, so this one comes before anything is made.
            if let Some(text) = &save.resumed_from
                && store.load(&save.selector).is_err()
            {
                selector(text)?;
            }
            Ok::<_, SaveError>((store.write()?, save))
        });
        let (writer, save) = opening.await.map_err(|_| SaveError::Ended)??;
        let (reply, answer) = oneshot::channel();
        let message = Message {
            save: Box::new(save),
            writer,
            reply,
        };
        self.mailbox
            .send(message)
            .await
            .map_err(|_| SaveError::Ended)?;
        let result = answer.await.map_err(|_| SaveError::Ended)?;
        drop(turn);
        result
    }

    fn queue(&self, root: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = queues.get(root).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(tokio::sync::Mutex::new(()));
        queues.insert(root.to_path_buf(), Arc::downgrade(&queue));
        queue
    }
}

/// A panic in the actor must not leave a daemon that can't save: the process ends, and the shims start the next.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn save(mut save: Save, writer: Writer, notes: &Notes) -> Result<Answer, SaveError> {
    let current = writer.store().bytes(&save.selector);
    if notes.resolve(&writer.store().path(&save.selector), current.as_deref()) {
        writer.make_durable(&save.selector)?;
    }
    if let Some(answer) = notes.answer(save.key) {
        return Ok(answer);
    }
    if save.minted {
        mint_anew(&mut save, writer.store());
    }
    let store = writer.store();
    let mut warnings = std::mem::take(&mut save.warnings);
    warnings.extend(writer.warnings().iter().cloned());
    let own = own(store, &save.selector, &mut warnings)?;
    let resumed = match (&own, &save.resumed_from) {
        (None, Some(text)) => resumed(store, selector(text)?, &mut warnings),
        _ => None,
    };
    let earlier = Earlier {
        own: own.as_ref(),
        resumed: resumed
            .as_ref()
            .map(|(selector, checkpoint)| (selector, checkpoint)),
    };
    let merged = merge::apply(
        &save.request,
        &save.selector,
        earlier,
        &save.facts,
        &save.context,
    );
    warnings.extend(merged.warnings);
    warnings.extend(exposed(&save.facts));
    let path = store.path(&save.selector);
    let bytes = format::serialize(&merged.checkpoint);
    let answer = tool::answer(Outcome {
        path: &path,
        bytes: bytes.len(),
        checkpoint: &merged.checkpoint,
        mode: merged.mode,
        source: save.source,
        redactions: save.context.redactions,
        warnings,
    });
    notes.announce(save.key, &path, bytes.as_bytes(), &answer);
    writer.replace(&save.selector, bytes.as_bytes())?;
    Ok(answer)
}

/// The session's own checkpoint, if it has one that may be built on and overwritten.
fn own(
    store: &Store,
    selector: &Selector,
    warnings: &mut Vec<String>,
) -> Result<Option<Checkpoint>, SaveError> {
    let own = match store.load(selector) {
        Ok(own) => own,
        Err(LoadError::Missing) => return Ok(None),
        Err(LoadError::Unusable {
            reason,
            newer: true,
            path,
        }) => {
            return Err(SaveError::Refused(format!(
                "`{}` was left untouched: {reason}",
                path.display()
            )));
        }
        Err(LoadError::Unusable { reason, path, .. }) => {
            let fate = if store.has_broken(selector) {
                "it was replaced, since an earlier damaged one is kept already"
            } else {
                "it was kept aside"
            };
            warnings.push(format!(
                "The earlier checkpoint `{}` could not be used ({reason}); {fate}.",
                path.display()
            ));
            return Ok(None);
        }
        Err(LoadError::Directory(error)) => return Err(error.into()),
        Err(LoadError::Ended) => return Err(SaveError::Ended),
    };
    if let Some(reason) = &own.backup_reason {
        warnings.push(format!(
            "The earlier checkpoint file could not be used ({reason}); its backup was."
        ));
    }
    if let Selector::Session(id) = selector
        && let Some(owner) = foreign_owner(&own.checkpoint, id)
    {
        return Err(SaveError::Refused(format!(
            "`{}` belongs to the session `{owner}`, not to `{id}` (a renamed file, or a file system that ignores case), and was left untouched: move it away, or pass another `session`",
            store.path(selector).display()
        )));
    }
    Ok(Some(own.checkpoint))
}

/// Gives a minted id up for another one where a checkpoint with it exists: none is ever written into.
fn mint_anew(save: &mut Save, store: &Store) {
    while !matches!(store.load(&save.selector), Err(LoadError::Missing)) {
        let id = SessionId::new(&Uuid::new_v4().to_string()).expect("a UUID is a session id");
        save.selector = Selector::Session(id);
    }
}

/// Warns of checkpoint files that git would commit.
fn exposed(facts: &Facts) -> Option<String> {
    (!facts.exposed.is_empty()).then(|| {
        format!(
            "git is not ignoring {}: add the line `.claude-checkpoint*` to .gitignore (or to .git/info/exclude), and untrack what is tracked with `git rm --cached`.",
            facts.exposed.join(" and ")
        )
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
            "`resumedFrom` is `{}`, which is no selector: pass one as list_session_checkpoints returns it (a session id, or `legacy`), or leave `resumedFrom` out",
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
