//! What only the shim asks of Windows.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use protocol::env::Env;
use protocol::os::{owner_of_pipe, user};
use tokio::net::windows::named_pipe::{ClientOptions, NamedPipeClient};
use tokio::process::Child;
use windows_sys::Win32::Foundation::{HANDLE_FLAG_INHERIT, SetHandleInformation};
use windows_sys::Win32::System::Console::{
    GetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};
use windows_sys::Win32::System::Threading::{
    CREATE_BREAKAWAY_FROM_JOB, CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW,
};

/// A connection to the daemon.
pub(crate) type Connection = NamedPipeClient;

/// Where the daemon works: no directory that anybody may want to remove.
pub(crate) fn nowhere(env: &Env) -> PathBuf {
    env.get("SYSTEMROOT").unwrap_or(OsStr::new(r"C:\")).into()
}

/// Connects to the daemon's pipe. Its server learns who this is and can't act as it, which is what tokio asks for.
#[expect(clippy::unused_async, reason = "elsewhere it waits")]
pub(crate) async fn dial(socket: &Path) -> io::Result<Connection> {
    ClientOptions::new().open(socket)
}

/// Whether the other end is this user's; else whose it is.
pub(crate) fn check_peer(connection: &Connection) -> Result<(), String> {
    match owner_of_pipe(connection) {
        Some(owner) if owner == user() => Ok(()),
        Some(owner) => Err(format!("it belongs to user {owner}")),
        None => Err("its owner can't be told".to_owned()),
    }
}

/// Starts the daemon without a window, in a group of its own that no console's Ctrl+C reaches, outside the client's job
/// where that allows it, and without the client's pipes: whoever reads these would wait for the daemon's end.
#[expect(
    unsafe_code,
    reason = "no safe interface keeps a handle from being inherited"
)]
pub(crate) fn spawn_detached(command: &mut tokio::process::Command) -> io::Result<Child> {
    for name in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // SAFETY: the handle stays open and the process's own; one that is none is refused.
        unsafe { SetHandleInformation(GetStdHandle(name), HANDLE_FLAG_INHERIT, 0) };
    }
    let flags = CREATE_NO_WINDOW | CREATE_NEW_PROCESS_GROUP;
    command.creation_flags(flags | CREATE_BREAKAWAY_FROM_JOB);
    command.spawn().or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => command.creation_flags(flags).spawn(),
        _ => Err(error),
    })
}

/// Runs a program in this one's place: as a child with the same standard input and output, since a process can't
/// become another one here.
pub(crate) fn become_program(program: &Path, argument: &str) -> io::Result<ExitCode> {
    let status = Command::new(program).arg(argument).status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
