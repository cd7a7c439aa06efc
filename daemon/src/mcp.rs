//! MCP, by rmcp: a connection's tool calls → [`Tools`] → tool results.
//!
//! Both protocol eras are served on the same connection: the `initialize` handshake of 2024-11-05 to
//! 2025-11-25, and the stateless 2026-07-28, whose requests carry everything in `_meta`. The
//! session is run without rmcp's own opening sequence, which ends a connection over a first message
//! that isn't to its liking; [`transport`] frames the lines and answers what is no request.

mod transport;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::env::Env;
use protocol::hello::Hello;
use protocol::word::Ancestry;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, InitializeRequestParams, InitializeResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, serve_directly_with_ct};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::checkpoint::input::Refusal;
use crate::tools::schema::{self, INSTRUCTIONS};
use crate::tools::{Answer, Call, ClientRoots, Tools};
use transport::{Lines, Turn};

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
    let session = Session {
        tools,
        env: hello.env(),
        cwd: hello.cwd(),
        ancestry: hello.ancestry.clone(),
        roots: Arc::default(),
    };
    let service = serve_directly_with_ct(session, Lines::new(reader, writer), None, stop);
    if let Err(error) = service.waiting().await {
        tracing::error!(%error, "a session failed");
    }
}

/// One client.
struct Session {
    tools: Tools,
    env: Env,
    cwd: Option<PathBuf>,
    ancestry: Ancestry,
    roots: Arc<tokio::sync::Mutex<RootsState>>,
}

/// The client's roots, asked for once and again when they changed.
#[derive(Debug, Default)]
enum RootsState {
    #[default]
    Unasked,
    /// The answer is on its way; whoever needs it waits for its turn.
    Asked(tokio::sync::watch::Receiver<Option<Vec<String>>>),
}

struct Roots {
    state: Arc<tokio::sync::Mutex<RootsState>>,
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
            match &*state {
                RootsState::Asked(answer) => answer.clone(),
                RootsState::Unasked => {
                    let answer = ask_for_roots(peer.clone());
                    *state = RootsState::Asked(answer.clone());
                    answer
                }
            }
        };
        let known = tokio::time::timeout(ROOTS_PATIENCE, answer.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(uris)) => uris.clone().unwrap_or_default(),
            _ => Vec::new(),
        }
    }
}

/// Asks in the background: an answer that comes late serves the next call.
fn ask_for_roots(peer: Peer<RoleServer>) -> tokio::sync::watch::Receiver<Option<Vec<String>>> {
    let (sender, receiver) = tokio::sync::watch::channel(None);
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
            roots: Roots {
                state: self.roots.clone(),
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
        // A client's calls are done in the order in which it made them.
        let _turn = Turn::of(&context.extensions).await;
        let name = request.name.clone();
        let call = self.call(request, &context);
        let result = match &*name {
            schema::SAVE => self.tools.save(call).await,
            schema::LOAD => self.tools.load(call).await,
            schema::LIST => self.tools.list(call).await,
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
        Ok(match result {
            Ok(answer) => answered(answer),
            Err(Refusal(text)) => CallToolResult::error(vec![ContentBlock::text(text)]),
        }
        .into())
    }

    async fn on_roots_list_changed(&self, _context: NotificationContext<RoleServer>) {
        *self.roots.lock().await = RootsState::Unasked;
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
