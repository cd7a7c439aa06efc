//! Where the socket is: one written order that both binaries follow.
//!
//! 1. `SESSION_CHECKPOINT_SOCKET`, an absolute path;
//! 2. `session-checkpoint/daemon.sock` in `$XDG_RUNTIME_DIR`, where that is set, exists, belongs to this
//!    user and is private (no access for group or others);
//! 3. the same in `/run/user/UID`, on the same conditions (not on macOS);
//! 4. `daemon.sock` in `session-checkpoint-UID/` of the temporary directory: `/tmp`, on macOS the user's
//!    own (`$TMPDIR`, then `/tmp`). That directory is made private by whoever needs it first.
//!
//! On Windows the socket is a named pipe: `SESSION_CHECKPOINT_SOCKET` names one, else it is
//! `\\.\pipe\session-checkpoint-SID`. What lies beside the socket elsewhere is in `run` of the state directory there.
//!
//! A path that doesn't fit a socket address ([`MAX_SOCKET_PATH`]) is passed over; an explicit one is
//! an error. A directory that fails a check is never repaired or removed: it may be somebody else's.

use std::path::PathBuf;

use crate::env::{self, Env};
use crate::os::{self, User};

/// `sun_path` without its final NUL: 108 bytes on Linux, 104 on macOS and the BSDs (`unix(7)`). A pipe's name has
/// 256 characters at most (`CreateNamedPipe`).
pub const MAX_SOCKET_PATH: usize = if cfg!(windows) {
    256
} else if cfg!(target_os = "linux") {
    107
} else {
    103
};

/// A place for the socket: its directory, which the daemon makes where it is missing, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory of what lies beside the socket, and of the socket where that is a file.
    pub directory: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    /// Whether the user named it: then the directory is as they want it, and only the peers are checked.
    pub explicit: bool,
}

/// Why a directory can't hold the socket, or why there is no place at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The explicit path is none that a socket can have.
    #[error("{} must be {}, and is `{}`", env::SOCKET, os::SOCKET_RULE, .0.display())]
    NoSocket(PathBuf),
    /// The explicit path doesn't fit a socket address.
    #[error("{} is `{}`, longer than the {MAX_SOCKET_PATH} bytes a socket's path can have", env::SOCKET, .0.display())]
    TooLong(PathBuf),
    /// There is no directory for the locks beside it.
    #[error(
        "there is no state directory to keep the socket's locks in: set {} or LOCALAPPDATA",
        env::STATE_DIR
    )]
    NoState,
    /// The directory is a link, a file or the like.
    #[error("`{}` is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The directory belongs to somebody else.
    #[error("`{}` belongs to user {owner}, not to user {user}", .path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: User,
        /// Who asks.
        user: User,
    },
    /// Others have access to the directory.
    #[error("`{}` has mode {mode:03o}: a socket's directory must be private (700)", .path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The directory could not be examined.
    #[error("could not examine `{}`: {reason}", .path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// The socket's place for this environment and user.
pub fn place(env: &Env, user: &User) -> Result<Place, SocketError> {
    os::place(env, user)
}

impl Place {
    /// The lock that a daemon holds for life.
    pub fn lock(&self) -> PathBuf {
        self.beside(".lock")
    }

    /// The lock that whoever starts a daemon holds.
    pub fn starting(&self) -> PathBuf {
        self.beside(".starting")
    }

    /// The directory of the notes of saves.
    pub fn applied(&self) -> PathBuf {
        self.beside(".applied")
    }

    /// The directory in which the daemon makes files to see whether their events arrive.
    pub fn cookies(&self) -> PathBuf {
        self.beside(".cookies")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.socket.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.directory.join(name)
    }

    /// Whether the directory, which exists, may hold this user's socket. A directory that the user
    /// named may be open to others: the socket in it is not.
    pub fn check(&self, user: &User) -> Result<(), SocketError> {
        match os::check_private(&self.directory, user) {
            Err(SocketError::NotPrivate { .. }) if self.explicit => Ok(()),
            Err(SocketError::ForeignOwner { .. }) if self.explicit => Ok(()),
            other => other,
        }
    }
}
