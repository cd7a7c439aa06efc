//! Files behind a filter, without running it.
//!
//! A file whose attributes name a `filter` has other content in the worktree than in the index; only the
//! filter's program could tell whether they belong together, and it is never run. For Git LFS the
//! pointer in the index says it: size and SHA-256 of the content.
//! <https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>

use std::io::Read as _;

use gix::bstr::{BStr, ByteSlice as _};
use protocol::os;
use sha2::{Digest as _, Sha256};

use crate::sha256;

/// A pointer is far smaller; anything larger is content.
const MAX_POINTER: u64 = 1024;

/// Tells which modified files are only filtered.
pub(super) struct Filtered<'repo> {
    repository: &'repo gix::Repository,
    attributes: Option<(gix::AttributeStack<'repo>, gix::attrs::search::Outcome)>,
}

impl<'repo> Filtered<'repo> {
    pub(super) fn new(repository: &'repo gix::Repository, index: &gix::index::State) -> Self {
        let attributes = repository
            .attributes_only(
                index,
                gix::worktree::stack::state::attributes::Source::WorktreeThenIdMapping,
            )
            .ok()
            .map(|stack| {
                let outcome = stack.selected_attribute_matches(["filter"]);
                (stack, outcome)
            });
        Filtered {
            repository,
            attributes,
        }
    }

    /// Whether the file at `path` is behind a filter and what the index's LFS pointer describes.
    pub(super) fn is_unchanged(&mut self, path: &BStr, entry: &gix::index::Entry) -> bool {
        self.has_filter(path) && self.matches_pointer(path, entry).unwrap_or(false)
    }

    fn has_filter(&mut self, path: &BStr) -> bool {
        let Some((stack, outcome)) = &mut self.attributes else {
            return false;
        };
        let Ok(place) = stack.at_entry(path, None) else {
            return false;
        };
        place.matching_attributes(outcome)
            && outcome
                .iter_selected()
                .any(|found| matches!(found.assignment.state, gix::attrs::StateRef::Value(_)))
    }

    fn matches_pointer(&self, path: &BStr, entry: &gix::index::Entry) -> Option<bool> {
        let (oid, size) = find_pointer(self.repository, entry.id)?;
        let place = self.repository.workdir_path(path)?;
        let mut file = os::open_regular(&place).ok()?;
        if file.metadata().ok()?.len() != size {
            return Some(false);
        }
        let mut hash = Sha256::new();
        let mut buffer = [0; 64 * 1024];
        loop {
            match file.read(&mut buffer).ok()? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        Some(sha256::hex(&hash.finalize()) == oid)
    }
}

/// Whether a file with this blob has to be compared by what a pointer says; so does one whose blob can't be read.
pub(super) fn is_pointer(repository: &gix::Repository, id: gix::ObjectId) -> bool {
    repository.find_header(id).is_err() || find_pointer(repository, id).is_some()
}

fn find_pointer(repository: &gix::Repository, id: gix::ObjectId) -> Option<(String, u64)> {
    if repository.find_header(id).ok()?.size() > MAX_POINTER {
        return None;
    }
    pointer(&repository.find_object(id).ok()?.data)
}

/// The SHA-256 and the size that a pointer names.
fn pointer(data: &[u8]) -> Option<(String, u64)> {
    let text = data.to_str().ok()?;
    let mut lines = text.lines();
    if !lines
        .next()?
        .starts_with("version https://git-lfs.github.com/spec/")
    {
        return None;
    }
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let oid = value("oid sha256:")?.to_owned();
    let size = value("size ")?.parse().ok()?;
    Some((oid, size))
}
