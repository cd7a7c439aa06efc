//! The two Claude Code hooks (contract §6): JSON on standard input, at most one JSON object on standard output.
//!
//! A hook must never block a session: whatever is odd ends in silence and success, and every wait has a limit. Nothing
//! is started for them, neither a daemon nor an asynchronous runtime. They are decided here; the daemon is only told
//! in passing which project is about to be worked on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use protocol::env::{self, Env};
use protocol::hello::{HOOK_ENDPOINT, SessionStart};
use protocol::ids::SessionId;
use protocol::word::{self, Entry};
use protocol::{files, os, process, socket, state};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long the whole input may take to arrive.
const INPUT_PATIENCE: Duration = Duration::from_secs(2);
/// How long the rest may take (contract §6: 300 ms).
const BUDGET: Duration = Duration::from_millis(250);
/// How long the daemon may take to listen.
const DAEMON_PATIENCE: Duration = Duration::from_millis(50);
/// The most that a hook's input may hold, in bytes: a tool's whole input is in it.
const MAX_INPUT: usize = 32 * 1024 * 1024;
/// The most that is read of a checkpoint, in bytes.
const MAX_CHECKPOINT: u64 = 256 * 1024;
/// Checkpoints that are opened to see how old they are: those that changed last.
const LOOKED_INTO: usize = 50;
/// Entries that are looked at to clear away those of dead processes.
const TIDIED: usize = 200;

/// Which hook it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    SessionStart,
    Guard,
}

impl Hook {
    /// The hook of this name on the command line.
    pub(crate) fn named(name: &OsStr) -> Option<Hook> {
        match name.to_str()? {
            "session-start" => Some(Hook::SessionStart),
            "guard" => Some(Hook::Guard),
            _ => None,
        }
    }
}

/// Runs the hook: reads its input, does what it is for, and gives what it prints.
pub(crate) fn run(hook: Hook, env: Env) -> Option<String> {
    let input = read_object()?;
    let (sender, answer) = channel();
    // A disk or a daemon that never answers keeps this thread, not the session.
    std::thread::spawn(move || {
        let said = parse(&input).and_then(|input| match hook {
            Hook::SessionStart => session_start(&input, &env),
            Hook::Guard => guard(&input),
        });
        // Too late, if nobody listens any more.
        let _told = sender.send(said);
    });
    answer.recv_timeout(BUDGET).ok().flatten()
}

/// What stands before the object (the mark that some put before UTF-8) is no part of it.
fn parse(input: &[u8]) -> Option<Input> {
    let start = input.iter().position(|byte| *byte == b'{')?;
    serde_json::from_slice(&input[start..]).ok()
}

/// As much of a hook's input as matters here; what has another type than expected is as good as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    session_id: Value,
    source: Value,
    cwd: Value,
    agent_id: Value,
    tool_name: Value,
}

