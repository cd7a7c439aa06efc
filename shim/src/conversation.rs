//! What the shim keeps of a conversation, to say it again to the next daemon.
//!
//! Pure: lines in, decisions out. Kept are the `initialize` line, `notifications/initialized`, and each request
//! until it is answered, cancelled, or has brought down one daemon too many. Ids are compared as
//! values: the same id can be spelled in more than one way.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Daemons that may die with a request unanswered before it is taken for the reason.
const MAX_DEATHS: u32 = 20;

/// The conversation so far.
#[derive(Default)]
pub(crate) struct Conversation {
    opening: Option<Request>,
    initialized: Option<Vec<u8>>,
    /// In the order in which they came.
    unanswered: Vec<Request>,
    /// The id of a repeated `initialize`, whose answer the client has had.
    swallow: Option<Value>,
    /// What this daemon has asked the client. Answers to what an earlier one asked are dropped.
    asked: HashSet<String>,
}

#[derive(Clone)]
struct Request {
    id: Value,
    line: Vec<u8>,
    /// Daemons that died while it was unanswered.
    deaths: u32,
}

/// What to do with a line of the client's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The daemon must have it.
    Forward,
    /// The client gets this line.
    Answer(Vec<u8>),
    /// Nobody waits for it.
    Drop,
}

/// What to say to the next daemon, and to the client.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// Lines for the daemon, in order.
    pub(crate) daemon: Vec<u8>,
    /// Answers for the client to what is given up.
    pub(crate) client: Vec<u8>,
}

/// As much of a message as matters here.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<Value>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    params: Option<Params>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// As much of a notification's parameters.
#[derive(Deserialize)]
struct Params {
    #[serde(rename = "requestId")]
    request_id: Option<Value>,
}

impl Conversation {
    /// Whether the client waits for anything.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Takes note of a line of the client's.
    pub(crate) fn heard(&mut self, line: &[u8]) -> Heard {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return Heard::Forward; // the daemon says what is wrong with it
        };
        match (envelope.method.as_deref(), envelope.id) {
            // What is no id is answered by the daemon under none, and so can't be waited for.
            (Some(_), Some(id)) if !is_id(&id) => Heard::Forward,
            (Some("ping"), Some(id)) => {
                Heard::Answer(line_of(&json!({"jsonrpc": "2.0", "id": id, "result": {}})))
            }
            (Some(method), Some(id)) => {
                if self.unanswered.iter().any(|request| request.id == id) {
                    return Heard::Forward; // refused by the daemon: the first one is still open
                }
                let request = Request {
                    id,
                    line: line.to_vec(),
                    deaths: 0,
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
            (Some("notifications/cancelled"), None) => {
                // It gets no answer, and must not be said again.
                if let Some(id) = envelope.params.and_then(|params| params.request_id) {
                    self.unanswered.retain(|request| request.id != id);
                }
                Heard::Forward
            }
            (Some(_), None) => Heard::Forward,
            (None, Some(id)) => {
                let is_response = envelope.result.is_some() || envelope.error.is_some();
                if is_response && !self.asked.remove(&id.to_string()) {
                    Heard::Drop
                } else {
                    Heard::Forward
                }
            }
            (None, None) => Heard::Forward,
        }
    }

    /// Takes note of a line of the daemon's; false if the client has had it already.
    pub(crate) fn answered(&mut self, line: &[u8]) -> bool {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            return true;
        };
        let Some(id) = envelope.id else {
            return true;
        };
        if envelope.method.is_some() {
            self.asked.insert(id.to_string());
            return true;
        }
        if self.swallow.as_ref() == Some(&id) {
            self.swallow = None;
            return false;
        }
        self.unanswered.retain(|request| request.id != id);
        true
    }

    /// The daemon died: what the next one must hear. What it can't be trusted to survive is given up.
    pub(crate) fn again(&mut self) -> Again {
        self.asked.clear();
        self.swallow = None;
        for request in &mut self.unanswered {
            request.deaths += 1;
        }
        let mut again = Again {
            client: self.give_up(
                |request| request.deaths > MAX_DEATHS,
                "several daemons ended without answering it",
            ),
            daemon: Vec::new(),
        };
        if let Some(opening) = &self.opening
            && !self
                .unanswered
                .iter()
                .any(|request| request.id == opening.id)
        {
            again.daemon.extend_from_slice(&opening.line);
            self.swallow = Some(opening.id.clone());
        }
        again.daemon.extend(self.initialized.iter().flatten());
        for request in &self.unanswered {
            again.daemon.extend_from_slice(&request.line);
        }
        again
    }

    /// Answers for all that can't be answered, because there is no daemon.
    pub(crate) fn give_up_all(&mut self, reason: &str) -> Vec<u8> {
        self.give_up(|_| true, &format!("no daemon can be reached: {reason}"))
    }

    fn give_up(&mut self, which: impl Fn(&Request) -> bool, reason: &str) -> Vec<u8> {
        let mut answers = Vec::new();
        self.unanswered.retain(|request| {
            if !which(request) {
                return true;
            }
            answers.extend(line_of(&json!({
                "jsonrpc": "2.0",
                "id": request.id,
                "error": {"code": -32603, "message": format!("session-checkpoint: {reason}")}
            })));
            false
        });
        answers
    }
}

