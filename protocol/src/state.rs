//! Where the state directory is: what must outlive a logout, and no checkpoint is in it.
//!
//! `SESSION_CHECKPOINT_STATE_DIR`, else `$XDG_STATE_HOME/session-checkpoint`, else
//! `~/.local/state/session-checkpoint`; on macOS `~/Library/Application Support/session-checkpoint`,
//! on Windows `%LOCALAPPDATA%\session-checkpoint`. A relative path is passed over, as the XDG base
//! directory specification asks.

use std::path::PathBuf;

use crate::env::{self, Env};

const NAME: &str = "session-checkpoint";

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
