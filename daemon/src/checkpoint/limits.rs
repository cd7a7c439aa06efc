//! The lengths of fields and lists, and the 64 KiB of a file (contract §1 and §5).
//!
//! Over a limit nothing is refused: what is most useful stays, and a warning says what went. Lengths
//! are in Unicode code points, counts in elements.

use serde::Serialize;

use super::format;
use super::model::{Checkpoint, FileRecord, Source, Task, TaskStatus};
use super::text::shorten;

/// The most bytes of a checkpoint file.
pub const MAX_FILE: usize = 64 * 1024;

/// `goal`, a task's description, a next step, a note.
pub const SHORT: usize = 500;
/// `summary`
pub const SUMMARY: usize = 4000;
/// A decision.
pub const DECISION: usize = 1000;
/// A command.
pub const COMMAND: usize = 2000;
/// A file's path: as long as Linux lets one be.
pub const PATH: usize = 4096;

/// `tasks`
pub const TASKS: usize = 30;
/// `nextSteps`
pub const NEXT_STEPS: usize = 20;
/// `decisions`
pub const DECISIONS: usize = 20;
/// `modifiedFiles`, of those given
pub const FILES: usize = 100;
/// `recentCommands`
pub const COMMANDS: usize = 50;

/// Drops tasks beyond [`TASKS`]: done ones first, the oldest before the newer, then open ones from the end.
pub fn clip_tasks(tasks: &mut Vec<Task>) -> Option<String> {
    let excess = tasks
        .len()
        .checked_sub(TASKS)
        .filter(|excess| *excess > 0)?;
    let mut done = excess;
    tasks.retain(|task| {
        let drop = done > 0 && task.status == TaskStatus::Done;
        done -= usize::from(drop);
        !drop
    });
    tasks.truncate(TASKS);
    Some(format!(
        "{excess} task(s) over the limit of {TASKS} were dropped: {} done, {done} open.",
        excess - done
    ))
}

/// Keeps the first of a list in order of importance.
pub fn clip_first(list: &mut Vec<String>, most: usize, what: &str) -> Option<String> {
    let excess = list.len().checked_sub(most).filter(|excess| *excess > 0)?;
    list.truncate(most);
    Some(format!(
        "The last {excess} {what}(s) over the limit of {most} were dropped."
    ))
}

/// Keeps the newest of a list in order of time.
pub fn clip_newest<T>(list: &mut Vec<T>, most: usize, what: &str) -> Option<String> {
    let excess = list.len().checked_sub(most).filter(|excess| *excess > 0)?;
    list.drain(..excess);
    Some(format!(
        "The oldest {excess} {what}(s) over the limit of {most} were dropped."
    ))
}

/// Cuts one text and tells which.
pub fn clip_text(text: &mut String, most: usize, what: &str) -> Option<String> {
    let length = text.chars().count();
    if length <= most {
        return None;
    }
    *text = shorten(text, most);
    Some(format!(
        "{what} was cut from {length} to {most} characters."
    ))
}

/// Makes the checkpoint fit [`MAX_FILE`]. `modified` tells when a file was last written. Returns what was
/// dropped, in words.
pub fn fit(checkpoint: &mut Checkpoint, modified: impl Fn(&str) -> i128) -> Option<String> {
    let mut fitting = Fitting::default();
    if excess(checkpoint) == 0 {
        return None;
    }
    checkpoint.meta.truncated = true;

    fitting.drop_from_front(checkpoint, |c| &mut c.recent_commands, "command");
    fitting.drop_plain_files(checkpoint, &modified);
    fitting.drop_from_front(checkpoint, |c| &mut c.decisions, "decision");
    fitting.drop_tasks(checkpoint, true);
    fitting.drop_from_end(checkpoint, |c| &mut c.next_steps, 1, "next step");
    fitting.drop_other_files(checkpoint);
    fitting.drop_tasks(checkpoint, false);
    fitting.cut_summary(checkpoint);
    fitting.drop_unknown(checkpoint);
    Some(format!(
        "The checkpoint was over {} KiB; dropped to make it fit: {}.",
        MAX_FILE / 1024,
        fitting.dropped.join(", ")
    ))
}

/// How many bytes are too many.
fn excess(checkpoint: &Checkpoint) -> usize {
    format::serialize(checkpoint).len().saturating_sub(MAX_FILE)
}

/// The steps that make a checkpoint fit; each measures once and drops as many elements as that asks for.
#[derive(Default)]
struct Fitting {
    dropped: Vec<String>,
}

impl Fitting {
    fn note(&mut self, count: usize, what: &str) {
        if count > 0 {
            self.dropped.push(format!("{count} {what}(s)"));
        }
    }

