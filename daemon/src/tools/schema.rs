//! The tools as clients see them: names, descriptions, schemas, hints.
//!
//! Written out by hand, because clients are picky (contract §1): no references, no unions, no type
//! lists, no integer formats, a plain type and a description on each input. A contract test pins the
//! whole answer.

use std::sync::Arc;

use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use crate::checkpoint::limits;

/// `save_session_checkpoint`
pub(crate) const SAVE: &str = "save_session_checkpoint";
/// `load_session_checkpoint`
pub(crate) const LOAD: &str = "load_session_checkpoint";
/// `list_session_checkpoints`
pub(crate) const LIST: &str = "list_session_checkpoints";

/// The server's instructions: clients show them to the model before it has seen any tool.
pub(crate) const INSTRUCTIONS: &str = "\
Checkpoints keep a session's goal, progress and decisions in the project, so that work survives a crash, \
a cleared conversation or a full context window.

- At the start of a session, before exploring, call load_session_checkpoint. If it finds this session's \
checkpoint, tell the user in a sentence where things stand and have them confirm before you act on it. If it \
returns candidates, ask the user which one to resume, if any; never choose yourself.
- Trust the brief: re-read only the files that it names as changed or as not checked.
- Call save_session_checkpoint after each milestone, before risky steps (migrations, large refactorings, \
history rewriting), when the conversation gets long, and when the user pauses or asks. Use mode \"merge\" to update, \
\"replace\" to start over. Record dead ends as decisions. Git changes are found by themselves.
- If a save returns a session id to pass back, pass it as `session` on every later call. After resuming another \
session's checkpoint, pass its selector as `resumedFrom` on your next save.
- Subagents never save: they report to their parent session.
- list_session_checkpoints shows what there is.";

/// All three.
pub(crate) fn tools() -> Vec<Tool> {
    vec![save(), load(), list()]
}

fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    input: Value,
    output: Value,
    reads_only: bool,
) -> Tool {
    let mut tool = Tool::new(name, description, object(input));
    tool.title = Some(title.to_owned());
    tool.output_schema = Some(object(output));
    let mut hints = ToolAnnotations::default();
    hints.read_only_hint = Some(reads_only);
    hints.destructive_hint = Some(false);
    hints.idempotent_hint = Some(reads_only);
    hints.open_world_hint = Some(false);
    tool.annotations = Some(hints);
    tool
}

fn object(schema: Value) -> Arc<Map<String, Value>> {
    match schema {
        Value::Object(map) => Arc::new(map),
        _ => unreachable!("every schema here is an object"),
    }
}

fn text(description: &str, most: usize) -> Value {
    json!({"type": "string", "description": description, "maxLength": most})
}

fn texts(description: &str, item: &str, length: usize, items: usize) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": text(item, length),
        "maxItems": items
    })
}

fn word(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn number(description: &str) -> Value {
    json!({"type": "integer", "description": description})
}

/// An output that may be null has no type, because a type list is not to be had everywhere.
fn nullable(description: &str) -> Value {
    json!({"description": description})
}

fn session() -> Value {
    word("Session id that an earlier save returned; not in Claude Code.")
}

fn project_root() -> Value {
    word("Absolute path, if not the client's project.")
}

fn save() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "goal": text("What the session is after.", limits::SHORT),
            "tasks": {
                "type": "array",
                "description": "Sub-goals; a merge updates them by description.",
                "maxItems": limits::TASKS,
                "items": {
                    "type": "object",
                    "description": "A sub-goal.",
                    "properties": {
                        "description": text("What is to be done.", limits::SHORT),
                        "status": {
                            "type": "string",
                            "description": "How far it is.",
                            "enum": ["pending", "in_progress", "done", "blocked"]
                        }
                    },
                    "required": ["description", "status"]
                }
            },
            "summary": text("Where things stand.", limits::SUMMARY),
            "nextSteps": texts("What to do next, in order.", "A step.", limits::SHORT, limits::NEXT_STEPS),
            "decisions": texts("Decisions, constraints, dead ends.", "One of them.", limits::DECISION, limits::DECISIONS),
            "modifiedFiles": {
                "type": "array",
                "description": "Files to annotate, or committed ones; uncommitted ones are found.",
                "maxItems": limits::FILES,
                "items": {
                    "type": "object",
                    "description": "A file.",
                    "properties": {
                        "path": word("In the project."),
                        "note": text("What matters about it.", limits::SHORT)
                    },
                    "required": ["path"]
                }
            },
            "recentCommands": {
                "type": "array",
                "description": "Commands that mattered, oldest first; secrets are redacted.",
                "maxItems": limits::COMMANDS,
                "items": {
                    "type": "object",
                    "description": "A command.",
                    "properties": {
                        "command": text("The command line.", limits::COMMAND),
                        "exitCode": number("Its exit code."),
                        "note": text("What came of it.", limits::SHORT)
                    },
                    "required": ["command"]
                }
            },
            "mode": {
                "type": "string",
                "description": "replace (default): write anew; merge: update.",
                "enum": ["replace", "merge"]
            },
            "resumedFrom": word("Selector of the resumed checkpoint, on the first save."),
            "session": session(),
            "projectRoot": project_root()
        },
        "required": ["goal"]
    });
    let output = json!({
        "type": "object",
        "properties": {
            "text": word("The answer in words."),
            "path": word("The file that was written."),
            "bytes": number("Its size."),
            "mode": word("replace or merge."),
            "counts": {
                "type": "object",
                "description": "What the checkpoint holds, and how many values this save redacted.",
                "properties": {
                    "tasks": number("Tasks."),
                    "modifiedFiles": number("Files."),
                    "recentCommands": number("Commands."),
                    "redactions": number("Redacted values.")
                }
            },
            "warnings": warnings(),
            "session": word("The session's id."),
            "sessionSource": word("How it was learnt: env, client, argument or minted.")
        },
        "required": ["text", "warnings"]
    });
    tool(
        SAVE,
        "Save session checkpoint",
        "Save this session's goal, progress, decisions and next steps. Call it after a milestone, before risky steps, when the conversation gets long, and when the user asks. Not from subagents.",
        input,
        output,
        false,
    )
}