/// Reads until a whole JSON object is there; its end is not awaited, because some keep the pipe open.
fn read_object() -> Option<Vec<u8>> {
    let (sender, chunks) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut chunk = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = stdin.read(&mut chunk) {
            if sender.send(chunk[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + INPUT_PATIENCE;
    let mut input = Vec::new();
    let mut object = Object::default();
    loop {
        match chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(chunk) => {
                for byte in chunk {
                    input.push(byte);
                    match object.take(byte) {
                        Progress::Open => {}
                        Progress::Closed => return Some(input),
                        Progress::None => return None,
                    }
                }
                if input.len() > MAX_INPUT {
                    return None;
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// An input as somebody may have sent it.
#[cfg(fuzzing)]
pub(crate) fn try_input(bytes: &[u8]) {
    let mut object = Object::default();
    let end = bytes
        .iter()
        .position(|byte| object.take(*byte) != Progress::Open);
    let whole = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
    let input = parse(whole).unwrap_or_default();
    let said = guard(&input);
    assert!(said.is_none_or(|said| said.len() < 10_000));
}

/// Where a JSON object ends, found byte by byte.
#[derive(Default)]
struct Object {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Open,
    Closed,
    /// It is no object.
    None,
}

impl Object {
    fn take(&mut self, byte: u8) -> Progress {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Progress::Open;
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'"' => self.in_string = true,
            _ => {}
        }
        match (self.depth, byte) {
            (0, b'}') => Progress::Closed,
            // White space, and the mark that some put before UTF-8.
            (0, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf) => Progress::Open,
            (0, _) => Progress::None,
            _ => Progress::Open,
        }
    }
}

/// Denies a subagent's save. Only its id tells a subagent from a main session that runs as an agent.
fn guard(input: &Input) -> Option<String> {
    let is_subagent = match &input.agent_id {
        Value::Null => false,
        Value::String(id) => !id.is_empty(),
        _ => true,
    };
    let is_save = match &input.tool_name {
        Value::String(name) => name.ends_with("save_session_checkpoint"),
        _ => true,
    };
    let reason = "Subagents don't save checkpoints: the session's checkpoint belongs to the parent. \
        Put what should be kept (progress, decisions, dead ends, next steps) into your report; the parent session saves it.";
    (is_subagent && is_save).then(|| {
        json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        }})
        .to_string()
    })
}

/// Keeps the hook's word, tells the daemon, and has something to say where the project has checkpoints.
fn session_start(input: &Input, env: &Env) -> Option<String> {
    // Whatever becomes of it, the rest is done.
    let _written = keep_word(input, env);
    let root = root(input, env)?;
    tell_daemon(&root, env);
    if is_muted(env) {
        return None;
    }
    let found = checkpoints(&root);
    let newest = found.iter().max()?;
    Some(
        json!({"hookSpecificOutput": {
            "hookEventName": "SessionStart",
            "additionalContext": nudge(found.len(), *newest, SystemTime::now()),
        }})
        .to_string(),
    )
}

fn nudge(count: usize, newest: SystemTime, now: SystemTime) -> String {
    let (there, them) = match count {
        1 => ("1 session checkpoint, saved".to_owned(), "it"),
        n => (format!("{n} session checkpoints, the newest saved"), "one"),
    };
    format!(
        "This project has {there} {}. Before you explore, call the tool load_session_checkpoint to see what was being \
         worked on and which files changed since. Then tell the user in a sentence and let them confirm before you act \
         on {them}; if there are several candidates, ask which.",
        ago(newest, now)
    )
}

fn ago(then: SystemTime, now: SystemTime) -> String {
    // A clock that was set back makes no negative ages.
    let seconds = now.duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86400),
    }
}

fn is_muted(env: &Env) -> bool {
    env.get(env::NUDGE)
        .is_some_and(|value| ["off", "0", "false", "no"].iter().any(|off| value == *off))
}

/// The project that a save of this session would be about, as far as a hook can tell.
fn root(input: &Input, env: &Env) -> Option<PathBuf> {
    let named = |name: &str| {
        env.get(name)
            .filter(|value| !value.to_string_lossy().trim().is_empty())
            .map(PathBuf::from)
    };
    let root = named(env::CHECKPOINT_PROJECT_ROOT)
        .or_else(|| named(env::CLAUDE_PROJECT_DIR))
        .or_else(|| input.cwd.as_str().map(PathBuf::from))?;
    os::canonical(root.is_absolute().then_some(&root)?).ok()
}

/// When each checkpoint of the project was saved.
fn checkpoints(root: &Path) -> Vec<SystemTime> {
    let directory = root.join(files::DIRECTORY);
    // A link would count what lies outside the project.
    let is_directory = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let names = is_directory(&directory)
        .then(|| std::fs::read_dir(&directory).ok())
        .flatten()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    // A backup speaks for a main file that is gone.
    let mut sessions: BTreeMap<SessionId, PathBuf> = BTreeMap::new();
    for name in names {
        if let Some(session) = files::session_of(&name) {
            let is_main = !name.ends_with(".prev");
            if is_main || !sessions.contains_key(&session) {
                sessions.insert(session, directory.join(name));
            }
        }
    }
    let legacy = root.join(files::LEGACY_FILE);
    let mut found: Vec<(SystemTime, PathBuf)> = sessions
        .into_values()
        .chain([legacy])
        .filter_map(|path| {
            let metadata = path.symlink_metadata().ok()?;
            let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
            metadata.is_file().then_some((modified, path))
        })
        .collect();
    found.sort_by_key(|(modified, _)| Reverse(*modified));
    let age = |(n, (modified, path)): (usize, (SystemTime, PathBuf))| match n {
        0..LOOKED_INTO => saved_at(&path).unwrap_or(modified),
        _ => modified,
    };
    found.into_iter().enumerate().map(age).collect()
}

/// When the checkpoint itself says that it was saved.
fn saved_at(path: &Path) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Saved {
        #[serde(rename = "updatedAt")]
        updated_at: jiff::Timestamp,
    }
    let file = os::open_regular(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_CHECKPOINT).read_to_end(&mut bytes).ok()?;
    let saved: Saved = serde_json::from_slice(&bytes).ok()?;
    let milliseconds = u64::try_from(saved.updated_at.as_millisecond()).ok()?;
    Some(UNIX_EPOCH + Duration::from_millis(milliseconds))
}

