//! What `git status --porcelain=v1 -uall` would list, one letter a path.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::status::index_worktree::Item;
use gix::status::plumbing::index_as_worktree::{Change, EntryStatus};

use super::{GitError, Repository, innermost, is_late, lfs};
use crate::checkpoint::facts::ChangedFile;
use crate::dir;

/// What git lists under a root.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Tracked files by path, then untracked ones by path.
    pub(crate) changed: Vec<ChangedFile>,
    /// What the index renamed within the root, old → new.
    pub(crate) renamed: BTreeMap<String, String>,
}

/// The two columns of porcelain status, as far as they decide the letter.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    index: Option<Letter>,
    worktree: Option<Letter>,
    untracked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letter {
    Added,
    Copied,
    Deleted,
    Modified,
    Renamed,
    TypeChanged,
    Unmerged,
}

impl Columns {
    /// The letter that a checkpoint records (contract §5).
    fn letter(self) -> &'static str {
        let either = |letter| self.index == Some(letter) || self.worktree == Some(letter);
        if either(Letter::Unmerged) {
            "U"
        } else if self.untracked {
            "??"
        } else if either(Letter::Deleted) {
            "D"
        } else if either(Letter::Added) {
            "A"
        } else if either(Letter::Renamed) {
            "R"
        } else if either(Letter::Copied) {
            "C"
        } else if either(Letter::TypeChanged) {
            "T"
        } else {
            "M"
        }
    }
}

/// Asks git. `late` ends it with [`GitError::Late`].
pub(crate) fn list(
    repository: &Repository,
    root: &Path,
    late: &Arc<AtomicBool>,
) -> Result<Listed, GitError> {
    let mut renames = Vec::new();
    let mut columns = columns(repository, late, &mut renames)?;
    if is_late(late) {
        return Err(GitError::Late);
    }
    let mut renamed = BTreeMap::new();
    for (old, new) in renames {
        let Some(source) = repository.in_root(&old) else {
            continue;
        };
        match repository.in_root(&new) {
            Some(destination) => drop(renamed.insert(source, destination)),
            // From here it looks deleted.
            None => columns.entry(old).or_default().index = Some(Letter::Deleted),
        }
    }
    let (untracked, tracked): (Vec<_>, Vec<_>) = columns
        .into_iter()
        .filter_map(|(path, columns)| {
            let path = repository.in_root(&path)?;
            let ours = path.split('/').any(protocol::files::is_ours);
            (!ours && !path.is_empty()).then(|| ChangedFile {
                modified: dir::modified(&root.join(&path)),
                path,
                status: columns.letter(),
            })
        })
        .partition(|file| file.status == "??");
    Ok(Listed {
        changed: tracked.into_iter().chain(untracked).collect(),
        renamed,
    })
}

fn columns(
    repository: &Repository,
    late: &Arc<AtomicBool>,
    renames: &mut Vec<(BString, BString)>,
) -> Result<BTreeMap<BString, Columns>, GitError> {
    let repo = &repository.inner;
    let failed = |error: gix::Error| GitError::Status(innermost(&error));
    let mut columns: BTreeMap<BString, Columns> = BTreeMap::new();

    // Renames come from the whole difference between HEAD and index, whatever the root is.
    let index = repo.index_or_empty().map_err(failed)?;
    let head_tree = repo.head_tree_id_or_empty().map_err(failed)?;
    repo.tree_index_status(
        &head_tree,
        &index,
        None,
        gix::status::tree_index::TrackRenames::AsConfigured,
        |change, _, _| {
            let (path, letter) = index_change(&change);
            if let gix::diff::index::ChangeRef::Rewrite {
                source_location,
                copy: false,
                ..
            } = &change
            {
                renames.push((source_location.clone().into_owned(), path.to_owned()));
            }
            columns.entry(path.to_owned()).or_default().index = Some(letter);
            Ok(if is_late(late) {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            })
        },
    )
    .map_err(failed)?;

    let within = (!repository.prefix.is_empty()).then(|| {
        let mut pattern = BString::from(":(top,literal)");
        pattern.extend_from_slice(&repository.prefix);
        pattern
    });
    let changes = repo
        .status(gix::progress::Discard)
        .map_err(failed)?
        .untracked_files(gix::status::UntrackedFiles::Files)
        .index_worktree_rewrites(None)
        .index_worktree_submodules(None)
        .should_interrupt_owned(late.clone())
        .into_index_worktree_iter(within)
        .map_err(failed)?;
    let mut filtered = lfs::Filtered::new(repo, &index);
    for change in changes {
        match change.map_err(failed)? {
            Item::Modification {
                rela_path,
                status,
                entry,
                ..
            } => {
                let Some(letter) = worktree_change(&status) else {
                    continue;
                };
                if letter == Letter::Modified && filtered.is_unchanged(rela_path.as_ref(), &entry) {
                    continue;
                }
                columns.entry(rela_path).or_default().worktree = Some(letter);
            }
            Item::DirectoryContents { entry, .. } => {
                if entry.status == gix::dir::entry::Status::Untracked {
                    let path = untracked_path(entry);
                    columns.entry(path).or_default().untracked = true;
                }
            }
            // Only produced where renames between index and worktree are looked for.
            Item::Rewrite { .. } => {}
        }
    }
    super::submodules::add(repository, &index, late, |path| {
        columns.entry(path).or_default().worktree = Some(Letter::Modified);
    })?;
    Ok(columns)
}

/// A nested repository is listed as one entry with a final `/`, like git does.
fn untracked_path(entry: gix::dir::Entry) -> BString {
    use gix::dir::entry::Kind;
    let mut path = entry.rela_path;
    if matches!(entry.disk_kind, Some(Kind::Directory | Kind::Repository)) {
        path.push(b'/');
    }
    path
}

fn index_change<'a>(change: &'a gix::diff::index::ChangeRef<'_, '_>) -> (&'a BStr, Letter) {
    use gix::diff::index::ChangeRef;
    match change {
        ChangeRef::Addition { location, .. } => (location.as_bstr(), Letter::Added),
        ChangeRef::Deletion { location, .. } => (location.as_bstr(), Letter::Deleted),
        ChangeRef::Modification {
            location,
            previous_entry_mode,
            entry_mode,
            ..
        } => {
            let same_kind = kind(*previous_entry_mode) == kind(*entry_mode);
            let letter = if same_kind {
                Letter::Modified
            } else {
                Letter::TypeChanged
            };
            (location.as_bstr(), letter)
        }
        ChangeRef::Rewrite { location, copy, .. } => {
            let letter = if *copy {
                Letter::Copied
            } else {
                Letter::Renamed
            };
            (location.as_bstr(), letter)
        }
    }
}

/// The type bits of a mode: an executable file is still a file.
fn kind(mode: gix::index::entry::Mode) -> u32 {
    mode.bits() & 0o170_000
}

fn worktree_change<T, U>(status: &EntryStatus<T, U>) -> Option<Letter> {
    match status {
        EntryStatus::Conflict { .. } => Some(Letter::Unmerged),
        EntryStatus::IntentToAdd => Some(Letter::Added),
        EntryStatus::NeedsUpdate(_) => None,
        EntryStatus::Change(change) => Some(match change {
            Change::Removed => Letter::Deleted,
            Change::Type { .. } => Letter::TypeChanged,
            Change::Modification { .. } | Change::SubmoduleModification(_) => Letter::Modified,
        }),
    }
}
