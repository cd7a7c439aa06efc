//! A checkpoint against the facts of now: what changed since, and what could not be told.
//!
//! The one thing that must never happen is that a changed file looks unchanged. So a recorded file is
//! unchanged only when its hash was computed again and is the same; whatever could not be compared
//! is named in `unchecked`. That a file was only committed, staged or touched is no change: its
//! content is what counts.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::facts::{Content, Facts, History, Since};
use super::model::Checkpoint;

/// What changed since a checkpoint was saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Whether HEAD is on another branch than then.
    pub branch_changed: bool,
    /// The branch of now; `None` when detached or without git.
    pub current_branch: Option<String>,
    /// Whether HEAD is detached now.
    pub detached: bool,
    /// Commits on HEAD that are not in the saved one; `None` where that can't be told.
    pub commits_since: Option<u64>,
    /// Recorded files whose content differs.
    pub changed_since: Vec<String>,
    /// Unrecorded files that differ from what stood at save time.
    pub new_since: Vec<String>,
    /// Recorded files that could not be compared.
    pub unchecked: Vec<Unchecked>,
    /// HEAD left the saved commit's history, and a branch still has that.
    pub elsewhere: bool,
    /// What limits the comparison.
    pub warnings: Vec<String>,
}

/// A recorded file that could not be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchecked {
    /// Which.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Compares.
pub fn compare(checkpoint: &Checkpoint, facts: &Facts, since: &Since) -> Drift {
    let mut drift = Drift {
        current_branch: facts.git.as_ref().and_then(|git| git.branch.clone()),
        detached: facts.git.as_ref().is_some_and(|git| git.branch.is_none()),
        warnings: facts.warnings.clone(),
        ..Drift::default()
    };
    compare_recorded(checkpoint, facts, &mut drift);
    if let Some(saved) = &checkpoint.git {
        match &facts.git {
            Some(current) => drift.branch_changed = current.branch != saved.branch,
            None if since.history == History::None && facts.warnings.is_empty() => {
                drift.warnings.push(
                    "The project is not in a git repository any more, so only recorded files could be compared."
                        .to_owned(),
                );
            }
            None => {}
        }
        compare_history(&saved.head, since, &mut drift);
        find_new(checkpoint, facts, since, &mut drift);
    }
    if !drift.unchecked.is_empty() {
        let count = drift.unchecked.len();
        drift.warnings.push(format!(
            "{count} recorded file(s) could not be checked for changes; they are named under `not checked`."
        ));
    }
    drift
}

fn compare_recorded(checkpoint: &Checkpoint, facts: &Facts, drift: &mut Drift) {
    // A link whose text is what the file held has the file's hash, and is no file.
    let turned_into: HashSet<&str> = facts
        .changed
        .iter()
        .filter(|file| file.status == "T")
        .map(|file| file.path.as_str())
        .collect();
    let mut seen = HashSet::new();
    for record in &checkpoint.modified_files {
        if !seen.insert(record.path.as_str()) {
            continue;
        }
        let not_checked = |reason: &str| Unchecked {
            path: record.path.clone(),
            reason: reason.to_owned(),
        };
        let now = facts.contents.get(&record.path);
        match (record.hash.as_deref(), now) {
            (_, None) => drift.unchecked.push(not_checked("it was not examined")),
            (_, Some(Content::Unknown(reason))) => drift.unchecked.push(not_checked(reason)),
            (None, Some(content)) if record.status == "D" => {
                if *content != Content::Gone {
                    drift.changed_since.push(record.path.clone());
                }
            }
            // A name that is no Unicode is recorded as nearly as it can be, and can't be found again.
            (None, Some(Content::Gone)) if record.path.contains('\u{fffd}') => {
                drift.unchecked.push(not_checked("its name is no Unicode"))
            }
            (None, Some(Content::Gone)) | (Some(_), Some(Content::Gone | Content::Other(_))) => {
                drift.changed_since.push(record.path.clone());
            }
            (None, Some(Content::Other(reason))) => drift.unchecked.push(not_checked(reason)),
            (None, Some(Content::Hash(_))) => drift
                .unchecked
                .push(not_checked("no hash of it was recorded")),
            (Some(then), Some(Content::Hash(now))) => {
                let turned = record.status != "T" && turned_into.contains(record.path.as_str());
                if then != now || turned {
                    drift.changed_since.push(record.path.clone());
                }
            }
        }
    }
}

fn compare_history(saved_head: &str, since: &Since, drift: &mut Drift) {
    let short = saved_head.get(..9).unwrap_or(saved_head);
    match &since.history {
        History::None => {}
        History::Ahead { commits } => drift.commits_since = Some(*commits),
        History::Elsewhere => drift.elsewhere = true,
        History::Unreachable => drift.warnings.push(format!(
            "Saved commit {short} is no longer reachable: the branch was rebased or reset."
        )),
        History::Unknown(reason) => drift.warnings.push(format!(
            "How HEAD relates to the saved commit {short} can't be told: {reason}."
        )),
    }
}

fn find_new(checkpoint: &Checkpoint, facts: &Facts, since: &Since, drift: &mut Drift) {
    if checkpoint.meta.files_incomplete {
        drift.warnings.push(
            "The checkpoint doesn't list every file that was changed when it was saved, so other files may have changed since without being named."
                .to_owned(),
        );
        return;
    }
    match (&since.history, &since.committed, &facts.incomplete) {
        (_, _, Some(reason)) => drift.warnings.push(format!(
            "Files that changed though they were not part of the checkpoint may be missing here: {reason}."
        )),
        (History::None, ..) => {}
        (_, None, None) => drift.warnings.push(
            "The saved commit's files can't be compared any more, so of the files that were not part of the checkpoint only uncommitted changes are named."
                .to_owned(),
        ),
        (_, Some(_), None) => {}
    }
    let recorded: HashMap<&str, &str> = checkpoint
        .modified_files
        .iter()
        .map(|record| (record.path.as_str(), record.status.as_str()))
        .collect();
    let changed = facts.changed_paths();
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for path in &changed {
        let then = since.saved_blobs.get(*path).map(String::as_str);
        let same = match facts.contents.get(*path) {
            Some(Content::Hash(now)) => then == Some(now),
            Some(Content::Gone) => then.is_none() && since.committed.is_some(),
            _ => false,
        };
        if !same {
            found.insert(path);
        }
    }
    for path in since.committed.iter().flatten() {
        if !changed.contains(path.as_str()) {
            found.insert(path);
        }
    }
    // What a rename left behind is gone, unless it was renamed already when the checkpoint was saved.
    for (old, new) in facts.renamed.iter().chain(&since.renamed) {
        if recorded.get(new.as_str()) == Some(&"R") {
            found.remove(old.as_str());
        } else if since.saved_blobs.contains_key(old) && !changed.contains(old.as_str()) {
            found.insert(old);
        }
    }
    drift.new_since = found
        .into_iter()
        .filter(|path| !recorded.contains_key(path))
        .map(str::to_owned)
        .collect();
}
