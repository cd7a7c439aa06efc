//! Where the state directory is: what must outlive a logout, and no checkpoint is in it.
//!
//! `SESSION_CHECKPOINT_STATE_DIR`, else `$XDG_STATE_HOME/session-checkpoint`, else
//! `~/.local/state/session-checkpoint`; on macOS `~/Library/Application Support/session-checkpoint`,
//! on Windows `%LOCALAPPDATA%\session-checkpoint`. A relative path is passed over, as the XDG base
//! directory specification asks.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::env::{self, Env};
use crate::os::{self, User};

/// The file in the state directory that says which daemon runs.
pub const DAEMON_FILE: &str = "daemon.json";
/// The lock that this daemon holds for life.
pub const DAEMON_LOCK: &str = "daemon.lock";
/// The daemon's log.
pub const LOG_FILE: &str = "daemon.log";

/// What [`DAEMON_FILE`] holds: two environments of one user that disagree about the socket's place find the same
/// daemon by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFile {
    /// The daemon's process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// The socket it listens on.
    pub socket: String,
}

const NAME: &str = "session-checkpoint";

/// The state directory for this environment, if it names any that `user` may use: under `sudo` the variables may still
/// be somebody else's, and nothing is made in their home.
pub fn usable(env: &Env, user: &User) -> Option<PathBuf> {
    let path = directory(env)?;
    let existing = path.ancestors().find(|path| path.exists())?;
    os::may_keep(existing, user).then_some(path)
}

/// The state directory for this environment, if it names any.
pub fn directory(env: &Env) -> Option<PathBuf> {
    let absolute = |name: &str| {
        env.get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(path) = absolute(env::STATE_DIR) {
        return Some(path);
    }
    if cfg!(windows) {
        return absolute("LOCALAPPDATA").map(|base| base.join(NAME));
    }
    if cfg!(target_os = "macos") {
        return absolute("HOME").map(|home| home.join("Library/Application Support").join(NAME));
    }
    absolute("XDG_STATE_HOME")
        .map(|base| base.join(NAME))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state").join(NAME)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_follows_the_written_order() {
        let all = [
            (env::STATE_DIR, "/s"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/h"),
        ];
        let at = |variables: &[(&str, &str)]| directory(&variables.iter().copied().collect());
        assert_eq!(at(&all), Some("/s".into()));
        assert_eq!(at(&all[1..]), Some("/x/session-checkpoint".into()));
        assert_eq!(
            at(&all[2..]),
            Some("/h/.local/state/session-checkpoint".into())
        );
        assert_eq!(at(&[("HOME", "relative")]), None);
    }
}
