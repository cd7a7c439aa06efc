//! What a listing depends on beside the files it lists: git's own files, and the directories in which
//! something may appear.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gix::bstr::{BString, ByteSlice as _};
use protocol::files;

use super::{GitError, Repository, innermost};

impl Repository {
    /// The files that make a listing stale when they change, whether they exist or not: index and HEAD, every
    /// configuration file, and the rules for ignoring and attributes that lie outside the root.
    pub(crate) fn control_files(&self, root: &Path) -> Vec<PathBuf> {
        let repo = &self.inner;
        let own = repo.git_dir();
        let common = repo.common_dir();
        let mut control = vec![
            repo.index_path(),
            own.join("HEAD"),
            own.join("config.worktree"),
            own.join("info/sparse-checkout"),
            common.join("config"),
            common.join("info/exclude"),
            common.join("info/attributes"),
        ];
        let config = repo.config_snapshot();
        control.extend(
            config
                .plumbing()
                .sections()
                .filter_map(|section| section.meta().path.clone()),
        );
        for key in ["core.excludesFile", "core.attributesFile"] {
            if let Ok(Some(path)) = config.trusted_path(key) {
                control.push(path);
            }
        }
        let home = std::env::home_dir();
        let xdg = std::env::var_os("XDG_CONFIG_HOME")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
            .or_else(|| home.as_ref().map(|home| home.join(".config")));
        control.extend(home.map(|home| home.join(".gitconfig")));
        for name in ["config", "ignore", "attributes"] {
            control.extend(xdg.as_ref().map(|xdg| xdg.join("git").join(name)));
        }
        // The root itself is watched; what lies above it in the repository is not.
        if let Some(top) = repo.workdir() {
            control.push(top.join(".git"));
            let above = root
                .ancestors()
                .skip(1)
                .take_while(|path| path.starts_with(top));
            for directory in above {
                control.push(directory.join(".gitignore"));
                control.push(directory.join(".gitattributes"));
            }
        }
        control.sort();
        control.dedup();
        control
    }

    /// Whether anything in the index is a submodule.
    pub(crate) fn has_submodules(&self) -> bool {
        self.index().is_ok_and(|index| {
            let mut entries = index.entries().iter();
            entries.any(|entry| entry.mode == gix::index::entry::Mode::COMMIT)
        })
    }

    /// Calls `enter`, until it returns false, with each directory at or under `from` in which something can appear that git would list,
    /// before it is read: those that aren't ignored, and those that hold tracked files all the same. What is
    /// inside another repository is not entered, but that repository's own directory is.
    pub(crate) fn directories(
        &self,
        root: &Path,
        from: &Path,
        mut enter: impl FnMut(PathBuf) -> bool,
    ) -> Result<(), GitError> {
        let index = self.index()?;
        let mut excludes = self
            .inner
            .excludes(
                &index,
                None,
                gix::worktree::stack::state::ignore::Source::WorktreeThenIdMappingIfNotSkipped,
            )
            .map_err(|error| GitError::Status(innermost(&error)))?;
        let tracked = self.tracked_directories(root, &index);
        let mut left = vec![from.to_path_buf()];
        while let Some(directory) = left.pop() {
            let is_repository =
                directory != root && directory.join(".git").symlink_metadata().is_ok();
            if !enter(directory.clone()) {
                return Ok(());
            }
            if is_repository {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue; // gone again, or not ours to read: git sees nothing in it either
            };
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if !is_directory || name == ".git" || name.to_str().is_some_and(files::is_ours) {
                    continue;
                }
                let path = entry.path();
                let is_ignored = match self.path_in_repository(root, &path) {
                    Some(full) => excludes
                        .at_entry(full.as_bstr(), Some(gix::index::entry::Mode::DIR))
                        .is_ok_and(|place| place.is_excluded()),
                    None => true,
                };
                if tracked.contains(&path) || !is_ignored {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    /// Whether nothing in this directory can be listed, because an ignore rule covers it and nothing in it is tracked.
    pub(crate) fn is_ignored_directory(&self, root: &Path, path: &Path) -> bool {
        let (Ok(index), Some(full)) = (self.index(), self.path_in_repository(root, path)) else {
            return false;
        };
        let mut under = full.clone();
        under.push(b'/');
        if index
            .prefixed_entries(under.as_bstr())
            .is_some_and(|entries| !entries.is_empty())
        {
            return false;
        }
        self.is_ignored(&index, &full)
    }

    /// What the directory at a path of the repository is.
    pub(super) fn is_repository(&self, path: &BString) -> Result<Nested, GitError> {
        let place = self.inner.workdir_path(path);
        if place.is_none_or(|place| gix::discover::is_git(&place.join(".git")).is_err()) {
            return Ok(Nested::No);
        }
        let index = self.index()?;
        let entry = index.entry_by_path(path.as_bstr());
        if entry.is_some_and(|entry| entry.mode == gix::index::entry::Mode::COMMIT) {
            return Ok(Nested::Submodule);
        }
        let mut under = path.clone();
        under.push(b'/');
        let tracked = entry.is_some()
            || index
                .prefixed_entries(under.as_bstr())
                .is_some_and(|entries| !entries.is_empty());
        if tracked {
            return Ok(Nested::AmongTracked);
        }
        Ok(if self.is_ignored(&index, path) {
            Nested::Ignored
        } else {
            Nested::Listed
        })
    }

    fn is_ignored(&self, index: &gix::index::State, directory: &BString) -> bool {
        let excludes = self.inner.excludes(
            index,
            None,
            gix::worktree::stack::state::ignore::Source::WorktreeThenIdMappingIfNotSkipped,
        );
        excludes.is_ok_and(|mut excludes| {
            excludes
                .at_entry(directory.as_bstr(), Some(gix::index::entry::Mode::DIR))
                .is_ok_and(|place| place.is_excluded())
        })
    }

    fn tracked_directories(&self, root: &Path, index: &gix::index::State) -> BTreeSet<PathBuf> {
        let mut directories = BTreeSet::new();
        let mut last = BString::default();
        for entry in index.entries() {
            let Some(path) = entry.path(index).strip_prefix(self.prefix.as_slice()) else {
                continue;
            };
            let Some(end) = path.rfind_byte(b'/') else {
                continue;
            };
            // Entries are sorted, so neighbours mostly share their directory.
            if last.as_slice() == &path[..end] {
                continue;
            }
            last = path[..end].into();
            let Ok(relative) = gix::path::from_bstr(last.as_bstr()) else {
                continue;
            };
            let mut directory = root.join(relative);
            while directory != root && directories.insert(directory.clone()) {
                directory.pop();
            }
        }
        directories
    }

    /// A path under the root as the repository knows it.
    pub(crate) fn path_in_repository(&self, root: &Path, path: &Path) -> Option<BString> {
        let mut full = self.prefix.clone();
        full.extend_from_slice(&path_in_root(root, path)?);
        Some(full)
    }
}

/// What a directory is that may be the top of another repository.
pub(super) enum Nested {
    /// It is none.
    No,
    /// One that git lists as a whole.
    Listed,
    /// One that an ignore rule covers.
    Ignored,
    /// One that the index knows as such: it is looked at with all of them.
    Submodule,
    /// One in whose place or under which files are tracked: git looks at those.
    AmongTracked,
}

/// A path under the root as bytes relative to it, `/`-separated.
pub(crate) fn path_in_root(root: &Path, path: &Path) -> Option<BString> {
    let relative = gix::path::into_bstr(path.strip_prefix(root).ok()?).ok()?;
    Some(gix::path::to_unix_separators_on_windows(relative).into_owned())
}
