//! Whose checkpoint a call is about (contract §3): six sources in their order of trust.
//!
//! Pure: the call's `_meta`, its client's name, the variables that came with the hello and the
//! hook's word go in, a [`Whose`] comes out. Nothing is remembered, so a restart changes no answer.

use protocol::env::{self, Env};
use protocol::ids::{SESSION_ID_RULE, SessionId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::checkpoint::input::{Refusal, quote};
use crate::sha256;

/// Clients that are not Claude Code, by the first word of `clientInfo.name` or by the whole name, in lower case
/// without punctuation. Under one of these the variables of Claude Code were inherited from
/// a terminal that runs in it, and say nothing of the call.
const OTHER_CLIENTS: [&str; 28] = [
    "aider",
    "amp",
    "antigravity",
    "claudeai",
    "claudedesktop",
    "cline",
    "codex",
    "continue",
    "copilot",
    "crush",
    "cursor",
    "gemini",
    "github",
    "goose",
    "jetbrains",
    "junie",
    "kilo",
    "kiro",
    "opencode",
    "qwen",
    "roo",
    "trae",
    "visual",
    "vscode",
    "warp",
    "windsurf",
    "witsy",
    "zed",
];

/// What is known of a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    /// The call's `_meta`.
    pub(crate) meta: &'a Map<String, Value>,
    /// `clientInfo.name`
    pub(crate) client: Option<&'a str>,
    /// The client's variables.
    pub(crate) env: &'a Env,
    /// The session that the SessionStart hook named for the client's process.
    pub(crate) hook: Option<&'a SessionId>,
    /// The `session` argument.
    pub(crate) argument: Option<&'a str>,
}

/// How a session's id was learnt, as `sessionSource` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IdSource {
    /// Claude Code's variable, or its hook.
    Env,
    /// Another client's `_meta`.
    Client,
    /// The `session` argument.
    Argument,
    /// Made up for this save.
    Minted,
}

/// Whose checkpoint a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This session's.
    Session(SessionId, IdSource),
    /// The shared file.
    Legacy,
    /// Nobody's yet: a save makes up an id, a load lists candidates.
    Nobody,
}

/// Whose, and what is odd about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) whose: Whose,
    pub(crate) warnings: Vec<String>,
}

/// Decides.
pub(crate) fn resolve(caller: Caller<'_>) -> Result<Identity, Refusal> {
    let mut warnings = Vec::new();
    let ids = caller
        .env
        .get(env::CHECKPOINT_SESSION_IDS)
        .map(|value| value.to_string_lossy());
    let legacy = match ids.as_deref().map(str::trim) {
        None | Some("" | "mint") => false,
        Some("legacy") => true,
        Some(other) => {
            warnings.push(format!(
                "{} is `{}`, neither `mint` nor `legacy`; treated as `mint`.",
                env::CHECKPOINT_SESSION_IDS,
                quote(other)
            ));
            false
        }
    };
    let argument = match caller.argument {
        None => None,
        Some(text) => Some(SessionId::new(text).map_err(|_| {
            Refusal(format!(
                "`session` is `{}`, which is no session id: {SESSION_ID_RULE}. Leave `session` out, or pass the id that an earlier save returned.",
                quote(text)
            ))
        })?),
    };
    let (variable, hook) = if is_other_client(caller.client) {
        (None, None)
    } else {
        (variable(caller.env, &mut warnings), caller.hook.cloned())
    };
    let whose = match client_word(caller.meta) {
        // Who set `legacy` asked for the shared file; only an id that the user's own means give outranks it.
        Some(_) if legacy && variable.is_none() && hook.is_none() && argument.is_none() => {
            Whose::Legacy
        }
        Some(id) => {
            must_equal(argument.as_ref(), &[&id])?;
            Whose::Session(id, IdSource::Client)
        }
        None => match (hook, variable, argument) {
            (Some(hook), variable, argument) => {
                let accepted: Vec<&SessionId> = [Some(&hook), variable.as_ref()]
                    .into_iter()
                    .flatten()
                    .collect();
                must_equal(argument.as_ref(), &accepted)?;
                Whose::Session(hook, IdSource::Env)
            }
            (None, Some(variable), argument) => {
                must_equal(argument.as_ref(), &[&variable])?;
                Whose::Session(variable, IdSource::Env)
            }
            (None, None, Some(argument)) => Whose::Session(argument, IdSource::Argument),
            (None, None, None) if legacy => Whose::Legacy,
            (None, None, None) => Whose::Nobody,
        },
    };
    Ok(Identity { whose, warnings })
}

fn must_equal(argument: Option<&SessionId>, known: &[&SessionId]) -> Result<(), Refusal> {
    match argument {
        Some(argument) if !known.contains(&argument) => Err(Refusal(format!(
            "`session` is `{argument}`, but this session is `{}`; leave `session` out, the client says which session it is. To read another checkpoint, call load_session_checkpoint with `checkpoint: \"{argument}\"`; to continue from it, pass `resumedFrom: \"{argument}\"` to save_session_checkpoint.",
            known[0]
        ))),
        _ => Ok(()),
    }
}

fn variable(env: &Env, warnings: &mut Vec<String>) -> Option<SessionId> {
    let value = env.get(env::CLAUDE_CODE_SESSION_ID)?.to_string_lossy();
    let value = value.trim();
    if value.is_empty() {
        return None;
    }
    let id = SessionId::new(value).ok();
    if id.is_none() {
        warnings.push(format!(
            "{} is `{}`, which is no session id, and is ignored ({SESSION_ID_RULE}).",
            env::CLAUDE_CODE_SESSION_ID,
            quote(value)
        ));
    }
    id
}

/// Whether the client is known to be another one than Claude Code.
pub(crate) fn is_other_client(name: Option<&str>) -> bool {
    let Some(name) = name else { return false };
    let name = name.trim().to_lowercase();
    let first: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
    let whole: String = name.chars().filter(|c| c.is_alphanumeric()).collect();
    [first, whole]
        .iter()
        .any(|name| OTHER_CLIENTS.contains(&name.as_str()))
}

/// The session that another client names in a call's `_meta`.
fn client_word(meta: &Map<String, Value>) -> Option<SessionId> {
    let codex = codex_turn(meta).and_then(|turn| text(&turn, "session_id"));
    let word = codex
        .or_else(|| text(meta, "threadId"))
        .or_else(|| text(meta, "ai.opencode/sessionID"))
        .or_else(|| text(meta, "vscode.conversationId"))
        .or_else(|| text(meta, "antigravity.google/conversation_id"))?;
    Some(SessionId::new(&word).unwrap_or_else(|_| hashed(&word)))
}

/// Whether the call comes from a subagent that its client says is one.
pub(crate) fn is_subagent(meta: &Map<String, Value>) -> bool {
    codex_turn(meta)
        .and_then(|turn| text(&turn, "agent_path"))
        .is_some_and(|path| path != "/root")
}

fn codex_turn(meta: &Map<String, Value>) -> Option<Map<String, Value>> {
    match meta.get("x-codex-turn-metadata")? {
        Value::Object(turn) => Some(turn.clone()),
        Value::String(json) => serde_json::from_str(json).ok(),
        _ => None,
    }
}

fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    let text = map.get(key)?.as_str()?;
    (!text.trim().is_empty()).then(|| text.to_owned())
}

/// A word that is no session id, as one: it can't collide with another and says nothing.
fn hashed(word: &str) -> SessionId {
    SessionId::new(&format!("x-{}", sha256::digest(word.as_bytes())))
        .expect("hex digits after a letter are a session id")
}
