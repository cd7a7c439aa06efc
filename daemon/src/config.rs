//! The daemon's own environment, read once. A client's variables come with its hello and are never read here.

use std::path::PathBuf;

use protocol::env::Env;
use protocol::hello::Build;
use protocol::os;
use protocol::socket::{self, Place, SocketError};

/// What a daemon runs with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// This process's environment.
    pub env: Env,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Which build this is.
    pub build: Build,
}

impl Config {
    /// From this process's environment.
    pub(crate) fn from_env() -> Config {
        let env: Env = std::env::vars_os().collect();
        Config {
            build: Build::of(&env),
            env,
            home: std::env::home_dir(),
        }
    }

    /// Where the socket is.
    pub(crate) fn place(&self) -> Result<Place, SocketError> {
        socket::place(&self.env, &os::user())
    }

    /// The state directory, unless there is none that is this user's.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        protocol::state::usable(&self.env, &os::user())
    }
}
