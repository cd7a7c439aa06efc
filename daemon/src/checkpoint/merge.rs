//! A save's request, the facts and the earlier checkpoint → the new checkpoint.
//!
//! The agent gives the meaning, the daemon the facts; this is where they meet. A replace writes the
//! checkpoint anew, a merge adds to it (contract §1). Limits are kept here, after redaction and on
//! the result, and everything that is dropped for them is said in a warning.

use std::collections::{BTreeMap, HashMap, HashSet};

use protocol::ids::Selector;

use super::facts::{ChangedFile, Content, Facts};
use super::input::{GivenFile, GivenTask, Mode, SaveRequest, quote};
use super::limits;
use super::model::{
    Checkpoint, CommandRecord, FileRecord, GENERATOR, Generator, Goal, Meta, Project, Source, Task,
    Unknown, VERSION,
};
use super::redact::Clean;
use super::time::Timestamp;

/// Paths that one warning names.
const NAMED_PATHS: usize = 5;

/// What a new checkpoint is made with, beyond what it says.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time of the save.
    pub now: Timestamp,
    /// The id that a new checkpoint gets.
    pub new_id: String,
    /// The project's name.
    pub project: String,
    /// The version of this program.
    pub version: String,
    /// How many values were redacted in the request.
    pub redactions: u64,
}

/// The checkpoints that a save may build on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Earlier<'a> {
    /// The session's own.
    pub own: Option<&'a Checkpoint>,
    /// The one it resumes from, by selector; counts where there is no own one.
    pub resumed: Option<(&'a Selector, &'a Checkpoint)>,
}

/// The new checkpoint, and what the user should know of its making.
#[derive(Clone, Debug)]
pub struct Merged {
    /// What is to be written.
    pub checkpoint: Checkpoint,
    /// How it came about: a merge onto nothing is a replace.
    pub mode: Mode,
    /// What was dropped or is odd.
    pub warnings: Vec<String>,
}

/// Makes the new checkpoint of `selector`.
pub fn apply(
    request: &Clean<SaveRequest>,
    selector: &Selector,
    earlier: Earlier<'_>,
    facts: &Facts,
    context: &Context,
) -> Merged {
    let request = request.get();
    let resumed = earlier.resumed.filter(|_| earlier.own.is_none());
    let base = match request.mode {
        Mode::Replace => None,
        Mode::Merge => earlier.own.or(resumed.map(|(_, checkpoint)| checkpoint)),
    };
    let now = match earlier.own {
        Some(own) => context.now.max(Timestamp::from_millisecond(
            own.updated_at.as_millisecond() + 1,
        )),
        None => context.now,
    };
    let kept = request.mode == Mode::Merge && earlier.own.is_some();
    let mut checkpoint = match base {
        Some(base) => base.clone(),
        None => empty(now),
    };
    if !kept {
        checkpoint.id = context.new_id.clone();
        checkpoint.created_at = now;
    }
    checkpoint.version = VERSION;
    checkpoint.updated_at = now;
    checkpoint.generator.name = GENERATOR.to_owned();
    checkpoint.generator.version = context.version.clone();
    checkpoint.project.name = context.project.clone();
    checkpoint.session_id = match selector {
        Selector::Session(id) => Some(id.clone()),
        Selector::Legacy => None,
    };
    checkpoint.resumed_from = match (earlier.own, resumed) {
        (Some(own), _) => own.resumed_from.clone(),
        (None, Some((selector, _))) => Some(selector.to_string()),
        (None, None) => None,
    };
    checkpoint.git = merged_git(checkpoint.git.take(), facts);
    let redactions = &mut checkpoint.meta.redactions;
    *redactions = redactions.saturating_add(context.redactions);
    checkpoint.meta.files_incomplete = facts.incomplete.is_some();

    let mut clip = Clip::default();
    checkpoint.goal.primary = clip.text(&request.goal, limits::SHORT, "`goal`");
    if let Some(tasks) = &request.tasks {
        merge_tasks(&mut checkpoint.goal.tasks, tasks, base.is_some(), &mut clip);
    }
    if let Some(summary) = &request.summary {
        checkpoint.summary = clip.text(summary, limits::SUMMARY, "`summary`");
    }
    if let Some(steps) = &request.next_steps {
        checkpoint.next_steps = clip.texts(steps, limits::SHORT, "next step");
    }
    for decision in request.decisions.iter().flatten() {
        let decision = clip.text(decision, limits::DECISION, "a decision");
        if base.is_none() || !checkpoint.decisions.contains(&decision) {
            checkpoint.decisions.push(decision);
        }
    }
    for given in request.recent_commands.iter().flatten() {
        checkpoint.recent_commands.push(CommandRecord {
            command: clip.text(&given.command, limits::COMMAND, "a command"),
            exit_code: given.exit_code,
            note: clip.note(given.note.as_deref()),
            at: Some(now),
            unknown: Unknown::new(),
        });
    }
    let given = request.modified_files.as_deref().unwrap_or_default();
    checkpoint.modified_files = merge_files(given, &checkpoint.modified_files, facts, &mut clip);

    clip.warn(limits::clip_tasks(&mut checkpoint.goal.tasks));
    clip.warn(limits::clip_first(
        &mut checkpoint.next_steps,
        limits::NEXT_STEPS,
        "next step",
    ));
    clip.warn(limits::clip_newest(
        &mut checkpoint.decisions,
        limits::DECISIONS,
        "decision",
    ));
    clip.warn(limits::clip_newest(
        &mut checkpoint.recent_commands,
        limits::COMMANDS,
        "command",
    ));
    let modified: HashMap<&str, i128> = modification_times(facts).collect();
    clip.warn(limits::fit(&mut checkpoint, |path| {
        modified.get(path).copied().unwrap_or_default()
    }));
    checkpoint.meta.truncated |= clip.clipped;

    Merged {
        checkpoint,
        mode: if base.is_some() {
            Mode::Merge
        } else {
            Mode::Replace
        },
        warnings: clip.warnings,
    }
}

