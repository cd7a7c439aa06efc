//! The socket: whose it is, who may connect.
//!
//! A lock beside the socket, held for life, says which daemon it belongs to; only its holder removes what a
//! dead one left and binds. A second lock, in the state directory, keeps two environments of one user from having a
//! daemon each, and `daemon.json` tells the other one where to connect. The directory is made private and checked.
//! What the socket itself is (a file, a pipe), and how its peers are checked, is the system's: `unix.rs`, `windows.rs`.

#[cfg_attr(unix, path = "listen/unix.rs")]
#[cfg_attr(windows, path = "listen/windows.rs")]
mod socket;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::hello::Build;
use protocol::os;
use protocol::socket::SocketError;
use protocol::state::{self, DaemonFile};

use crate::config::Config;
pub(crate) use socket::Connection;
use socket::Socket;

/// How long a daemon that is about to leave is waited for, by whoever is to take its place.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// How often its lock is tried: `flock` has no timeout.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Why the socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("another daemon listens on `{}`", .0.display())]
    Taken(PathBuf),
    #[error("the socket's directory can't be used: {0}")]
    Directory(#[from] SocketError),
    #[error("`{}` is no socket and stands in the way: move it away", .0.display())]
    #[cfg_attr(windows, expect(dead_code, reason = "pipes are no files"))]
    InTheWay(PathBuf),
    #[error("the service manager's socket can't be used: {0}")]
    #[cfg_attr(windows, expect(dead_code, reason = "nobody has a pipe to hand over"))]
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

/// The socket, with the locks that make it this daemon's.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    _locks: Vec<File>,
    daemon_file: Option<PathBuf>,
}

impl Listener {
    /// Takes the locks, and the socket that a service manager has handed over, or else one of its own.
    pub(crate) fn open(config: &Config) -> Result<Listener, ListenError> {
        let handed_over = Socket::handed_over()?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        let place = config.place()?;
        let mut locks = Vec::new();
        if handed_over.is_none() {
            os::make_private_dir(&place.directory).map_err(failed("make", &place.directory))?;
            place.check(&os::user())?;
            locks.push(lock(&place.lock(), deadline, &place.socket)?);
        }
        let daemon_file = match config.state() {
            Some(state) => {
                // Who names a socket wants that one, whatever else runs.
                let is_apart = place.explicit || handed_over.is_some();
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
        let socket = match handed_over {
            Some(socket) => socket,
            None => Socket::bind(&place.socket)?,
        };
        if let Some(file) = &daemon_file {
            tell(file, &socket.path, &config.build)?;
        }
        Ok(Listener {
            socket,
            _locks: locks,
            daemon_file,
        })
    }

    /// Where it listens.
    pub(crate) fn path(&self) -> &Path {
        &self.socket.path
    }

    /// Who handed the socket over, if anybody.
    pub(crate) fn supervisor(&self) -> Option<&'static str> {
        self.socket.supervisor
    }

    /// The next connection of this user.
    pub(crate) async fn accept(&self) -> io::Result<Connection> {
        self.socket.accept().await
    }

    /// Returns when nobody can find this daemon any more.
    pub(crate) async fn lost(&self) {
        self.socket.lost().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.daemon_file {
            // The next one writes its own.
            drop(std::fs::remove_file(file));
        }
    }
}

/// Takes a lock for life.
fn lock(path: &Path, deadline: Instant, socket: &Path) -> Result<File, ListenError> {
    let file = os::private(File::options().create(true).truncate(false).write(true))
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
    os::make_private_dir(state).map_err(failed("make", state))?;
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
