//! `load_session_checkpoint`: the brief, or whom to ask.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use protocol::ids::Selector;
use serde_json::{Map, Value, json};

use super::list::ENTRIES;
use super::{
    Answer, Call, ClientRoots, Tools, main_path, now, planted, push_warnings, refused, shown,
};
use crate::actor::foreign_owner;
use crate::checkpoint::brief::Brief;
use crate::checkpoint::drift::{self, Drift};
use crate::checkpoint::input::{Arguments, Refusal, quote};
use crate::checkpoint::listing::{self, Entry};
use crate::store::{self, LoadError, Stored};

/// Paths that each list of an answer's drift holds.
const DRIFT_PATHS: usize = 200;

/// What a load found, before it is put into words.
struct Loaded {
    root: PathBuf,
    selector: Selector,
    stored: Stored,
    is_own: bool,
    warnings: Vec<String>,
}

impl Tools {
    /// `load_session_checkpoint`
    pub(crate) async fn load<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        let mut arguments = Arguments::new(call.arguments.clone());
        let full = format_is_full(&mut arguments)?;
        let named = arguments.word(
            "checkpoint",
            "pass a selector as list_session_checkpoints returns it",
        )?;
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut warnings = resolved.warnings();
        warnings.extend(arguments.finish());
        let own = resolved.own();
        let root = resolved.root.path;
        let named = match named {
            Some(text) => Some(text.parse::<Selector>().map_err(|_| {
                Refusal(format!(
                    "`checkpoint` is `{}`, which is no selector: pass one as list_session_checkpoints returns it, a session id or `legacy`.",
                    quote(&text)
                ))
            })?),
            None => None,
        };
        let is_named = named.is_some();
        let Some(selector) = named.or_else(|| own.clone()) else {
            return self.candidates(&root, None, warnings).await;
        };
        let is_own = own.as_ref() == Some(&selector);
        let stored = match store::load(root.clone(), selector.clone()).await {
            Ok(stored) => stored,
            Err(LoadError::Missing) if is_named => {
                return Err(Refusal(format!(
                    "There is no checkpoint `{selector}` in {}: call list_session_checkpoints to see which there are.",
                    shown(&root)
                )));
            }
            Err(LoadError::Missing) => {
                return self.candidates(&root, own.as_ref(), warnings).await;
            }
            Err(LoadError::Unusable { path, reason, .. }) if !is_named => {
                warnings.insert(
                    0,
                    format!(
                        "This session's own checkpoint `{}` can't be used: {reason}.",
                        shown(&path)
                    ),
                );
                return self.candidates(&root, own.as_ref(), warnings).await;
            }
            Err(error) => return Err(refused(&error)),
        };
        if let Selector::Session(id) = &selector
            && let Some(owner) = foreign_owner(&stored.checkpoint, id)
        {
            let warning = format!(
                "The file `{id}.json` belongs to the session `{owner}` (a renamed file, or a file system that ignores case)."
            );
            warnings.insert(0, warning);
            if !is_named {
                return self.candidates(&root, own.as_ref(), warnings).await;
            }
            let loaded = Loaded {
                root,
                selector,
                stored,
                is_own: false,
                warnings,
            };
            return Ok(self.brief(loaded, full).await);
        }
        let loaded = Loaded {
            root,
            selector,
            stored,
            is_own,
            warnings,
        };
        Ok(self.brief(loaded, full).await)
    }

    async fn brief(&self, loaded: Loaded, full: bool) -> Answer {
        let Loaded {
            root,
            selector,
            stored,
            is_own,
            mut warnings,
        } = loaded;
        let path = shown(&root.join(main_path(&selector)));
        if let Some(reason) = &stored.backup_reason {
            warnings.push(format!(
                "Read from the backup: the main file `{path}` could not be used ({reason})."
            ));
        }
        let (facts, since) = self.worktrees.compare(&root, &stored.checkpoint).await;
        if let Some(warning) = planted(&selector, &stored, &facts.tracked) {
            warnings.insert(0, warning);
        }
        let checkpoint = stored.checkpoint;
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
        answer
    }

    /// Answers a load that found nothing of its own.
    async fn candidates(
        &self,
        root: &Path,
        own: Option<&Selector>,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Refusal> {
        let entries = self.entries(root, own, &mut warnings).await?;
        let own_is_unusable = entries.iter().any(|entry| entry.is_current_session);
        let candidates: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !entry.is_current_session)
            .collect();
        let total = candidates.len();
        let listed = &candidates[..total.min(ENTRIES)];
        let mut text = match total {
            0 if own_is_unusable => listing::unusable_text(&shown(root)),
            0 => listing::nothing_text(&shown(root)),
            _ => listing::candidates_text(&shown(root), listed, total),
        };
        push_warnings(&mut text, &warnings);
        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("found".to_owned(), false.into());
        if total > 0 || own_is_unusable {
            answer.insert("candidates".to_owned(), json!(listed));
            answer.insert("total".to_owned(), total.into());
            answer.insert("omitted".to_owned(), (total - listed.len()).into());
        }
        answer.insert("warnings".to_owned(), warnings.into());
        Ok(answer)
    }
}

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

fn drift_json(drift: &Drift) -> Value {
    let mut json = Map::new();
    json.insert("branchChanged".to_owned(), drift.branch_changed.into());
    json.insert("currentBranch".to_owned(), json!(drift.current_branch));
    json.insert("commitsSince".to_owned(), json!(drift.commits_since));
    for (list, omitted, paths) in [
        ("changedSince", "changedOmitted", &drift.changed_since),
        ("newSince", "newOmitted", &drift.new_since),
    ] {
        let listed = &paths[..paths.len().min(DRIFT_PATHS)];
        json.insert(list.to_owned(), json!(listed));
        if paths.len() > listed.len() {
            json.insert(omitted.to_owned(), (paths.len() - listed.len()).into());
        }
    }
    Value::Object(json)
}