fn empty(now: Timestamp) -> Checkpoint {
    Checkpoint {
        version: VERSION,
        id: String::new(),
        created_at: now,
        updated_at: now,
        generator: Generator::default(),
        project: Project::default(),
        session_id: None,
        resumed_from: None,
        git: None,
        goal: Goal {
            primary: String::new(),
            tasks: Vec::new(),
            unknown: Unknown::new(),
        },
        summary: String::new(),
        next_steps: Vec::new(),
        decisions: Vec::new(),
        modified_files: Vec::new(),
        recent_commands: Vec::new(),
        meta: Meta::default(),
        unknown: Unknown::new(),
    }
}

fn merged_git(
    earlier: Option<super::model::GitState>,
    facts: &Facts,
) -> Option<super::model::GitState> {
    let mut git = facts.git.clone()?;
    git.unknown = earlier.map(|git| git.unknown).unwrap_or_default();
    Some(git)
}

fn merge_tasks(tasks: &mut Vec<Task>, given: &[GivenTask], merging: bool, clip: &mut Clip) {
    for task in given {
        let description = clip.text(&task.description, limits::SHORT, "a task");
        let known = tasks
            .iter_mut()
            .find(|known| merging && known.description.trim() == description);
        match known {
            Some(known) => known.status = task.status,
            None => tasks.push(Task {
                description,
                status: task.status,
                unknown: Unknown::new(),
            }),
        }
    }
}

/// What git lists now, what is given, and what was recorded earlier: given ones first, one entry a path.
fn merge_files(
    given: &[GivenFile],
    earlier: &[FileRecord],
    facts: &Facts,
    clip: &mut Clip,
) -> Vec<FileRecord> {
    let changed: HashMap<&str, &ChangedFile> = facts
        .changed
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let earlier_by_path: HashMap<&str, &FileRecord> = earlier
        .iter()
        .map(|record| (record.path.as_str(), record))
        .collect();

    let mut notes: BTreeMap<&str, String> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for file in clip_given(given, facts, clip) {
        if !order.contains(&file.path.as_str()) {
            order.push(&file.path);
        }
        if let Some(note) = clip.note(file.note.as_deref()) {
            notes.insert(&file.path, note);
        }
    }
    let given = order.iter().filter(|path| !changed.contains_key(**path));
    let content = |path: &str| facts.contents.get(path);
    let missing = given
        .clone()
        .filter(|path| content(path) == Some(&Content::Gone));
    let unhashed = given.filter(|path| matches!(content(path), Some(Content::Other(_))));
    clip.say_of(
        missing,
        "given file(s) don't exist in the project and were recorded as deleted",
    );
    clip.say_of(
        unhashed,
        "given file(s) are directories or the like, in which changes can't be told",
    );

    let listed = facts.changed.iter().map(|file| file.path.as_str());
    let recorded = earlier.iter().map(|record| record.path.as_str());
    let mut seen = HashSet::new();
    order
        .iter()
        .copied()
        .chain(listed)
        .chain(recorded)
        .filter(|path| seen.insert(*path))
        .map(|path| {
            let known = earlier_by_path.get(path);
            let note = notes
                .remove(path)
                .or_else(|| known.and_then(|record| record.note.clone()));
            record(
                path,
                note,
                changed.get(path).copied(),
                known.copied(),
                facts,
            )
        })
        .collect()
}

