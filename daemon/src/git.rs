//! git, by gix: a repository as facts about one root. Reads only; runs no program and no hook.
//!
//! What a repository's own files say is not trusted to run anything: `filter` sections leave the opened
//! configuration, fsmonitor is never asked, no variable of the environment redirects anything.
//! The root need not be the top level: paths are made relative to it, and what lies outside is left out.
//! No gix type leaves this module.

mod history;
mod lfs;
mod status;
mod submodules;
mod surroundings;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix::bstr::{BString, ByteSlice as _};
use gix::hash::Kind as HashKind;
use protocol::{files, os};

use crate::checkpoint::model::{GitState, Unknown};
use crate::dir;

pub(crate) use history::since;
pub(crate) use status::{Listed, Listing, list};
pub(crate) use surroundings::path_in_root;

/// An opened repository, and where the root lies in it.
pub(crate) struct Repository {
    inner: gix::Repository,
    /// The root relative to the top level, `/`-separated, with a final `/` unless it is the top level.
    prefix: BString,
}

/// Why git's facts can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    #[error("the repository at `{}` belongs to another user (git would ask for `safe.directory`)", .0.display())]
    Untrusted(PathBuf),
    #[error("`{}` uses the reftable format, which is not supported yet", .0.display())]
    Reftable(PathBuf),
    #[error("the link `{}` leads to no repository ({reason})", .path.display())]
    BrokenLink { path: PathBuf, reason: String },
    #[error("the repository at `{}` can't be read ({reason})", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("git's status could not be told ({0})")]
    Status(String),
    #[error("git's status was not known in time")]
    Late,
}

/// The repository that `root` lies in, if it lies in one.
pub(crate) fn open(root: &Path) -> Result<Option<Repository>, GitError> {
    for top in root.ancestors() {
        let candidate = top.join(".git");
        let Ok(metadata) = candidate.metadata() else {
            // A dangling link is a broken repository, not a reason to climb into another one.
            if candidate.is_symlink() {
                return Err(GitError::BrokenLink {
                    path: candidate,
                    reason: "nothing is there".to_owned(),
                });
            }
            continue;
        };
        // Like git: a directory that isn't a repository is passed over, a file must lead to one.
        if metadata.is_dir()
            && gix::discover::is_git(&candidate).is_err()
            && !is_reftable(&candidate)
        {
            continue;
        }
        let repository = open_at(top, &candidate, metadata.is_file())?;
        if repository.workdir().is_none() {
            return Ok(None);
        }
        let prefix = root.strip_prefix(top).unwrap_or(Path::new(""));
        let prefix = gix::path::into_bstr(prefix).map_err(|error| GitError::Unreadable {
            path: top.to_path_buf(),
            reason: innermost(&error),
        })?;
        let mut prefix = gix::path::to_unix_separators_on_windows(prefix).into_owned();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        return Ok(Some(Repository {
            inner: repository,
            prefix,
        }));
    }
    Ok(None)
}

fn open_at(top: &Path, dot_git: &Path, is_link: bool) -> Result<gix::Repository, GitError> {
    match gix::ThreadSafeRepository::open_opts(top, options()) {
        Ok(repository) => without_filters(repository.to_thread_local()),
        Err(_) if is_reftable(dot_git) => Err(GitError::Reftable(top.to_path_buf())),
        Err(_) if is_foreign(dot_git) => Err(GitError::Untrusted(top.to_path_buf())),
        Err(error) if is_link => Err(GitError::BrokenLink {
            path: dot_git.to_path_buf(),
            reason: innermost(&error),
        }),
        Err(error) => Err(GitError::Unreadable {
            path: top.to_path_buf(),
            reason: innermost(&error),
        }),
    }
}

fn options() -> gix::open::Options {
    use gix::open::permissions::{Attributes, Config, Environment};
    let allow = gix::sec::Permission::Allow;
    gix::open::Options::default()
        .permissions(gix::open::Permissions {
            env: Environment {
                xdg_config_home: allow,
                home: allow,
                ..Environment::isolated()
            },
            config: Config {
                env: false,
                git_binary: false,
                ..Config::all()
            },
            attributes: Attributes {
                git_binary: false,
                ..Attributes::all()
            },
        })
        .bail_if_untrusted(true)
}

