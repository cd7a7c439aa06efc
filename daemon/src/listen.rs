//! The socket: whose it is, who may connect.
//!
//! A lock beside the socket, held for life, says which daemon it belongs to; only its holder removes what a
//! dead one left and binds. The directory is made private and checked, the socket is 0600 from its first
//! moment (the umask is set before), and each peer's user is checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use protocol::socket::{Place, SocketError};
use tokio::net::{UnixListener, UnixStream};

use crate::unix;

/// Why the socket can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("another daemon listens on `{}`", .0.display())]
    Taken(PathBuf),
    #[error("the socket's directory can't be used: {0}")]
    Directory(#[from] SocketError),
    #[error("`{}` is no socket and stands in the way: move it away", .0.display())]
    InTheWay(PathBuf),
    #[error("could not {verb} `{}` ({source})", .path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// A bound socket; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    inner: UnixListener,
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Listener {
    /// Takes the lock and binds.
    pub(crate) fn bind(place: &Place) -> Result<Listener, ListenError> {
        let path = place.socket.clone();
        let io_error = |verb, path: &PathBuf| {
            let path = path.clone();
            move |source| ListenError::Io { verb, path, source }
        };
        unix::make_private_dir(&place.directory).map_err(io_error("make", &place.directory))?;
        place.check(unix::user())?;

        let lock_path = place.lock();
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&lock_path)
            .map_err(io_error("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(ListenError::Taken(path)),
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(io_error("lock", &lock_path)(error));
            }
        }
        match path.symlink_metadata() {
            Ok(metadata) if metadata.file_type().is_socket() => {
                std::fs::remove_file(&path).map_err(io_error("remove the dead socket", &path))?;
            }
            Ok(_) => return Err(ListenError::InTheWay(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("examine", &path)(error)),
        }
        let inner = UnixListener::bind(&path).map_err(io_error("bind", &path))?;
        Ok(Listener {
            inner,
            path,
            _lock: lock,
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
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "could not remove the socket");
        }
    }
}
