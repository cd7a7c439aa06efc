//! The process on Unix: who runs it, and how it lets go of whoever started it.

use std::io;
use std::os::fd::AsFd as _;

/// The effective user.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
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
