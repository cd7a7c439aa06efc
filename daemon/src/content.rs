//! What stands at a path of a root: the git blob hash of its raw content.
//!
//! Content is read without following links, without opening anything but regular files (a FIFO would
//! block), in a stream, and checked to have stood still meanwhile. A path behind a symlinked
//! directory is gone, as it is for git. What was read once is not read again while the file's signature stays the
//! same, unless it changed so shortly before it was read that a later change might not show.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use gix::hash::Kind as HashKind;
use protocol::os;

use crate::cache::Cache;
use crate::checkpoint::facts::Content;
use crate::dir::{Signature, Stat};

/// Larger files get no hash (contract §5).
const MAX_HASHED: u64 = 64 * 1024 * 1024;
/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// What was found out about a project's paths, for as long as their signatures say that it holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    known: HashMap<String, (Signature, Content)>,
    cache: Option<Arc<Cache>>,
    /// Within one call: which directories are real ones, and when files were last written.
    directories: HashMap<PathBuf, bool>,
    modified: HashMap<String, i128>,
}

/// Paths that are remembered; beyond that, all are forgotten.
const MAX_KNOWN: usize = 50_000;

impl Contents {
    /// Contents that remember hashes beyond the process.
    pub(crate) fn new(cache: Option<Arc<Cache>>) -> Contents {
        Contents {
            cache,
            ..Contents::default()
        }
    }

    /// Begins a call: what was seen of directories before it may not hold any more.
    pub(crate) fn begin(&mut self) {
        self.directories.clear();
        self.modified.clear();
    }

    /// When the content at a path examined in this call was last written, in nanoseconds since 1970; 0 where nothing
    /// is.
    pub(crate) fn modified(&self, path: &str) -> i128 {
        self.modified.get(path).copied().unwrap_or_default()
    }

    /// Examines `path`, relative to `root` and `/`-separated. `late` ends it: what isn't known by then is unknown.
    pub(crate) fn examine(
        &mut self,
        root: &Path,
        path: &str,
        hash: HashKind,
        late: &AtomicBool,
    ) -> Content {
        if late.load(Ordering::Relaxed) {
            return Content::Unknown("it was not examined in time".to_owned());
        }
        match self.find(root, path, hash, late) {
            Ok(content) => content,
            Err(error) if is_gone(&error) => Content::Gone,
            Err(error) => Content::Unknown(format!("it can't be read ({error})")),
        }
    }

    fn find(
        &mut self,
        root: &Path,
        path: &str,
        hash: HashKind,
        late: &AtomicBool,
    ) -> io::Result<Content> {
        let path = path.trim_end_matches('/');
        let place = root.join(path);
        if !self.is_under_directories(root, &place) {
            return Ok(Content::Gone);
        }
        let looked_at = SystemTime::now();
        let stat = Stat::at(&place)?;
        let signature = stat.signature();
        self.modified.insert(path.to_owned(), signature.modified());
        if let Some((known, content)) = self.known.get(path)
            && *known == signature
        {
            return Ok(content.clone());
        }
        let settled = signature.is_settled(looked_at);
        if settled
            && let Some(cache) = &self.cache
            && let Some(id) = cache.get(&place, &signature, hash)
        {
            let content = Content::Hash(id);
            self.remember(path, signature, &content);
            return Ok(content);
        }
        let content = read(&place, &stat, hash, late)?;
        if settled && let Content::Hash(id) = &content {
            self.remember(path, signature, &content);
            if let Some(cache) = &self.cache {
                cache.put(&place, &signature, id);
            }
        }
        Ok(content)
    }

    /// Whether everything between the root and a path is a directory, and no link to one.
    fn is_under_directories(&mut self, root: &Path, place: &Path) -> bool {
        let Some(parent) = place.parent().filter(|parent| *parent != root) else {
            return true;
        };
        if let Some(known) = self.directories.get(parent) {
            return *known;
        }
        let real = self.is_under_directories(root, parent)
            && parent
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir());
        self.directories.insert(parent.to_path_buf(), real);
        real
    }

    fn remember(&mut self, path: &str, signature: Signature, content: &Content) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known
            .insert(path.to_owned(), (signature, content.clone()));
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn read(place: &Path, stat: &Stat, hash: HashKind, late: &AtomicBool) -> io::Result<Content> {
    if stat.is_symlink() {
        let target = place.read_link()?;
        let target = gix::path::into_bstr(target).map_err(io::Error::other)?;
        return Ok(blob(hash, &target));
    }
    if stat.is_file() {
        return hash_file(place, hash, late);
    }
    Ok(Content::Other(if stat.is_dir() {
        "it is a directory".to_owned()
    } else {
        "it is no regular file".to_owned()
    }))
}

fn blob(hash: HashKind, data: &[u8]) -> Content {
    match gix::objs::compute_hash(hash, gix::objs::Kind::Blob, data) {
        Ok(id) => Content::Hash(id.to_string()),
        Err(error) => Content::Unknown(error.to_string()),
    }
}

fn hash_file(path: &Path, hash: HashKind, late: &AtomicBool) -> io::Result<Content> {
    for _ in 0..ATTEMPTS {
        let mut file = os::open_regular(path)?;
        let before = Stat::of(&file)?;
        if !before.is_file() {
            return Ok(Content::Other("it is no regular file".to_owned()));
        }
        if before.size() > MAX_HASHED {
            return Ok(Content::Other("it is over 64 MiB".to_owned()));
        }
        let id = gix::objs::compute_stream_hash(
            hash,
            gix::objs::Kind::Blob,
            &mut file,
            before.size(),
            &mut gix::progress::Discard,
            late,
        );
        if late.load(Ordering::Relaxed) {
            return Ok(Content::Unknown("it was not examined in time".to_owned()));
        }
        if let Ok(id) = id
            && stood_still(&file, &before)?
        {
            return Ok(Content::Hash(id.to_string()));
        }
    }
    Ok(Content::Unknown("it changes while it is read".to_owned()))
}

fn stood_still(file: &File, before: &Stat) -> io::Result<bool> {
    Ok(Stat::of(file)?.signature() == before.signature())
}
