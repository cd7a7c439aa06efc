//! `list_session_checkpoints`, and the candidates of a load.

use std::path::Path;

use protocol::ids::Selector;
use serde_json::json;

use super::{Answer, Call, ClientRoots, Tools, now, planted, push_warnings, refused, shown};
use crate::actor::foreign_owner;
use crate::checkpoint::input::{Arguments, Refusal, quote};
use crate::checkpoint::listing::{self, Entry};
use crate::store;

/// Entries that are shown where no limit was given.
pub(super) const ENTRIES: usize = 10;

impl Tools {
    /// `list_session_checkpoints`
    pub(crate) async fn list<R: ClientRoots>(&self, call: Call<R>) -> Result<Answer, Refusal> {
        let mut arguments = Arguments::new(call.arguments.clone());
        let limit = arguments
            .count("limit", "pass how many entries to show, or 0 for all")?
            .map_or(ENTRIES, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            });
        let resolved = self.resolve(&call, &mut arguments).await?;
        let mut warnings = resolved.warnings();
        warnings.extend(arguments.finish());
        let own = resolved.own();
        let root = resolved.root.path;
        let mut entries = self.entries(&root, own.as_ref(), &mut warnings).await?;
        let total = entries.len();
        if limit > 0 {
            entries.truncate(limit);
        }
        let mut text = listing::list_text(&shown(&root), &entries, total);
        push_warnings(&mut text, &warnings);
        let mut answer = Answer::new();
        answer.insert("text".to_owned(), text.into());
        answer.insert("path".to_owned(), shown(&root).into());
        answer.insert("omitted".to_owned(), (total - entries.len()).into());
        answer.insert("entries".to_owned(), json!(entries));
        answer.insert("total".to_owned(), total.into());
        answer.insert("warnings".to_owned(), warnings.into());
        Ok(answer)
    }

    /// All checkpoints of a root, newest first, unreadable ones last; what is odd about one goes into `warnings`.
    pub(super) async fn entries(
        &self,
        root: &Path,
        own: Option<&Selector>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Entry>, Refusal> {
        let (found, strangers) = store::list(root.to_path_buf())
            .await
            .map_err(|error| refused(&error))?;
        let tracked = self.worktrees.tracked(root).await;
        warnings.extend(strangers.iter().map(|name| {
            format!(
                "`{}` is not listed: its name is no session id.",
                quote(name)
            )
        }));
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
                    warnings.extend(planted(&found.selector, &stored, &tracked));
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
}
