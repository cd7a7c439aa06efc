//! The socket on Windows: a named pipe.
//!
//! Every instance of it lets this user in and nobody else, none from another machine; the first one fails where the
//! name is taken. There is always an instance that waits: the next one is made before a connected one is handed on.

use std::io;
use std::path::{Path, PathBuf};

use protocol::os::Access;
use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use tokio::sync::Mutex;
use windows_sys::Win32::Foundation::ERROR_NO_DATA;

use super::{ListenError, failed};

/// A connection of a client's.
pub(crate) type Connection = NamedPipeServer;

/// A pipe that this daemon serves.
#[derive(Debug)]
pub(super) struct Socket {
    /// The instance that waits for the next client.
    next: Mutex<NamedPipeServer>,
    pub(super) path: PathBuf,
    pub(super) supervisor: Option<&'static str>,
}

impl Socket {
    /// No service manager of Windows has a pipe to hand over.
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere one may have")]
    pub(super) fn handed_over() -> Result<Option<Socket>, ListenError> {
        Ok(None)
    }

    /// Serves a pipe that nobody serves.
    pub(super) fn bind(path: &Path) -> Result<Socket, ListenError> {
        let first = instance(path, true).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ListenError::Taken(path.to_path_buf()),
            _ => failed("serve", path)(error),
        })?;
        Ok(Socket {
            next: Mutex::new(first),
            path: path.to_path_buf(),
            supervisor: None,
        })
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Connection> {
        let mut next = self.next.lock().await;
        while let Err(error) = next.connect().await {
            // It came and left in the meantime.
            next.disconnect()?;
            if error.raw_os_error() != Some(ERROR_NO_DATA.cast_signed()) {
                return Err(error);
            }
        }
        let another = instance(&self.path, false)?;
        Ok(std::mem::replace(&mut *next, another))
    }

    /// A pipe can't be taken away from its server.
    pub(super) async fn lost(&self) {
        std::future::pending().await
    }
}

#[expect(unsafe_code, reason = "security attributes are a pointer")]
fn instance(path: &Path, first: bool) -> io::Result<NamedPipeServer> {
    let access = Access::to_pipe()?;
    let mut options = ServerOptions::new();
    options
        .first_pipe_instance(first)
        .reject_remote_clients(true);
    // SAFETY: the attributes live until the call returns, and are only read.
    unsafe {
        options.create_with_security_attributes_raw(path, access.attributes().cast_mut().cast())
    }
}