/// The ids that the daemon answers under: strings that aren't empty, and integers.
fn is_id(id: &Value) -> bool {
    match id {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.is_i64(),
        _ => false,
    }
}

fn line_of(message: &Value) -> Vec<u8> {
    format!("{message}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: Value) -> Vec<u8> {
        line_of(&message)
    }

    fn request(id: Value, method: &str) -> Vec<u8> {
        line(json!({"jsonrpc": "2.0", "id": id, "method": method}))
    }

    fn answer(id: Value) -> Vec<u8> {
        line(json!({"jsonrpc": "2.0", "id": id, "result": {}}))
    }

    fn lines(bytes: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn the_next_daemon_hears_the_opening_and_what_is_unanswered() {
        let mut conversation = Conversation::default();
        conversation.heard(&request(json!(0), "initialize"));
        assert!(conversation.answered(&answer(json!(0))));
        conversation.heard(&line(
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ));
        for id in 1..4 {
            conversation.heard(&request(json!(id), "tools/call"));
        }
        assert!(conversation.answered(&answer(json!(2))));
        let again = conversation.again();
        let methods: Vec<_> = lines(&again.daemon)
            .iter()
            .map(|l| (l["id"].clone(), l["method"].clone()))
            .collect();
        assert_eq!(
            methods,
            [
                (json!(0), json!("initialize")),
                (Value::Null, json!("notifications/initialized")),
                (json!(1), json!("tools/call")),
                (json!(3), json!("tools/call"))
            ]
        );
        assert!(again.client.is_empty());
        assert!(
            !conversation.answered(&answer(json!(0))),
            "the client has had this answer"
        );
        assert!(conversation.answered(&answer(json!(1))));
        assert!(conversation.answered(&answer(json!(3))));
        assert!(!conversation.is_waiting());
    }

    #[test]
    fn an_unanswered_initialize_is_said_once_and_its_answer_passes() {
        let mut conversation = Conversation::default();
        conversation.heard(&request(json!("i"), "initialize"));
        assert_eq!(lines(&conversation.again().daemon).len(), 1);
        assert!(conversation.answered(&answer(json!("i"))));
    }

    #[test]
    fn what_was_cancelled_is_not_said_again() {
        let mut conversation = Conversation::default();
        conversation.heard(&request(json!(5), "tools/call"));
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        assert_eq!(conversation.heard(&line(cancel)), Heard::Forward);
        assert!(!conversation.is_waiting());
        assert!(conversation.again().daemon.is_empty());
    }

    #[test]
    fn an_id_is_the_same_however_it_is_spelled() {
        let mut conversation = Conversation::default();
        conversation
            .heard(b"{\"jsonrpc\":\"2.0\",\"id\":\"\\u00e9\\/\",\"method\":\"tools/list\"}\n");
        assert!(conversation.is_waiting());
        conversation.answered(&answer(json!("é/")));
        assert!(!conversation.is_waiting());
    }

    #[test]
    fn what_cannot_be_answered_is_not_waited_for() {
        let mut conversation = Conversation::default();
        for id in [json!(1.5), json!(true), json!(""), Value::Null] {
            assert_eq!(
                conversation.heard(&request(id, "tools/list")),
                Heard::Forward
            );
        }
        assert_eq!(conversation.heard(b"nonsense\n"), Heard::Forward);
        assert!(!conversation.is_waiting());
    }

    #[test]
    fn a_ping_is_answered_here() {
        let mut conversation = Conversation::default();
        let Heard::Answer(bytes) = conversation.heard(&request(json!("p"), "ping")) else {
            panic!("not answered");
        };
        assert_eq!(
            lines(&bytes),
            [json!({"jsonrpc": "2.0", "id": "p", "result": {}})]
        );
    }

    #[test]
    fn answers_to_what_a_dead_daemon_asked_are_dropped() {
        let mut conversation = Conversation::default();
        assert!(conversation.answered(&request(json!(0), "roots/list")));
        assert_eq!(conversation.heard(&answer(json!(0))), Heard::Forward);
        assert!(conversation.answered(&request(json!(1), "roots/list")));
        conversation.again();
        assert_eq!(conversation.heard(&answer(json!(1))), Heard::Drop);
    }

    #[test]
    fn a_request_that_daemons_do_not_survive_is_given_up() {
        let mut conversation = Conversation::default();
        conversation.heard(&request(json!(1), "tools/call"));
        for _ in 0..MAX_DEATHS {
            assert_eq!(lines(&conversation.again().daemon).len(), 1);
        }
        let again = conversation.again();
        assert!(again.daemon.is_empty());
        assert_eq!(lines(&again.client)[0]["error"]["code"], -32603);
        conversation.heard(&request(json!(2), "tools/call"));
        assert_eq!(lines(&conversation.give_up_all("gone"))[0]["id"], 2);
        assert!(!conversation.is_waiting());
    }
}
