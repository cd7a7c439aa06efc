//! Newline-delimited JSON-RPC, framed and checked.
//!
//! What is no request gets an answer of its own and harms nobody: bytes that are no JSON −32700, JSON that is
//! no JSON-RPC −32600, parameters of another shape than their method takes −32602, each with the request's id
//! where it is readable. A last line without its line break counts. Everything that passes goes to
//! rmcp as a message.
//!
//! Two things are kept in order here, since rmcp handles requests concurrently: nothing is handed on behind an
//! `initialize` until that is answered, and tool calls get a [`Ticket`] each.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, Extensions, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::replay::RequestKey;

/// The longest line that is read. A save's arguments are a few hundred KiB at the very most.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;

/// The methods that are served; their parameters have a shape.
const SERVED: [&str; 5] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/call",
    "tools/list",
];

const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;

/// The transport of one connection.
pub(super) struct Lines<R> {
    reader: R,
    line: Line,
    /// Lines for the client, written one after the other by a task of their own; `None` once closed.
    outgoing: Option<mpsc::UnboundedSender<Vec<u8>>>,
    writing: JoinHandle<()>,
    shared: Arc<Shared>,
    /// An `initialize` that must be answered before anything else is handed on.
    opening: Option<RequestId>,
    connection: Uuid,
    last_turn: Option<oneshot::Receiver<()>>,
    stop: CancellationToken,
}

/// What a connection's transport and its handlers both know.
#[derive(Default)]
pub(super) struct Shared {
    /// The requests that are not answered yet.
    open: Mutex<HashSet<RequestId>>,
    answered: Notify,
    /// Grows each time the client says that its roots changed.
    roots: AtomicU64,
}

impl Shared {
    /// Which of the client's lists of roots is the current one.
    pub(super) fn roots_generation(&self) -> u64 {
        self.roots.load(Ordering::Acquire)
    }

    fn open(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, id: &RequestId) {
        self.open().remove(id);
        self.answered.notify_waiters();
    }

    async fn until_answered(&self, id: &RequestId) {
        loop {
            let answered = self.answered.notified();
            if !self.open().contains(id) {
                return;
            }
            answered.await;
        }
    }

    /// Takes note of what a notification says of requests and roots. It is done here, in the order of the lines:
    /// rmcp handles notifications beside the requests that follow.
    fn notified(&self, message: &ClientJsonRpcMessage) {
        let ClientJsonRpcMessage::Notification(notification) = message else {
            return;
        };
        match &notification.notification {
            // A cancelled request is never answered.
            ClientNotification::CancelledNotification(cancelled) => {
                cancelled
                    .params
                    .request_id
                    .iter()
                    .for_each(|id| self.close(id));
            }
            ClientNotification::RootsListChangedNotification(_) => {
                self.roots.fetch_add(1, Ordering::AcqRel);
            }
            _ => {}
        }
    }
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Reads lines until the end of the stream, or until `stop`; then what is open is still answered.
    pub(super) fn new<W>(
        reader: R,
        writer: W,
        connection: Uuid,
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> Lines<R>
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (outgoing, lines) = mpsc::unbounded_channel();
        Lines {
            reader,
            line: Line::default(),
            outgoing: Some(outgoing),
            writing: tokio::spawn(write(writer, lines)),
            shared,
            opening: None,
            connection,
            last_turn: None,
            stop,
        }
    }

    fn answer(&self, error: Rejected) {
        let body = json!({
            "jsonrpc": "2.0",
            "id": error.id.unwrap_or(Value::Null),
            "error": {"code": error.code, "message": error.message}
        });
        if let Some(outgoing) = &self.outgoing {
            // A client that hung up gets no answer; the reader will see the end.
            drop(outgoing.send(line_of(&body.to_string())));
        }
    }

    /// Gives a tool call its ticket: its key, and its place behind the call before it.
    fn give_ticket(&mut self, message: &mut ClientJsonRpcMessage, line: &[u8]) {
        let ClientJsonRpcMessage::Request(request) = message else {
            return;
        };
        let ClientRequest::CallToolRequest(call) = &mut request.request else {
            return;
        };
        let (done, next) = oneshot::channel();
        let ticket = Ticket {
            key: RequestKey::new(self.connection, &request.id.clone().into_json_value(), line),
            before: self.last_turn.replace(next),
            turn: Turn { _done: done },
        };
        call.extensions.insert(Arc::new(Mutex::new(Some(ticket))));
    }
}

