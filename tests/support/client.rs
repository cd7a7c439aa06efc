//! An MCP client over the shim's pipes.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::PATIENCE;

/// A client that is not started yet.
pub(crate) struct ClientBuilder {
    command: Command,
    name: &'static str,
    version: &'static str,
    roots: Roots,
    meta: Value,
}

/// How the client answers `roots/list`.
#[derive(Clone, Default)]
pub(crate) enum Roots {
    /// It declares none.
    #[default]
    Undeclared,
    /// With these URIs.
    Uris(Vec<String>),
    /// With an error.
    Error,
    /// Never.
    Silent,
}

impl ClientBuilder {
    pub(crate) fn new(command: Command) -> ClientBuilder {
        ClientBuilder {
            command,
            name: "claude-code",
            version: "2025-11-25",
            roots: Roots::Undeclared,
            meta: json!({}),
        }
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets Claude Code's variable.
    pub(crate) fn session(self, id: &str) -> Self {
        self.env("CLAUDE_CODE_SESSION_ID", id)
    }

    pub(crate) fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The protocol version; `2026-07-28` has no handshake.
    pub(crate) fn version(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    pub(crate) fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    /// What every call carries in `_meta`.
    pub(crate) fn meta(mut self, meta: Value) -> Self {
        self.meta = meta;
        self
    }

    /// Starts the shim, without a word to it.
    pub(crate) fn spawn(mut self) -> Client {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Client {
            child,
            stdin,
            lines,
            next_id: 1,
            name: self.name,
            version: self.version,
            roots: self.roots,
            meta: self.meta,
            calls: HashMap::new(),
        }
    }

    /// Starts the shim and opens the session.
    pub(crate) fn start(self) -> Client {
        let mut client = self.spawn();
        client.open();
        client
    }
}

/// A running client.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: i64,
    name: &'static str,
    version: &'static str,
    pub(crate) roots: Roots,
    meta: Value,
    /// The tools of the calls that are not answered yet, by id.
    calls: HashMap<String, String>,
}

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct ToolResult {
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) is_error: bool,
}

impl ToolResult {
    /// The structured answer of a call that succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(!self.is_error, "the call failed: {}", self.text);
        self.structured
    }

    /// The text of a call that failed.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        assert!(self.is_error, "the call succeeded: {}", self.text);
        self.text
    }
}

impl Client {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn is_stateless(&self) -> bool {
        self.version == "2026-07-28"
    }

    /// The handshake, where the version has one; gives its result.
    pub(crate) fn open(&mut self) -> Value {
        if self.is_stateless() {
            return Value::Null;
        }
        let capabilities = match self.roots {
            Roots::Undeclared => json!({}),
            _ => json!({"roots": {"listChanged": true}}),
        };
        let result = self.request(
            "initialize",
            json!({
                "protocolVersion": self.version,
                "capabilities": capabilities,
                "clientInfo": {"name": self.name, "version": "1"}
            }),
        );
        self.notify("notifications/initialized");
        result["result"].clone()
    }

    /// Writes raw bytes.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(bytes.as_ref()).expect("the shim reads");
        stdin.flush().expect("the shim reads");
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n"));
    }

    pub(crate) fn notify(&mut self, method: &str) {
        self.send(&json!({"jsonrpc": "2.0", "method": method}));
    }

    /// Sends a request and returns its id at once.
    pub(crate) fn begin(&mut self, method: &str, mut params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        if self.is_stateless() {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.version);
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": self.name, "version": "1"});
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next message, or `None` when the shim's output ended; panics when nothing comes in time.
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.next_within(PATIENCE).expect("the shim says something")
    }

    /// `Err` when nothing came in time, `Ok(None)` at the end of the output.
    pub(crate) fn next_within(&mut self, patience: Duration) -> Result<Option<Value>, ()> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(message) => Ok(Some(message)),
                Err(error) => panic!("the shim wrote {line:?}, which is no JSON: {error}"),
            },
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(()),
        }
    }

    /// The answer to a request; what the server asks meanwhile is answered.
    #[track_caller]
    pub(crate) fn answer_to(&mut self, id: &Value) -> Value {
        loop {
            let Some(message) = self.next() else {
                let complaints = self.complaints();
                panic!("the shim ended without answering {id}: {complaints}");
            };
            if message.get("method").is_some() {
                self.serve(&message);
            } else if message["id"] == *id {
                return message;
            }
        }
    }

    fn serve(&mut self, request: &Value) {
        let id = request["id"].clone();
        match (request["method"].as_str(), self.roots.clone()) {
            (Some("roots/list"), Roots::Uris(uris)) => {
                let roots: Vec<Value> = uris.iter().map(|uri| json!({"uri": uri})).collect();
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"roots": roots}}));
            }
            (Some("roots/list"), Roots::Error) => self.send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "no"}}),
            ),
            _ => {}
        }
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer_to(&id)
    }

    pub(crate) fn begin_call(&mut self, tool: &str, arguments: Value) -> Value {
        let meta = self.meta.clone();
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let id = self.begin("tools/call", params);
        self.calls.insert(id.to_string(), tool.to_owned());
        id
    }

    #[track_caller]
    pub(crate) fn end_call(&mut self, id: &Value) -> ToolResult {
        let answer = self.answer_to(id);
        let result = &answer["result"];
        assert!(result.is_object(), "no tool result: {answer}");
        let tool = self.calls.remove(&id.to_string()).unwrap_or_default();
        super::schemas::check(&tool, result);
        ToolResult {
            text: result["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            structured: result["structuredContent"].clone(),
            is_error: result["isError"] == json!(true),
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> ToolResult {
        let id = self.begin_call(tool, arguments);
        self.end_call(&id)
    }

    #[track_caller]
    pub(crate) fn save(&mut self, arguments: Value) -> ToolResult {
        self.call("save_session_checkpoint", arguments)
    }

    #[track_caller]
    pub(crate) fn load(&mut self, arguments: Value) -> ToolResult {
        self.call("load_session_checkpoint", arguments)
    }

    #[track_caller]
    pub(crate) fn list(&mut self, arguments: Value) -> ToolResult {
        self.call("list_session_checkpoints", arguments)
    }

    /// What the shim wrote to its standard error, once it has ended.
    pub(crate) fn complaints(&mut self) -> String {
        let mut complaints = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _read = stderr.read_to_string(&mut complaints);
        }
        complaints
    }

    /// Closes the shim's standard input.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Waits for the shim's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        super::wait_until("the shim ends", || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
