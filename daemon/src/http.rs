//! HTTP/1.1 on the socket: status and shutdown as plain requests, MCP as an upgrade.
//!
//! `curl --unix-socket … http://localhost/v1/status` works. After `GET /v1/mcp` with `Upgrade:
//! session-checkpoint` the stream is the shim's hello line, ours, and then the client's JSON-RPC.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use protocol::hello::{self, Build, Hello, SessionStart, Status, Welcome};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::listen::{Connection, Listener};
use crate::tools::Tools;
use crate::{mcp, os};

/// How long a peer may take over its request's head, and over its hello.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most of a request's head, in bytes and in lines.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 32;
/// Open connections; whoever comes when there are as many is hung up on, and works without the daemon.
const MAX_CONNECTIONS: usize = 2000;

/// What requests are answered from.
#[derive(Clone)]
pub(crate) struct Service(Arc<Shared>);

struct Shared {
    tools: Tools,
    started: Instant,
    build: Build,
    socket: String,
    supervisor: Option<&'static str>,
    /// MCP connections.
    connections: watch::Sender<usize>,
    /// Upgraded connections outlive their HTTP request.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Service {
    pub(crate) fn new(
        tools: Tools,
        build: Build,
        listener: &Listener,
        stop: CancellationToken,
    ) -> Service {
        Service(Arc::new(Shared {
            tools,
            started: Instant::now(),
            build,
            socket: listener.path().to_string_lossy().into_owned(),
            supervisor: listener.supervisor(),
            connections: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            stop,
        }))
    }

    fn router(&self) -> Router {
        Router::new()
            .route(hello::STATUS_ENDPOINT, get(status))
            .route(hello::SHUTDOWN_ENDPOINT, post(shutdown))
            .route(hello::MCP_ENDPOINT, get(upgrade))
            .route(hello::HOOK_ENDPOINT, post(session_start))
            .with_state(self.clone())
    }

    /// Serves one connection, in a task of its own.
    pub(crate) fn connection(&self, stream: Connection) {
        if self.0.tasks.len() >= MAX_CONNECTIONS {
            return tracing::warn!("there are too many connections; one was hung up on");
        }
        let service = TowerToHyperService::new(self.router());
        self.0.tasks.spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .max_buf_size(MAX_HEAD)
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    /// Returns when no client has been there for so long.
    pub(crate) async fn idle(&self, patience: Duration) {
        let mut connections = self.0.connections.subscribe();
        loop {
            // The sender lives as long as this service does.
            drop(connections.wait_for(|open| *open == 0).await);
            if tokio::time::timeout(patience, connections.changed())
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// Waits until every connection is done.
    pub(crate) async fn drained(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

async fn status(State(service): State<Service>) -> Json<Status> {
    let shared = &service.0;
    let (projects, watcher) = shared.tools.worktrees.status();
    Json(Status {
        pid: std::process::id(),
        version: shared.build.version.clone(),
        protocol: shared.build.protocol,
        uptime: shared.started.elapsed().as_secs(),
        socket: shared.socket.clone(),
        connections: *shared.connections.borrow(),
        memory: os::memory(),
        supervisor: shared.supervisor.map(str::to_owned),
        projects,
        watcher,
    })
}

async fn shutdown(State(service): State<Service>) -> StatusCode {
    service.0.stop.cancel();
    StatusCode::ACCEPTED
}

/// The project is looked at before the session's first call.
async fn session_start(
    State(service): State<Service>,
    Json(word): Json<SessionStart>,
) -> StatusCode {
    let tools = service.0.tools.clone();
    service.0.tasks.spawn(async move {
        tools.expect_call(OsString::from(word.root).into()).await;
    });
    StatusCode::ACCEPTED
}

async fn upgrade(State(service): State<Service>, request: Request) -> Response {
    let asked = request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|value| value == hello::UPGRADE);
    if !asked {
        let how = format!("ask for `Upgrade: {}`\n", hello::UPGRADE);
        return (
            StatusCode::UPGRADE_REQUIRED,
            [(header::UPGRADE, hello::UPGRADE)],
            how,
        )
            .into_response();
    }
    let shared = service.0.clone();
    service.0.tasks.spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => converse(&shared, TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "an upgrade failed"),
        }
    });
    (
        StatusCode::SWITCHING_PROTOCOLS,
        [
            (header::CONNECTION, "upgrade"),
            (header::UPGRADE, hello::UPGRADE),
        ],
    )
        .into_response()
}

async fn converse(shared: &Shared, stream: TokioIo<hyper::upgrade::Upgraded>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    let hello = match tokio::time::timeout(PATIENCE, read_hello(&mut reader)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => return tracing::warn!(%error, "a peer sent no hello"),
        Err(_) => return tracing::warn!("a peer sent no hello in time"),
    };
    let welcome = Welcome {
        protocol: shared.build.protocol,
        version: shared.build.version.clone(),
        pid: std::process::id(),
    };
    let mut line = serde_json::to_vec(&welcome).expect("a welcome is plain JSON");
    line.push(b'\n');
    if let Err(error) = writer.write_all(&line).await {
        return tracing::debug!(%error, "a peer hung up");
    }
    shared.connections.send_modify(|open| *open += 1);
    mcp::serve(
        shared.tools.clone(),
        &hello,
        reader,
        writer,
        shared.stop.child_token(),
    )
    .await;
    shared.connections.send_modify(|open| *open -= 1);
}

async fn read_hello<R: tokio::io::AsyncBufRead + Unpin>(reader: &mut R) -> std::io::Result<Hello> {
    let mut line = Vec::new();
    reader
        .take(hello::MAX_HELLO as u64)
        .read_until(b'\n', &mut line)
        .await?;
    Ok(serde_json::from_slice(&line)?)
}
