//! What both sides ask of a Unix system.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::signal::unix::{SignalKind, signal};

use crate::env::{self, Env};
use crate::socket::{MAX_SOCKET_PATH, Place, SocketError};
use crate::word::Process;

/// A user: its number.
pub type User = u32;

/// The effective user of this process.
pub fn user() -> User {
    rustix::process::geteuid().as_raw()
}

/// Whose a file is.
pub fn owner(path: &Path) -> Option<User> {
    Some(path.symlink_metadata().ok()?.uid())
}

/// Whether a directory is no other user's home: what root owns (`/`, a fresh container's directories) is nobody's.
pub(crate) fn may_keep(path: &Path, user: &User) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.uid() == *user || metadata.uid() == 0)
}

/// Makes a directory for this user alone, unless it exists.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether `path` is a real directory of `user` without access for anybody else.
pub fn check_private(path: &Path, user: &User) -> Result<(), SocketError> {
    let unreadable = |error: io::Error| SocketError::Unreadable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let metadata = path.symlink_metadata().map_err(unreadable)?;
    if !metadata.is_dir() {
        return Err(SocketError::NotADirectory(path.to_path_buf()));
    }
    if metadata.uid() != *user {
        return Err(SocketError::ForeignOwner {
            path: path.to_path_buf(),
            owner: metadata.uid(),
            user: *user,
        });
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SocketError::NotPrivate {
            path: path.to_path_buf(),
            mode,
        });
    }
    Ok(())
}

/// Options that open a file of this user's alone, follow no link, and wait for nobody where it is no file.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits().cast_signed())
}

/// Opens a file for reading without following a link and without waiting for a FIFO's writer. What it is must be
/// checked on the open file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// A path without links.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// A variable's name as variables are told apart.
pub(crate) fn variable(name: OsString) -> OsString {
    name
}

/// Text as bytes.
pub(crate) fn units(text: &OsStr) -> Vec<u16> {
    text.as_bytes()
        .iter()
        .map(|byte| u16::from(*byte))
        .collect()
}

/// Bytes as text.
pub(crate) fn from_units(units: &[u16]) -> OsString {
    // A unit over 255 is no byte of a Unix path; the low byte keeps the length honest.
    OsString::from_vec(units.iter().map(|unit| (*unit & 0xff) as u8).collect())
}

const DIRECTORY: &str = "session-checkpoint";
const FILE: &str = "daemon.sock";

/// What an explicit socket must be.
pub(crate) const SOCKET_RULE: &str = "an absolute path";

/// The socket's place, in the order that [`crate::socket`] tells.
pub(crate) fn place(env: &Env, user: &User) -> Result<Place, SocketError> {
    if let Some(path) = env.get(env::SOCKET) {
        return explicit(PathBuf::from(path));
    }
    let runtime = env.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let system = (!cfg!(target_os = "macos")).then(|| PathBuf::from(format!("/run/user/{user}")));
    for base in [runtime, system].into_iter().flatten() {
        let place = inside(&base.join(DIRECTORY));
        if fits(&place.socket) && base.is_absolute() && check_private(&base, user).is_ok() {
            return Ok(place);
        }
    }
    let own = format!("{DIRECTORY}-{user}");
    if cfg!(target_os = "macos")
        && let Some(temp) = env.get("TMPDIR")
    {
        let place = inside(&Path::new(temp).join(&own));
        if fits(&place.socket) && place.socket.is_absolute() {
            return Ok(place);
        }
    }
    Ok(inside(&Path::new("/tmp").join(own)))
}

fn explicit(socket: PathBuf) -> Result<Place, SocketError> {
    if !socket.is_absolute() {
        return Err(SocketError::NoSocket(socket));
    }
    if !fits(&socket) {
        return Err(SocketError::TooLong(socket));
    }
    let directory = socket.parent().unwrap_or(Path::new("/")).to_path_buf();
    Ok(Place {
        directory,
        socket,
        explicit: true,
    })
}

fn inside(directory: &Path) -> Place {
    Place {
        directory: directory.to_path_buf(),
        socket: directory.join(FILE),
        explicit: false,
    }
}

fn fits(socket: &Path) -> bool {
    socket.as_os_str().len() <= MAX_SOCKET_PATH
}

/// A socket for a program whose files are all in `folder`.
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("run").join(FILE)
}