impl<R: AsyncBufRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let queued = serde_json::to_string(&message)
            .map_err(io::Error::from)
            .and_then(|text| match &self.outgoing {
                Some(outgoing) => outgoing
                    .send(line_of(&text))
                    .map_err(|_| io::ErrorKind::BrokenPipe.into()),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            });
        match &message {
            ServerJsonRpcMessage::Response(response) => self.shared.close(&response.id),
            ServerJsonRpcMessage::Error(error) => {
                error.id.iter().for_each(|id| self.shared.close(id));
            }
            _ => {}
        }
        std::future::ready(queued)
    }

    // Cancel-safe: what was read of a line, and what must be waited for, is kept in `self`.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(id) = &self.opening {
                self.shared.until_answered(id).await;
                self.opening = None;
            }
            let read = tokio::select! {
                read = self.line.read(&mut self.reader) => read,
                () = self.stop.cancelled() => return None,
            };
            let line = match read {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "a client's stream broke");
                    return None;
                }
            };
            let parsed = line.and_then(|line| {
                let parsed = parse(&line, &self.shared.open())?;
                Ok(parsed.map(|parsed| (parsed, line)))
            });
            match parsed {
                Ok(None) => {}
                Ok(Some((Parsed { mut message, opens }, line))) => {
                    if let Some(id) = request_id(&message) {
                        self.shared.open().insert(id.clone());
                        if opens {
                            self.opening = Some(id);
                        }
                    }
                    self.shared.notified(&message);
                    self.give_ticket(&mut message, &line);
                    return Some(message);
                }
                Err(error) => self.answer(error),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outgoing = None;
        (&mut self.writing).await.map_err(io::Error::other)
    }
}

/// Writes lines until there are no more; a client that can't be written to gets none.
async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "a client can't be written to");
            return;
        }
    }
    if let Err(error) = writer.shutdown().await {
        tracing::debug!(%error, "a client had hung up");
    }
}

fn line_of(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 1);
    line.extend_from_slice(text.as_bytes());
    line.push(b'\n');
    line
}

/// What a tool call carries from its line to its handler.
pub(super) struct Ticket {
    key: RequestKey,
    before: Option<oneshot::Receiver<()>>,
    turn: Turn,
}

/// A tool call's place in the order of its connection: held while it is done, however it ends.
pub(super) struct Turn {
    _done: oneshot::Sender<()>,
}

impl Ticket {
    /// The ticket of a call, which can be taken once.
    pub(super) fn of(extensions: &Extensions) -> Option<Ticket> {
        let slot = extensions.get::<Arc<Mutex<Option<Ticket>>>>()?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the call before this one; the next waits until the turn is dropped.
    pub(super) async fn turn(mut self) -> (RequestKey, Turn) {
        if let Some(before) = self.before.take() {
            // An error means that it was dropped, and so is done.
            let _done = before.await;
        }
        (self.key, self.turn)
    }
}

/// A line that is answered here.
struct Rejected {
    id: Option<Value>,
    code: i32,
    message: String,
}

impl Rejected {
    fn new(id: Option<&Value>, code: i32, message: impl Into<String>) -> Rejected {
        Rejected {
            id: id.cloned(),
            code,
            message: message.into(),
        }
    }
}

struct Parsed {
    message: ClientJsonRpcMessage,
    /// Whether it is an `initialize`.
    opens: bool,
}

impl Parsed {
    /// What needs no answer, where it can be read.
    fn quiet(object: Map<String, Value>) -> Option<Parsed> {
        let message = serde_json::from_value(Value::Object(object)).ok()?;
        Some(Parsed {
            message,
            opens: false,
        })
    }
}

/// A line as a message; `None` where it asks for nothing and means nothing.
fn parse(bytes: &[u8], open: &HashSet<RequestId>) -> Result<Option<Parsed>, Rejected> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(bytes)
        .or_else(|error| serde_json::from_slice(&whole_surrogates(bytes)).map_err(|_| error))
        .map_err(|error| {
            let id = id_near_start(bytes);
            Rejected::new(id.as_ref(), PARSE_ERROR, format!("no JSON: {error}"))
        })?;
    let Value::Object(mut object) = value else {
        let what = if value.is_array() {
            "a batch"
        } else {
            "no object"
        };
        return Err(Rejected::new(
            None,
            INVALID_REQUEST,
            format!("the line is {what}; send one JSON-RPC 2.0 object a line"),
        ));
    };
    let method = object
        .get("method")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let id = object.get("id").cloned();
    let readable = id.as_ref().filter(|id| is_request_id(id));
    let Some(method) = method else {
        if !object.contains_key("result") && !object.contains_key("error") {
            return Err(Rejected::new(
                readable,
                INVALID_REQUEST,
                "neither a request (`method`) nor a response (`result`, `error`)",
            ));
        }
        // A response to something we asked; a malformed one answers nothing.
        return Ok(Parsed::quiet(object));
    };
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(Rejected::new(
            readable,
            INVALID_REQUEST,
            "`jsonrpc` must be \"2.0\"",
        ));
    }
    let Some(id) = id else {
        // A notification: one that can't be read is nobody's loss.
        return Ok(Parsed::quiet(object));
    };
    let Some(id) = Some(&id).filter(|id| is_request_id(id)) else {
        return Err(Rejected::new(
            None,
            INVALID_REQUEST,
            "`id` must be a string that isn't empty, or an integer",
        ));
    };
    if let Ok(request_id) = serde_json::from_value::<RequestId>(id.clone())
        && open.contains(&request_id)
    {
        return Err(Rejected::new(
            None,
            INVALID_REQUEST,
            format!("a request with the id {id} is not answered yet"),
        ));
    }
    let opens = method == "initialize";
    if opens {
        complete_initialize(&mut object);
    }
    match serde_json::from_value(Value::Object(object)) {
        Ok(message) if !(is_custom(&message) && SERVED.contains(&method.as_str())) => {
            Ok(Some(Parsed { message, opens }))
        }
        _ => Err(Rejected::new(
            Some(id),
            INVALID_PARAMS,
            format!("`params` are not what `{method}` takes"),
        )),
    }
}

