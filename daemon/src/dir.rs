//! Directories by handle, and files that are what they seem.
//!
//! A project's directory may hold anything: links that lead elsewhere, a FIFO that would block whoever opens it,
//! a hard link to a file that isn't ours. Everything the store reads and writes goes through a [`Dir`],
//! which is opened once and then used by handle, so that nothing swapped in its path counts, and
//! which follows no link.

#[cfg_attr(unix, path = "dir/unix.rs")]
#[cfg_attr(windows, path = "dir/windows.rs")]
mod os;

pub(crate) use os::{Dir, Lock, Stat, distrusted};

#[cfg(test)]
pub(crate) mod fault;

use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::os::{User, open_regular};
use serde::{Deserialize, Serialize};

/// Outside tests nothing is made to fail.
#[cfg(not(test))]
mod fault {
    #[expect(clippy::unnecessary_wraps, reason = "its double in tests fails")]
    pub(super) fn point(_operation: &'static str) -> std::io::Result<()> {
        Ok(())
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct FileRead {
    pub(crate) bytes: Vec<u8>,
    /// Who owns it, where that isn't this user.
    pub(crate) foreign_owner: Option<User>,
}

/// Why a file can't be read as a checkpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it doesn't exist")]
    Missing,
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    #[error("it has {0} hard links: it is a file of something else, too")]
    Linked(u64),
    #[error("it is larger than {} KiB", .0 / 1024)]
    TooLarge(u64),
    #[error("it can't be read ({0})")]
    Io(io::Error),
}

/// The first 4 KiB of a regular file, as text.
pub(crate) fn read_start(path: &Path) -> io::Result<String> {
    let file = open_regular(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text)?;
    Ok(text)
}

/// What changes when a file's content does: modification and change time (seconds and nanoseconds since 1970), size,
/// inode, device. `touch -r` and `cp -p` set the first and can't set the second. Of a directory, only which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signature {
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
    inode: u64,
    device: u64,
    mode: u32,
}

impl Signature {
    /// Whether what was looked at after `looked_at` can't have changed since without its signature telling: the last
    /// change is further back than the file system's clock is coarse. The kernel's own ticks take up to
    /// 10 ms (16 on Windows); a file system that stores whole seconds only may round to two of them (FAT).
    pub(crate) fn is_settled(&self, looked_at: SystemTime) -> bool {
        let latest = self.modified.max(self.changed);
        let grain = if self.changed.1 == 0 {
            Duration::from_secs(3)
        } else {
            Duration::from_millis(30)
        };
        let (Ok(seconds), Ok(nanoseconds)) = (u64::try_from(latest.0), u64::try_from(latest.1))
        else {
            return false;
        };
        let changed = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds);
        looked_at
            .duration_since(changed)
            .is_ok_and(|since| since > grain)
    }

    /// When content was last written, in nanoseconds since 1970.
    pub(crate) fn modified(&self) -> i128 {
        i128::from(self.modified.0) * 1_000_000_000 + i128::from(self.modified.1)
    }
}
