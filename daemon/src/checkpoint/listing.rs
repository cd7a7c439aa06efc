//! The checkpoints of a project as a list: for people who choose one.

use serde::Serialize;

use super::text::{age, code, one_line, path, shorten};
use super::time::Timestamp;

/// How much of a goal a list shows.
const GOAL: usize = 120;

/// One checkpoint in a list, as the tools answer it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// How to name it.
    pub selector: String,
    /// Its goal; empty where it can't be read.
    pub goal: String,
    /// When it was saved; `None` where it can't be read, here and below.
    pub updated_at: Option<Timestamp>,
    /// How long ago that was.
    pub age: Option<String>,
    /// The branch it was saved on.
    pub branch: Option<String>,
    /// Whether it has tasks and all are done.
    pub all_tasks_done: bool,
    /// Whether it is the caller's own.
    pub is_current_session: bool,
    /// Whether it was read from its backup.
    pub from_backup: bool,
}

impl Entry {
    /// Fills in the age.
    pub fn aged(mut self, now: Timestamp) -> Entry {
        self.age = self.updated_at.map(|updated| age(updated, now));
        self
    }

    fn line(&self) -> String {
        let selector = code(&self.selector);
        let Some(age) = &self.age else {
            return format!("- {selector}: can't be read");
        };
        let goal = shorten(&one_line(&self.goal), GOAL);
        let mut details = vec![age.clone()];
        details.extend(
            self.branch
                .as_ref()
                .map(|branch| format!("branch {}", code(branch))),
        );
        if self.all_tasks_done {
            details.push("all tasks done".to_owned());
        }
        if self.is_current_session {
            details.push("this session's own".to_owned());
        }
        format!(
            "- {selector}: {} ({})",
            super::text::inert(&goal),
            details.join(", ")
        )
    }
}

/// Newest first; what can't be read comes last.
pub fn sort(entries: &mut [Entry]) {
    entries.sort_by(|a, b| {
        b.updated_at
            .cmp(&a.updated_at)
            .then_with(|| a.selector.cmp(&b.selector))
    });
}

/// The text of a load where there is nothing at all.
pub fn nothing_text(root: &str) -> String {
    format!(
        "There is no checkpoint in {} yet: nothing to resume.",
        path(root)
    )
}

/// The text of a load whose own checkpoint can't be used, where there is no other.
pub fn unusable_text(root: &str) -> String {
    format!(
        "This session's own checkpoint in {} can't be used, and there is no other to resume.",
        path(root)
    )
}

/// The text of a list.
pub fn list_text(root: &str, entries: &[Entry], total: usize) -> String {
    if total == 0 {
        return format!("No checkpoints in {}.", path(root));
    }
    let mut text = format!("{total} checkpoint(s) in {}, newest first:", path(root));
    push_lines(&mut text, entries, total);
    text
}

/// The text of a load that found no own checkpoint, but others: the user chooses.
pub fn candidates_text(root: &str, entries: &[Entry], total: usize) -> String {
    let mut text = format!(
        "This session has no checkpoint of its own in {}, but {total} other(s) exist, newest first:",
        path(root)
    );
    push_lines(&mut text, entries, total);
    text.push_str(
        "\nAsk the user which one to resume, if any, even if there is only one; then call load_session_checkpoint with `checkpoint` set to its selector.",
    );
    text
}

fn push_lines(text: &mut String, entries: &[Entry], total: usize) {
    for entry in entries {
        text.push('\n');
        text.push_str(&entry.line());
    }
    if total > entries.len() {
        text.push_str(&format!(
            "\n- … {} more: list_session_checkpoints with `limit: 0` shows all",
            total - entries.len()
        ));
    }
}
