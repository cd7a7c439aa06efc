//! The first line of each side on a connection.
//!
//! After the HTTP upgrade of [`MCP_ENDPOINT`] the shim writes a [`Hello`] and the daemon a [`Welcome`], one JSON
//! object a line; from then on the stream is the client's newline-delimited JSON-RPC. The integer
//! [`PROTOCOL`] alone decides whether two builds can talk; the version is for people.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::VERSION;
use crate::env::{self, Env, OsText};
use crate::word::Ancestry;

/// The version of what shim and daemon say to each other.
pub const PROTOCOL: u32 = 1;

/// `GET` with an `Upgrade` to [`UPGRADE`]: an MCP connection.
pub const MCP_ENDPOINT: &str = "/v1/mcp";
/// `GET`: the daemon's status as JSON.
pub const STATUS_ENDPOINT: &str = "/v1/status";
/// `POST`: finish what is running and leave.
pub const SHUTDOWN_ENDPOINT: &str = "/v1/shutdown";
/// `POST`, with a [`SessionStart`]: a session begins there.
pub const HOOK_ENDPOINT: &str = "/v1/hooks/session-start";
/// The protocol named in the HTTP upgrade.
pub const UPGRADE: &str = "session-checkpoint";

/// The most that either side reads for a hello line, in bytes.
pub const MAX_HELLO: usize = 256 * 1024;

/// What a detached daemon says on its standard output when it can be connected to.
pub const READY: &str = "ready";
/// What it says when another one still has the socket. Anything else is why it can't run.
pub const TAKEN: &str = "taken";

/// Which build a side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// Its [`PROTOCOL`].
    pub protocol: u32,
}

impl Build {
    /// This one. A debug build passes for another (`0.9.0/1`) where [`env::TEST_BUILD`] says so.
    pub fn of(env: &Env) -> Build {
        let pretended = env
            .get(env::TEST_BUILD)
            .filter(|_| cfg!(debug_assertions))
            .and_then(|build| build.to_str()?.split_once('/'))
            .and_then(|(version, protocol)| {
                Some(Build {
                    version: version.to_owned(),
                    protocol: protocol.parse().ok()?,
                })
            });
        pretended.unwrap_or_else(|| Build {
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
        })
    }

    /// Whether this one was released after `version`. What is no version is older than any.
    pub fn is_newer_than(&self, version: &str) -> bool {
        numbers(&self.version) > numbers(version)
    }
}

/// Major, minor and patch; a pre-release counts as its release.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let release = version.split(['-', '+']).next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// What a shim says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The shim's [`PROTOCOL`].
    pub protocol: u32,
    /// The shim's version.
    pub version: String,
    /// Stays the same when a shim reconnects.
    pub connection: Uuid,
    /// The shim's process id.
    pub pid: u32,
    /// The client's working directory, unless it could not be told.
    pub cwd: Option<OsText>,
    /// The client's variables of contract §7.
    pub variables: BTreeMap<String, OsText>,
    /// The processes that led to the shim.
    #[serde(default)]
    pub ancestry: Ancestry,
}

impl Hello {
    /// The client's variables as an environment.
    pub fn env(&self) -> Env {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), OsString::from(value.clone())))
            .collect()
    }

    /// The client's working directory.
    pub fn cwd(&self) -> Option<PathBuf> {
        self.cwd
            .clone()
            .map(|text| PathBuf::from(OsString::from(text)))
    }
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The daemon's [`PROTOCOL`].
    pub protocol: u32,
    /// The daemon's version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
}

/// What the SessionStart hook tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStart {
    /// The project.
    pub root: OsText,
}

/// What `GET /v1/status` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's process id.
    pub pid: u32,
    /// The daemon's version.
    pub version: String,
    /// The daemon's [`PROTOCOL`].
    pub protocol: u32,
    /// Seconds since the daemon started.
    pub uptime: u64,
    /// The socket it listens on.
    pub socket: String,
    /// Open MCP connections.
    pub connections: usize,
    /// Resident memory in bytes, where the system tells.
    #[serde(default)]
    pub memory: Option<u64>,
    /// What keeps it: `systemd` or `launchd`; absent where a shim or a person started it.
    #[serde(default)]
    pub supervisor: Option<String>,
    /// The projects that are kept.
    #[serde(default)]
    pub projects: Vec<ProjectStatus>,
    /// The watcher; absent where nothing can be watched.
    #[serde(default)]
    pub watcher: Option<WatcherStatus>,
}

/// How a project is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectStatus {
    /// Its root.
    pub root: String,
    /// `cold`, `scanning`, `live`, or `examined`: looked at anew at each call.
    pub state: String,
    /// Why it can't be live.
    pub reason: Option<String>,
    /// Directories that are watched.
    pub watches: usize,
}

/// How the watcher is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatcherStatus {
    /// Directories that are watched, of all projects.
    pub watches: usize,
    /// How often events were lost and everything had to be looked at again.
    pub rescans: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let build = |version: &str| Build {
            version: version.to_owned(),
            protocol: 1,
        };
        assert!(build("1.10.0").is_newer_than("1.9.3"));
        assert!(build("1.0.0").is_newer_than("something"));
        assert!(!build("1.0.0").is_newer_than("1.0.0"));
        assert!(!build("1.0.0-rc.1").is_newer_than("1.0.0"));
        assert!(!build("0.9.0").is_newer_than("1.0.0"));
    }
}