/// Takes every `filter` section out of the configuration, so that no clean or process command that a
/// file names is ever run.
fn without_filters(mut repository: gix::Repository) -> Result<gix::Repository, GitError> {
    let names: Vec<_> = repository
        .config_snapshot()
        .sections_by_name("filter")
        .into_iter()
        .flatten()
        .map(|section| section.header().subsection_name().map(ToOwned::to_owned))
        .collect();
    if names.is_empty() {
        return Ok(repository);
    }
    let path = repository.path().to_path_buf();
    let mut config = repository.config_snapshot_mut();
    for name in names {
        config.remove_section("filter", name.as_ref().map(|name| name.as_ref()));
    }
    match config.commit() {
        Ok(_) => Ok(repository),
        Err(error) => Err(GitError::Unreadable {
            path,
            reason: innermost(&error),
        }),
    }
}

fn is_reftable(dot_git: &Path) -> bool {
    dot_git.join("reftable").is_dir()
}

fn is_foreign(path: &Path) -> bool {
    os::canonical(path)
        .ok()
        .and_then(|path| os::owner(&path))
        .is_some_and(|owner| owner != os::user())
}

/// The message that says most: errors of gix wrap each other.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl Repository {
    /// The algorithm that names this repository's objects.
    pub(crate) fn hash_kind(&self) -> HashKind {
        self.inner.object_hash()
    }

    /// The index as it is now; read again only when its file changed.
    fn index(&self) -> Result<gix::worktree::Index, GitError> {
        self.inner
            .index_or_empty()
            .map_err(|error| GitError::Status(innermost(&error)))
    }

    /// Branch and head; `None` before the first commit. Whether anything is dirty is not known here.
    pub(crate) fn head(&self) -> Result<Option<GitState>, GitError> {
        let head = self.inner.head().map_err(|error| self.unreadable(&error))?;
        let branch = head.referent_name().map(|name| name.shorten().to_string());
        let head = match self.inner.head_id() {
            Ok(id) => id.to_string(),
            Err(_) if head.is_unborn() => return Ok(None),
            Err(error) => return Err(self.unreadable(&error)),
        };
        Ok(Some(GitState {
            branch,
            head,
            dirty: false,
            unknown: Unknown::new(),
        }))
    }

    /// The checkpoint files of the root that the index holds.
    pub(crate) fn tracked_checkpoints(&self) -> BTreeSet<String> {
        let Ok(index) = self.inner.index_or_empty() else {
            return BTreeSet::new();
        };
        index
            .prefixed_entries(self.in_repository(files::LEGACY_FILE).as_ref())
            .unwrap_or_default()
            .iter()
            .filter_map(|entry| self.in_root(entry.path(&index)))
            .collect()
    }

    /// Which of these checkpoint files git tracks, or would offer to add once they are written.
    pub(crate) fn exposed(&self, root: &Path, ours: &[String]) -> Vec<String> {
        let Ok(index) = self.inner.index_or_empty() else {
            return Vec::new();
        };
        // Where it is missing, the directory gets one that hides everything in it.
        let own_rules = root.join(files::DIRECTORY).join(".gitignore");
        let hides_itself = match dir::read_start(&own_rules) {
            Ok(rules) => {
                rules.lines().any(|rule| rule == "*")
                    && !rules.lines().any(|rule| rule.starts_with('!'))
            }
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        let excludes = || {
            let source =
                gix::worktree::stack::state::ignore::Source::WorktreeThenIdMappingIfNotSkipped;
            self.inner.excludes(&index, None, source).ok()
        };
        let mut stack = None;
        let mut exposed = ours.to_vec();
        exposed.retain(|path| {
            let full = self.in_repository(path);
            if index.entry_by_path(full.as_ref()).is_some() {
                return true;
            }
            let in_directory = path.starts_with(files::DIRECTORY);
            if in_directory && hides_itself {
                return false;
            }
            stack
                .get_or_insert_with(excludes)
                .as_mut()
                .is_some_and(|stack| {
                    stack
                        .at_entry(full.as_bstr(), None)
                        .is_ok_and(|place| !place.is_excluded())
                })
        });
        exposed
    }

    fn unreadable(&self, error: &gix::Error) -> GitError {
        GitError::Unreadable {
            path: self.inner.path().to_path_buf(),
            reason: innermost(error),
        }
    }

    /// A path of the root as the repository knows it.
    fn in_repository(&self, path: &str) -> BString {
        let mut full = self.prefix.clone();
        full.extend_from_slice(path.as_bytes());
        full
    }

    /// A path of the repository as the root knows it; `None` for what lies outside.
    fn in_root(&self, path: &[u8]) -> Option<String> {
        let path = path.strip_prefix(self.prefix.as_slice())?;
        Some(String::from_utf8_lossy(path).into_owned())
    }
}

fn is_late(late: &AtomicBool) -> bool {
    late.load(std::sync::atomic::Ordering::Relaxed)
}
