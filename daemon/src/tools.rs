//! The three tools: from a call's arguments to its answer.
//!
//! A call is resolved (whose checkpoint, which root), its facts are settled, and only then does the
//! actor get its message. Answers are plain JSON objects whose first field is `text`; a
//! [`Refusal`] is a tool error that the model can read. Nothing here knows MCP.

pub(crate) mod schema;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use protocol::env::Env;
use protocol::files;
use protocol::ids::{Selector, SessionId};
use protocol::word::{self, Ancestry};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::actor::{Actor, Save, foreign_owner};
use crate::checkpoint::brief::Brief;
use crate::checkpoint::drift::{self, Drift};
use crate::checkpoint::input::{Arguments, Mode, Refusal, SaveRequest, quote};
use crate::checkpoint::listing::{self, Entry};
use crate::checkpoint::merge::Context;
use crate::checkpoint::model::Checkpoint;
use crate::checkpoint::redact::Redactor;
use crate::checkpoint::time::Timestamp;
use crate::identity::{self, Caller, IdSource, Identity, Whose};
use crate::roots::{self, Root};
use crate::store::{LoadError, Stored};
use crate::worktree::Worktrees;

/// Paths that each list of an answer's drift holds.
const DRIFT_PATHS: usize = 200;
/// Candidates in an answer, and entries of a list where no limit was given.
const ENTRIES: usize = 10;

/// An answer: a JSON object, `text` first.
pub(crate) type Answer = Map<String, Value>;

/// The client's roots, asked for only where they decide.
pub(crate) trait ClientRoots {
    /// Their URIs; none where the client has none or didn't answer.
    fn uris(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// One call of a tool.
#[derive(Debug)]
pub(crate) struct Call<R> {
    /// As the model wrote them.
    pub(crate) arguments: Map<String, Value>,
    pub(crate) meta: Map<String, Value>,
    /// `clientInfo.name`
    pub(crate) client: Option<String>,
    /// The client's variables and working directory.
    pub(crate) env: Env,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) ancestry: Ancestry,
    pub(crate) roots: R,
}

/// What the tools work with.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) actor: Actor,
    pub(crate) worktrees: Worktrees,
    /// The user's home, which is no project by itself.
    pub(crate) home: Option<PathBuf>,
    /// Where the SessionStart hook leaves its word.
    pub(crate) state: Option<PathBuf>,
}

/// Arguments that every tool has, resolved.
struct Resolved {
    identity: Identity,
    root: Root,
}

impl Tools {
    /// `save_session_checkpoint`
    pub(crate) async fn save<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        if identity::is_subagent(&call.meta) {
            return Err(Refusal(SUBAGENT.to_owned()));
        }
        let mut arguments = Arguments::new(call.arguments.clone());
        let resumed_from = arguments.any_word("resumedFrom");
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut request = arguments.save_request()?;
        let mut warnings = arguments.finish();
        make_relative(&resolved.root, &mut request, &mut warnings);

        let mut redactor = Redactor::default();
        let mode = request.mode;
        let request = request.redacted(&mut redactor);
        let redactions = redactor.count();
        // What was dropped is quoted in a warning; it may hold a secret as well.
        for warning in &mut warnings {
            *warning = redactor.text(warning);
        }
        warnings.splice(..0, resolved.identity.warnings);
        warnings.splice(..0, resolved.root.warnings);

        let (session, source) = match resolved.identity.whose {
            Whose::Session(id, source) => (Some(id), Some(source)),
            Whose::Legacy => (None, None),
            Whose::Nobody => (Some(minted()), Some(IdSource::Minted)),
        };
        let selector = session.clone().map_or(Selector::Legacy, Selector::Session);
        let root = resolved.root.path;

        let mut paths: Vec<String> = request
            .get()
            .modified_files
            .iter()
            .flatten()
            .map(|file| file.path.clone())
            .collect();
        if mode == Mode::Merge {
            let base = self.base(&root, &selector, resumed_from.as_deref()).await;
            paths.extend(
                base.into_iter()
                    .flat_map(|base| base.modified_files)
                    .map(|file| file.path),
            );
        }
        let facts = self.worktrees.settle(&root, paths).await;
        warnings.extend(facts.warnings.iter().cloned());

