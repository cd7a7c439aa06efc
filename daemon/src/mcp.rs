//! MCP, by rmcp: a connection's tool calls → [`Tools`] → tool results.
//!
//! Both protocol eras are served on the same connection: the `initialize` handshake of 2024-11-05 to
//! 2025-11-25, and the stateless 2026-07-28, whose requests carry everything in `_meta`. The
//! session is run without rmcp's own opening sequence, which ends a connection over a first message
//! that isn't to its liking; [`transport`] frames the lines and answers what is no request.

mod transport;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::env::Env;
use protocol::hello::Hello;
use protocol::word::Ancestry;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, InitializeRequestParams, InitializeResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{Peer, RequestContext, serve_directly_with_ct};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::checkpoint::input::Refusal;
use crate::replay::RequestKey;
use crate::tools::schema::{self, INSTRUCTIONS};
use crate::tools::{Answer, Call, ClientRoots, Tools};
use transport::{Lines, Shared, Ticket};

/// How long a call waits for the client's roots (contract §4).
const ROOTS_PATIENCE: Duration = Duration::from_secs(1);

/// Serves one client until it hangs up or `stop` is cancelled.
pub(crate) async fn serve<R, W>(
    tools: Tools,
    hello: &Hello,
    reader: R,
    writer: W,
    stop: CancellationToken,
) where
    R: AsyncBufRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let shared = Arc::new(Shared::default());
    let session = Session {
        tools,
        env: hello.env(),
        cwd: hello.cwd(),
        ancestry: hello.ancestry.clone(),
        shared: shared.clone(),
        roots: Arc::default(),
    };
    // The end of the lines ends the session, when what is open has been answered; rmcp's own token would cut it off.
    let lines = Lines::new(reader, writer, hello.connection, shared, stop);
    let service = serve_directly_with_ct(session, lines, None, CancellationToken::new());
    if let Err(error) = service.waiting().await {
        tracing::error!(%error, "a session failed");
    }
}

/// Takes a line apart like any other.
#[cfg(fuzzing)]
pub(crate) fn try_line(bytes: &[u8]) {
    transport::try_line(bytes);
}

/// One client.
struct Session {
    tools: Tools,
    env: Env,
    cwd: Option<PathBuf>,
    ancestry: Ancestry,
    shared: Arc<Shared>,
    roots: Arc<tokio::sync::Mutex<RootsState>>,
}

/// The client's roots: asked for once, and again when they changed.
#[derive(Debug, Default)]
struct RootsState {
    /// The last question: which list of roots it was about, and where its answer arrives.
    asked: Option<(u64, watch::Receiver<Option<Vec<String>>>)>,
    /// Whether somebody waited for it in vain: nobody else does, but a late answer counts.
    in_vain: bool,
}

struct Roots {
    state: Arc<tokio::sync::Mutex<RootsState>>,
    generation: u64,
    /// `None` where the client has none to ask for.
    peer: Option<Peer<RoleServer>>,
}

impl ClientRoots for Roots {
    async fn uris(&self) -> Vec<String> {
        let Some(peer) = &self.peer else {
            return Vec::new();
        };
        let mut answer = {
            let mut state = self.state.lock().await;
            match &state.asked {
                Some((generation, answer)) if *generation >= self.generation => answer.clone(),
                _ => {
                    let answer = ask_for_roots(peer.clone());
                    state.asked = Some((self.generation, answer.clone()));
                    state.in_vain = false;
                    answer
                }
            }
        };
        if self.state.lock().await.in_vain {
            return answer.borrow().clone().unwrap_or_default();
        }
        let wait = async { answer.wait_for(Option::is_some).await.is_ok() };
        if !tokio::time::timeout(ROOTS_PATIENCE, wait)
            .await
            .unwrap_or(false)
        {
            self.state.lock().await.in_vain = true;
        }
        answer.borrow().clone().unwrap_or_default()
    }
}

