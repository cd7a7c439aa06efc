//! The process on Unix: whose it is, what it becomes, and locks.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The effective user.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Replaces this process; returns only if that fails.
pub(crate) fn become_program(program: &Path, argument: &str) -> io::Error {
    Command::new(program).arg(argument).exec()
}

/// Makes a directory for this user alone, unless it exists.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file of this user's for appending, whoever may read along.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    // What is no file must not keep anybody waiting.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Opens a regular file for reading, through no link and without waiting for a writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Connects to a socket of this user's, at once or not at all.
pub(crate) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    let peer = socket.symlink_metadata()?.uid();
    match peer == user() {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
