//! `save_session_checkpoint`

use std::path::Path;

use protocol::files;
use protocol::ids::{Selector, SessionId};
use serde_json::json;

use super::{Answer, Call, ClientRoots, Tools, main_path, now, push_warnings, refused};
use crate::actor::Save;
use crate::checkpoint::input::{Arguments, Mode, Refusal, SaveRequest, quote};
use crate::checkpoint::merge::Context;
use crate::checkpoint::model::Checkpoint;
use crate::checkpoint::redact::Redactor;
use crate::identity::{self, IdSource, Whose};
use crate::roots::{self, Root};
use crate::store::{self, SaveError};

/// What a subagent is told that tries to save.
const SUBAGENT: &str = "Subagents don't save session checkpoints: it would overwrite the parent session's. Report your progress in your final answer; the parent session saves.";

impl Tools {
    /// `save_session_checkpoint`
    pub(crate) async fn save<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        if identity::is_subagent(&call.meta) {
            return Err(Refusal(SUBAGENT.to_owned()));
        }
        let mut arguments = Arguments::new(call.arguments.clone());
        let resumed_from = arguments.any_word("resumedFrom");
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut warnings = resolved.warnings();
        let mut redactor = Redactor::default();
        // A model's megabytes, and paths on a disk that may be asleep: not for the thread of everybody.
        let request = tokio::task::block_in_place(|| {
            let mut request = arguments.save_request()?;
            warnings.extend(arguments.finish());
            make_relative(&resolved.root, &mut request, &mut warnings);
            Ok(request.redacted(&mut redactor))
        })?;
        let mode = request.get().mode;
        let redactions = redactor.count();

        let (session, source) = match resolved.identity.whose {
            Whose::Session(id, source) => (Some(id), Some(source)),
            Whose::Legacy => (None, None),
            Whose::Nobody => (Some(minted(&call)), Some(IdSource::Minted)),
        };
        let selector = session.map_or(Selector::Legacy, Selector::Session);
        let root = resolved.root.path;

        let mut paths: Vec<String> = request
            .get()
            .modified_files
            .iter()
            .flatten()
            .map(|file| file.path.clone())
            .collect();
        if mode == Mode::Merge {
            let base = base(&root, &selector, resumed_from.as_deref()).await;
            let recorded = base.into_iter().flat_map(|base| base.modified_files);
            paths.extend(recorded.map(|file| file.path));
        }
        let main = main_path(&selector);
        let ours = vec![files::backup(&main), main];
        let facts = self.worktrees.settle(&root, paths, ours).await;
        warnings.extend(facts.warnings.iter().cloned());

        self.actor
            .save(Save {
                context: Context {
                    now: now(),
                    new_id: uuid::Uuid::new_v4().to_string(),
                    project: name_of(&root),
                    version: protocol::VERSION.to_owned(),
                    redactions,
                },
                key: call.key,
                root,
                selector,
                minted: source == Some(IdSource::Minted),
                source,
                request,
                resumed_from,
                facts,
                warnings,
            })
            .await
            .map_err(|error| {
                let Refusal(reason) = refused(&error);
                match error {
                    SaveError::NotDurable { .. } => Refusal(reason),
                    // Whoever has the lock may have begun this very save, and may finish it.
                    SaveError::Locked { .. } if self.takes_over => Refusal(format!(
                        "It is not known yet whether the checkpoint was saved. {reason} Load it before you save again."
                    )),
                    SaveError::Locked { .. } => Refusal(format!(
                        "The checkpoint was not saved. {reason} Then try again."
                    )),
                    _ => Refusal(format!("The checkpoint was not saved. {reason}")),
                }
            })
    }
}

/// The checkpoint that a merge will build on, as far as can be told before it is written.
async fn base(root: &Path, own: &Selector, resumed_from: Option<&str>) -> Option<Checkpoint> {
    let load = |selector: Selector| store::load(root.to_path_buf(), selector);
    if let Ok(stored) = load(own.clone()).await {
        return Some(stored.checkpoint);
    }
    let resumed: Selector = resumed_from?.parse().ok()?;
    Some(load(resumed).await.ok()?.checkpoint)
}

/// What the answer to a save is made of.
pub(crate) struct Outcome<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: usize,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) mode: Mode,
    pub(crate) source: Option<IdSource>,
    pub(crate) redactions: u64,
    pub(crate) warnings: Vec<String>,
}

/// The answer to a save that is done.
pub(crate) fn answer(outcome: Outcome<'_>) -> Answer {
    let checkpoint = outcome.checkpoint;
    let tasks = checkpoint.goal.tasks.len();
    let modified_files = checkpoint.modified_files.len();
    let recent_commands = checkpoint.recent_commands.len();
    let mut warnings = outcome.warnings;
    if outcome.redactions > 0 {
        warnings.push(format!(
            "Redacted {} secret-looking value(s).",
            outcome.redactions
        ));
    }
    let path = outcome.path.to_string_lossy();
    let mode = outcome.mode.as_str();
    let mut text = format!(
        "Saved the checkpoint to {path} ({} bytes, {mode}).\n{tasks} task(s), {modified_files} file(s), {recent_commands} command(s)",
        outcome.bytes
    );
    if let Some(git) = &checkpoint.git {
        let head = git.head.get(..9).unwrap_or(&git.head);
        let branch = git.branch.as_deref().unwrap_or("detached");
        text.push_str(&format!(" on {branch}@{head}"));
    }
    text.push('.');
    push_warnings(&mut text, &warnings);
    let known = checkpoint.session_id.as_ref().zip(outcome.source);
    if let Some((id, IdSource::Argument | IdSource::Minted)) = known {
        text.push_str(&format!(
            "\nThis conversation's session id is `{id}`: pass `session: \"{id}\"` on every later save, load and list."
        ));
    }
    let mut answer = Answer::new();
    answer.insert("text".to_owned(), text.into());
    answer.insert("path".to_owned(), path.into());
    answer.insert("bytes".to_owned(), outcome.bytes.into());
    answer.insert("mode".to_owned(), mode.into());
    answer.insert(
        "counts".to_owned(),
        json!({
            "tasks": tasks,
            "modifiedFiles": modified_files,
            "recentCommands": recent_commands,
            "redactions": outcome.redactions,
        }),
    );
    answer.insert("warnings".to_owned(), warnings.into());
    if let Some((id, source)) = known {
        answer.insert("session".to_owned(), id.as_str().into());
        answer.insert("sessionSource".to_owned(), json!(source));
    }
    answer
}

/// Brings the given files into the form that is stored; what can't be is dropped with a warning.
fn make_relative(root: &Root, request: &mut SaveRequest, warnings: &mut Vec<String>) {
    let Some(files) = &mut request.modified_files else {
        return;
    };
    files.retain_mut(|file| match roots::relative(&root.path, &file.path) {
        Ok(path) => {
            file.path = path;
            true
        }
        Err(reason) => {
            let path = quote(&file.path);
            warnings.push(format!("Skipped the file `{path}`: {reason}."));
            false
        }
    });
}

/// The id of a conversation that has none: the same when its first save is sent again.
fn minted<R>(call: &Call<R>) -> SessionId {
    SessionId::new(&call.key.minted().to_string()).expect("a UUID is a session id")
}

fn name_of(root: &Path) -> String {
    let name = root.file_name().unwrap_or(root.as_os_str());
    name.to_string_lossy().into_owned()
}
