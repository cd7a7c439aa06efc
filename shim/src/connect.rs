//! Finding the daemon, or starting it exactly once.
//!
//! Connect; where nobody answers, take the spawn lock, connect again, and only then start the
//! `session-checkpointd` beside this program. It tells on its standard output when it is ready, so nothing is
//! polled. A herd of shims queues at the lock, and all but the first find the daemon that the first started.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::env::{self, Env};
use protocol::hello::{self, Hello, PROTOCOL, READY, TAKEN, Welcome};
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
/// How long daemons that die while they are being reached are put up with.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How often one is started for that; one that can't run must not be started for ever.
const MAX_STARTS: usize = 5;
/// The pause between attempts.
const RETRY: Duration = Duration::from_millis(20);

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

    /// A connection to the daemon, which is started where none runs. One that dies while it is being reached
    /// is only bad luck; what will not change by itself is final.
    pub(crate) async fn connect(&self) -> Result<Stream, Unreachable> {
        if self.off {
            return Err(Unreachable::Off);
        }
        let place = self
            .place
            .as_ref()
            .map_err(|reason| Unreachable::Failed(reason.clone()))?;
        let deadline = Instant::now() + CONNECT_PATIENCE;
        let mut starts = 0;
        loop {
            match self.attempt(place, &mut starts).await {
                Ok(stream) => return Ok(stream),
                Err(Trouble::Passing(_)) if Instant::now() < deadline && starts < MAX_STARTS => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(Trouble::Passing(reason) | Trouble::Final(reason)) => {
                    return Err(Unreachable::Failed(reason));
                }
            }
        }
    }

    async fn attempt(&self, place: &Place, starts: &mut usize) -> Result<Stream, Trouble> {
        match self.try_connect(place).await {
            Err(Greeting::NobodyThere) => {}
            other => return other.map_err(|greeting| greeting.trouble(place)),
        }
        let lock = spawn_lock(place).await?;
        let stream = match self.try_connect(place).await {
            Err(Greeting::NobodyThere) => {
                *starts += 1;
                self.start().await?;
                self.try_connect(place).await
            }
            other => other,
        };
        drop(lock);
        stream.map_err(|greeting| greeting.trouble(place))
    }

    async fn try_connect(&self, place: &Place) -> Result<Stream, Greeting> {
        let stream = match UnixStream::connect(&place.socket).await {
            Ok(stream) => stream,
            Err(error) if is_absence(&error) => return Err(Greeting::NobodyThere),
            Err(error) => return Err(Greeting::Refused(error.to_string())),
        };
        let peer = stream
            .peer_cred()
            .map_err(|error| Greeting::Refused(error.to_string()))?
            .uid();
        if peer != unix::user() {
            return Err(Greeting::Refused(format!("it belongs to user {peer}")));
        }
        tokio::time::timeout(HELLO_PATIENCE, self.greet(stream))
            .await
            .unwrap_or_else(|_| Err(Greeting::Refused("it doesn't answer".to_owned())))
    }

    /// Upgrades the connection and says hello.
    async fn greet(&self, stream: UnixStream) -> Result<Stream, Greeting> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends by itself when the connection does.
        tokio::spawn(connection.with_upgrades());
        let request = Request::get(hello::MCP_ENDPOINT)
            .header(HOST, "localhost")
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, hello::UPGRADE)
            .body(Empty::<Bytes>::new())
            .expect("the request is fixed");
        let answer = sender.send_request(request).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            let status = answer.status();
            return Err(Greeting::Refused(format!("it answered {status}")));
        }
        let upgraded = hyper::upgrade::on(answer).await?;
        let (reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        let mut line = serde_json::to_vec(&self.hello).expect("a hello is plain JSON");
        line.push(b'\n');
        writer.write_all(&line).await.map_err(|_| Greeting::Died)?;
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        (&mut reader)
            .take(hello::MAX_HELLO as u64)
            .read_until(b'\n', &mut line)
            .await
            .map_err(|_| Greeting::Died)?;
        if line.is_empty() {
            return Err(Greeting::Died);
        }
        let welcome: Welcome = serde_json::from_slice(&line)
            .map_err(|error| Greeting::Refused(format!("it sent no welcome ({error})")))?;
        if welcome.protocol != PROTOCOL {
            return Err(Greeting::Refused(format!(
                "version {} speaks protocol {}, this one {PROTOCOL}",
                welcome.version, welcome.protocol
            )));
        }
        Ok(Stream { reader, writer })
    }

    /// Starts the daemon and waits until it says that it is ready.
    async fn start(&self) -> Result<(), Trouble> {
        let program = self
            .program
            .as_ref()
            .map_err(|reason| Trouble::Final(reason.clone()))?;
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
        let failed = |reason: &str| format!("could not start `{}`: {reason}", program.display());
        let mut child = command
            .spawn()
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

/// Why an attempt came to nothing.
enum Trouble {
    /// The next one may do better.
    Passing(String),
    /// It won't.
    Final(String),
}

/// Why nobody said welcome.
enum Greeting {
    /// No daemon listens.
    NobodyThere,
    /// It died while it was being greeted.
    Died,
    /// Something listens that is no daemon of ours.
    Refused(String),
}

impl Greeting {
    fn trouble(self, place: &Place) -> Trouble {
        let about =
            |what: &str| format!("the daemon's socket `{}`: {what}", place.socket.display());
        match self {
            Greeting::NobodyThere => Trouble::Passing(about("nobody listens on it")),
            Greeting::Died => Trouble::Passing(about("the daemon died")),
            Greeting::Refused(reason) => Trouble::Final(about(&reason)),
        }
    }
}

impl From<hyper::Error> for Greeting {
    fn from(error: hyper::Error) -> Greeting {
        if error.is_parse() {
            Greeting::Refused(format!("it speaks no HTTP ({error})"))
        } else {
            Greeting::Died
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

fn sibling() -> Result<PathBuf, String> {
    let own = std::env::current_exe()
        .map_err(|error| format!("this program's own path can't be told ({error})"))?;
    let name = format!("session-checkpointd{}", std::env::consts::EXE_SUFFIX);
    Ok(own.with_file_name(name))
}

/// The lock that whoever starts the daemon holds, beside the socket.
async fn spawn_lock(place: &Place) -> Result<File, Trouble> {
    let failed = |error: &dyn std::fmt::Display| {
        Trouble::Final(format!(
            "the socket's directory `{}` can't be used: {error}",
            place.directory.display()
        ))
    };
    unix::make_private_dir(&place.directory).map_err(|error| failed(&error))?;
    place.check(unix::user()).map_err(|error| failed(&error))?;
    let path = place.starting();
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
