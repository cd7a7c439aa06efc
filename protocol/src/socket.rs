//! Where the socket is: one written order that both binaries follow.
//!
//! 1. `SESSION_CHECKPOINT_SOCKET`, an absolute path;
//! 2. `session-checkpoint/daemon.sock` in `$XDG_RUNTIME_DIR`, where that is set, exists, belongs to this
//!    user and is private (no access for group or others);
//! 3. the same in `/run/user/UID`, on the same conditions (not on macOS);
//! 4. `daemon.sock` in `session-checkpoint-UID/` of the temporary directory: `/tmp`, on macOS the user's
//!    own (`$TMPDIR`, then `/tmp`). That directory is made private by whoever needs it first.
//!
//! A path that doesn't fit a socket address ([`MAX_SOCKET_PATH`]) is passed over; an explicit one is
//! an error. A directory that fails a check is never repaired or removed: it may be somebody else's.

use std::path::{Path, PathBuf};

use crate::env::{self, Env};

/// `sun_path` without its final NUL: 108 bytes on Linux, 104 on macOS and the BSDs (`unix(7)`).
pub const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

const DIRECTORY: &str = "session-checkpoint";
const FILE: &str = "daemon.sock";

/// A place for the socket: its directory, which the daemon makes where it is missing, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory that holds the socket and its lock.
    pub directory: PathBuf,
    /// The socket.
    pub socket: PathBuf,
    /// Whether the user named it: then the directory is as they want it, and only the peers are checked.
    pub explicit: bool,
}

/// Why a directory can't hold the socket, or why there is no place at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The explicit path is relative.
    #[error("{} must be an absolute path, and is `{}`", env::SOCKET, .0.display())]
    Relative(PathBuf),
    /// The explicit path doesn't fit a socket address.
    #[error("{} is `{}`, longer than the {MAX_SOCKET_PATH} bytes a socket's path can have", env::SOCKET, .0.display())]
    TooLong(PathBuf),
    /// The directory is a link, a file or the like.
    #[error("`{}` is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The directory belongs to somebody else.
    #[error("`{}` belongs to user {owner}, not to user {user}", .path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        user: u32,
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
pub fn place(env: &Env, user: u32) -> Result<Place, SocketError> {
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
        return Err(SocketError::Relative(socket));
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
        let mut path = self.socket.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Whether the directory, which exists, may hold this user's socket. A directory that the user
    /// named may be open to others: the socket in it is not.
    pub fn check(&self, user: u32) -> Result<(), SocketError> {
        match check_private(&self.directory, user) {
            Err(SocketError::NotPrivate { .. }) if self.explicit => Ok(()),
            Err(SocketError::ForeignOwner { .. }) if self.explicit => Ok(()),
            other => other,
        }
    }
}

/// Whether `path` is a real directory of `user` without access for anybody else.
#[cfg(unix)]
pub fn check_private(path: &Path, user: u32) -> Result<(), SocketError> {
    use std::os::unix::fs::MetadataExt as _;

    let unreadable = |error: std::io::Error| SocketError::Unreadable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    };
    let metadata = path.symlink_metadata().map_err(unreadable)?;
    if !metadata.is_dir() {
        return Err(SocketError::NotADirectory(path.to_path_buf()));
    }
    if metadata.uid() != user {
        return Err(SocketError::ForeignOwner {
            path: path.to_path_buf(),
            owner: metadata.uid(),
            user,
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_socket_wins_and_must_be_usable() {
        let at = |path: &str| place(&Env::from_iter([(env::SOCKET, path)]), 7);
        assert_eq!(at("/x/s").unwrap().socket, Path::new("/x/s"));
        assert_eq!(at("s"), Err(SocketError::Relative("s".into())));
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
                4_000_000_007,
            );
            assert_eq!(
                place.unwrap().socket,
                Path::new("/tmp/session-checkpoint-4000000007/daemon.sock")
            );
        }
    }
}
