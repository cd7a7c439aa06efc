//! An environment as a value.
//!
//! Each binary reads its environment once, into an [`Env`]; everything after that takes the value.
//! An empty variable is not given (contract §1). Values may be paths that are no UTF-8, so they are
//! `OsString`s, and travel in the hello as [`OsText`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};

use crate::os;

/// The session's id, set by Claude Code.
pub const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// The project's directory, set by Claude Code.
pub const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// The default project, set by the user.
pub const CHECKPOINT_PROJECT_ROOT: &str = "CHECKPOINT_PROJECT_ROOT";
/// `mint` or `legacy`, set by the user.
pub const CHECKPOINT_SESSION_IDS: &str = "CHECKPOINT_SESSION_IDS";
/// The socket's path.
pub const SOCKET: &str = "SESSION_CHECKPOINT_SOCKET";
/// The state directory.
pub const STATE_DIR: &str = "SESSION_CHECKPOINT_STATE_DIR";
/// The daemon's program, or `off`: run embedded.
pub const DAEMON: &str = "SESSION_CHECKPOINT_DAEMON";
/// A tracing filter.
pub const LOG: &str = "SESSION_CHECKPOINT_LOG";

/// The client's process, set by Claude Code for its hooks.
pub const CLAUDE_PID: &str = "CLAUDE_PID";
/// `off`, `0`, `false` or `no`: the SessionStart hook says nothing to the model.
pub const NUDGE: &str = "SESSION_CHECKPOINT_NUDGE";
/// For tests of debug builds alone: the build to pass for.
pub const TEST_BUILD: &str = "SESSION_CHECKPOINT_TEST_BUILD";

/// The client's variables that the shim sends with each connection; the daemon never reads its own.
pub const CLIENT_VARIABLES: [&str; 4] = [
    CLAUDE_CODE_SESSION_ID,
    CLAUDE_PROJECT_DIR,
    CHECKPOINT_PROJECT_ROOT,
    CHECKPOINT_SESSION_IDS,
];

/// Environment variables, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<OsString, OsString>);

impl Env {
    /// The value of `name`, unless it is unset or empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(&os::variable(name.into()))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The part of it that a shim sends to the daemon.
    pub fn for_daemon(&self) -> BTreeMap<String, OsText> {
        CLIENT_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), OsText::from(self.get(name)?))))
            .collect()
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Env {
        Env(variables
            .into_iter()
            .map(|(k, v)| (os::variable(k.into()), v.into()))
            .collect())
    }
}

/// Text of the operating system in JSON: a string where it is Unicode, else its raw units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsText {
    /// Unicode text.
    Text(String),
    /// Bytes on Unix, UTF-16 code units on Windows.
    Units(Vec<u16>),
}

impl From<&OsStr> for OsText {
    fn from(text: &OsStr) -> OsText {
        match text.to_str() {
            Some(text) => OsText::Text(text.to_owned()),
            None => OsText::Units(os::units(text)),
        }
    }
}

impl From<OsText> for OsString {
    fn from(text: OsText) -> OsString {
        match text {
            OsText::Text(text) => text.into(),
            OsText::Units(units) => os::from_units(&units),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_not_given() {
        let env = Env::from_iter([("A", ""), ("B", "x")]);
        assert_eq!(env.get("A"), None);
        assert_eq!(env.get("B"), Some(OsStr::new("x")));
        assert_eq!(env.get("C"), None);
    }

    #[test]
    fn a_path_that_is_no_unicode_survives_the_hello() {
        let units = if cfg!(windows) {
            [0x2f, 0xd800]
        } else {
            [0x2f, 0xff]
        };
        let path = os::from_units(&units);
        assert_eq!(path.to_str(), None);
        let json = serde_json::to_string(&OsText::from(path.as_os_str())).unwrap();
        let back: OsText = serde_json::from_str(&json).unwrap();
        assert_eq!(OsString::from(back), path);
    }
}