fn load() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "format": {
                "type": "string",
                "description": "brief (default), or full: with all stored data.",
                "enum": ["brief", "full"]
            },
            "checkpoint": word("Selector; default: this session's own."),
            "session": session(),
            "projectRoot": project_root()
        }
    });
    let output = json!({
        "type": "object",
        "properties": {
            "text": word("The brief, or why there is none."),
            "found": flag("Whether a checkpoint was loaded."),
            "path": word("Its file."),
            "fromBackup": flag("Whether it was read from its backup."),
            "updatedAt": nullable("When it was saved."),
            "drift": {
                "type": "object",
                "description": "What changed since.",
                "properties": {
                    "branchChanged": flag("Whether HEAD is on another branch."),
                    "currentBranch": nullable("The branch now."),
                    "commitsSince": nullable("New commits on HEAD; null if unknown."),
                    "changedSince": paths("Recorded files whose content changed."),
                    "changedOmitted": number("How many more."),
                    "newSince": paths("Other files that changed."),
                    "newOmitted": number("How many more.")
                }
            },
            "resumeHint": word("What to pass on the next save."),
            "checkpoint": {
                "type": "object",
                "description": "All stored data, for format full."
            },
            "candidates": entries("Other sessions' checkpoints, newest first."),
            "total": number("How many candidates there are."),
            "omitted": number("How many are not shown."),
            "warnings": warnings()
        },
        "required": ["text", "found", "warnings"]
    });
    let mut load = tool(
        LOAD,
        "Load session checkpoint",
        "Get the brief of a saved session and which files changed since. Call it at the start of a session, before exploring, or to resume earlier work. Confirm with the user before acting on it.",
        input,
        output,
        true,
    );
    let mut meta = MetaObject::default();
    meta.0
        .insert("anthropic/maxResultSizeChars".to_owned(), 200_000.into());
    load.meta = Some(meta);
    load
}

fn list() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "limit": {
                "type": "integer",
                "description": "Most entries to return; default 10, 0 = all.",
                "minimum": 0
            },
            "session": session(),
            "projectRoot": project_root()
        }
    });
    let output = json!({
        "type": "object",
        "properties": {
            "text": word("The list in words."),
            "path": word("The project's root."),
            "entries": entries("Checkpoints, newest first."),
            "total": number("How many there are."),
            "omitted": number("How many are not shown."),
            "warnings": warnings()
        },
        "required": ["text", "path", "entries", "total", "omitted", "warnings"]
    });
    tool(
        LIST,
        "List session checkpoints",
        "List the project's checkpoints: goal, age, branch. Call it when the user asks which sessions can be resumed.",
        input,
        output,
        true,
    )
}

fn warnings() -> Value {
    json!({"type": "array", "description": "What the user should know.", "items": word("A warning.")})
}

fn paths(description: &str) -> Value {
    json!({"type": "array", "description": description, "items": word("A path.")})
}

fn entries(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "description": "A checkpoint.",
            "properties": {
                "selector": word("How to name it."),
                "goal": word("Its goal."),
                "updatedAt": nullable("When it was saved; null if unreadable."),
                "age": nullable("How long ago; null if unreadable."),
                "branch": nullable("The branch it was saved on."),
                "allTasksDone": flag("Whether it has tasks and all are done."),
                "isCurrentSession": flag("Whether it is this session's own."),
                "fromBackup": flag("Whether it was read from its backup.")
            }
        }
    })
}
