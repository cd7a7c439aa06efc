//! Submodules as the superproject's status shows them.
//!
//! gix would open a submodule with its own configuration, filters included; so it is opened here, the way
//! every repository is, and asked the three questions of git: is another commit checked out, is
//! anything modified, is anything untracked.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::bstr::{BString, ByteSlice as _};
use gix::submodule::config::Ignore;

use super::{GitError, Repository, is_late, open, status};

/// Calls `modified` for each submodule that differs from what the index says.
pub(super) fn add(
    repository: &Repository,
    index: &gix::index::State,
    late: &Arc<AtomicBool>,
    mut modified: impl FnMut(BString),
) -> Result<(), GitError> {
    let Some(top) = repository.inner.workdir().map(ToOwned::to_owned) else {
        return Ok(());
    };
    for entry in index.entries() {
        if entry.mode != gix::index::entry::Mode::COMMIT {
            continue;
        }
        let path = entry.path(index);
        if !path.starts_with(&repository.prefix) {
            continue;
        }
        if is_late(late) {
            return Err(GitError::Late);
        }
        let ignore = ignore_rule(repository, path);
        if ignore == Ignore::All {
            continue;
        }
        let Ok(relative) = gix::path::from_bstr(path) else {
            continue;
        };
        let place = top.join(relative);
        if !place.join(".git").exists() {
            continue; // not checked out
        }
        // One that can't be read is not called unchanged.
        let differs = match open(&place) {
            Ok(Some(submodule)) => differs(&submodule, entry.id, ignore, late)?,
            _ => true,
        };
        if differs {
            modified(path.to_owned());
        }
    }
    Ok(())
}

fn differs(
    submodule: &Repository,
    recorded: gix::ObjectId,
    ignore: Ignore,
    late: &Arc<AtomicBool>,
) -> Result<bool, GitError> {
    let head = submodule.inner.head_id().ok().map(gix::Id::detach);
    if head != Some(recorded) {
        return Ok(true);
    }
    if ignore == Ignore::Dirty {
        return Ok(false);
    }
    let listed = status::list(submodule, late)?;
    Ok(listed
        .changed
        .iter()
        .any(|file| ignore != Ignore::Untracked || file.status != "??"))
}

/// `submodule.<name>.ignore`, else `diff.ignoreSubmodules`, else nothing is ignored.
fn ignore_rule(repository: &Repository, path: &gix::bstr::BStr) -> Ignore {
    let of_submodule = repository
        .inner
        .submodules()
        .ok()
        .flatten()
        .and_then(|mut all| all.find(|one| one.path().is_ok_and(|at| at.as_bstr() == path)))
        .and_then(|submodule| submodule.ignore().ok().flatten());
    of_submodule.unwrap_or_else(|| {
        repository
            .inner
            .config_snapshot()
            .string("diff.ignoreSubmodules")
            .and_then(|value| Ignore::try_from(value.as_bstr()).ok())
            .unwrap_or(Ignore::None)
    })
}
