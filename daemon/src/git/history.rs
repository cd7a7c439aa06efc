//! How HEAD relates to the commit of a checkpoint, and what the commits in between changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::bstr::ByteSlice as _;
use protocol::files;

use super::{Repository, innermost, is_late};
use crate::checkpoint::facts::{History, Since};

/// Compares HEAD with `saved`, a commit id in hex. `listed` are the paths that git lists now, whose blobs in
/// the saved commit are looked up. What isn't known when it is `late` is unknown.
pub(crate) fn since<'a>(
    repository: &Repository,
    saved: &str,
    listed: impl Iterator<Item = &'a str>,
    late: &AtomicBool,
) -> Since {
    let repo = &repository.inner;
    let unreachable = Since {
        history: History::Unreachable,
        ..Since::nothing()
    };
    let Ok(saved) = ObjectId::from_hex(saved.as_bytes()) else {
        return unreachable;
    };
    let saved_tree = repo
        .find_commit(saved)
        .ok()
        .and_then(|commit| commit.tree().ok());
    let Some(saved_tree) = saved_tree else {
        return unreachable;
    };
    let head = repo.head_id().ok().map(gix::Id::detach);
    let (committed, renamed) = head
        .and_then(|head| tree_changes(repository, &saved_tree, head))
        .unzip();
    let mut wanted: BTreeSet<String> = listed.map(str::to_owned).collect();
    wanted.extend(committed.iter().flatten().cloned());
    let mut saved_blobs = BTreeMap::new();
    for path in wanted {
        if is_late(late) {
            return Since {
                history: too_late(),
                ..Since::nothing()
            };
        }
        let full = repository.in_repository(&path);
        let components = full.split(|byte| *byte == b'/');
        if let Ok(Some(entry)) = saved_tree.lookup_entry(components) {
            saved_blobs.insert(path, entry.object_id().to_string());
        }
    }
    let history = match head {
        Some(head) => history(repo, saved, head, late),
        None => on_a_branch(repo, saved, late),
    };
    Since {
        history: history.unwrap_or_else(|error| History::Unknown(innermost(&error))),
        committed,
        renamed: renamed.unwrap_or_default(),
        saved_blobs,
    }
}

/// The paths under the root in which the trees differ, and which of them were renamed.
fn tree_changes(
    repository: &Repository,
    saved_tree: &gix::Tree<'_>,
    head: ObjectId,
) -> Option<(BTreeSet<String>, BTreeMap<String, String>)> {
    use gix::object::tree::diff::ChangeDetached;

    let repo = &repository.inner;
    let head_tree = repo.find_commit(head).ok()?.tree().ok()?;
    let mut paths = BTreeSet::new();
    let mut renamed = BTreeMap::new();
    if head_tree.id == saved_tree.id {
        return Some((paths, renamed));
    }
    let mut options = gix::diff::Options::default();
    options.track_path();
    options.track_rewrites(Some(gix::diff::Rewrites::default()));
    let changes = repo
        .diff_tree_to_tree(Some(saved_tree), Some(&head_tree), Some(options))
        .ok()?;
    for change in changes
        .iter()
        .filter(|change| !change.entry_mode().is_tree())
    {
        let path = repository.in_root(change.location().as_bytes());
        if let ChangeDetached::Rewrite {
            source_location,
            copy: false,
            ..
        } = change
            && let Some(source) = repository.in_root(source_location.as_bytes())
        {
            renamed.extend(path.clone().map(|path| (source.clone(), path)));
            paths.insert(source);
        }
        paths.extend(path);
    }
    paths.retain(|path| !path.split('/').any(files::is_ours));
    Some((paths, renamed))
}

fn history(
    repo: &gix::Repository,
    saved: ObjectId,
    head: ObjectId,
    late: &AtomicBool,
) -> Result<History, gix::Error> {
    if saved == head {
        return Ok(History::Ahead { commits: 0 });
    }
    let base = repo.merge_base(saved, head)?.map(gix::Id::detach);
    if base != Some(saved) {
        return on_a_branch(repo, saved, late);
    }
    let mut commits = 0;
    for commit in repo.rev_walk([head]).with_hidden([saved]).all()? {
        commit?;
        commits += 1;
        if is_late(late) {
            return Ok(too_late());
        }
    }
    Ok(History::Ahead { commits })
}

fn too_late() -> History {
    History::Unknown("there was not enough time".to_owned())
}

/// Whether a local or remote branch contains the commit: one walk from all their tips, until it is met.
fn on_a_branch(
    repo: &gix::Repository,
    commit: ObjectId,
    late: &AtomicBool,
) -> Result<History, gix::Error> {
    let references = repo.references()?;
    let mut tips = Vec::new();
    for branches in [references.local_branches()?, references.remote_branches()?] {
        for mut branch in branches.filter_map(Result::ok) {
            // A branch whose commit is missing can't contain anything that is there.
            tips.extend(branch.peel_to_id().ok().map(gix::Id::detach));
        }
    }
    for met in repo.rev_walk(tips).all()? {
        if met?.id == commit {
            return Ok(History::Elsewhere);
        }
        if is_late(late) {
            return Ok(too_late());
        }
    }
    Ok(History::Unreachable)
}
