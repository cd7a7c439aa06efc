//! Lines from the client to the daemon and back, across the daemon's death.
//!
//! What is kept for that: the `initialize` line, `notifications/initialized`, and each request until it is
//! answered. When the stream breaks, the next daemon is told the same opening (its answer to a repeated
//! `initialize` is swallowed) and the unanswered requests. `ping` is answered here, so that it is
//! answered in every state.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use crate::connect::{Daemon, Stream, Unreachable};

/// How long answers are waited for once the client has said all it will.
const FAREWELL: Duration = Duration::from_secs(10);

/// Pumps until the client hangs up or a signal says to leave.
pub(crate) async fn run(daemon: &Daemon, stream: Stream) {
    let mut relay = Relay {
        stream: Some(stream),
        stdout: tokio::io::stdout(),
        conversation: Conversation::default(),
    };
    tokio::select! {
        result = relay.pump(daemon) => {
            if let Err(error) = result {
                crate::complain(&format!("the client can't be written to ({error})"));
            }
        }
        () = told_to_leave() => {}
    }
}

async fn told_to_leave() {
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

struct Relay {
    /// `None` while there is no daemon.
    stream: Option<Stream>,
    stdout: tokio::io::Stdout,
    conversation: Conversation,
}

impl Relay {
    /// Fails only where the client can't be written to.
    async fn pump(&mut self, daemon: &Daemon) -> io::Result<()> {
        let mut stdin = BufReader::new(tokio::io::stdin());
        let mut from_client = Vec::new();
        let mut from_daemon = Vec::new();
        loop {
            let Some(stream) = &mut self.stream else {
                self.reconnect(daemon).await?;
                if self.stream.is_none() {
                    // Without a daemon there is nothing to do until the client wants something.
                    if !read_line(&mut stdin, &mut from_client).await {
                        return Ok(());
                    }
                    self.client_said(&from_client).await?;
                    from_client.clear();
                }
                continue;
            };
            tokio::select! {
                more = read_line(&mut stdin, &mut from_client) => {
                    if !more {
                        return self.farewell(daemon).await;
                    }
                    self.client_said(&from_client).await?;
                    from_client.clear();
                }
                more = read_line(&mut stream.reader, &mut from_daemon) => {
                    if more {
                        self.daemon_said(&from_daemon).await?;
                    } else {
                        self.stream = None;
                    }
                    from_daemon.clear();
                }
            }
        }
    }

    /// Waits for what is still to be answered, after the client has said all it will.
    async fn farewell(&mut self, daemon: &Daemon) -> io::Result<()> {
        let rest = async {
            let mut line = Vec::new();
            while !self.conversation.unanswered.is_empty() {
                let Some(stream) = &mut self.stream else {
                    self.reconnect(daemon).await?;
                    continue;
                };
                if read_line(&mut stream.reader, &mut line).await {
                    self.daemon_said(&line).await?;
                } else {
                    self.stream = None;
                }
                line.clear();
            }
            Ok(())
        };
        tokio::time::timeout(FAREWELL, rest).await.unwrap_or(Ok(()))
    }

    async fn client_said(&mut self, line: &[u8]) -> io::Result<()> {
        match self.conversation.heard(line) {
            Heard::Forward => {
                if let Some(stream) = &mut self.stream
                    && stream.writer.write_all(line).await.is_err()
                {
                    self.stream = None;
                }
                Ok(())
            }
            Heard::Answer(answer) => self.tell_client(answer.as_bytes()).await,
            Heard::Drop => Ok(()),
        }
    }

    async fn daemon_said(&mut self, line: &[u8]) -> io::Result<()> {
        if self.conversation.answered(line) {
            self.tell_client(line).await?;
        }
        Ok(())
    }

    async fn tell_client(&mut self, line: &[u8]) -> io::Result<()> {
        self.stdout.write_all(line).await?;
        self.stdout.flush().await
    }

    /// Finds the next daemon and says everything again that the last one may not have heard. Where there is
    /// none, what is unanswered is answered with an error.
    async fn reconnect(&mut self, daemon: &Daemon) -> io::Result<()> {
        match daemon.connect().await {
            Ok(mut stream) => {
                let again = self.conversation.again();
                if stream.writer.write_all(&again).await.is_ok() {
                    self.stream = Some(stream);
                }
                Ok(())
            }
            Err(error) => {
                let reason = match error {
                    Unreachable::Failed(reason) => reason,
                    Unreachable::Off => "it is switched off".to_owned(),
                };
                for answer in self.conversation.give_up(&reason) {
                    self.tell_client(answer.as_bytes()).await?;
                }
                Ok(())
            }
        }
    }
}

/// Appends the next line with its line break; at the end of the stream, the last line gets one. False when
/// there is nothing more. Cancel-safe: what was read of a line stays in `line`.
async fn read_line<R: AsyncBufRead + Unpin>(reader: &mut R, line: &mut Vec<u8>) -> bool {
    // A stream that can't be read is over.
    let read = reader.read_until(b'\n', line).await;
    if line.is_empty() || read.is_err() {
        return false;
    }
    if line.last() != Some(&b'\n') {
        line.push(b'\n');
    }
    true
}

/// What must be said again to the next daemon.
#[derive(Default)]
struct Conversation {
    opening: Option<Request>,
    initialized: Option<Vec<u8>>,
    /// In the order in which they came.
    unanswered: Vec<Request>,
    /// The id of a repeated `initialize`, whose answer the client has had.
    swallow: Option<String>,
    /// What this daemon has asked the client. Answers to what an earlier one asked are dropped.
    asked: HashSet<String>,
}

#[derive(Clone)]
struct Request {
    id: String,
    line: Vec<u8>,
}

/// What to do with a line of the client's.
enum Heard {
    Forward,
    Answer(String),
    Drop,
}

/// As much of a message as matters here.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

impl Conversation {
    fn heard(&mut self, line: &[u8]) -> Heard {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return Heard::Forward; // the daemon says what is wrong with it
        };
        let id = envelope.id.map(|id| id.get().to_owned());
        match (envelope.method.as_deref(), id) {
            (Some("ping"), Some(id)) if is_id(&id) => Heard::Answer(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"
            )),
            (Some(method), Some(id)) => {
                let request = Request {
                    id,
                    line: line.to_vec(),
                };
                if method == "initialize" {
                    self.opening = Some(request.clone());
                }
                self.unanswered.push(request);
                Heard::Forward
            }
            (Some("notifications/initialized"), None) => {
                self.initialized = Some(line.to_vec());
                Heard::Forward
            }
            (Some(_), None) => Heard::Forward,
            (None, Some(id)) => {
                let is_response = envelope.result.is_some() || envelope.error.is_some();
                if is_response && !self.asked.remove(&id) {
                    Heard::Drop
                } else {
                    Heard::Forward
                }
            }
            (None, None) => Heard::Forward,
        }
    }

    /// Notes what a line of the daemon's answers or asks; false if the client has had it already.
    fn answered(&mut self, line: &[u8]) -> bool {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return true;
        };
        let Some(id) = envelope.id.map(RawValue::get) else {
            return true;
        };
        if envelope.method.is_some() {
            self.asked.insert(id.to_owned());
            return true;
        }
        if self.swallow.as_deref() == Some(id) {
            self.swallow = None;
            return false;
        }
        self.unanswered.retain(|request| request.id != id);
        true
    }

    /// Everything that the next daemon must hear, in order.
    fn again(&mut self) -> Vec<u8> {
        self.asked.clear();
        self.swallow = None;
        let mut lines = Vec::new();
        if let Some(opening) = &self.opening {
            let is_open = self
                .unanswered
                .iter()
                .any(|request| request.id == opening.id);
            if !is_open {
                lines.extend_from_slice(&opening.line);
                self.swallow = Some(opening.id.clone());
            }
        }
        lines.extend(self.initialized.iter().flatten());
        for request in &self.unanswered {
            lines.extend_from_slice(&request.line);
        }
        lines
    }

    /// Errors for all that can't be answered any more.
    fn give_up(&mut self, reason: &str) -> Vec<String> {
        let message =
            serde_json::to_string(&format!("session-checkpointd can't be reached: {reason}"))
                .unwrap_or_default();
        self.unanswered
            .drain(..)
            .map(|request| {
                format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{{\"code\":-32603,\"message\":{message}}}}}\n",
                    request.id
                )
            })
            .collect()
    }
}

/// Whether raw JSON is an id that may be answered: a string that isn't empty, or an integer.
fn is_id(raw: &str) -> bool {
    raw.parse::<i64>().is_ok() || (raw.starts_with('"') && raw.len() > 2)
}