/// Whether rmcp took a request for a method it doesn't know, as it does with parameters of another shape.
fn is_custom(message: &ClientJsonRpcMessage) -> bool {
    matches!(
        message,
        ClientJsonRpcMessage::Request(request)
            if matches!(request.request, ClientRequest::CustomRequest(_))
    )
}

#[cfg(fuzzing)]
pub(super) fn try_line(bytes: &[u8]) {
    drop(parse(bytes, &HashSet::new()));
    drop(too_long(bytes));
}

/// Clients that leave out what `initialize` must have get a session all the same.
fn complete_initialize(request: &mut Map<String, Value>) {
    let params = request.entry("params").or_insert_with(|| json!({}));
    let Some(params) = params.as_object_mut() else {
        return;
    };
    if !params.get("protocolVersion").is_some_and(Value::is_string) {
        params.insert("protocolVersion".to_owned(), "unknown".into());
    }
    if !params.get("capabilities").is_some_and(Value::is_object) {
        params.insert("capabilities".to_owned(), json!({}));
    }
    let client = params.entry("clientInfo").or_insert_with(|| json!({}));
    if let Some(client) = client.as_object_mut() {
        client.entry("name").or_insert_with(|| "unknown".into());
        client.entry("version").or_insert_with(|| "0".into());
    }
}

fn is_request_id(id: &Value) -> bool {
    match id {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.is_i64(),
        _ => false,
    }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    }
}

/// A line as far as it has been read.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether it is too long and its rest is being skipped.
    skipping: bool,
}

impl Line {
    /// The next line without its line break; `None` at the end of the stream. A line that is too long is
    /// an error of its own, and the one behind it is read.
    async fn read<R: AsyncBufRead + Unpin>(
        &mut self,
        reader: &mut R,
    ) -> io::Result<Option<Result<Vec<u8>, Rejected>>> {
        loop {
            let chunk = reader.fill_buf().await?;
            let at_end = chunk.is_empty();
            let (taken, complete) = match chunk.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            let content = &chunk[..taken - usize::from(complete)];
            if self.bytes.len() + content.len() > MAX_LINE {
                self.skipping = true;
            }
            if !self.skipping {
                self.bytes.extend_from_slice(content);
            }
            reader.consume(taken);
            if at_end && self.bytes.is_empty() && !self.skipping {
                return Ok(None);
            }
            if complete || at_end {
                let bytes = std::mem::take(&mut self.bytes);
                if std::mem::take(&mut self.skipping) {
                    return Ok(Some(Err(too_long(&bytes))));
                }
                return Ok(Some(Ok(bytes)));
            }
        }
    }
}

/// The refusal of a line that is too long, under its id where that stands near its beginning.
fn too_long(beginning: &[u8]) -> Rejected {
    let id = id_near_start(beginning);
    Rejected::new(
        id.as_ref(),
        INVALID_REQUEST,
        format!("the line is longer than {} MiB", MAX_LINE / 1024 / 1024),
    )
}

/// The value of the first top-level `"id"` in the beginning of an object.
fn id_near_start(line: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(&line[..line.len().min(4096)]);
    let mut rest = text.trim_start().strip_prefix('{')?;
    loop {
        let mut key = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let name = key.next()?.ok()?;
        rest = rest
            .get(key.byte_offset()..)?
            .trim_start()
            .strip_prefix(':')?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        if name == "id" {
            return is_request_id(&value).then_some(value);
        }
        rest = rest
            .get(values.byte_offset()..)?
            .trim_start()
            .strip_prefix(',')?
            .trim_start();
    }
}

/// A line in which each escaped half of a surrogate pair that stands alone is U+FFFD. JavaScript writes
/// such halves where a string was cut inside an emoji; JSON readers elsewhere refuse them.
fn whole_surrogates(line: &[u8]) -> Vec<u8> {
    let unit = |at: usize| -> Option<u16> {
        let digits = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut whole = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        let taken = match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                whole.extend_from_slice(b"\\ufffd");
                at += 6;
                continue;
            }
            _ if line[at] == b'\\' => 2,
            _ => 1,
        };
        let end = line.len().min(at + taken);
        whole.extend_from_slice(&line[at..end]);
        at = end;
    }
    whole
}