/// At most [`limits::FILES`]: annotated ones, then the most recently changed; their order stays.
fn clip_given<'a>(given: &'a [GivenFile], facts: &Facts, clip: &mut Clip) -> Vec<&'a GivenFile> {
    let excess = given.len().saturating_sub(limits::FILES);
    if excess == 0 {
        return given.iter().collect();
    }
    let modified: HashMap<&str, i128> = modification_times(facts).collect();
    let mut by_use: Vec<usize> = (0..given.len()).collect();
    by_use.sort_by_key(|index| {
        let file = &given[*index];
        let time = modified
            .get(file.path.as_str())
            .copied()
            .unwrap_or_default();
        (file.note.is_none(), std::cmp::Reverse(time), *index)
    });
    by_use.truncate(limits::FILES);
    by_use.sort_unstable();
    clip.warn(Some(format!(
        "{excess} given file(s) over the limit of {} were dropped.",
        limits::FILES
    )));
    by_use.into_iter().map(|index| &given[index]).collect()
}

fn record(
    path: &str,
    note: Option<String>,
    changed: Option<&ChangedFile>,
    earlier: Option<&FileRecord>,
    facts: &Facts,
) -> FileRecord {
    let unknown = earlier
        .map(|record| record.unknown.clone())
        .unwrap_or_default();
    let content = facts.contents.get(path);
    let (status, hash) = match (changed, content, earlier) {
        (Some(file), ..) => (file.status.to_owned(), content.and_then(Content::hash)),
        (None, Some(Content::Gone), _) => ("D".to_owned(), None),
        (None, Some(content), _) => ("M".to_owned(), content.hash()),
        // Recorded by another session's save while this one looked at the tree: what it recorded a
        // moment ago still says what the file was.
        (None, None, Some(record)) if facts.incomplete.is_none() => {
            (record.status.clone(), record.hash.as_deref())
        }
        // Nothing is known of it now, so nothing is said.
        (None, None, Some(record)) => (record.status.clone(), None),
        (None, None, None) => ("M".to_owned(), None),
    };
    FileRecord {
        path: path.to_owned(),
        status,
        source: if changed.is_some() {
            Source::Git
        } else {
            Source::Agent
        },
        note,
        hash: hash.map(str::to_owned),
        unknown,
    }
}

fn modification_times(facts: &Facts) -> impl Iterator<Item = (&str, i128)> {
    facts
        .changed
        .iter()
        .map(|file| (file.path.as_str(), file.modified))
}

/// Cuts texts, and remembers that and what it did.
#[derive(Default)]
struct Clip {
    clipped: bool,
    warnings: Vec<String>,
}

impl Clip {
    fn text(&mut self, text: &str, most: usize, what: &str) -> String {
        let mut text = text.to_owned();
        let warning = limits::clip_text(&mut text, most, what);
        self.warn(warning);
        text
    }

    fn texts(&mut self, texts: &[String], most: usize, what: &str) -> Vec<String> {
        texts
            .iter()
            .map(|text| self.text(text, most, what))
            .collect()
    }

    fn note(&mut self, note: Option<&str>) -> Option<String> {
        note.map(|note| self.text(note, limits::SHORT, "a note"))
    }

    /// A warning that something was dropped.
    fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.clipped = true;
            self.say(warning);
        }
    }

    /// A warning about several paths, of which some are named.
    fn say_of<'a>(&mut self, paths: impl Iterator<Item = &'a &'a str>, what: &str) {
        let paths: Vec<String> = paths.map(|path| format!("`{}`", quote(path))).collect();
        let named = &paths[..paths.len().min(NAMED_PATHS)];
        let rest = if paths.len() > named.len() {
            ", …"
        } else {
            ""
        };
        if !paths.is_empty() {
            self.say(format!(
                "{} {what}: {}{rest}.",
                paths.len(),
                named.join(", ")
            ));
        }
    }

    fn say(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}