        let saved = self
            .actor
            .save(Save {
                context: Context {
                    now: now(),
                    new_id: Uuid::new_v4().to_string(),
                    session: session.clone(),
                    project: root.file_name().map_or_else(
                        || root.to_string_lossy().into_owned(),
                        |name| name.to_string_lossy().into_owned(),
                    ),
                    version: protocol::VERSION.to_owned(),
                    redactions,
                },
                root: root.clone(),
                selector: selector.clone(),
                request,
                resumed_from,
                facts,
            })
            .await
            .map_err(|error| Refusal(format!("The checkpoint was not saved: {error}.")))?;
        warnings.extend(saved.warnings);
        if redactions > 0 {
            warnings.push(format!("Redacted {redactions} secret-looking value(s)."));
        }
        warnings.extend(self.exposed(&root, &selector).await);

        let mut text = format!(
            "Saved the checkpoint to {} ({} bytes, {}).\n{} task(s), {} file(s), {} command(s)",
            saved.path.display(),
            saved.bytes,
            mode.as_str(),
            saved.tasks,
            saved.modified_files,
            saved.recent_commands
        );
        if let Some(git) = &saved.git {
            let head = git.head.get(..9).unwrap_or(&git.head);
            match &git.branch {
                Some(branch) => text.push_str(&format!(" on {branch}@{head}")),
                None => text.push_str(&format!(" on detached@{head}")),
            }
        }
        text.push('.');
        for warning in &warnings {
            text.push_str(&format!("\n⚠ {warning}"));
        }
        if let (Some(id), Some(IdSource::Argument | IdSource::Minted)) = (&session, source) {
            text.push_str(&format!(
                "\nThis conversation's session id is `{id}`: pass `session: \"{id}\"` on every later save, load and list."
            ));
        }
        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("path".to_owned(), saved.path.to_string_lossy().into());
        answer.insert("bytes".to_owned(), saved.bytes.into());
        answer.insert("mode".to_owned(), mode.as_str().into());
        answer.insert(
            "counts".to_owned(),
            json!({
                "tasks": saved.tasks,
                "modifiedFiles": saved.modified_files,
                "recentCommands": saved.recent_commands,
                "redactions": redactions,
            }),
        );
        answer.insert("warnings".to_owned(), warnings.into());
        if let (Some(id), Some(source)) = (session, source) {
            answer.insert("session".to_owned(), id.as_str().into());
            answer.insert("sessionSource".to_owned(), json!(source));
        }
        Ok(answer)
    }

    /// The checkpoint that a merge will build on, as far as can be told before it is written.
    async fn base(
        &self,
        root: &std::path::Path,
        own: &Selector,
        resumed_from: Option<&str>,
    ) -> Option<Checkpoint> {
        let load = |selector: Selector| self.actor.load(root.to_path_buf(), selector);
        if let Ok(stored) = load(own.clone()).await {
            return Some(stored.checkpoint);
        }
        let resumed: Selector = resumed_from?.parse().ok()?;
        Some(load(resumed).await.ok()?.checkpoint)
    }

    /// Warns of checkpoint files that git would commit.
    async fn exposed(&self, root: &std::path::Path, selector: &Selector) -> Option<String> {
        let main = match selector {
            Selector::Session(_) => format!("{}/{}", files::DIRECTORY, files::main(selector)),
            Selector::Legacy => files::main(selector),
        };
        let candidates = vec![files::backup(&main), main];
        let seen = self.worktrees.seen_by_git(root, candidates).await;
        (!seen.is_empty()).then(|| {
            format!(
                "git is not ignoring {}: add the line `.claude-checkpoint*` to .gitignore (or to .git/info/exclude), and untrack what is tracked with `git rm --cached`.",
                seen.join(" and ")
            )
        })
    }

    /// `load_session_checkpoint`
    pub(crate) async fn load<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        let mut arguments = Arguments::new(call.arguments.clone());
        let full = format_is_full(&mut arguments)?;
        let named = arguments.word(
            "checkpoint",
            "pass a selector as list_session_checkpoints returns it",
        )?;
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut warnings = resolved.root.warnings.clone();
        warnings.extend(resolved.identity.warnings.clone());
        warnings.extend(arguments.finish());

        let own = match &resolved.identity.whose {
            Whose::Session(id, _) => Some(Selector::Session(id.clone())),
            Whose::Legacy => Some(Selector::Legacy),
            Whose::Nobody => None,
        };
        let root = resolved.root.path;
        let selector = match named {
            Some(text) => Some(text.parse::<Selector>().map_err(|_| {
                Refusal(format!(
                    "`checkpoint` is `{}`, which is no selector: pass one as list_session_checkpoints returns it, a session id or `legacy`.",
                    quote(&text)
                ))
            })?),
            None => None,
        };
        let is_named = selector.is_some();
        let Some(selector) = selector.or_else(|| own.clone()) else {
            return self.candidates(root, None, warnings).await;
        };
        let is_own = own.as_ref() == Some(&selector);
        let stored = match self.actor.load(root.clone(), selector.clone()).await {
            Ok(stored) => stored,
            Err(LoadError::Missing) if is_named => {
                return Err(Refusal(format!(
                    "There is no checkpoint `{selector}` in {}: call list_session_checkpoints to see which there are.",
                    root.display()
                )));
            }
            Err(LoadError::Missing) => {
                return self.candidates(root, own.as_ref(), warnings).await;
            }
            Err(LoadError::Directory(error)) => return Err(unusable(&error)),
            Err(error @ LoadError::Unusable { .. }) if is_named => return Err(unusable(&error)),
            Err(error @ LoadError::Unusable { .. }) => {
                warnings.insert(
                    0,
                    format!("This session's own checkpoint is unusable: {error}."),
                );
                return self.candidates(root, own.as_ref(), warnings).await;
            }
        };
        if let Selector::Session(id) = &selector
            && let Some(owner) = foreign_owner(&stored.checkpoint, id)
        {
            let warning = format!(
                "The file `{id}.json` belongs to the session `{owner}` (a renamed file, or a file system that ignores case)."
            );
            if is_own && !is_named {
                warnings.insert(0, warning);
                return self.candidates(root, own.as_ref(), warnings).await;
            }
            warnings.push(warning);
        }
        self.loaded(root, &selector, stored, is_own, full, warnings)
            .await
    }

    async fn loaded(
        &self,
        root: PathBuf,
        selector: &Selector,
        stored: Stored,
        is_own: bool,
        full: bool,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Refusal> {
        let path = checkpoint_path(&root, selector);
        if let Some(reason) = &stored.backup_reason {
            warnings.push(format!(
                "Read from the backup: the main file `{path}` could not be used ({reason})."
            ));
        }
        let checkpoint = stored.checkpoint;
        let (facts, since) = self.worktrees.compare(&root, &checkpoint).await;
        let drift = drift::compare(&checkpoint, &facts, &since);
        warnings.extend(drift.warnings.iter().cloned());
        let hint = (!is_own).then(|| {
            format!(
                "This checkpoint is another session's. On your next save_session_checkpoint pass `resumedFrom: \"{selector}\"`; with `mode: \"merge\"` that save builds on it."
            )
        });
        let modified: HashMap<&str, i128> = facts
            .changed
            .iter()
            .map(|file| (file.path.as_str(), file.modified))
            .collect();
        let text = Brief {
            checkpoint: &checkpoint,
            drift: &drift,
            resume_hint: hint.as_deref(),
            warnings: &warnings,
            modified: &modified,
            now: now(),
        }
        .render();

        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("found".to_owned(), true.into());
        answer.insert("path".to_owned(), path.into());
        answer.insert(
            "fromBackup".to_owned(),
            stored.backup_reason.is_some().into(),
        );
        answer.insert(
            "updatedAt".to_owned(),
            checkpoint.updated_at.to_string().into(),
        );
        answer.insert("drift".to_owned(), drift_json(&drift));
        if let Some(hint) = hint {
            answer.insert("resumeHint".to_owned(), hint.into());
        }
        if full {
            answer.insert("checkpoint".to_owned(), json!(checkpoint));
        }
        answer.insert("warnings".to_owned(), warnings.into());
        Ok(answer)
    }

    /// Answers a load that found nothing of its own.
    async fn candidates(
        &self,
        root: PathBuf,
        own: Option<&Selector>,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Refusal> {
        let entries = self.entries(&root, own, &mut warnings).await?;
        let candidates: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !entry.is_current_session)
            .collect();
        let total = candidates.len();
        let shown = &candidates[..total.min(ENTRIES)];
        let root = root.to_string_lossy();
        let mut text = if total == 0 {
            format!("There is no checkpoint in {root} yet: nothing to resume.")
        } else {
            listing::candidates_text(&root, shown, total)
        };
        push_warnings(&mut text, &warnings);
        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("found".to_owned(), false.into());
        if total > 0 {
            answer.insert("candidates".to_owned(), json!(shown));
            answer.insert("total".to_owned(), total.into());
            answer.insert("omitted".to_owned(), (total - shown.len()).into());
        }
        answer.insert("warnings".to_owned(), warnings.into());
        Ok(answer)
    }

    /// `list_session_checkpoints`
    pub(crate) async fn list<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        let mut arguments = Arguments::new(call.arguments.clone());
        let limit = arguments
            .count("limit", "pass how many entries to show, or 0 for all")?
            .map_or(ENTRIES, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            });
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut warnings = resolved.root.warnings.clone();
        warnings.extend(resolved.identity.warnings.clone());
        warnings.extend(arguments.finish());
        let own = match &resolved.identity.whose {
            Whose::Legacy => Some(Selector::Legacy),
            _ => resolved.identity.session().cloned().map(Selector::Session),
        };
        let root = resolved.root.path;
        let mut entries = self.entries(&root, own.as_ref(), &mut warnings).await?;
        let total = entries.len();
        if limit > 0 {
            entries.truncate(limit);
        }
        let root = root.to_string_lossy().into_owned();
        let mut text = listing::list_text(&root, &entries, total);
        push_warnings(&mut text, &warnings);
        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("path".to_owned(), root.into());
        answer.insert("omitted".to_owned(), (total - entries.len()).into());
        answer.insert("entries".to_owned(), json!(entries));
        answer.insert("total".to_owned(), total.into());
        answer.insert("warnings".to_owned(), warnings.into());
        Ok(answer)
    }

    /// All checkpoints of a root, newest first, unreadable ones last; what is odd about one goes into `warnings`.
    async fn entries(
        &self,
        root: &std::path::Path,
        own: Option<&Selector>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Entry>, Refusal> {
        let found = self
            .actor
            .list(root.to_path_buf())
            .await
            .map_err(|error| unusable(&error))?;
        let now = now();
        let mut entries = Vec::new();
        for found in found {
            let selector = found.selector.to_string();
            let entry = match found.stored {
                Ok(stored) => {
                    if let Some(reason) = &stored.backup_reason {
                        warnings.push(format!(
                            "`{selector}` was read from its backup: the main file could not be used ({reason})."
                        ));
                    }
                    let checkpoint = stored.checkpoint;
                    let foreign = match &found.selector {
                        Selector::Session(id) => foreign_owner(&checkpoint, id).is_some(),
                        Selector::Legacy => false,
                    };
                    Entry {
                        all_tasks_done: checkpoint.all_tasks_done(),
                        goal: checkpoint.goal.primary,
                        updated_at: Some(checkpoint.updated_at),
                        age: None,
                        branch: checkpoint.git.and_then(|git| git.branch),
                        is_current_session: own == Some(&found.selector) && !foreign,
                        from_backup: stored.backup_reason.is_some(),
                        selector,
                    }
                    .aged(now)
                }
                Err(error) => {
                    warnings.push(format!("`{selector}` can't be read: {error}."));
                    Entry {
                        goal: String::new(),
                        updated_at: None,
                        age: None,
                        branch: None,
                        all_tasks_done: false,
                        is_current_session: own == Some(&found.selector),
                        from_backup: false,
                        selector,
                    }
                }
            };
            entries.push(entry);
        }
        listing::sort(&mut entries);
        Ok(entries)
    }

    /// The session that the hook named for the client's process. Read at each call: it changes with an
    /// in-session `/resume`.
    fn hooks_word(&self, ancestry: &Ancestry) -> Option<SessionId> {
        let directory = self.state.as_ref()?.join(word::DIRECTORY);
        let entry = ancestry
            .candidates()
            .into_iter()
            .find_map(|name| std::fs::read(directory.join(name)).ok())?;
        let entry: word::Entry = serde_json::from_slice(&entry)
            .inspect_err(|error| tracing::warn!(%error, "an entry of the hook can't be read"))
            .ok()?;
        Some(entry.session)
    }

    /// Whose checkpoint, and where.
    async fn resolve<R: ClientRoots>(
        &self,
        call: &Call<R>,
        arguments: &mut Arguments,
    ) -> Result<Resolved, Refusal> {
        let session = arguments.word(
            "session",
            "pass the session id that an earlier save returned, or leave it out",
        )?;
        let root = arguments.word(
            "projectRoot",
            "pass the absolute path of the project, or leave it out",
        )?;
        let identity = identity::resolve(Caller {
            meta: &call.meta,
            client: call.client.as_deref(),
            env: &call.env,
            hook: self.hooks_word(&call.ancestry).as_ref(),
            argument: session.as_deref(),
        })?;
        let root = match roots::named(root.as_deref(), &call.env)? {
            Some(root) => root,
            None => roots::offered(
                &call.roots.uris().await,
                &call.env,
                identity::is_other_client(call.client.as_deref()),
                call.cwd.as_deref(),
                self.home.as_deref(),
            )?,
        };
        Ok(Resolved { identity, root })
    }
}

