//! The socket on Unix: a file, or one that systemd or launchd has open already.
//!
//! The file is 0600 from its first moment (the umask is set before), and each peer's user is checked. A socket that a
//! service manager hands over is used as it is, and never removed.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use protocol::os;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use super::{ListenError, failed};

/// How often the socket is looked at where it can't be watched.
const LOOK: Duration = Duration::from_secs(10);

/// A connection of a client's.
pub(crate) type Connection = UnixStream;

/// A bound socket; it is removed when this is dropped, unless a service manager has it.
#[derive(Debug)]
pub(super) struct Socket {
    inner: UnixListener,
    pub(super) path: PathBuf,
    /// Who handed the socket over, if anybody.
    pub(super) supervisor: Option<&'static str>,
    /// The socket's device and inode.
    identity: Option<(u64, u64)>,
}

impl Socket {
    /// The one that a service manager has handed over, if any.
    pub(super) fn handed_over() -> Result<Option<Socket>, ListenError> {
        let activated = activated().map_err(|error| ListenError::Activation(error.to_string()))?;
        Ok(activated.map(|(inner, path, supervisor)| Socket {
            inner,
            identity: identity(&path),
            path,
            supervisor: Some(supervisor),
        }))
    }

    /// One of its own, in the place of a dead one. The caller holds the lock beside it.
    pub(super) fn bind(path: &Path) -> Result<Socket, ListenError> {
        Ok(Socket {
            inner: bind(path)?,
            identity: identity(path),
            path: path.to_path_buf(),
            supervisor: None,
        })
    }

    /// The next connection of this user; others are hung up on.
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        loop {
            let (stream, _) = self.inner.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == os::user() => return Ok(stream),
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused another user's connection"),
                Err(error) => tracing::warn!(%error, "refused a connection without credentials"),
            }
        }
    }

    /// Returns when nobody can find this daemon any more: its socket was removed, or another stands in its place.
    pub(super) async fn lost(&self) {
        if self.supervisor.is_some() {
            return std::future::pending().await;
        }
        let changed = Arc::new(Notify::new());
        let told = changed.clone();
        let watcher = notify::recommended_watcher(move |_| told.notify_one()).and_then(
            |mut watcher: RecommendedWatcher| {
                // The socket itself: its directory may be a busy one.
                watcher.watch(&self.path, RecursiveMode::NonRecursive)?;
                Ok(watcher)
            },
        );
        while self.is_ours() {
            match &watcher {
                Ok(_) => changed.notified().await,
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    fn is_ours(&self) -> bool {
        self.identity.is_some() && identity(&self.path) == self.identity
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.supervisor.is_none()
            && self.is_ours()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "could not remove the socket");
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.symlink_metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.file_type().is_socket() => {
            // A service manager listens without a lock; only a socket that nobody listens on is dead.
            match std::os::unix::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(ListenError::Taken(path.to_path_buf())),
            }
            std::fs::remove_file(path).map_err(failed("remove the dead socket", path))?;
        }
        Ok(_) => return Err(ListenError::InTheWay(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("examine", path)(error)),
    }
    UnixListener::bind(path).map_err(failed("bind", path))
}

/// The socket that a service manager has handed over, its path, and who did.
fn activated() -> io::Result<Option<(UnixListener, PathBuf, &'static str)>> {
    let Some((fd, supervisor)) = handed_over()? else {
        return Ok(None);
    };
    let listener = std::os::unix::net::UnixListener::from(fd);
    let path = listener
        .local_addr()?
        .as_pathname()
        .map(Path::to_path_buf)
        .ok_or_else(|| io::Error::other("a socket without a path"))?;
    listener.set_nonblocking(true)?;
    Ok(Some((UnixListener::from_std(listener)?, path, supervisor)))
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
