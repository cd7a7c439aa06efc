//! Finding the daemon: connect and greet; where nobody answers, have it started (`start`), once.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, HOST, UPGRADE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::env::{self, Env};
use protocol::hello::{self, Build, Hello, Status, Welcome};
use protocol::socket::{self, Place};
use protocol::state;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::process::Child;
use uuid::Uuid;

use crate::os::{self, Connection};

/// How long a daemon may take to answer the hello.
const HELLO_PATIENCE: Duration = Duration::from_millis(500);
/// How long daemons that die or leave while they are being reached are put up with.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How often one is started for that; one that can't run must not be started for ever.
const MAX_STARTS: usize = 5;
/// How often something may accept a connection and hang up; no daemon of ours does.
const MAX_DEATHS: usize = 8;
/// The pause between attempts.
const RETRY: Duration = Duration::from_millis(20);

/// Why there is no daemon.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// The user wants none.
    Off,
    /// None could be reached or started.
    Failed(String),
}

/// Lines to and from whoever does the work.
pub(crate) struct Stream {
    pub(crate) reader: BufReader<Box<dyn AsyncRead + Unpin>>,
    pub(crate) writer: Box<dyn AsyncWrite + Unpin>,
    /// The daemon's process id.
    pub(crate) pid: Option<u32>,
    /// The process that serves this client alone, where there is no daemon. It ends with its standard input.
    pub(crate) embedded: Option<Child>,
}

/// How to reach the daemon from here.
pub(crate) struct Daemon {
    /// The daemon's program.
    pub(crate) program: Result<PathBuf, String>,
    pub(crate) env: Env,
    pub(crate) hello: Hello,
    /// The state directory, unless there is none that is this user's.
    pub(crate) state: Option<PathBuf>,
    build: Build,
    off: bool,
    place: Result<Place, String>,
    /// Whether an older daemon was asked to leave: if what comes back is still older, it is served all the same.
    asked_to_leave: AtomicBool,
}

