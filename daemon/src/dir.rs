//! Directories by handle, and files that are what they seem.
//!
//! A project's directory may hold anything: links that lead elsewhere, a FIFO that would block whoever opens it,
//! a hard link to a file that isn't ours. Everything the store reads and writes goes through a [`Dir`],
//! which is opened once and then used by handle, so that nothing swapped in its path counts, and
//! which follows no link.

#[cfg(unix)]
mod unix;

#[cfg(unix)]
pub(crate) use unix::{
    Dir, Lock, Signature, distrusted, identity, is_settled, modified, open_regular, read_start,
    signature,
};

#[cfg(test)]
pub(crate) mod fault;

use std::io;

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
    pub(crate) foreign_owner: Option<u32>,
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
