//! The daemon of session-checkpoint: it keeps the checkpoints of coding-agent sessions.
//!
//! ```text
//!  shim ───socket, HTTP/1.1───────▶ http ──upgrade──▶ mcp ──▶ tools ─┬─▶ worktree ──▶ git, content
//!                                                                   └─▶ actor ──▶ store ──▶ dir
//! ```
//! The rooms, outside in: [`cli`] is the command line; `listen` has the socket, `http` the requests on
//! it, `mcp` the protocol of the clients; `tools` turns a call into an answer, deciding whose
//! checkpoint it is about (`identity`) and in which project (`roots`); `worktree` knows the facts of a
//! project, by `git` and `content`; `actor` is the one task that writes checkpoints, through `store` and
//! `dir`, and `replay` lets it recognise a save that it is asked for again. What a checkpoint *is* stands in [`checkpoint`], which touches nothing outside
//! itself.
//!
//! - Invariant: an answer to a save is sent after the file is durable (`store::Writer::replace` returns first).
//! - Invariant: nothing is stored that did not pass redaction: only a `Clean` request can be merged.
//! - Invariant: the daemon never reads a client's variables from its own environment.

mod actor;
mod cache;
pub mod checkpoint;
pub mod cli;
mod config;
mod content;
mod demo;
mod dir;
mod git;
mod http;
mod identity;
mod listen;
mod live;
mod log;
mod mcp;
#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod os;
mod replay;
mod roots;
mod sha256;
mod store;
mod tools;
mod watch;
mod worktree;

use std::io::Write as _;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::hello;
use tokio::io::BufReader;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use config::Config;
use listen::{ListenError, Listener};

/// How long a client whose process is gone may go on.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(8);
/// How long connections may take to finish once the daemon was told to leave.
const DRAIN: Duration = Duration::from_secs(6);

/// Runs the daemon until it is told to leave, nobody has needed it for `idle`, or nobody can find it any more. A
/// `detached` one lets go of whoever started it and tells on standard output, in one line, when it is ready or why it
/// can't be.
async fn run(config: &Config, detached: bool, idle: Duration) -> Result<(), RunError> {
    let listener = Listener::open(config);
    if detached {
        let line = match &listener {
            Ok(_) => hello::READY.to_owned(),
            Err(ListenError::Taken(_)) => hello::TAKEN.to_owned(),
            Err(error) => error.to_string(),
        };
        tell(&line).map_err(RunError::Stdout)?;
        os::release_stdout().map_err(RunError::Stdout)?;
    }
    let listener = listener?;
    let place = config.place().ok();
    let jar = place.map(|place| place.cookies()).filter(|_| os::WATCHES);
    let (tools, thread) = tools(config, true, jar)?;
    let stop = CancellationToken::new();
    let service = http::Service::new(tools, config.build.clone(), &listener, stop.clone());
    tracing::info!(
        version = config.build.version,
        "listening on {}",
        listener.path().display()
    );
    os::say_ready();

    let reason = {
        let left = protocol::os::told_to_leave();
        let idled = service.idle(idle);
        let lost = listener.lost();
        tokio::pin!(left, idled, lost);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(stream) => service.connection(stream),
                    Err(error) => {
                        // Out of descriptors, most likely: waiting is all that helps.
                        tracing::error!(%error, "could not accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                () = &mut left => break "a signal came",
                () = stop.cancelled() => break "it was asked to leave",
                () = &mut idled => break "nobody needs it",
                () = &mut lost => break "its socket is gone",
            }
        }
    };
    tracing::info!("leaving: {reason}");
    os::say_stopping();
    // No new connections; then the sessions end, what they began is finished, the actor last.
    drop(listener);
    stop.cancel();
    if tokio::time::timeout(DRAIN, service.drained())
        .await
        .is_err()
    {
        tracing::warn!("left with connections open");
        return Ok(());
    }
    drop(service);
    let joined = tokio::task::spawn_blocking(move || thread.join()).await;
    if !matches!(joined, Ok(Ok(()))) {
        tracing::error!("the actor failed");
    }
    tracing::info!("done");
    Ok(())
}

/// Serves the one client on standard input and output, without a socket. A shim that had a daemon before gives the
/// `connection` that it had there.
async fn embedded(config: &Config, connection: Option<Uuid>) -> Result<(), RunError> {
    // It lives as long as its client, and watching is for those who stay.
    let (mut tools, thread) = tools(config, false, None)?;
    tools.takes_over = connection.is_some();
    let hello = protocol::process::hello(connection.unwrap_or_else(Uuid::new_v4), &config.env);
    let stop = CancellationToken::new();
    let reader = BufReader::new(tokio::io::stdin());
    let session = mcp::serve(tools, &hello, reader, tokio::io::stdout(), stop.clone());
    tokio::select! {
        () = session => {}
        () = protocol::os::told_to_leave() => {}
        () = parents_end() => {}
    }
    stop.cancel();
    // A save that began is finished; the session's handles are gone with it.
    let finished = tokio::task::spawn_blocking(move || thread.join());
    if tokio::time::timeout(DRAIN, finished).await.is_err() {
        tracing::warn!("left with a call unfinished");
    }
    Ok(())
}

/// Returns when the client's process is gone, and has not closed the pipe because somebody else holds it open too.
async fn parents_end() {
    protocol::process::parents_end().await;
    // Its launcher may have gone alone; then it closes the pipe some time.
    tokio::time::sleep(ORPHAN_PATIENCE).await;
}

/// What the fuzz targets reach that nobody else needs.
#[cfg(fuzzing)]
pub mod fuzz {
    /// A line as a client may have sent it.
    pub fn line(bytes: &[u8]) {
        crate::mcp::try_line(bytes);
    }
}

/// What calls are answered with, and the actor's thread. What `stays` keeps hashes, and projects live where there is a
/// `jar` for the watcher's cookies.
fn tools(
    config: &Config,
    stays: bool,
    jar: Option<PathBuf>,
) -> Result<(tools::Tools, JoinHandle<()>), RunError> {
    let place = config.place().ok();
    let notes = replay::Notes::open(place.as_ref());
    let (actor, thread) = actor::Actor::start(notes).map_err(RunError::Actor)?;
    // Some milliseconds that the first save need not wait for.
    std::thread::spawn(checkpoint::redact::prepare);
    let state = config.state();
    let worktrees = match stays {
        true => worktree::Worktrees::keeping(jar, state.as_deref()),
        false => worktree::Worktrees::default(),
    };
    let tools = tools::Tools {
        actor,
        worktrees,
        home: config.home.clone(),
        state,
        takes_over: false,
    };
    Ok((tools, thread))
}

fn tell(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Why the daemon can't run.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("could not write to standard output ({0})")]
    Stdout(std::io::Error),
    #[error("could not start the actor ({0})")]
    Actor(std::io::Error),
}
