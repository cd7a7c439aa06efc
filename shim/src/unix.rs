//! What only the shim asks of a Unix system.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use protocol::env::Env;
use protocol::os::user;
use tokio::net::UnixStream;
use tokio::process::Child;

/// A connection to the daemon.
pub(crate) type Connection = UnixStream;

/// Where the daemon works: no directory that anybody may want to unmount.
pub(crate) fn nowhere(_env: &Env) -> PathBuf {
    PathBuf::from("/")
}

/// Connects to the daemon's socket.
pub(crate) async fn dial(socket: &Path) -> io::Result<Connection> {
    UnixStream::connect(socket).await
}

/// Whether the other end is this user's; else whose it is.
pub(crate) fn check_peer(connection: &Connection) -> Result<(), String> {
    match connection.peer_cred() {
        Ok(peer) if peer.uid() == user() => Ok(()),
        Ok(peer) => Err(format!("it belongs to user {}", peer.uid())),
        Err(error) => Err(error.to_string()),
    }
}

/// Starts the daemon, which detaches itself.
pub(crate) fn spawn_detached(command: &mut tokio::process::Command) -> io::Result<Child> {
    command.spawn()
}

/// Runs a program in this one's place; returns only if that fails.
pub(crate) fn become_program(program: &Path, argument: &str) -> io::Result<ExitCode> {
    Err(Command::new(program).arg(argument).exec())
}
