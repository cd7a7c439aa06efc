//! Starting the daemon exactly once, or one for this client alone.
//!
//! Whoever finds nobody listening takes the spawn lock, connects again, and only then starts the
//! `session-checkpointd` beside this program. It tells on its standard output when it is ready, so nothing is
//! polled. A herd of shims queues at the lock, and all but the first find the daemon that the first started.

use std::fs::File;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use protocol::env;
use protocol::hello::{READY, TAKEN};
use protocol::os::{make_private_dir, private, user};
use protocol::socket::Place;
use protocol::state;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use crate::connect::{Daemon, Stream, Trouble};
use crate::os;

/// How long a daemon may take to start, and the herd to pass the lock.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// The variables that a daemon is started with; it serves every client, so nothing of this one's is in them.
const DAEMON_VARIABLES: [&str; 17] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "APPDATA",
    "LOCALAPPDATA",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERPROFILE",
    env::SOCKET,
    env::STATE_DIR,
    env::LOG,
];

impl Daemon {
    /// Starts the daemon and waits until it says that it is ready.
    pub(crate) async fn start(&self) -> Result<(), Trouble> {
        let program = self
            .program
            .as_ref()
            .map_err(|reason| Trouble::Final(reason.clone()))?;
        let mut command = Command::new(program);
        command
            .args(["run", "--detached"])
            .current_dir(os::nowhere(&self.env))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log());
        for name in DAEMON_VARIABLES {
            if let Some(value) = self.env.get(name) {
                command.env(name, value);
            }
        }
        let failed = |reason: &str| format!("could not start `{}`: {reason}", program.display());
        let mut child = os::spawn_detached(&mut command)
            .map_err(|error| Trouble::Final(failed(&error.to_string())))?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout).take(4096);
        let told = tokio::time::timeout(START_PATIENCE, stdout.read_line(&mut line)).await;
        match (told, line.trim_end()) {
            (Ok(Ok(_)), READY) => Ok(()),
            (Ok(Ok(_)), "") => Err(Trouble::Passing(failed("it ended at once"))),
            (Ok(Ok(_)), TAKEN) => Err(Trouble::Passing(failed("another one has not left yet"))),
            (Ok(Ok(_)), reason) => Err(Trouble::Final(failed(reason))),
            (Ok(Err(error)), _) => Err(Trouble::Passing(failed(&error.to_string()))),
            (Err(_), _) => Err(Trouble::Final(failed("it didn't become ready in time"))),
        }
    }

    /// Starts a process that serves this client alone, in the place of a daemon. It goes on under the same
    /// connection id, so that it recognises what a daemon has applied already.
    pub(crate) fn start_embedded(&self) -> Result<Stream, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let mut child = Command::new(program)
            .args(["--stdio", "--connection"])
            .arg(self.hello.connection.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("could not run `{}` ({error})", program.display()))?;
        let stdout: Box<dyn AsyncRead + Unpin> =
            Box::new(child.stdout.take().expect("it is piped"));
        Ok(Stream {
            reader: BufReader::new(stdout),
            writer: Box::new(child.stdin.take().expect("it is piped")),
            pid: None,
            embedded: Some(child),
        })
    }

    /// Where the daemon's complaints go: a file in the state directory, or nowhere.
    fn log(&self) -> Stdio {
        self.state
            .as_ref()
            .and_then(|directory| {
                make_private_dir(directory).ok()?;
                private(File::options().create(true).append(true))
                    .open(directory.join(state::LOG_FILE))
                    .ok()
            })
            .map_or_else(Stdio::null, Stdio::from)
    }
}

/// The lock that whoever starts the daemon holds, beside the socket.
pub(crate) async fn spawn_lock(place: &Place) -> Result<File, Trouble> {
    let failed = |error: &dyn std::fmt::Display| {
        Trouble::Final(format!(
            "the socket's directory `{}` can't be used: {error}",
            place.directory.display()
        ))
    };
    make_private_dir(&place.directory).map_err(|error| failed(&error))?;
    place.check(&user()).map_err(|error| failed(&error))?;
    let path = place.starting();
    let taking = tokio::task::spawn_blocking(move || {
        let mut options = File::options();
        let lock = private(options.create(true).truncate(false).write(true)).open(path)?;
        lock.lock()?;
        Ok::<File, io::Error>(lock)
    });
    match tokio::time::timeout(START_PATIENCE, taking).await {
        Ok(Ok(Ok(lock))) => Ok(lock),
        Ok(Ok(Err(error))) => Err(failed(&error)),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(
            &"another program has been starting the daemon for too long",
        )),
    }
}
