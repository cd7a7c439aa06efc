//! What `git status --porcelain=v1 -uall` would list, one letter a path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::status::index_worktree::Item;
use gix::status::plumbing::index_as_worktree::{Change, EntryStatus};

use super::surroundings::Nested;
use super::{GitError, Repository, innermost, is_late, lfs};
use crate::checkpoint::facts::ChangedFile;

/// Paths that are looked at one by one: each narrows git's own search to itself, which a few together don't.
const ONE_BY_ONE: usize = 24;

/// What git lists, kept as the two columns it consists of, so that parts of it can be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    columns: BTreeMap<BString, Columns>,
    /// What the index renamed, old → new.
    renames: Vec<(BString, BString)>,
}

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
    fn is_empty(self) -> bool {
        self.index.is_none() && self.worktree.is_none() && !self.untracked
    }

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

impl Listing {
    /// Asks git about everything under the root. `late` ends it with [`GitError::Late`].
    pub(crate) fn new(
        repository: &Repository,
        late: &Arc<AtomicBool>,
    ) -> Result<Listing, GitError> {
        let mut listing = Listing::default();
        listing.compare_index(repository, late)?;
        let within = (!repository.prefix.is_empty()).then(|| literal(&repository.prefix));
        listing.compare_worktree(repository, within, late)?;
        listing.compare_submodules(repository, late)?;
        if is_late(late) {
            return Err(GitError::Late);
        }
        Ok(listing)
    }

    /// Looks again at these paths of the root, and at everything under them, as long as neither HEAD nor the index
    /// moved.
    pub(crate) fn refresh(
        &mut self,
        repository: &Repository,
        paths: &BTreeSet<BString>,
        late: &Arc<AtomicBool>,
    ) -> Result<(), GitError> {
        let full: Vec<BString> = paths
            .iter()
            .map(|path| {
                let mut full = repository.prefix.clone();
                full.extend_from_slice(path);
                full
            })
            .collect();
        for path in &full {
            self.forget_worktree(path);
        }
        let mut ordinary = Vec::new();
        for path in full {
            if is_plainly_modified(repository, &path)? {
                self.columns.entry(path).or_default().worktree = Some(Letter::Modified);
                continue;
            }
            match repository.is_repository(&path)? {
                Nested::No => ordinary.push(literal(&path)),
                Nested::Ignored | Nested::Submodule => {}
                Nested::Listed => {
                    let mut path = path;
                    path.push(b'/');
                    self.columns.entry(path).or_default().untracked = true;
                }
                Nested::AmongTracked => {
                    return Err(GitError::Status(
                        "a repository among tracked files".to_owned(),
                    ));
                }
            }
        }
        if ordinary.len() <= ONE_BY_ONE {
            for pattern in ordinary {
                self.compare_worktree(repository, Some(pattern), late)?;
            }
        } else {
            self.compare_worktree(repository, ordinary, late)?;
        }
        if is_late(late) {
            return Err(GitError::Late);
        }
        Ok(())
    }

    /// Looks again at the submodules: nobody watches them.
    pub(crate) fn refresh_submodules(
        &mut self,
        repository: &Repository,
        late: &Arc<AtomicBool>,
    ) -> Result<(), GitError> {
        let index = repository.index()?;
        for entry in index.entries() {
            if entry.mode == gix::index::entry::Mode::COMMIT {
                let path = entry.path(&index).to_owned();
                if let Some(columns) = self.columns.get_mut(&path)
                    && columns.worktree == Some(Letter::Modified)
                {
                    columns.worktree = None;
                }
            }
        }
        self.compare_submodules(repository, late)
    }

    /// The letters, under the root; when files were written is found out with their content.
    pub(crate) fn listed(&self, repository: &Repository) -> Listed {
        let mut columns = self.columns.clone();
        let mut renamed = BTreeMap::new();
        for (old, new) in &self.renames {
            let Some(source) = repository.in_root(old) else {
                continue;
            };
            match repository.in_root(new) {
                Some(destination) => drop(renamed.insert(source, destination)),
                // From here it looks deleted.
                None => columns.entry(old.clone()).or_default().index = Some(Letter::Deleted),
            }
        }
        let (untracked, tracked): (Vec<_>, Vec<_>) = columns
            .into_iter()
            .filter(|(_, columns)| !columns.is_empty())
            .filter_map(|(path, columns)| {
                let path = repository.in_root(&path)?;
                let ours = path.split('/').any(protocol::files::is_ours);
                (!ours && !path.is_empty()).then(|| ChangedFile {
                    modified: 0,
                    path,
                    status: columns.letter(),
                })
            })
            .partition(|file| file.status == "??");
        Listed {
            changed: tracked.into_iter().chain(untracked).collect(),
            renamed,
        }
    }

    fn forget_worktree(&mut self, path: &BString) {
        let mut under = path.clone();
        under.push(b'/');
        let gone: Vec<BString> = self
            .columns
            .range(under.clone()..)
            .take_while(|(known, _)| known.starts_with(&under))
            .map(|(known, _)| known.clone())
            .chain([path.clone()])
            .collect();
        for path in gone {
            if let Some(columns) = self.columns.get_mut(&path) {
                columns.worktree = None;
                columns.untracked = false;
                if columns.is_empty() {
                    self.columns.remove(&path);
                }
            }
        }
    }