/// What a subagent is told that tries to save.
const SUBAGENT: &str = "Subagents don't save session checkpoints: it would overwrite the parent session's. Report your progress in your final answer; the parent session saves.";

fn format_is_full(arguments: &mut Arguments) -> Result<bool, Refusal> {
    const CALL: &str = "pass `format: \"brief\"` (the default) or `format: \"full\"`";
    let word = arguments.word("format", CALL)?;
    match word.map(|word| word.to_lowercase()).as_deref() {
        None | Some("brief") => Ok(false),
        Some("full") => Ok(true),
        Some(other) => Err(Refusal(format!(
            "`format` is `{}`, which is no format: {CALL}.",
            quote(other)
        ))),
    }
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
            warnings.push(format!(
                "Skipped the file `{}`: {reason}.",
                quote(&file.path)
            ));
            false
        }
    });
}

fn checkpoint_path(root: &std::path::Path, selector: &Selector) -> String {
    let path = match selector {
        Selector::Session(_) => root.join(files::DIRECTORY).join(files::main(selector)),
        Selector::Legacy => root.join(files::main(selector)),
    };
    path.to_string_lossy().into_owned()
}

fn drift_json(drift: &Drift) -> Value {
    let mut json = Map::new();
    json.insert("branchChanged".to_owned(), drift.branch_changed.into());
    json.insert("currentBranch".to_owned(), json!(drift.current_branch));
    json.insert("commitsSince".to_owned(), json!(drift.commits_since));
    for (list, omitted, paths) in [
        ("changedSince", "changedOmitted", &drift.changed_since),
        ("newSince", "newOmitted", &drift.new_since),
    ] {
        let shown = &paths[..paths.len().min(DRIFT_PATHS)];
        json.insert(list.to_owned(), json!(shown));
        if paths.len() > shown.len() {
            json.insert(omitted.to_owned(), (paths.len() - shown.len()).into());
        }
    }
    Value::Object(json)
}

fn push_warnings(text: &mut String, warnings: &[String]) {
    for warning in warnings {
        text.push_str(&format!("\n⚠ {warning}"));
    }
}

fn unusable(error: &dyn std::fmt::Display) -> Refusal {
    let text = error.to_string();
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string());
    Refusal(format!(
        "{}{}.",
        first.unwrap_or_default(),
        characters.as_str()
    ))
}

fn minted() -> SessionId {
    SessionId::new(&Uuid::new_v4().to_string()).expect("a UUID is a session id")
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millisecond(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
