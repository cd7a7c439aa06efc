//! What the shim and the daemon of session-checkpoint agree on.
//!
//! The shim (`session-checkpoint-mcp`) is spawned by every MCP client and forwards what the client
//! says to the daemon (`session-checkpointd`), one per user, which does the work. Both must find the
//! same socket, speak the same first lines on it, and mean the same by a session id; that, and
//! nothing else, is in this crate. It takes values and returns values: the environment is passed
//! in as an [`Env`](env::Env). Only what both sides have to answer alike is asked of the system here, and all of that
//! in [`os`]: whose directory is this, which processes led to this one, who listens on that socket?
//!
//! In reading order:
//! - [`ids`]: session ids and checkpoint selectors,
//! - [`files`]: the names of checkpoint files,
//! - [`mod@env`]: an environment as a value, and the names of the variables that matter,
//! - [`socket`]: where the socket is,
//! - [`state`]: where the state directory is,
//! - [`word`]: which session a client's process is in, by its hook,
//! - [`hello`]: the first line of each side on a connection, and the versions in it,
//! - [`process`]: this process, as its hello describes it, and those around it,
//! - [`os`]: the system: its Unix is `unix.rs`, its Windows `windows.rs`.

pub mod env;
pub mod files;
pub mod hello;
pub mod ids;
#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
pub mod os;
pub mod process;
pub mod socket;
pub mod state;
pub mod word;

/// The version of the program, the same for all its crates.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
