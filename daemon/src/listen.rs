//! The socket: whose it is, who may connect.
//!
//! A lock beside the socket, held for life, says which daemon it belongs to; only its holder removes what a
//! dead one left and binds. A second lock, in the state directory, keeps two environments of one user from having a
//! daemon each, and `daemon.json` tells the other one where to connect. The directory is made private and checked,
//! the socket is 0600 from its first moment (the umask is set before), and each peer's user is checked. A socket that
//! a service manager hands over is used as it is, and never removed.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use protocol::hello::Build;
use protocol::socket::{Place, SocketError};
use protocol::state::{self, DaemonFile};
use rustix::fs::OFlags;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::config::Config;
use crate::unix;

/// How long a daemon that is about to leave is waited for, by whoever is to take its place.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// How often its lock is tried: `flock` has no timeout.
const LOCK_RETRY: Duration = Duration::from_millis(10);
/// How often the socket is looked at where it can't be watched.
const LOOK: Duration = Duration::from_secs(10);

/// Why the socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("another daemon listens on `{}`", .0.display())]
    Taken(PathBuf),
    #[error("the socket's directory can't be used: {0}")]
    Directory(#[from] SocketError),
    #[error("`{}` is no socket and stands in the way: move it away", .0.display())]
    InTheWay(PathBuf),
    #[error("the service manager's socket can't be used: {0}")]
    Activation(String),
    #[error("could not {verb} `{}` ({source})", .path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_path_buf();
    move |source| ListenError::Io { verb, path, source }
}

/// A bound socket; it is removed when this is dropped, unless a service manager has it.
#[derive(Debug)]
pub(crate) struct Listener {
    inner: UnixListener,
    pub(crate) path: PathBuf,
    /// Who handed the socket over, if anybody.
    pub(crate) supervisor: Option<&'static str>,
    /// The socket's device and inode.
    identity: Option<(u64, u64)>,
    _locks: Vec<File>,
    daemon_file: Option<PathBuf>,
}

impl Listener {
    /// Takes the locks, and the socket that a service manager has handed over, or else one of its own.
    pub(crate) fn open(config: &Config) -> Result<Listener, ListenError> {
        let activated =
            unix::activated().map_err(|error| ListenError::Activation(error.to_string()))?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        let place = config.place()?;
        let mut locks = Vec::new();
        if activated.is_none() {
            unix::make_private_dir(&place.directory).map_err(failed("make", &place.directory))?;
            place.check(unix::user())?;
            locks.push(lock(&place.lock(), deadline, &place.socket)?);
        }
        let daemon_file = match config.state() {
            Some(state) => {
                // Who names a socket wants that one, whatever else runs.
                let is_apart = place.explicit || activated.is_some();
                let deadline = if is_apart { Instant::now() } else { deadline };
                let taken = take_state(&state, deadline, &place.socket);
                match taken {
                    Ok(lock) => {
                        locks.push(lock);
                        Some(state.join(state::DAEMON_FILE))
                    }
                    Err(ListenError::Taken(_)) if is_apart => None,
                    Err(error @ ListenError::Taken(_)) => return Err(error),
                    // Without a state directory there is no second environment to agree with.
                    Err(_) => None,
                }
            }
            None => None,
        };
        let (inner, path, supervisor) = match activated {
            Some((listener, path, supervisor)) => (listener, path, Some(supervisor)),
            None => (bind(&place)?, place.socket.clone(), None),
        };
        if let Some(file) = &daemon_file {
            tell(file, &path, &config.build)?;
        }
        Ok(Listener {
            inner,
            identity: identity(&path),
            path,
            supervisor,
            _locks: locks,
            daemon_file,
        })
    }

    /// The next connection of this user; others are hung up on.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.inner.accept().await?;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == unix::user() => return Ok(stream),
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused another user's connection"),
                Err(error) => tracing::warn!(%error, "refused a connection without credentials"),
            }
        }
    }

    /// Returns when nobody can find this daemon any more: its socket was removed, or another stands in its place.
    pub(crate) async fn lost(&self) {
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

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.daemon_file {
            // The next one writes its own.
            drop(std::fs::remove_file(file));
        }
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

fn bind(place: &Place) -> Result<UnixListener, ListenError> {
    let path = &place.socket;
    match path.symlink_metadata() {
        Ok(metadata) if metadata.file_type().is_socket() => {
            // A service manager listens without a lock; only a socket that nobody listens on is dead.
            match std::os::unix::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return Err(ListenError::Taken(path.clone())),
            }
            std::fs::remove_file(path).map_err(failed("remove the dead socket", path))?;
        }
        Ok(_) => return Err(ListenError::InTheWay(path.clone())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("examine", path)(error)),
    }
    UnixListener::bind(path).map_err(failed("bind", path))
}

/// Takes a lock for life.
fn lock(path: &Path, deadline: Instant, socket: &Path) -> Result<File, ListenError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
        .map_err(failed("open", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(ListenError::Taken(socket.to_path_buf()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
        }
    }
}

fn take_state(state: &Path, deadline: Instant, socket: &Path) -> Result<File, ListenError> {
    unix::make_private_dir(state).map_err(failed("make", state))?;
    lock(&state.join(state::DAEMON_LOCK), deadline, socket)
}

/// Writes down that this daemon runs. A reader meets the whole of it or nothing.
fn tell(file: &Path, socket: &Path, build: &Build) -> Result<(), ListenError> {
    let daemon = DaemonFile {
        pid: std::process::id(),
        version: build.version.clone(),
        socket: socket.to_string_lossy().into_owned(),
    };
    let bytes = serde_json::to_vec(&daemon).expect("it is plain JSON");
    let new = file.with_extension("new");
    std::fs::write(&new, bytes)
        .and_then(|()| std::fs::rename(&new, file))
        // Only those who look elsewhere miss it: a full disk is no reason not to run.
        .or_else(|error| {
            tracing::warn!(%error, "could not write `{}`", file.display());
            Ok(())
        })
}
