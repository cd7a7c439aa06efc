//! The checkpoint as it stands in its file (contract §5), keys in the order in which they are written.
//!
//! Reading is lenient where leniency loses nothing: a missing list is empty, keys that this version
//! doesn't know are kept ([`Unknown`]) and written back by a merge.

use protocol::ids::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::time::Timestamp;

/// The format that this version writes.
pub const VERSION: u64 = 1;
/// `generator.name` of every file we write.
pub const GENERATOR: &str = "session-checkpoint-mcp";

/// Keys of a file that this version doesn't know.
pub type Unknown = Map<String, Value>;

/// One session's checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Always [`VERSION`].
    pub version: u64,
    /// New at each replace, kept by a merge.
    #[serde(default)]
    pub id: String,
    /// When the checkpoint with this `id` was first saved.
    pub created_at: Timestamp,
    /// When it was last saved; never goes back.
    pub updated_at: Timestamp,
    /// The program that wrote the file.
    #[serde(default)]
    pub generator: Generator,
    /// The project.
    #[serde(default)]
    pub project: Project,
    /// The session whose checkpoint it is; absent in the legacy file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The selector of the checkpoint that the session resumed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
    /// Where git stood; `None` outside git and before the first commit.
    #[serde(default)]
    pub git: Option<GitState>,
    /// The goal and its tasks.
    pub goal: Goal,
    /// Where things stand.
    #[serde(default)]
    pub summary: String,
    /// What to do next, in order.
    #[serde(default)]
    pub next_steps: Vec<String>,
    /// Decisions, constraints and dead ends, oldest first.
    #[serde(default)]
    pub decisions: Vec<String>,
    /// Files that differ from HEAD, and those the agent named.
    #[serde(default)]
    pub modified_files: Vec<FileRecord>,
    /// Commands that mattered, oldest first.
    #[serde(default)]
    pub recent_commands: Vec<CommandRecord>,
    /// What was taken out before writing.
    #[serde(default)]
    pub meta: Meta,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The program that wrote a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// [`GENERATOR`]
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The project of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Project {
    /// The last component of the root's path.
    #[serde(default)]
    pub name: String,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Where git stood when the checkpoint was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GitState {
    /// The branch's short name; `None` when HEAD was detached.
    #[serde(default)]
    pub branch: Option<String>,
    /// The commit at HEAD, in hex.
    pub head: String,
    /// Whether anything under the root differed from HEAD, untracked files included.
    #[serde(default)]
    pub dirty: bool,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What the session is after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// In one or two sentences.
    pub primary: String,
    /// Sub-goals.
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A sub-goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its text, by which a merge finds it.
    pub description: String,
    /// How far it is.
    pub status: TaskStatus,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Finished.
    Done,
    /// Can't go on.
    Blocked,
}

/// A file that differed from HEAD, or that the agent named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Relative to the root, `/`-separated.
    pub path: String,
    /// One porcelain letter against HEAD, or `??`.
    pub status: String,
    /// Who found it.
    pub source: Source,
    /// What the agent says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The git blob hash of the raw content at save time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Who found a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// git lists it as different from HEAD.
    Git,
    /// The agent named it, or an earlier save of a merge recorded it.
    Agent,
}

/// A command that mattered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRecord {
    /// The command line, redacted.
    pub command: String,
    /// Its exit code, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What was taken out before writing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// How many values were redacted.
    #[serde(default)]
    pub redactions: u64,
    /// Whether anything was dropped to keep a limit.
    #[serde(default)]
    pub truncated: bool,
    /// Whether files that git lists are missing here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files_incomplete: bool,
    /// Unknown keys.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Checkpoint {
    /// Whether there are tasks and all of them are done.
    pub fn all_tasks_done(&self) -> bool {
        let tasks = &self.goal.tasks;
        !tasks.is_empty() && tasks.iter().all(|task| task.status == TaskStatus::Done)
    }

    /// Drops every key that this version doesn't know; returns how many there were.
    pub fn drop_unknown(&mut self) -> usize {
        let mut maps = vec![
            &mut self.unknown,
            &mut self.generator.unknown,
            &mut self.project.unknown,
            &mut self.goal.unknown,
            &mut self.meta.unknown,
        ];
        maps.extend(self.git.iter_mut().map(|git| &mut git.unknown));
        maps.extend(self.goal.tasks.iter_mut().map(|task| &mut task.unknown));
        maps.extend(self.modified_files.iter_mut().map(|file| &mut file.unknown));
        maps.extend(
            self.recent_commands
                .iter_mut()
                .map(|command| &mut command.unknown),
        );
        maps.into_iter().map(|map| std::mem::take(map).len()).sum()
    }
}