    fn drop_from_front<T: Serialize>(
        &mut self,
        checkpoint: &mut Checkpoint,
        list: impl Fn(&mut Checkpoint) -> &mut Vec<T>,
        what: &str,
    ) {
        let excess = excess(checkpoint);
        let list = list(checkpoint);
        let count = enough(list.iter().map(size), excess);
        list.drain(..count);
        self.note(count, what);
    }

    fn drop_from_end<T: Serialize>(
        &mut self,
        checkpoint: &mut Checkpoint,
        list: impl Fn(&mut Checkpoint) -> &mut Vec<T>,
        keep: usize,
        what: &str,
    ) {
        let excess = excess(checkpoint);
        let list = list(checkpoint);
        let droppable = list.iter().skip(keep).rev().map(size);
        let count = enough(droppable, excess);
        list.truncate(list.len() - count);
        self.note(count, what);
    }

    /// Git-found files without a note, the longest unchanged first.
    fn drop_plain_files(&mut self, checkpoint: &mut Checkpoint, modified: impl Fn(&str) -> i128) {
        let excess = excess(checkpoint);
        let files = &mut checkpoint.modified_files;
        let mut plain: Vec<usize> = (0..files.len()).filter(|i| is_plain(&files[*i])).collect();
        plain.sort_by_key(|i| modified(&files[*i].path));
        let count = enough(plain.iter().map(|i| size(&files[*i])), excess);
        if count == 0 {
            return;
        }
        plain.truncate(count);
        plain.sort_unstable();
        let mut index = 0;
        files.retain(|_| {
            let keep = plain.binary_search(&index).is_err();
            index += 1;
            keep
        });
        checkpoint.meta.files_incomplete = true;
        self.note(count, "file without a note");
    }

    /// The other files, from the end.
    fn drop_other_files(&mut self, checkpoint: &mut Checkpoint) {
        let found_by_git = |checkpoint: &Checkpoint| {
            let files = checkpoint.modified_files.iter();
            files.filter(|file| file.source == Source::Git).count()
        };
        let before = found_by_git(checkpoint);
        self.drop_from_end(checkpoint, |c| &mut c.modified_files, 0, "annotated file");
        checkpoint.meta.files_incomplete |= found_by_git(checkpoint) < before;
    }

    /// Done tasks, or from the end the others; the first task stays.
    fn drop_tasks(&mut self, checkpoint: &mut Checkpoint, done: bool) {
        let excess = excess(checkpoint);
        let tasks = &mut checkpoint.goal.tasks;
        let droppable: Vec<usize> = if done {
            (1..tasks.len())
                .filter(|i| tasks[*i].status == TaskStatus::Done)
                .collect()
        } else {
            (1..tasks.len()).rev().collect()
        };
        let count = enough(droppable.iter().map(|i| size(&tasks[*i])), excess);
        let mut dropped = droppable[..count].to_vec();
        dropped.sort_unstable_by(|a, b| b.cmp(a));
        for index in dropped {
            tasks.remove(index);
        }
        self.note(count, if done { "done task" } else { "task" });
    }

    fn cut_summary(&mut self, checkpoint: &mut Checkpoint) {
        let excess = excess(checkpoint);
        if excess == 0 {
            return;
        }
        let mut left = excess + '…'.len_utf8();
        let summary = &mut checkpoint.summary;
        let length = summary.chars().count();
        while left > 0 {
            let Some(character) = summary.pop() else {
                break;
            };
            left = left.saturating_sub(escaped_size(character));
        }
        if !summary.is_empty() {
            summary.push('…');
        }
        let cut = length - summary.chars().count().min(length);
        self.dropped
            .push(format!("the last {cut} character(s) of the summary"));
    }

    fn drop_unknown(&mut self, checkpoint: &mut Checkpoint) {
        if excess(checkpoint) > 0 {
            let count = checkpoint.drop_unknown();
            self.note(count, "unknown key");
        }
    }
}

fn is_plain(file: &FileRecord) -> bool {
    file.source == Source::Git && file.note.is_none()
}

/// How many of the elements must go to save `excess` bytes; all, if even that is not enough.
fn enough(sizes: impl Iterator<Item = usize>, excess: usize) -> usize {
    let mut saved = 0;
    sizes
        .take_while(|size| {
            let more = saved < excess;
            saved += size;
            more
        })
        .count()
}

/// The bytes that a list's element takes in the file: its lines, each indented by at least four, and a
/// comma and a line break.
fn size<T: Serialize>(element: &T) -> usize {
    serde_json::to_string_pretty(element)
        .map_or(0, |json| json.len() + 4 * json.lines().count() + 2)
}

fn escaped_size(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}