impl Daemon {
    pub(crate) fn new(env: &Env) -> Daemon {
        let named = env.get(env::DAEMON);
        let off = named.is_some_and(|value| value == "off");
        let program = match named.filter(|_| !off) {
            Some(program) => Ok(PathBuf::from(program)),
            None => sibling(),
        };
        let user = protocol::os::user();
        Daemon {
            program,
            state: state::usable(env, &user),
            build: Build::of(env),
            off,
            place: socket::place(env, &user).map_err(|error| error.to_string()),
            hello: protocol::process::hello(Uuid::new_v4(), env),
            env: env.clone(),
            asked_to_leave: AtomicBool::new(false),
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
        let (mut starts, mut deaths) = (0, 0);
        loop {
            let trouble = match self.attempt(place, &mut starts).await {
                Ok(stream) => return Ok(stream),
                Err(Greeting::Died) if deaths < MAX_DEATHS => {
                    deaths += 1;
                    Trouble::Passing(String::new())
                }
                Err(greeting) => greeting.trouble(place),
            };
            match trouble {
                Trouble::Passing(_) if Instant::now() < deadline && starts < MAX_STARTS => {
                    tokio::time::sleep(RETRY).await;
                }
                Trouble::Passing(reason) | Trouble::Final(reason) => {
                    return Err(Unreachable::Failed(reason));
                }
            }
        }
    }

    /// Whether the daemon of this process id still answers, at the place where it is looked for.
    pub(crate) async fn is_well(&self, pid: Option<u32>) -> bool {
        let Ok(place) = &self.place else {
            return false;
        };
        let answer = tokio::time::timeout(
            2 * HELLO_PATIENCE,
            self.ask(place, Method::GET, hello::STATUS_ENDPOINT),
        );
        // Another one that answers there says nothing of this one.
        let Ok(Ok(body)) = answer.await else {
            return false;
        };
        serde_json::from_slice::<Status>(&body).is_ok_and(|status| Some(status.pid) == pid)
    }

    async fn attempt(&self, place: &Place, starts: &mut usize) -> Result<Stream, Greeting> {
        match self.try_connect(place).await {
            Err(Greeting::NobodyThere) => {}
            other => return other,
        }
        let lock = crate::start::spawn_lock(place).await?;
        let stream = match self.try_connect(place).await {
            Err(Greeting::NobodyThere) => {
                *starts += 1;
                self.start().await?;
                self.try_connect(place).await
            }
            other => other,
        };
        drop(lock);
        stream
    }

    /// Greets whoever listens. Where that is an older build, it is asked to make room, once.
    async fn try_connect(&self, place: &Place) -> Result<Stream, Greeting> {
        let greeted = async { self.greet(self.dial(place).await?).await };
        let (stream, welcome) = tokio::time::timeout(HELLO_PATIENCE, greeted)
            .await
            .unwrap_or_else(|_| Err(Greeting::Refused("it doesn't answer".to_owned())))?;
        if self.build.is_newer_than(&welcome.version)
            && !self.asked_to_leave.swap(true, Ordering::Relaxed)
        {
            let asked = self.ask(place, Method::POST, hello::SHUTDOWN_ENDPOINT);
            return Err(match tokio::time::timeout(HELLO_PATIENCE, asked).await {
                Ok(Ok(_)) => Greeting::Leaving,
                Ok(Err(greeting)) => greeting,
                Err(_) => Greeting::Refused("it doesn't answer".to_owned()),
            });
        }
        if welcome.protocol != self.build.protocol {
            return Err(Greeting::Refused(format!(
                "version {} speaks protocol {}, this one {} speaks {}; restart the client that runs the older one, or run `session-checkpointd stop`",
                welcome.version, welcome.protocol, self.build.version, self.build.protocol
            )));
        }
        Ok(stream)
    }

    /// Connects where the socket should be, else where the state directory says that a daemon listens.
    async fn dial(&self, place: &Place) -> Result<Connection, Greeting> {
        let here = dial(&place.socket).await;
        let elsewhere = match (&here, &self.state) {
            (Err(Greeting::NobodyThere), Some(state)) if !place.explicit => {
                protocol::process::running_daemon(state)
                    .map(|daemon| PathBuf::from(daemon.socket))
                    .filter(|socket| *socket != place.socket)
            }
            _ => None,
        };
        match elsewhere {
            Some(socket) => dial(&socket).await,
            None => here,
        }
    }

    /// Upgrades the connection and says hello.
    async fn greet(&self, stream: Connection) -> Result<(Stream, Welcome), Greeting> {
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
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            // Too many connections, or about to leave.
            StatusCode::SERVICE_UNAVAILABLE => return Err(Greeting::Leaving),
            status => return Err(Greeting::Refused(format!("it answered {status}"))),
        }
        let upgraded = hyper::upgrade::on(answer).await?;
        let (reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        let mut line = serde_json::to_vec(&self.hello).expect("a hello is plain JSON");
        line.push(b'\n');
        writer.write_all(&line).await.map_err(|_| Greeting::Died)?;
        let reader: Box<dyn AsyncRead + Unpin> = Box::new(reader);
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
        let stream = Stream {
            reader,
            writer: Box::new(writer),
            pid: Some(welcome.pid),
            embedded: None,
        };
        Ok((stream, welcome))
    }

    /// One plain request.
    async fn ask(&self, place: &Place, method: Method, endpoint: &str) -> Result<Bytes, Greeting> {
        let stream = self.dial(place).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(endpoint)
            .header(HOST, "localhost")
            .body(Empty::<Bytes>::new())
            .expect("the request is fixed");
        let answer = sender.send_request(request).await?;
        Ok(answer.into_body().collect().await?.to_bytes())
    }
}

/// Connects to a socket of this user's.
async fn dial(socket: &std::path::Path) -> Result<Connection, Greeting> {
    let stream = match os::dial(socket).await {
        Ok(stream) => stream,
        Err(error) if is_absence(&error) => return Err(Greeting::NobodyThere),
        Err(error) if protocol::os::is_busy(&error) => return Err(Greeting::Busy),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Greeting::Refused(format!(
                "{error}; where a sandbox blocks it, allow this path"
            )));
        }
        Err(error) => return Err(Greeting::Refused(error.to_string())),
    };
    os::check_peer(&stream).map_err(Greeting::Refused)?;
    Ok(stream)
}

/// Why an attempt came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
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
    /// It makes room for a newer one.
    Leaving,
    /// Too many others are connecting to it.
    Busy,
    /// Something listens that is no daemon of ours.
    Refused(String),
    /// None could be started.
    NotStarted(Trouble),
}

impl Greeting {
    fn trouble(self, place: &Place) -> Trouble {
        let about =
            |what: &str| format!("the daemon's socket `{}`: {what}", place.socket.display());
        match self {
            Greeting::NobodyThere => Trouble::Passing(about("nobody listens on it")),
            Greeting::Died => Trouble::Final(about("what listens on it hangs up at once")),
            Greeting::Leaving => Trouble::Passing(about("the daemon is leaving")),
            Greeting::Busy => Trouble::Passing(about("too many others are connecting")),
            Greeting::Refused(reason) => Trouble::Final(about(&reason)),
            Greeting::NotStarted(trouble) => trouble,
        }
    }
}

impl From<Trouble> for Greeting {
    fn from(trouble: Trouble) -> Greeting {
        Greeting::NotStarted(trouble)
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
