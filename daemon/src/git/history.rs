//! How HEAD relates to the commit of a checkpoint, and what the commits in between changed.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::bstr::ByteSlice as _;

use super::{Repository, innermost};
use crate::checkpoint::facts::{History, Since};

/// Compares HEAD with `saved`, a commit id in hex. `listed` are the paths that git lists now, whose blobs in
/// the saved commit are looked up.
pub(crate) fn since<'a>(
    repository: &Repository,
    saved: &str,
    listed: impl Iterator<Item = &'a str>,
) -> Since {
    let repo = &repository.inner;
    let saved = ObjectId::from_hex(saved.as_bytes()).ok();
    let head = repo.head_id().ok().map(gix::Id::detach);
    let (Some(saved), Some(head)) = (saved, head) else {
        return Since {
            history: if saved.is_none() {
                History::Unreachable
            } else {
                History::None
            },
            committed: None,
            saved_blobs: BTreeMap::new(),
        };
    };
    let saved_tree = repo
        .find_commit(saved)
        .ok()
        .and_then(|commit| commit.tree().ok());
    let Some(saved_tree) = saved_tree else {
        return Since {
            history: History::Unreachable,
            committed: None,
            saved_blobs: BTreeMap::new(),
        };
    };
    let committed = tree_changes(repository, &saved_tree, head);
    let mut wanted: BTreeSet<String> = listed.map(str::to_owned).collect();
    wanted.extend(committed.iter().flatten().cloned());
    let saved_blobs = wanted
        .into_iter()
        .filter_map(|path| {
            let full = format!("{}{path}", repository.prefix);
            let entry = saved_tree.lookup_entry_by_path(full).ok().flatten()?;
            let blob = entry.object_id().to_string();
            Some((path, blob))
        })
        .collect();
    Since {
        history: history(repo, saved, head),
        committed,
        saved_blobs,
    }
}

/// The paths under the root in which the trees differ.
fn tree_changes(
    repository: &Repository,
    saved_tree: &gix::Tree<'_>,
    head: ObjectId,
) -> Option<BTreeSet<String>> {
    let repo = &repository.inner;
    let head_tree = repo.find_commit(head).ok()?.tree().ok()?;
    if head_tree.id == saved_tree.id {
        return Some(BTreeSet::new());
    }
    let mut options = gix::diff::Options::default();
    options.track_path();
    options.track_rewrites(None);
    let changes = repo
        .diff_tree_to_tree(Some(saved_tree), Some(&head_tree), Some(options))
        .ok()?;
    let paths = changes
        .iter()
        .filter(|change| !change.entry_mode().is_tree())
        .filter_map(|change| repository.in_root(change.location().as_bytes()))
        .filter(|path| !path.split('/').any(protocol::files::is_ours))
        .collect();
    Some(paths)
}

fn history(repo: &gix::Repository, saved: ObjectId, head: ObjectId) -> History {
    if saved == head {
        return History::Ahead { commits: 0 };
    }
    if is_ancestor(repo, saved, head) {
        let walk = repo.rev_walk([head]).with_hidden([saved]).all();
        return match walk.map(Iterator::count) {
            Ok(commits) => History::Ahead {
                commits: commits as u64,
            },
            Err(error) => History::Unknown(innermost(&error)),
        };
    }
    if on_a_branch(repo, saved) {
        History::Elsewhere
    } else {
        History::Unreachable
    }
}

fn is_ancestor(repo: &gix::Repository, ancestor: ObjectId, of: ObjectId) -> bool {
    repo.merge_base(ancestor, of)
        .is_ok_and(|base| base.is_some_and(|base| base.detach() == ancestor))
}

/// Whether a local or remote branch contains the commit.
fn on_a_branch(repo: &gix::Repository, commit: ObjectId) -> bool {
    let Ok(references) = repo.references() else {
        return false;
    };
    let branches = [references.local_branches(), references.remote_branches()];
    branches
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|mut branch| branch.peel_to_id().ok().map(gix::Id::detach))
        .any(|tip| tip == commit || is_ancestor(repo, commit, tip))
}
