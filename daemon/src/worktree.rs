//! The door to what is known of a work tree.
//!
//! Callers ask [`Worktrees`] and get plain facts; that the tree is examined at each call is known only
//! here, and a live picture kept by watching it comes in through the same two questions. An
//! examination runs on a blocking thread and has [`PATIENCE`]: what is not known by then is said to be
//! missing, never guessed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gix::hash::Kind as HashKind;

use crate::checkpoint::facts::{Facts, Since};
use crate::checkpoint::model::Checkpoint;
use crate::{content, git};

/// How long a call waits for the facts (contract §2: a load names what it could not check).
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an examination that was told to end may take to do so.
const GRACE: Duration = Duration::from_secs(1);

/// What is known of work trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worktrees {}

impl Worktrees {
    /// The facts of `root` now, with the content of what git lists and of `paths`. `ours` are the checkpoint
    /// files that will be written: whether git would see them is found out as well.
    pub(crate) async fn settle(&self, root: &Path, paths: Vec<String>, ours: Vec<String>) -> Facts {
        let root = root.to_path_buf();
        bounded(move |late| {
            let asked = Asked {
                paths,
                ours,
                saved_head: None,
            };
            examine(&root, &asked, late).0
        })
        .await
        .unwrap_or_else(unknown)
    }

    /// The facts of `root` now, and how they relate to what `checkpoint` recorded.
    pub(crate) async fn compare(&self, root: &Path, checkpoint: &Checkpoint) -> (Facts, Since) {
        let root = root.to_path_buf();
        let asked = Asked {
            paths: checkpoint
                .modified_files
                .iter()
                .map(|record| record.path.clone())
                .collect(),
            ours: Vec::new(),
            saved_head: checkpoint.git.as_ref().map(|git| git.head.clone()),
        };
        bounded(move |late| examine(&root, &asked, late))
            .await
            .unwrap_or_else(|| (unknown(), Since::nothing()))
    }

    /// The root's checkpoint files that git tracks.
    pub(crate) async fn tracked(&self, root: &Path) -> BTreeSet<String> {
        let root = root.to_path_buf();
        bounded(move |_| match git::open(&root) {
            Ok(Some(repository)) => repository.tracked_checkpoints(),
            _ => BTreeSet::new(),
        })
        .await
        .unwrap_or_default()
    }
}

/// What an examination is to find out.
struct Asked {
    paths: Vec<String>,
    ours: Vec<String>,
    saved_head: Option<String>,
}

fn unknown() -> Facts {
    let reason = "the work tree could not be examined in time".to_owned();
    Facts {
        warnings: vec![format!("{}.", capitalized(&reason))],
        incomplete: Some(reason),
        ..Facts::default()
    }
}

/// Runs `work` on a blocking thread and tells it when its time is up; `None` if it doesn't end even then.
async fn bounded<T: Send + 'static>(
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> Option<T> {
    let late = Arc::new(AtomicBool::new(false));
    let flag = late.clone();
    let mut job = tokio::task::spawn_blocking(move || work(&flag));
    let result = match tokio::time::timeout(PATIENCE, &mut job).await {
        Ok(result) => result,
        Err(_) => {
            late.store(true, Ordering::Relaxed);
            tokio::time::timeout(GRACE, job).await.ok()?
        }
    };
    result
        .inspect_err(|error| tracing::error!(%error, "an examination failed"))
        .ok()
}

fn examine(root: &Path, asked: &Asked, late: &Arc<AtomicBool>) -> (Facts, Since) {
    let mut facts = Facts::default();
    let mut since = Since::nothing();
    let repository = git::open(root);
    let hash = match &repository {
        Ok(Some(repository)) => repository.hash_kind(),
        _ => HashKind::Sha1,
    };
    // What was asked for goes first: it must not go without because a vast tree takes long.
    for path in &asked.paths {
        let content = || content::examine(root, path, hash, late);
        facts.contents.entry(path.clone()).or_insert_with(content);
    }
    match repository {
        Ok(None) => {}
        Ok(Some(repository)) => {
            facts.tracked = repository.tracked_checkpoints();
            facts.exposed = repository.exposed(root, &asked.ours);
            if let Err(error) = ask_git(&repository, root, &mut facts, late) {
                give_up_on_git(&mut facts, &error);
            }
            for file in &facts.changed {
                let content = || content::examine(root, &file.path, hash, late);
                facts
                    .contents
                    .entry(file.path.clone())
                    .or_insert_with(content);
            }
            if let Some(head) = &asked.saved_head {
                let listed = facts.changed.iter().map(|file| file.path.as_str());
                let listed = listed.chain(facts.renamed.keys().map(String::as_str));
                since = git::since(&repository, head, listed, late);
            }
        }
        Err(error) => give_up_on_git(&mut facts, &error),
    }
    (facts, since)
}

fn ask_git(
    repository: &git::Repository,
    root: &Path,
    facts: &mut Facts,
    late: &Arc<AtomicBool>,
) -> Result<(), git::GitError> {
    facts.git = repository.head()?;
    let listed = git::list(repository, root, late)?;
    facts.changed = listed.changed;
    facts.renamed = listed.renamed;
    if let Some(git) = &mut facts.git {
        git.dirty = !facts.changed.is_empty();
    }
    Ok(())
}

/// Without git the rest goes on; that uncommitted files are missing must be said.
fn give_up_on_git(facts: &mut Facts, error: &git::GitError) {
    let reason = error.to_string();
    tracing::warn!(%reason, "git's facts can't be had");
    facts.warnings.push(format!(
        "{}: uncommitted files are missing here.",
        capitalized(&reason)
    ));
    facts.incomplete = Some(reason);
    match &mut facts.git {
        // Where it stood is known; whether anything is uncommitted is not, so it is not called clean.
        Some(git) if matches!(error, git::GitError::Late | git::GitError::Status(_)) => {
            git.dirty = true;
        }
        git => *git = None,
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
