//! The daemon's process on Unix: how it lets go of whoever started it, and what it tells of itself.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use percent_encoding::percent_decode_str;
use rustix::process::{Resource, getrlimit, setrlimit};

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

/// Resident memory of this process in bytes, where `/proc` tells.
pub(crate) fn memory() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Tells the service manager, if one wants to know, that the daemon can be connected to.
pub(crate) fn say_ready() {
    tell_supervisor(sd_notify::NotifyState::Ready);
}

/// Tells the service manager, if one wants to know, that the daemon is about to leave.
pub(crate) fn say_stopping() {
    tell_supervisor(sd_notify::NotifyState::Stopping);
}

fn tell_supervisor(state: sd_notify::NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
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

/// Whether something stands at a socket's path that is none.
pub(crate) fn is_in_the_way(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| !metadata.file_type().is_socket())
}

/// How much a file holds, if that is where standard error goes.
pub(crate) fn size_behind_stderr(path: &Path) -> io::Result<Option<u64>> {
    let stderr = rustix::fs::fstat(io::stderr().as_fd())?;
    let is_it = rustix::fs::FileType::from_raw_mode(stderr.st_mode).is_file()
        && rustix::fs::stat(path)
            .is_ok_and(|file| (file.st_dev, file.st_ino) == (stderr.st_dev, stderr.st_ino));
    Ok(is_it.then_some(stderr.st_size.cast_unsigned()))
}

/// A path as it is percent-encoded in a `file:` URI, decoded.
pub(crate) fn path_of_uri(path: &str) -> OsString {
    OsString::from_vec(percent_decode_str(path).collect())
}

/// Whether desktop clients start servers there: the file system's root.
pub(crate) fn is_system_directory(path: &Path) -> bool {
    path.parent().is_none()
}

/// Whether directories can be watched so that what happens in them is told in order.
pub(crate) const WATCHES: bool = true;

/// Whether a watch is for everything under a directory: FSEvents takes whole trees, and is set up anew for each.
pub(crate) const WATCHES_TREES: bool = cfg!(target_os = "macos");

/// Whether a file may be found under a name that isn't spelt like its own.
pub(crate) const FOLDS_NAMES: bool = cfg!(target_os = "macos");