/// Asks in the background: an answer that comes late serves the next call.
fn ask_for_roots(peer: Peer<RoleServer>) -> watch::Receiver<Option<Vec<String>>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        // Nobody may be waiting any more.
        sender.send_replace(Some(list_roots(&peer).await));
    });
    receiver
}

#[expect(
    deprecated,
    reason = "only the newest protocol has no roots, and there nobody asks"
)]
async fn list_roots(peer: &Peer<RoleServer>) -> Vec<String> {
    match peer.list_roots().await {
        Ok(result) => result.roots.into_iter().map(|root| root.uri).collect(),
        Err(error) => {
            tracing::debug!(%error, "the client told no roots");
            Vec::new()
        }
    }
}

impl Session {
    fn call(
        &self,
        request: CallToolRequestParams,
        key: RequestKey,
        context: &RequestContext<RoleServer>,
    ) -> Call<Roots> {
        let stateless = context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let has_roots = context
            .client_capabilities()
            .is_some_and(|capabilities| capabilities.roots.is_some());
        Call {
            arguments: request.arguments.unwrap_or_default(),
            meta: context.meta.0.0.clone(),
            client: context.client_info().map(|client| client.name),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            ancestry: self.ancestry.clone(),
            key,
            roots: Roots {
                state: self.roots.clone(),
                generation: self.shared.roots_generation(),
                peer: (has_roots && !stateless).then(|| context.peer.clone()),
            },
        }
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut server = Implementation::new("session-checkpoint", protocol::VERSION);
        server.title = Some("Session checkpoints".to_owned());
        let mut info = ServerConfig::new(capabilities);
        info.server_info = server;
        info.instructions = Some(INSTRUCTIONS.to_owned());
        // What an unknown version is answered with.
        info.protocol_version = ProtocolVersion::V_2025_11_25;
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        let mut client = request;
        client.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(client);
        Ok(result)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(schema::tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(ticket) = Ticket::of(&context.extensions) else {
            return Err(ErrorData::internal_error(
                "a call came without its ticket",
                None,
            ));
        };
        // A client's calls are done in the order in which it made them.
        let (key, _turn) = ticket.turn().await;
        let name = request.name.clone();
        let call = self.call(request, key, &context);
        let tools = self.tools.clone();
        let span = tracing::info_span!(
            "call",
            client = call.client.as_deref().unwrap_or("unknown"),
            tool = &*name,
            root = tracing::field::Empty,
        );
        let started = Instant::now();
        // In a task of its own: a panic is an answer, and a save that began is finished whoever left.
        let result = match &*name {
            schema::SAVE => {
                tokio::spawn(async move { tools.save(call).await }.instrument(span.clone()))
            }
            schema::LOAD => {
                tokio::spawn(async move { tools.load(call).await }.instrument(span.clone()))
            }
            schema::LIST => {
                tokio::spawn(async move { tools.list(call).await }.instrument(span.clone()))
            }
            other => {
                return Err(ErrorData::invalid_params(
                    format!(
                        "there is no tool `{other}`; there are {}, {} and {}",
                        schema::SAVE,
                        schema::LOAD,
                        schema::LIST
                    ),
                    None,
                ));
            }
        };
        let result = result.await.map_err(|error| {
            tracing::error!(%error, "a call failed");
            ErrorData::internal_error("the call failed; the daemon's log says more", None)
        })?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        let outcome = if result.is_ok() {
            "answered"
        } else {
            "refused"
        };
        tracing::info!(parent: &span, "{outcome} in {milliseconds:.1} ms");
        Ok(match result {
            Ok(answer) => answered(answer),
            Err(Refusal(text)) => CallToolResult::error(vec![ContentBlock::text(text)]),
        }
        .into())
    }
}

fn answered(answer: Answer) -> CallToolResult {
    let text = answer
        .get("text")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(Value::Object(answer));
    result
}
