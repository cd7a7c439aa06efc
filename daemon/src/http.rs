//! HTTP/1.1 on the socket: status and shutdown as plain requests, MCP as an upgrade.
//!
//! `curl --unix-socket … http://localhost/v1/status` works. After `GET /v1/mcp` with `Upgrade:
//! session-checkpoint` the stream is the shim's hello line, ours, and then the client's JSON-RPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use protocol::hello::{self, Hello, Status, Welcome};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::mcp;
use crate::tools::Tools;

/// How long a peer may take over its request's head, and over its hello.
const PATIENCE: Duration = Duration::from_secs(5);

/// What requests are answered from.
#[derive(Clone)]
pub(crate) struct Service(Arc<Shared>);

struct Shared {
    tools: Tools,
    started: Instant,
    socket: String,
    connections: AtomicUsize,
    /// Upgraded connections outlive their HTTP request.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Service {
    pub(crate) fn new(tools: Tools, socket: String, stop: CancellationToken) -> Service {
        Service(Arc::new(Shared {
            tools,
            started: Instant::now(),
            socket,
            connections: AtomicUsize::new(0),
            tasks: TaskTracker::new(),
            stop,
        }))
    }

    fn router(&self) -> Router {
        Router::new()
            .route(hello::STATUS_ENDPOINT, get(status))
            .route(hello::SHUTDOWN_ENDPOINT, post(shutdown))
            .route(hello::MCP_ENDPOINT, get(upgrade))
            .with_state(self.clone())
    }

    /// Serves one connection, in a task of its own.
    pub(crate) fn connection(&self, stream: UnixStream) {
        let service = TowerToHyperService::new(self.router());
        self.0.tasks.spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended early");
            }
        });
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
        version: protocol::VERSION.to_owned(),
        protocol: hello::PROTOCOL,
        uptime: shared.started.elapsed().as_secs(),
        socket: shared.socket.clone(),
        connections: shared.connections.load(Ordering::Relaxed),
        projects,
        watcher,
    })
}

async fn shutdown(State(service): State<Service>) -> StatusCode {
    service.0.stop.cancel();
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
        protocol: hello::PROTOCOL,
        version: protocol::VERSION.to_owned(),
        pid: std::process::id(),
    };
    let mut line = serde_json::to_vec(&welcome).expect("a welcome is plain JSON");
    line.push(b'\n');
    if let Err(error) = writer.write_all(&line).await {
        return tracing::debug!(%error, "a peer hung up");
    }
    shared.connections.fetch_add(1, Ordering::Relaxed);
    mcp::serve(
        shared.tools.clone(),
        &hello,
        reader,
        writer,
        shared.stop.child_token(),
    )
    .await;
    shared.connections.fetch_sub(1, Ordering::Relaxed);
}

async fn read_hello<R: tokio::io::AsyncBufRead + Unpin>(reader: &mut R) -> std::io::Result<Hello> {
    let mut line = Vec::new();
    reader
        .take(hello::MAX_HELLO as u64)
        .read_until(b'\n', &mut line)
        .await?;
    Ok(serde_json::from_slice(&line)?)
}