    /// HEAD against the index. Renames come from the whole difference, whatever the root is.
    fn compare_index(
        &mut self,
        repository: &Repository,
        late: &Arc<AtomicBool>,
    ) -> Result<(), GitError> {
        let repo = &repository.inner;
        let index = repository.index()?;
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
                    let source = source_location.clone().into_owned();
                    self.renames.push((source, path.to_owned()));
                }
                self.columns.entry(path.to_owned()).or_default().index = Some(letter);
                Ok(if is_late(late) {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                })
            },
        )
        .map_err(failed)?;
        Ok(())
    }

    /// The index against the worktree, within these pathspecs.
    fn compare_worktree(
        &mut self,
        repository: &Repository,
        within: impl IntoIterator<Item = BString>,
        late: &Arc<AtomicBool>,
    ) -> Result<(), GitError> {
        let repo = &repository.inner;
        let index = repository.index()?;
        let changes = repo
            .status(gix::progress::Discard)
            .map_err(failed)?
            .untracked_files(gix::status::UntrackedFiles::Files)
            .index_worktree_rewrites(None)
            .index_worktree_submodules(None)
            .should_interrupt_owned(late.clone())
            .into_index_worktree_iter(within)
            .map_err(failed)?;
        let mut filtered = None;
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
                    let letter = match letter {
                        Letter::Modified if changed_type(repository, &rela_path, entry.mode) => {
                            Letter::TypeChanged
                        }
                        other => other,
                    };
                    if letter == Letter::Modified {
                        let filtered =
                            filtered.get_or_insert_with(|| lfs::Filtered::new(repo, &index));
                        if filtered.is_unchanged(rela_path.as_ref(), &entry) {
                            continue;
                        }
                    }
                    self.columns.entry(rela_path).or_default().worktree = Some(letter);
                }
                Item::DirectoryContents { entry, .. } => {
                    // A repository in the place of a tracked file is only that file's deletion, as for git.
                    let in_place = || index.entry_by_path(entry.rela_path.as_ref()).is_some();
                    if entry.status == gix::dir::entry::Status::Untracked
                        && !(is_directory(&entry) && in_place())
                    {
                        let path = untracked_path(entry);
                        self.columns.entry(path).or_default().untracked = true;
                    }
                }
                // Only produced where renames between index and worktree are looked for.
                Item::Rewrite { .. } => {}
            }
        }
        Ok(())
    }

    fn compare_submodules(
        &mut self,
        repository: &Repository,
        late: &Arc<AtomicBool>,
    ) -> Result<(), GitError> {
        let index = repository.index()?;
        super::submodules::add(repository, &index, late, |path| {
            self.columns.entry(path).or_default().worktree = Some(Letter::Modified);
        })
    }
}

/// Whether a tracked file has another size than the index knows, which makes it modified for git whatever its
/// content: the usual edit, told without setting up a whole comparison.
fn is_plainly_modified(repository: &Repository, path: &BString) -> Result<bool, GitError> {
    use gix::index::entry::{Flags, Mode, Stage};

    let index = repository.index()?;
    let Some(entry) = index.entry_by_path_and_stage(path.as_bstr(), Stage::Unconflicted) else {
        return Ok(false);
    };
    let hidden = Flags::SKIP_WORKTREE | Flags::ASSUME_VALID | Flags::INTENT_TO_ADD;
    if !matches!(entry.mode, Mode::FILE | Mode::FILE_EXECUTABLE) || entry.flags.intersects(hidden) {
        return Ok(false);
    }
    // A size of zero may stand for one that is not known.
    let known = u64::from(entry.stat.size);
    let size = repository
        .inner
        .workdir_path(path)
        .and_then(|place| place.symlink_metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len() & u64::from(u32::MAX));
    if known == 0 || size.is_none_or(|size| size == known) {
        return Ok(false);
    }
    Ok(!lfs::is_pointer(&repository.inner, entry.id))
}

/// Whether a link took the place of a file or a file that of a link: gix takes a link for an executable file
/// whose permission changed, because links may be executed.
fn changed_type(repository: &Repository, path: &BString, mode: gix::index::entry::Mode) -> bool {
    let Some(place) = repository.inner.workdir_path(path) else {
        return false;
    };
    let was_link = mode == gix::index::entry::Mode::SYMLINK;
    place
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_symlink() != was_link)
}

/// What git lists under a root now.
pub(crate) fn list(repository: &Repository, late: &Arc<AtomicBool>) -> Result<Listed, GitError> {
    Ok(Listing::new(repository, late)?.listed(repository))
}

fn failed(error: gix::Error) -> GitError {
    GitError::Status(innermost(&error))
}

/// A pathspec that means exactly this path of the repository, and what is under it.
fn literal(path: &[u8]) -> BString {
    let mut pattern = BString::from(":(top,literal)");
    pattern.extend_from_slice(path);
    pattern
}

/// A nested repository is listed as one entry with a final `/`, like git does.
fn untracked_path(entry: gix::dir::Entry) -> BString {
    let is_directory = is_directory(&entry);
    let mut path = entry.rela_path;
    if is_directory {
        path.push(b'/');
    }
    path
}

fn is_directory(entry: &gix::dir::Entry) -> bool {
    use gix::dir::entry::Kind;
    matches!(entry.disk_kind, Some(Kind::Directory | Kind::Repository))
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
