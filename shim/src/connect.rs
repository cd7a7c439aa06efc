//! Finding the daemon, or starting it exactly once.
//!
//! Connect; where nobody answers, take the spawn lock, connect again, and only then start the
//! `session-checkpointd` beside this program. It tells on its standard output when it is ready, so nothing is
//! polled. A herd of shims queues at the lock, and all but the first find the daemon that the first started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::env::{self, Env};
use protocol::hello::{self, Hello, PROTOCOL, Welcome};
use protocol::socket::{self, Place};
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf,
};
use tokio::net::UnixStream;
use tokio::process::Command;
use uuid::Uuid;

use crate::unix;

/// How long a daemon may take to answer the hello.
const HELLO_PATIENCE: Duration = Duration::from_millis(500);
/// How long a daemon may take to start, and the herd to pass the lock.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// The variables that a daemon is started with; it serves every client, so nothing of this one's is in them.
const DAEMON_VARIABLES: [&str; 12] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "TMPDIR",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "LOCALAPPDATA",
    env::SOCKET,
    env::STATE_DIR,
    env::LOG,
];

/// Why there is no daemon.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// The user wants none.
    Off,
    /// None could be reached or started.
    Failed(String),
}

/// A connection on which the hellos have been said.
pub(crate) struct Stream {
    pub(crate) reader: BufReader<ReadHalf<TokioIo<Upgraded>>>,
    pub(crate) writer: WriteHalf<TokioIo<Upgraded>>,
}

/// How to reach the daemon from here.
pub(crate) struct Daemon {
    /// The daemon's program.
    pub(crate) program: Result<PathBuf, String>,
    off: bool,
    place: Result<Place, String>,
    env: Env,
    hello: Hello,
}

impl Daemon {
    pub(crate) fn new(env: &Env) -> Daemon {
        let named = env.get(env::DAEMON);
        let off = named.is_some_and(|value| value == "off");
        let program = match named.filter(|_| !off) {
            Some(program) => Ok(PathBuf::from(program)),
            None => sibling(),
        };
        Daemon {
            program,
            off,
            place: socket::place(env, unix::user()).map_err(|error| error.to_string()),
            hello: protocol::process::hello(Uuid::new_v4(), env),
            env: env.clone(),
        }
    }

    /// A connection to the daemon, which is started where none runs.
    pub(crate) async fn connect(&self) -> Result<Stream, Unreachable> {
        if self.off {
            return Err(Unreachable::Off);
        }
        let place = self
            .place
            .as_ref()
            .map_err(|reason| Unreachable::Failed(reason.clone()))?;
        match self.try_connect(place).await {
            Ok(stream) => return Ok(stream),
            Err(error) if !nobody_listens(&error) => return Err(failed(&place.socket, &error)),
            Err(_) => {}
        }
        let lock = spawn_lock(place).await?;
        let stream = match self.try_connect(place).await {
            Err(error) if nobody_listens(&error) => {
                self.start().await?;
                self.try_connect(place).await
            }
            other => other,
        };
        drop(lock);
        stream.map_err(|error| failed(&place.socket, &error))
    }

    async fn try_connect(&self, place: &Place) -> io::Result<Stream> {
        let stream = UnixStream::connect(&place.socket).await?;
        let peer = stream.peer_cred()?.uid();
        if peer != unix::user() {
            return Err(io::Error::other(format!("it belongs to user {peer}")));
        }
        tokio::time::timeout(HELLO_PATIENCE, self.greet(stream))
            .await
            .unwrap_or_else(|_| Err(io::Error::other("it doesn't answer")))
    }

    /// Upgrades the connection and says hello.
    async fn greet(&self, stream: UnixStream) -> io::Result<Stream> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        // Ends by itself when the connection does.
        tokio::spawn(connection.with_upgrades());
        let request = Request::get(hello::MCP_ENDPOINT)
            .header(HOST, "localhost")
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, hello::UPGRADE)
            .body(Empty::<Bytes>::new())
            .expect("the request is fixed");
        let answer = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(io::Error::other(format!("it answered {}", answer.status())));
        }
        let upgraded = hyper::upgrade::on(answer).await.map_err(io::Error::other)?;
        let (reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        let mut line = serde_json::to_vec(&self.hello)?;
        line.push(b'\n');
        writer.write_all(&line).await?;
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        (&mut reader)
            .take(hello::MAX_HELLO as u64)
            .read_until(b'\n', &mut line)
            .await?;
        let welcome: Welcome = serde_json::from_slice(&line)?;
        if welcome.protocol != PROTOCOL {
            return Err(io::Error::other(format!(
                "version {} speaks protocol {}, this one {PROTOCOL}",
                welcome.version, welcome.protocol
            )));
        }
        Ok(Stream { reader, writer })
    }

    /// Starts the daemon and waits until it says that it is ready.
    async fn start(&self) -> Result<(), Unreachable> {
        let program = self
            .program
            .as_ref()
            .map_err(|reason| Unreachable::Failed(reason.clone()))?;
        let mut command = Command::new(program);
        command
            .args(["run", "--detached"])
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log());
        for name in DAEMON_VARIABLES {
            if let Some(value) = self.env.get(name) {
                command.env(name, value);
            }
        }
        let failed = |reason: String| {
            Unreachable::Failed(format!("could not start `{}`: {reason}", program.display()))
        };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout).take(4096);
        match tokio::time::timeout(START_PATIENCE, stdout.read_line(&mut line)).await {
            Ok(Ok(_)) if line.trim_end() == "ready" => Ok(()),
            Ok(Ok(0)) => Err(failed("it ended at once".to_owned())),
            Ok(Ok(_)) => Err(failed(line.trim_end().to_owned())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("it didn't become ready in time".to_owned())),
        }
    }

    /// Where the daemon's complaints go: a file in the state directory, or nowhere.
    fn log(&self) -> Stdio {
        protocol::state::directory(&self.env)
            .and_then(|directory| {
                unix::make_private_dir(&directory).ok()?;
                unix::open_private(&directory.join("daemon.log")).ok()
            })
            .map_or_else(Stdio::null, Stdio::from)
    }
}

fn failed(socket: &Path, error: &io::Error) -> Unreachable {
    Unreachable::Failed(format!(
        "the daemon's socket `{}` can't be used: {error}",
        socket.display()
    ))
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

fn sibling() -> Result<PathBuf, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("this program's own path can't be told ({error})"))?;
    let name = format!("session-checkpointd{}", std::env::consts::EXE_SUFFIX);
    Ok(own.with_file_name(name))
}

/// The lock that whoever starts the daemon holds, beside the socket.
async fn spawn_lock(place: &Place) -> Result<File, Unreachable> {
    let failed = |error: &dyn std::fmt::Display| {
        Unreachable::Failed(format!(
            "the socket's directory `{}` can't be used: {error}",
            place.directory.display()
        ))
    };
    unix::make_private_dir(&place.directory).map_err(|error| failed(&error))?;
    place.check(unix::user()).map_err(|error| failed(&error))?;
    let path = place.socket.with_extension("starting");
    let taking = tokio::task::spawn_blocking(move || {
        let lock = unix::open_private(&path)?;
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
