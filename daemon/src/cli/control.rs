//! Commands about a daemon that runs: `status`, `stop`, `logs`.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use protocol::hello::{SHUTDOWN_ENDPOINT, STATUS_ENDPOINT, Status};
use protocol::{os, state};

use crate::cli::print;
use crate::config::Config;

/// How long a daemon may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// The most of an answer, in bytes.
const MAX_ANSWER: u64 = 1024 * 1024;
/// How long it may take to leave.
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);

/// Why no status can be told.
pub(crate) enum NoStatus {
    /// There is no place for a socket at all.
    NoPlace(String),
    /// Nobody listens.
    NotRunning(PathBuf),
    /// What stands there is no socket.
    InTheWay(PathBuf),
    /// It may not be used.
    Denied(PathBuf, String),
    /// Something listens, and doesn't answer as a daemon does.
    Odd(PathBuf, String),
}

impl NoStatus {
    /// What is the matter, and what to do.
    pub(crate) fn explain(&self) -> String {
        match self {
            NoStatus::NoPlace(reason) => reason.clone(),
            NoStatus::NotRunning(socket) => format!(
                "no daemon listens on `{}`; the next MCP client starts one",
                socket.display()
            ),
            NoStatus::InTheWay(socket) => format!(
                "`{}` is no socket and stands in the way: move it away",
                socket.display()
            ),
            NoStatus::Denied(socket, reason) => format!(
                "`{}` may not be connected to ({reason}): it is another user's, or a sandbox must be told to allow this path",
                socket.display()
            ),
            NoStatus::Odd(socket, reason) => format!(
                "what listens on `{}` doesn't answer as this daemon does ({reason}); a frozen daemon goes on after `kill -CONT`, another program must leave the socket",
                socket.display()
            ),
        }
    }
}

/// The status of the daemon that a client here would find.
pub(crate) fn ask_status(config: &Config) -> Result<Status, NoStatus> {
    status_at(&socket(config).map_err(NoStatus::NoPlace)?)
}

fn status_at(socket: &Path) -> Result<Status, NoStatus> {
    let socket = socket.to_path_buf();
    let body = match ask(&socket, "GET", STATUS_ENDPOINT) {
        Ok(body) => body,
        Err(_) if crate::os::is_in_the_way(&socket) => return Err(NoStatus::InTheWay(socket)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(NoStatus::Denied(socket, error.to_string()));
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Err(NoStatus::NotRunning(socket));
        }
        Err(error) => return Err(NoStatus::Odd(socket, error.to_string())),
    };
    serde_json::from_str(&body).map_err(|error| NoStatus::Odd(socket, error.to_string()))
}

/// Where the daemon listens: at its place, or where it says in the state directory.
fn socket(config: &Config) -> Result<PathBuf, String> {
    let place = config.place().map_err(|error| error.to_string())?;
    if place.explicit || os::connect(&place.socket).is_ok() {
        return Ok(place.socket);
    }
    let elsewhere = config
        .state()
        .and_then(|state| protocol::process::running_daemon(&state));
    Ok(elsewhere.map_or(place.socket, |daemon| PathBuf::from(daemon.socket)))
}

pub(super) fn status(config: &Config, json: bool) -> Result<(), String> {
    let status = ask_status(config).map_err(|error| error.explain())?;
    if json {
        return print(&serde_json::to_string_pretty(&status).expect("a status is plain JSON"));
    }
    print(readable(&status).trim_end())
}

fn readable(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string can't fail.
        let _written = writeln!(text, "{name:<12}{value}");
    };
    line("version", status.version.clone());
    line("process", status.pid.to_string());
    line("up for", duration(status.uptime));
    line("socket", status.socket.clone());
    line("connections", status.connections.to_string());
    if let Some(supervisor) = &status.supervisor {
        line("kept by", supervisor.clone());
    }
    if let Some(memory) = status.memory {
        line("memory", format!("{:.1} MB", memory as f64 / 1e6));
    }
    match &status.watcher {
        Some(watcher) => line(
            "watches",
            format!(
                "{} directories, {} rescans",
                watcher.watches, watcher.rescans
            ),
        ),
        None => line("watches", "none: nothing can be watched here".to_owned()),
    }
    line("projects", status.projects.len().to_string());
    for project in &status.projects {
        let reason = project.reason.as_deref().unwrap_or_default();
        let because = if reason.is_empty() { "" } else { ": " };
        line(
            "",
            format!(
                "{} ({}{because}{reason}, {} watches)",
                project.root, project.state, project.watches
            ),
        );
    }
    text
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Asks it to leave, and waits until it has.
pub(super) fn stop(config: &Config) -> Result<(), String> {
    let status = match ask_status(config) {
        Ok(status) => status,
        Err(NoStatus::NotRunning(_)) => return print("no daemon runs"),
        Err(error) => return Err(error.explain()),
    };
    leave(&status)?;
    print(&format!("process {} has left", status.pid))
}

/// Asks the daemon that listens on a socket to leave, and waits until it has.
pub(crate) fn stop_at(socket: &Path) -> Result<(), String> {
    let status = status_at(socket).map_err(|error| error.explain())?;
    leave(&status)
}

fn leave(status: &Status) -> Result<(), String> {
    ask(Path::new(&status.socket), "POST", SHUTDOWN_ENDPOINT)
        .map_err(|error| format!("process {} could not be asked ({error})", status.pid))?;
    let deadline = Instant::now() + LEAVE_PATIENCE;
    while crate::os::is_alive(status.pid) {
        if Instant::now() > deadline {
            return Err(format!(
                "process {} was asked to leave and is still there",
                status.pid
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Prints what the log holds.
pub(super) fn logs(config: &Config) -> Result<(), String> {
    let state = config.state().ok_or(
        "there is no state directory, and so no log; set SESSION_CHECKPOINT_STATE_DIR or HOME",
    )?;
    let path = state.join(state::LOG_FILE);
    match std::fs::read(&path) {
        Ok(log) => match io::stdout().lock().write_all(&log) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("could not write ({error})"))
            }
            _ => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "there is no log at `{}` yet; where systemd keeps the daemon, see `journalctl --user -u session-checkpoint`",
            path.display()
        )),
        Err(error) => Err(format!("could not read `{}` ({error})", path.display())),
    }
}

/// One request on the socket, whose answer ends with the connection.
fn ask(socket: &Path, method: &str, endpoint: &str) -> io::Result<String> {
    let request = format!(
        "{method} {endpoint} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let socket = socket.to_path_buf();
    let (sender, answer) = channel();
    // Who listens may never answer, or never end; a pipe of Windows has no timeouts.
    std::thread::spawn(move || {
        let answered = os::connect(&socket).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            let mut answer = Vec::new();
            stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
            Ok(answer)
        });
        let _waiting = sender.send(answered);
    });
    let answer = answer
        .recv_timeout(ANSWER_PATIENCE)
        .map_err(|_| io::Error::other("no whole answer in time"))??;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
        _ => Err(io::Error::other("an unexpected answer")),
    }
}
