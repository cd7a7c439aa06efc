//! A checkpoint and its drift as Markdown for the session that resumes.
//!
//! The order and the headings are contract §2's; empty parts are left out. Everything stored is foreign
//! text and goes through [`super::text`], so that the lines that structure the brief are exactly
//! ours. Long lists are cut and what is left out is counted, so that a big work tree can't blow it up.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::drift::Drift;
use super::limits;
use super::model::{Checkpoint, CommandRecord, FileRecord, TaskStatus};
use super::text::{age, code, paragraph, path, shorten};
use super::time::Timestamp;

/// Files touched, and the entries of each list of the Since section, that are shown.
const SHOWN_FILES: usize = 40;
/// Commands that are shown.
const SHOWN_COMMANDS: usize = 10;

/// What a brief is made of.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// What changed since.
    pub drift: &'a Drift,
    /// The first line, where the checkpoint isn't one's own.
    pub resume_hint: Option<&'a str>,
    /// All warnings of this load.
    pub warnings: &'a [String],
    /// When files were last written, in nanoseconds since 1970, where known.
    pub modified: &'a HashMap<&'a str, i128>,
    /// Now.
    pub now: Timestamp,
}

impl Brief<'_> {
    /// The Markdown, without a final newline.
    pub fn render(&self) -> String {
        let mut out = String::new();
        self.opening(&mut out);
        self.meaning(&mut out);
        self.files(&mut out);
        self.commands(&mut out);
        self.since(&mut out);
        out.truncate(out.trim_end().len());
        out
    }

    fn opening(&self, out: &mut String) {
        if let Some(hint) = self.resume_hint {
            line(out, hint);
            line(out, "");
        }
        for warning in self.warnings {
            line(out, &format!("⚠ {}", paragraph(warning)));
        }
        if !self.warnings.is_empty() {
            line(out, "");
        }
        let checkpoint = self.checkpoint;
        line(
            out,
            &format!(
                "# Resuming: {} (checkpoint saved {}, {})",
                paragraph(&checkpoint.project.name),
                age(checkpoint.updated_at, self.now),
                checkpoint.updated_at.to_seconds()
            ),
        );
        if let Some(git) = &checkpoint.git {
            let head = code_free(&git.head);
            let branch = match &git.branch {
                Some(branch) => format!("Branch {} @ {head}", code(branch)),
                None => format!("detached @ {head}"),
            };
            let dirty = if git.dirty {
                " (uncommitted changes)"
            } else {
                ""
            };
            line(out, &format!("{branch}{dirty}"));
        }
    }

    fn meaning(&self, out: &mut String) {
        let checkpoint = self.checkpoint;
        heading(out, "Goal");
        line(out, &bounded(&checkpoint.goal.primary, limits::SHORT));
        if !checkpoint.goal.tasks.is_empty() {
            heading(out, "Tasks");
            for task in checkpoint.goal.tasks.iter().take(limits::TASKS) {
                let mark = match task.status {
                    TaskStatus::Done => 'x',
                    TaskStatus::InProgress => '~',
                    TaskStatus::Pending => ' ',
                    TaskStatus::Blocked => '!',
                };
                line(
                    out,
                    &format!("- [{mark}] {}", bounded(&task.description, limits::SHORT)),
                );
            }
        }
        if !checkpoint.summary.trim().is_empty() {
            heading(out, "Where things stand");
            line(out, &bounded(&checkpoint.summary, limits::SUMMARY));
        }
        if !checkpoint.next_steps.is_empty() {
            heading(out, "Next steps");
            let steps = checkpoint.next_steps.iter().take(limits::NEXT_STEPS);
            for (index, step) in steps.enumerate() {
                line(
                    out,
                    &format!("{}. {}", index + 1, bounded(step, limits::SHORT)),
                );
            }
        }
        if !checkpoint.decisions.is_empty() {
            heading(out, "Decisions & gotchas");
            for decision in checkpoint.decisions.iter().take(limits::DECISIONS) {
                line(out, &format!("- {}", bounded(decision, limits::DECISION)));
            }
        }
    }

    fn files(&self, out: &mut String) {
        let files = &self.checkpoint.modified_files;
        if files.is_empty() {
            return;
        }
        heading(out, &format!("Files touched ({})", files.len()));
        let shown = self.most_useful(files);
        let omitted = files.len() - shown.len();
        for file in shown {
            let status = code_free(&file.status);
            let note = note(file.note.as_deref());
            line(out, &format!("- {} ({status}){note}", path(&file.path)));
        }
        more(out, omitted, "file(s)");
    }

    /// Annotated files, then those changed since, then the most recently written; in their own order.
    fn most_useful<'a>(&self, files: &'a [FileRecord]) -> Vec<&'a FileRecord> {
        let changed: HashSet<&str> = self
            .drift
            .changed_since
            .iter()
            .map(String::as_str)
            .collect();
        let mut by_use: Vec<usize> = (0..files.len()).collect();
        by_use.sort_by_key(|index| {
            let file = &files[*index];
            let written = self.modified.get(file.path.as_str()).copied();
            (
                file.note.is_none(),
                !changed.contains(file.path.as_str()),
                std::cmp::Reverse(written),
                *index,
            )
        });
        by_use.truncate(SHOWN_FILES);
        by_use.sort_unstable();
        by_use.into_iter().map(|index| &files[index]).collect()
    }

    fn commands(&self, out: &mut String) {
        let commands = &self.checkpoint.recent_commands;
        if commands.is_empty() {
            return;
        }
        let omitted = commands.len().saturating_sub(SHOWN_COMMANDS);
        let shown = &commands[omitted..];
        heading(
            out,
            &format!("Recent commands (last {}, oldest first)", shown.len()),
        );
        more(out, omitted, "earlier command(s)");
        for command in shown {
            line(out, &command_line(command));
        }
    }

    fn since(&self, out: &mut String) {
        let drift = self.drift;
        let mut lines: Vec<String> = Vec::new();
        if drift.branch_changed {
            let saved = self
                .checkpoint
                .git
                .as_ref()
                .and_then(|git| git.branch.as_deref());
            lines.push(format!(
                "- HEAD is on {}; it was on {} then",
                branch_name(drift.current_branch.as_deref()),
                branch_name(saved)
            ));
        }
        if drift.elsewhere {
            lines.push(
                "- HEAD is on other history: the saved commit is on another branch now".to_owned(),
            );
        }
        match drift.commits_since {
            Some(0) | None => {}
            Some(1) => lines.push("- 1 new commit on HEAD".to_owned()),
            Some(count) => lines.push(format!("- {count} new commits on HEAD")),
        }
        lines.extend(listed(
            "⚠ Content changed since the checkpoint, read again before relying on it",
            &drift.changed_since,
        ));
        lines.extend(listed(
            "Changed as well, though not part of the checkpoint",
            &drift.new_since,
        ));
        let unchecked: Vec<String> = drift
            .unchecked
            .iter()
            .map(|file| file.path.clone())
            .collect();
        lines.extend(listed("not checked", &unchecked));
        if !lines.is_empty() {
            heading(out, "Since this checkpoint");
            for text in lines {
                line(out, &text);
            }
        }
    }
}