/// Connects to a socket of this user's and blocks on it; a connection that is refused was nobody's.
pub fn connect(socket: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::connect(socket)?;
    let peer = socket.symlink_metadata()?.uid();
    match peer == user() {
        true => Ok(stream),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Whether a connection failed because too many others are waiting for theirs.
pub fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Returns when a signal says to leave.
pub async fn told_to_leave() {
    let signals = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ];
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// The process that started this one, unless that is `init`.
pub(crate) struct Parent(u32);

impl Parent {
    pub(crate) fn find() -> Option<Parent> {
        Some(Parent(parent_id())).filter(|parent| parent.0 > 1)
    }

    /// Until it is gone.
    pub(crate) fn wait(self) {
        while parent_id() == self.0 {
            await_exit(self.0);
        }
    }
}

/// How often the parent is looked for where nothing better is known.
const POLL: Duration = Duration::from_secs(5);

/// Until the process ends, where the system has a handle for it; else a while.
#[cfg(target_os = "linux")]
fn await_exit(pid: u32) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let handle = Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let Some(Ok(handle)) = handle {
        let waited = poll(&mut [PollFd::new(&handle, PollFlags::IN)], None);
        if waited.is_ok() {
            // It is a zombie for a moment before this process gets another parent.
            std::thread::sleep(Duration::from_millis(20));
            return;
        }
    }
    std::thread::sleep(POLL);
}

#[cfg(not(target_os = "linux"))]
fn await_exit(_pid: u32) {
    std::thread::sleep(POLL);
}

/// The id of the process that started this one.
pub(crate) fn parent() -> Option<u32> {
    Some(parent_id())
}

/// What this boot of the machine is called.
#[cfg(not(target_os = "macos"))]
pub(crate) fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

/// Processes are told apart by the time of day that they started at, across boots.
#[cfg(target_os = "macos")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may not be known")]
pub(crate) fn boot() -> Option<String> {
    Some("macos".to_owned())
}

/// The processes that run.
pub(crate) struct Processes;

impl Processes {
    pub(crate) fn now() -> Processes {
        Processes
    }

    /// A process and its parent's id. <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
    #[cfg(not(target_os = "macos"))]
    pub(crate) fn get(&self, pid: u32) -> Option<(Process, Option<u32>)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold some itself.
        let (head, tail) = stat.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        let start = fields.get(19)?.parse().ok()?;
        let name = name.to_owned();
        Some((Process { pid, start, name }, (parent > 0).then_some(parent)))
    }

    /// A process and its parent's id, as `proc_pidinfo` tells.
    #[cfg(target_os = "macos")]
    #[expect(unsafe_code, reason = "the system has a C interface alone")]
    pub(crate) fn get(&self, pid: u32) -> Option<(Process, Option<u32>)> {
        let size = i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?;
        let mut info = std::mem::MaybeUninit::<libc::proc_bsdinfo>::zeroed();
        // SAFETY: the buffer has the size that is told; all zeros is a valid value of these plain fields.
        let info = unsafe {
            let into = info.as_mut_ptr().cast();
            let told = libc::proc_pidinfo(pid.cast_signed(), libc::PROC_PIDTBSDINFO, 0, into, size);
            if told != size {
                return None;
            }
            info.assume_init()
        };
        let name = info.pbi_comm.iter().map(|c| c.cast_unsigned());
        let name: Vec<u8> = name.take_while(|c| *c != 0).collect();
        let process = Process {
            pid,
            start: info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec,
            name: String::from_utf8_lossy(&name).into_owned(),
        };
        Some((process, Some(info.pbi_ppid).filter(|parent| *parent > 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_socket_wins_and_must_be_usable() {
        let at = |path: &str| place(&Env::from_iter([(env::SOCKET, path)]), &7);
        assert_eq!(at("/x/s").unwrap().socket, Path::new("/x/s"));
        assert_eq!(at("s"), Err(SocketError::NoSocket("s".into())));
        let long = format!("/{}", "x".repeat(MAX_SOCKET_PATH));
        assert_eq!(at(&long), Err(SocketError::TooLong(long.into())));
    }

    #[test]
    fn a_runtime_directory_that_is_missing_or_too_long_is_passed_over() {
        for runtime in [
            "/nonexistent/x",
            &format!("/{}", "x".repeat(150)),
            "relative",
        ] {
            let place = place(
                &Env::from_iter([("XDG_RUNTIME_DIR", runtime)]),
                &4_000_000_007,
            );
            assert_eq!(
                place.unwrap().socket,
                Path::new("/tmp/session-checkpoint-4000000007/daemon.sock")
            );
        }
    }
}
