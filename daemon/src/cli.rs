//! The command line of `session-checkpointd`.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use protocol::hello::{STATUS_ENDPOINT, Status};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::Config;
use crate::{RunError, demo, unix};

/// Keeps checkpoints of coding-agent sessions. MCP clients spawn `session-checkpoint-mcp`, which starts
/// this daemon by itself.
#[derive(Debug, Parser)]
#[command(name = "session-checkpointd", version, arg_required_else_help = true)]
struct Cli {
    /// Serve one MCP client on standard input and output, without a daemon.
    #[arg(long)]
    stdio: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon in the foreground.
    Run {
        /// Let go of the terminal and the session; used by the shim.
        #[arg(long, hide = true)]
        detached: bool,
    },
    /// Say whether the daemon runs, and how it is.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Play the main job on a small repository in a temporary folder: save, edit, load.
    Demo,
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = Config::from_env();
    let result = match cli.command {
        None if cli.stdio => serve(&config, Serve::Stdio),
        None => Err("call `session-checkpointd --help`".to_owned()),
        Some(Command::Run { detached }) => serve(&config, Serve::Socket { detached }),
        Some(Command::Status { json }) => status(&config, json),
        Some(Command::Demo) => demo::play(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone, Copy)]
enum Serve {
    Socket { detached: bool },
    Stdio,
}

fn serve(config: &Config, how: Serve) -> Result<(), String> {
    unix::make_private();
    if let Serve::Socket { detached: true } = how {
        unix::detach().map_err(|error| format!("could not let go of the terminal ({error})"))?;
    }
    start_log(config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("could not start ({error})"))?;
    let result = match how {
        Serve::Socket { detached } => runtime.block_on(crate::run(config, detached)),
        Serve::Stdio => runtime.block_on(crate::embedded(config)),
    };
    // A thread that reads standard input can't be interrupted; it ends with the process.
    runtime.shutdown_background();
    result.map_err(|error: RunError| error.to_string())
}

/// Logs to standard error, our own events alone: the protocol library would log what clients send.
fn start_log(config: &Config) {
    let filter = config
        .env
        .get(protocol::env::LOG)
        .and_then(|filter| filter.to_str())
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new("info"));
    let ours = filter_fn(|metadata| metadata.target().starts_with("daemon"));
    let layer = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_filter(filter)
        .with_filter(ours);
    tracing_subscriber::registry().with(layer).init();
}

fn status(config: &Config, json: bool) -> Result<(), String> {
    let place = config.place().map_err(|error| error.to_string())?;
    let body = get(&place.socket, STATUS_ENDPOINT).map_err(|error| {
        format!(
            "no daemon answers on `{}` ({error}); the next MCP client starts one",
            place.socket.display()
        )
    })?;
    let status: Status = serde_json::from_str(&body).map_err(|error| {
        format!(
            "what answers on `{}` is no daemon of ours ({error})",
            place.socket.display()
        )
    })?;
    if json {
        return print(&serde_json::to_string_pretty(&status).expect("a status is plain JSON"));
    }
    print(&format!(
        "session-checkpointd {} runs as process {} for {} s on {}, {} connection(s)",
        status.version, status.pid, status.uptime, status.socket, status.connections
    ))
}

fn get(socket: &Path, endpoint: &str) -> io::Result<String> {
    ask(socket, "GET", endpoint)
}

pub(crate) fn post(socket: &Path, endpoint: &str) -> io::Result<String> {
    ask(socket, "POST", endpoint)
}

/// One request on the socket, whose answer ends with the connection.
fn ask(socket: &Path, method: &str, endpoint: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "{method} {endpoint} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.take(1024 * 1024).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
        _ => Err(io::Error::other("an unexpected answer")),
    }
}

/// Writes for a person. A closed pipe is not worth a word.
pub(crate) fn print(text: &str) -> Result<(), String> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("could not write ({error})"))
        }
        _ => Ok(()),
    }
}

fn complain(message: &str) {
    // Where even this can't be written, the exit code says it.
    let _written = writeln!(io::stderr().lock(), "session-checkpointd: {message}");
}
