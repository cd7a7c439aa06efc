//! The process on Unix: who runs it, and how it lets go of whoever started it.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// The effective user.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
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

/// From now on, what this process makes is for its user alone.
pub(crate) fn make_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Makes this process the leader of a session of its own, without a terminal, in no directory that
/// anybody may want to unmount.
pub(crate) fn detach() -> io::Result<()> {
    // Already a leader: then there is nothing to leave.
    if let Err(error) = rustix::process::setsid()
        && error != rustix::io::Errno::PERM
    {
        return Err(error.into());
    }
    Ok(rustix::process::chdir("/")?)
}

/// Lets go of standard output, on which readiness was told.
pub(crate) fn release_stdout() -> io::Result<()> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(null.as_fd())?)
}