/// Writes down which session the client's process is in: for its shims, whose environment doesn't know.
fn keep_word(input: &Input, env: &Env) -> Option<()> {
    let session = SessionId::new(input.session_id.as_str()?).ok()?;
    // A conversation that was compacted is the same; one that was cleared goes on with its checkpoint.
    if matches!(input.source.as_str(), Some("compact" | "clear")) {
        return None;
    }
    let client = env.get(env::CLAUDE_PID)?.to_str()?.parse().ok()?;
    let (boot, client) = process::identify(client)?;
    let directory = state::usable(env, &os::user())?.join(word::DIRECTORY);
    os::make_private_dir(&directory).ok()?;
    let file = directory.join(word::entry_file(&boot, client.pid, client.start));
    let new = directory.join(format!(".{}", std::process::id()));
    let entry = serde_json::to_vec(&Entry { session }).expect("an entry is plain JSON");
    std::fs::write(&new, entry).ok()?;
    std::fs::rename(&new, file).ok()?;
    tidy(&directory, &boot);
    Some(())
}

/// Clears away the entries of processes that are gone.
fn tidy(directory: &Path, boot: &str) {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    for entry in entries.flatten().take(TIDIED) {
        let name = entry.file_name();
        let is_current = name
            .to_str()
            .and_then(word::pid_of)
            .and_then(process::identify)
            .is_some_and(|(_, process)| {
                *name == *word::entry_file(boot, process.pid, process.start)
            });
        // A file that is being written is some other hook's.
        if !is_current && !name.to_string_lossy().starts_with('.') {
            let _removed = std::fs::remove_file(entry.path());
        }
    }
}

/// Tells the daemon, if one runs, that this project is about to be worked on.
fn tell_daemon(root: &Path, env: &Env) -> Option<()> {
    let place = socket::place(env, &os::user()).ok()?;
    let word = SessionStart {
        root: root.as_os_str().into(),
    };
    let body = serde_json::to_string(&word).expect("it is plain JSON");
    let (sender, heard) = channel();
    // A pipe of Windows has no timeouts.
    std::thread::spawn(move || {
        let told = os::connect(&place.socket).and_then(|mut stream| {
            write!(
                stream,
                "POST {HOOK_ENDPOINT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )?;
            // Its first byte says that it has heard.
            stream.read_exact(&mut [0; 1])
        });
        let _waiting = sender.send(told);
    });
    heard.recv_timeout(DAEMON_PATIENCE).ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> Option<usize> {
        let mut object = Object::default();
        for (n, byte) in text.bytes().enumerate() {
            match object.take(byte) {
                Progress::Open => {}
                Progress::Closed => return Some(n + 1),
                Progress::None => return None,
            }
        }
        None
    }

    #[test]
    fn an_object_ends_at_its_own_brace() {
        for object in [
            r#"{}"#,
            r#" {"a":{"b":[1,{}]}}"#,
            r#"{"a":"}\\\\"}"#,
            "\u{feff}\n{\"a\":\"{[\"}",
            r#"{"a":"\"}"}"#,
        ] {
            assert_eq!(
                end(&format!("{object} rest")),
                Some(object.len()),
                "{object}"
            );
        }
        for other in ["[]", "1", "x{}", "\"{}\"", "{\"a\":1"] {
            assert_eq!(end(other), None, "{other}");
        }
    }

    #[test]
    fn ages_are_told_roughly_and_never_negative() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, told) in [
            (0, "just now"),
            (61, "1m ago"),
            (7200, "2h ago"),
            (200_000, "2d ago"),
        ] {
            assert_eq!(ago(at(0), at(seconds)), told);
        }
        assert_eq!(ago(at(100), at(0)), "just now");
    }
}
