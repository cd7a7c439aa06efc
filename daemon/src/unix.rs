//! The process on Unix: who runs it, and how it lets go of whoever started it.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};

/// The effective user.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whose a file is.
pub(crate) fn owner(path: &Path) -> Option<u32> {
    Some(path.symlink_metadata().ok()?.uid())
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

/// Takes signals as a program expects to find them, whatever whoever started it blocked or ignored.
#[expect(unsafe_code, reason = "no safe interface has the signal mask")]
pub(crate) fn reset_signals() {
    // SAFETY: called first of all, before there is a second thread; the set is initialised before it is used, and the
    // dispositions are the system's own.
    unsafe {
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        for signal in [
            libc::SIGHUP,
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGCHLD,
            libc::SIGALRM,
        ] {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

/// A file that may not grow further is an error to tell, and not the end.
#[expect(unsafe_code, reason = "no safe interface ignores a signal")]
pub(crate) fn survive_file_limit() {
    // SAFETY: the disposition is the system's own.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// From now on, what this process makes is for its user alone.
pub(crate) fn make_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Lets this process have as many files open as it may: every session is one.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, fewer sessions are served at once.
    let _set = setrlimit(Resource::Nofile, limit);
}

/// Makes this process the leader of a session of its own, without a terminal, in no directory that
/// anybody may want to unmount, and with no file open that somebody left open for whoever comes: the reader of an
/// inherited pipe would wait for this process's end.
pub(crate) fn detach() -> io::Result<()> {
    close_inherited();
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

#[expect(
    unsafe_code,
    reason = "descriptors that others left open have no owner in this program"
)]
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/dev/fd") else {
        return;
    };
    let open: Vec<RawFd> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    // The one that the listing itself had open is closed by now.
    let is_open = |fd: &RawFd| {
        Path::new(&format!("/dev/fd/{fd}"))
            .symlink_metadata()
            .is_ok()
    };
    for fd in open.into_iter().filter(is_open) {
        // SAFETY: called first of all, before anything of this program has opened a file.
        unsafe { rustix::io::close(fd) };
    }
}

/// The socket that a service manager has handed over, its path, and who did.
pub(crate) fn activated() -> io::Result<Option<(tokio::net::UnixListener, PathBuf, &'static str)>> {
    let Some((fd, supervisor)) = handed_over()? else {
        return Ok(None);
    };
    let listener = UnixListener::from(fd);
    let path = listener
        .local_addr()?
        .as_pathname()
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other("a socket without a path"))?;
    listener.set_nonblocking(true)?;
    Ok(Some((
        tokio::net::UnixListener::from_std(listener)?,
        path,
        supervisor,
    )))
}

/// `sd_listen_fds(3)`; variables that are meant for another process are passed over.
#[cfg(not(target_os = "macos"))]
#[expect(unsafe_code, reason = "a descriptor's number is all there is of it")]
fn handed_over() -> io::Result<Option<(OwnedFd, &'static str)>> {
    let mut fds = sd_notify::listen_fds()?;
    match (fds.len(), fds.next()) {
        (0, _) | (_, None) => Ok(None),
        // SAFETY: the service manager opened it for this process, and it is taken once.
        (1, Some(fd)) => Ok(Some((unsafe { OwnedFd::from_raw_fd(fd) }, "systemd"))),
        (several, _) => Err(io::Error::other(format!(
            "there are {several} of them, and one is expected"
        ))),
    }
}

/// The sockets of the agent's property list, by the name that they have there.
#[cfg(target_os = "macos")]
#[expect(unsafe_code, reason = "launchd has a C interface alone")]
fn handed_over() -> io::Result<Option<(OwnedFd, &'static str)>> {
    use std::ffi::{c_char, c_int, c_void};
    unsafe extern "C" {
        /// <https://developer.apple.com/documentation/xpc/1505523-launch_activate_socket>
        fn launch_activate_socket(
            name: *const c_char,
            fds: *mut *mut c_int,
            count: *mut usize,
        ) -> c_int;
        fn free(memory: *mut c_void);
    }
    let mut fds = std::ptr::null_mut();
    let mut count = 0;
    // SAFETY: both are written where it returns 0, and the array is then this caller's to free.
    unsafe {
        if launch_activate_socket(c"Listener".as_ptr(), &mut fds, &mut count) != 0 || count == 0 {
            return Ok(None); // nobody's agent
        }
        let first = OwnedFd::from_raw_fd(*fds);
        free(fds.cast());
        Ok(Some((first, "launchd")))
    }
}

/// Resident memory of this process in bytes, where `/proc` tells.
pub(crate) fn memory() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Tells the service manager, if one wants to know.
pub(crate) fn tell_supervisor(state: &[sd_notify::NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "could not tell the service manager");
    }
}

/// Whether a process of this id is there; one that has ended and is only kept for its parent isn't.
pub(crate) fn is_alive(pid: u32) -> bool {
    let is_zombie = std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    });
    !is_zombie
        && rustix::process::Pid::from_raw(pid.cast_signed())
            .is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
