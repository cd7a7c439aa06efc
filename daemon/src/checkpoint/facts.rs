//! What was found out about a work tree, as plain values: the daemon's side of a checkpoint.
//!
//! Whoever examines the tree (today at each call) fills these in; the core compares and records them
//! and never asks how they were found.

use std::collections::{BTreeMap, BTreeSet};

use super::model::GitState;

/// The facts of one root at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Branch, head and dirtiness; `None` outside git, before the first commit, and where
    /// git could not be read.
    pub git: Option<GitState>,
    /// What git lists as different from HEAD, tracked files by path, then untracked ones by path.
    pub changed: Vec<ChangedFile>,
    /// Paths that the index renamed, old → new: gone, and listed under their new names alone.
    pub renamed: BTreeMap<String, String>,
    /// The content of the paths that were asked for, and of those in `changed`.
    pub contents: BTreeMap<String, Content>,
    /// Why `changed` lacks files, or `None` if it is whole.
    pub incomplete: Option<String>,
    /// The checkpoint files that git tracks, relative to the root.
    pub tracked: BTreeSet<String>,
    /// The checkpoint files of this save that git tracks or would offer to add.
    pub exposed: Vec<String>,
    /// What the user should know: git that could not be read, and why.
    pub warnings: Vec<String>,
}

/// A path that differs from HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedFile {
    /// Relative to the root, `/`-separated.
    pub path: String,
    /// One porcelain letter, or `??`.
    pub status: &'static str,
    /// When its content was last written, in nanoseconds since 1970; 0 where it is gone.
    pub modified: i128,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file or link with this blob hash.
    Hash(String),
    /// Nothing.
    Gone,
    /// Something that has no blob hash, and why: a directory, a FIFO, a file that is too large.
    Other(String),
    /// It could not be examined.
    Unknown(String),
}

impl Content {
    /// The blob hash, where there is one.
    pub fn hash(&self) -> Option<&str> {
        match self {
            Content::Hash(hash) => Some(hash),
            _ => None,
        }
    }
}

/// How HEAD relates to the commit of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    /// Nothing to compare: no git then or now.
    None,
    /// The saved commit is HEAD or an ancestor of it.
    Ahead {
        /// Commits on HEAD that are not in the saved one.
        commits: u64,
    },
    /// HEAD is on other history, and a branch still has the saved commit.
    Elsewhere,
    /// No branch has the saved commit any more.
    Unreachable,
    /// It could not be told, and why.
    Unknown(String),
}

/// What a load needs to know beyond [`Facts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    /// How HEAD relates to the saved commit.
    pub history: History,
    /// The paths under the root in which the trees of the saved commit and of HEAD differ; `None` where
    /// the saved commit is gone.
    pub committed: Option<BTreeSet<String>>,
    /// Paths that these commits renamed, old → new.
    pub renamed: BTreeMap<String, String>,
    /// The blob hashes, in the saved commit, of the paths in `committed` and of what git lists now; a
    /// path without an entry did not exist then.
    pub saved_blobs: BTreeMap<String, String>,
}

impl Since {
    /// Where there is no git to compare with.
    pub fn nothing() -> Since {
        Since {
            history: History::None,
            committed: None,
            renamed: BTreeMap::new(),
            saved_blobs: BTreeMap::new(),
        }
    }
}

impl Facts {
    /// The paths that git lists.
    pub fn changed_paths(&self) -> BTreeSet<&str> {
        self.changed.iter().map(|file| file.path.as_str()).collect()
    }
}