/// A field within its limit: a file that something else wrote may hold more.
fn bounded(text: &str, most: usize) -> String {
    paragraph(&shorten(text, most))
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn heading(out: &mut String, text: &str) {
    let _ = write!(out, "\n## {text}\n");
}

fn more(out: &mut String, omitted: usize, what: &str) {
    if omitted > 0 {
        line(
            out,
            &format!("- … {omitted} more {what}: load with `format: \"full\"`"),
        );
    }
}

/// A list of paths as one entry, cut where it is long.
fn listed(what: &str, paths: &[String]) -> Option<String> {
    if paths.is_empty() {
        return None;
    }
    let shown: Vec<String> = paths
        .iter()
        .take(SHOWN_FILES)
        .map(|path| code(path))
        .collect();
    let omitted = paths.len() - shown.len();
    let rest = if omitted > 0 {
        format!(", and {omitted} more (in the structured result)")
    } else {
        String::new()
    };
    Some(format!("- {what}: {}{rest}", shown.join(", ")))
}

fn command_line(command: &CommandRecord) -> String {
    let outcome = match command.exit_code {
        Some(0) => "✓ ".to_owned(),
        Some(exit) => format!("✗ exit {exit} "),
        None => String::new(),
    };
    format!(
        "- {outcome}{}{}",
        code(&shorten(&command.command, limits::COMMAND)),
        note(command.note.as_deref())
    )
}

fn note(note: Option<&str>) -> String {
    match note
        .map(super::text::one_line)
        .filter(|note| !note.is_empty())
    {
        Some(note) => format!(" — {}", super::text::inert(&shorten(&note, limits::SHORT))),
        None => String::new(),
    }
}

fn branch_name(branch: Option<&str>) -> String {
    branch.map_or("a detached commit".to_owned(), code)
}

/// A commit id or a status letter from a file that may be anything: the first nine ordinary characters.
fn code_free(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '?')
        .take(9)
        .collect()
}
