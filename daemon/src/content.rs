//! What stands at a path of a root: the git blob hash of its raw content.
//!
//! Content is read without following links, without opening anything but regular files (a FIFO would
//! block), in a stream, and checked to have stood still meanwhile. A path behind a symlinked
//! directory is gone, as it is for git.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::hash::Kind as HashKind;

use crate::checkpoint::facts::Content;
use crate::dir;

/// Larger files get no hash (contract §5).
const MAX_HASHED: u64 = 64 * 1024 * 1024;
/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// Examines `path`, relative to `root` and `/`-separated. `late` ends it: what isn't known by then is unknown.
pub(crate) fn examine(root: &Path, path: &str, hash: HashKind, late: &AtomicBool) -> Content {
    if late.load(Ordering::Relaxed) {
        return Content::Unknown("it was not examined in time".to_owned());
    }
    match find(root, path, hash, late) {
        Ok(content) => content,
        Err(error) if is_gone(&error) => Content::Gone,
        Err(error) => Content::Unknown(format!("it can't be read ({error})")),
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn find(root: &Path, path: &str, hash: HashKind, late: &AtomicBool) -> io::Result<Content> {
    let mut place = root.to_path_buf();
    let mut components = path.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = components.next() {
        place.push(name);
        if components.peek().is_some() && !place.symlink_metadata()?.is_dir() {
            return Ok(Content::Gone);
        }
    }
    let metadata = place.symlink_metadata()?;
    if metadata.is_symlink() {
        let target = place.read_link()?;
        let target = gix::path::into_bstr(target).map_err(io::Error::other)?;
        return Ok(blob(hash, &target));
    }
    if metadata.is_file() {
        return hash_file(&place, hash, late);
    }
    Ok(Content::Other(if metadata.is_dir() {
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
        let mut file = dir::open_regular(path)?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Ok(Content::Other("it is no regular file".to_owned()));
        }
        if before.len() > MAX_HASHED {
            return Ok(Content::Other("it is over 64 MiB".to_owned()));
        }
        let id = gix::objs::compute_stream_hash(
            hash,
            gix::objs::Kind::Blob,
            &mut file,
            before.len(),
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

fn stood_still(file: &File, before: &std::fs::Metadata) -> io::Result<bool> {
    let after = file.metadata()?;
    Ok(dir::signature(before) == dir::signature(&after))
}
