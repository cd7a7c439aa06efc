//! Properties of the whole core: whatever goes in, the promises hold.

use proptest::prelude::*;

use super::brief::Brief;
use super::drift::{self, Drift};
use super::facts::{ChangedFile, Content, Facts, History, Since};
use super::format;
use super::input::{GivenCommand, GivenFile, GivenTask, Mode, SaveRequest};
use super::limits;
use super::merge::{self, Context, Earlier};
use super::model::{Checkpoint, GitState, Source, TaskStatus, Unknown};
use super::redact::Redactor;
use super::time::Timestamp;

fn context(millisecond: i64) -> Context {
    Context {
        now: Timestamp::from_millisecond(millisecond),
        new_id: format!("id-{millisecond}"),
        project: "app".to_owned(),
        version: "1.0.0".to_owned(),
        redactions: 0,
    }
}

fn save(request: SaveRequest, own: Option<&Checkpoint>, facts: &Facts, at: i64) -> merge::Merged {
    let request = request.redacted(&mut Redactor::default());
    let earlier = Earlier { own, resumed: None };
    merge::apply(
        &request,
        &"s".parse().unwrap(),
        earlier,
        facts,
        &context(at),
    )
}

fn goal(goal: &str) -> SaveRequest {
    SaveRequest {
        goal: goal.to_owned(),
        ..SaveRequest::default()
    }
}

fn merging(request: SaveRequest) -> SaveRequest {
    SaveRequest {
        mode: Mode::Merge,
        ..request
    }
}

fn texts(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|text| (*text).to_owned()).collect())
}

fn task(description: &str, status: TaskStatus) -> GivenTask {
    GivenTask {
        description: description.to_owned(),
        status,
    }
}

fn git(branch: &str, head: &str) -> GitState {
    GitState {
        branch: Some(branch.to_owned()),
        head: head.to_owned(),
        dirty: true,
        unknown: Unknown::new(),
    }
}

/// Facts in which these files are modified, with these hashes.
fn modified(files: &[(&str, &str)]) -> Facts {
    let mut facts = Facts {
        git: Some(git("main", "aaaa")),
        ..Facts::default()
    };
    for (path, hash) in files {
        facts.changed.push(ChangedFile {
            path: (*path).to_owned(),
            status: "M",
            modified: 0,
        });
        let content = Content::Hash((*hash).to_owned());
        facts.contents.insert((*path).to_owned(), content);
    }
    facts
}

#[test]
fn replace_empties_what_is_not_given_and_merge_keeps_it() {
    let full = SaveRequest {
        tasks: Some(vec![task("t", TaskStatus::Pending)]),
        summary: Some("s".to_owned()),
        next_steps: texts(&["n"]),
        decisions: texts(&["d"]),
        ..goal("one")
    };
    let first = save(full, None, &Facts::default(), 1000).checkpoint;

    let merged = save(merging(goal("two")), Some(&first), &Facts::default(), 2000).checkpoint;
    assert_eq!(merged.goal.primary, "two");
    assert_eq!(merged.goal.tasks, first.goal.tasks);
    assert_eq!(
        (&merged.summary, &merged.next_steps),
        (&first.summary, &first.next_steps)
    );
    assert_eq!(
        (&merged.id, merged.created_at),
        (&first.id, first.created_at)
    );
    assert!(merged.updated_at > first.updated_at);

    let replaced = save(goal("three"), Some(&first), &Facts::default(), 2000).checkpoint;
    assert!(replaced.goal.tasks.is_empty() && replaced.decisions.is_empty());
    assert_eq!(replaced.summary, "");
    assert_ne!(replaced.id, first.id);
    assert_eq!(replaced.created_at, replaced.updated_at);
}

#[test]
fn a_merge_adds_by_the_rules_of_each_list() {
    let first = SaveRequest {
        tasks: Some(vec![
            task("a", TaskStatus::Pending),
            task("b", TaskStatus::Pending),
        ]),
        summary: Some("old".to_owned()),
        next_steps: texts(&["old"]),
        decisions: texts(&["d1"]),
        ..goal("g")
    };
    let first = save(first, None, &Facts::default(), 1000).checkpoint;
    let second = SaveRequest {
        tasks: Some(vec![
            task("b", TaskStatus::Done),
            task("B", TaskStatus::Blocked),
        ]),
        summary: Some(String::new()),
        next_steps: Some(Vec::new()),
        decisions: texts(&["d1", "d2"]),
        ..merging(goal("g"))
    };
    let merged = save(second, Some(&first), &Facts::default(), 2000).checkpoint;
    let tasks: Vec<_> = merged
        .goal
        .tasks
        .iter()
        .map(|t| (t.description.as_str(), t.status))
        .collect();
    assert_eq!(
        tasks,
        [
            ("a", TaskStatus::Pending),
            ("b", TaskStatus::Done),
            ("B", TaskStatus::Blocked)
        ]
    );
    assert_eq!(merged.summary, "");
    assert!(merged.next_steps.is_empty());
    assert_eq!(merged.decisions, ["d1", "d2"]);
}

#[test]
fn a_merge_keeps_earlier_files_as_the_agents_and_their_notes() {
    let given = SaveRequest {
        modified_files: Some(vec![GivenFile {
            path: "a".to_owned(),
            note: Some("why".to_owned()),
        }]),
        ..goal("g")
    };
    let first = save(given, None, &modified(&[("a", "1"), ("b", "1")]), 1000).checkpoint;
    assert!(
        first
            .modified_files
            .iter()
            .all(|file| file.source == Source::Git)
    );

    let mut now = modified(&[("a", "2")]);
    now.contents.insert("b".to_owned(), Content::Gone);
    let merged = save(merging(goal("g")), Some(&first), &now, 2000).checkpoint;
    let files: Vec<_> = merged
        .modified_files
        .iter()
        .map(|f| {
            (
                f.path.as_str(),
                f.status.as_str(),
                f.source,
                f.note.as_deref(),
                f.hash.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        files,
        [
            ("a", "M", Source::Git, Some("why"), Some("2")),
            ("b", "D", Source::Agent, None, None)
        ]
    );
}

#[test]
fn the_clock_may_step_back_but_updated_at_does_not() {
    let first = save(goal("g"), None, &Facts::default(), 5000).checkpoint;
    for mode in [Mode::Merge, Mode::Replace] {
        let request = SaveRequest { mode, ..goal("g") };
        let second = save(request, Some(&first), &Facts::default(), 1000).checkpoint;
        assert_eq!(second.updated_at.as_millisecond(), 5001);
    }
}

#[test]
fn clipping_keeps_what_is_most_useful() {
    let tasks: Vec<GivenTask> = (0..40)
        .map(|n| {
            let status = if n % 2 == 0 {
                TaskStatus::Done
            } else {
                TaskStatus::Pending
            };
            task(&format!("t{n}"), status)
        })
        .collect();
    let commands: Vec<GivenCommand> = (0..60)
        .map(|n| GivenCommand {
            command: format!("c{n}"),
            exit_code: None,
            note: None,
        })
        .collect();
    let many: Vec<String> = (0..30).map(|n| format!("x{n}")).collect();
    let request = SaveRequest {
        tasks: Some(tasks),
        recent_commands: Some(commands),
        decisions: Some(many.clone()),
        next_steps: Some(many),
        summary: Some("é".repeat(5000)),
        ..goal("g")
    };
    let merge::Merged {
        mode: _,
        checkpoint,
        warnings,
    } = save(request, None, &Facts::default(), 1);
    assert!(checkpoint.meta.truncated);
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    let open = checkpoint
        .goal
        .tasks
        .iter()
        .filter(|t| t.status == TaskStatus::Pending);
    assert_eq!((checkpoint.goal.tasks.len(), open.count()), (30, 20));
    assert_eq!(checkpoint.recent_commands[0].command, "c10");
    assert_eq!(
        (checkpoint.decisions[0].as_str(), checkpoint.decisions.len()),
        ("x10", 20)
    );
    assert_eq!(
        (
            checkpoint.next_steps[0].as_str(),
            checkpoint.next_steps.len()
        ),
        ("x0", 20)
    );
    assert_eq!(checkpoint.summary.chars().count(), limits::SUMMARY);
}

#[test]
fn a_file_that_is_too_large_loses_the_least_useful_first() {
    let names: Vec<String> = (0..3000)
        .map(|n| format!("src/some/long/directory/file_{n}.rs"))
        .collect();
    let mut facts = modified(
        &names
            .iter()
            .map(|n| (n.as_str(), "0123456789012345678901234567890123456789"))
            .collect::<Vec<_>>(),
    );
    facts.changed[7].modified = 99;
    let request = SaveRequest {
        tasks: Some(vec![task("t", TaskStatus::Done)]),
        decisions: texts(&["d"]),
        recent_commands: Some(vec![GivenCommand {
            command: "c".to_owned(),
            exit_code: None,
            note: None,
        }]),
        modified_files: Some(vec![GivenFile {
            path: names[2999].clone(),
            note: Some("n".to_owned()),
        }]),
        ..goal("g")
    };
    let merge::Merged {
        mode: _,
        checkpoint,
        warnings,
    } = save(request, None, &facts, 1);
    let bytes = format::serialize(&checkpoint).len();
    assert!(
        bytes <= limits::MAX_FILE && bytes > limits::MAX_FILE - 1000,
        "{bytes}"
    );
    assert!(checkpoint.meta.truncated && checkpoint.meta.files_incomplete);
    assert!(checkpoint.recent_commands.is_empty());
    assert_eq!(checkpoint.decisions.len(), 1);
    let paths: Vec<&str> = checkpoint
        .modified_files
        .iter()
        .map(|f| f.path.as_str())
        .collect();
    assert_eq!(paths[0], names[2999]);
    assert!(paths.contains(&names[7].as_str()));
    assert!(
        warnings.iter().any(|w| w.contains("file without a note")),
        "{warnings:?}"
    );
}

#[test]
fn only_content_counts_as_change() {
    let saved = save(
        goal("g"),
        None,
        &modified(&[
            ("same", "1"),
            ("edited", "1"),
            ("gone", "1"),
            ("dir", "1"),
            ("unread", "1"),
        ]),
        1,
    );
    let mut now = Facts {
        git: Some(git("main", "bbbb")),
        ..Facts::default()
    };
    for (path, content) in [
        ("same", Content::Hash("1".to_owned())),
        ("edited", Content::Hash("2".to_owned())),
        ("gone", Content::Gone),
        ("dir", Content::Other("it is a directory".to_owned())),
        ("unread", Content::Unknown("no permission".to_owned())),
    ] {
        now.contents.insert(path.to_owned(), content);
    }
    let since = Since {
        history: History::Ahead { commits: 2 },
        committed: Some(["same".to_owned(), "other".to_owned()].into()),
        renamed: [].into(),
        saved_blobs: [].into(),
    };
    let drift = drift::compare(&saved.checkpoint, &now, &since);
    assert_eq!(drift.changed_since, ["edited", "gone", "dir"]);
    assert_eq!(drift.unchecked.len(), 1);
    assert_eq!(drift.new_since, ["other"]);
    assert_eq!(drift.commits_since, Some(2));
    assert!(
        drift
            .warnings
            .iter()
            .any(|w| w.contains("could not be checked"))
    );
}

#[test]
fn what_was_restored_since_is_not_new() {
    let saved = save(goal("g"), None, &modified(&[]), 1);
    let mut now = modified(&[("restored", "1"), ("edited", "2")]);
    now.changed.push(ChangedFile {
        path: "removed".to_owned(),
        status: "D",
        modified: 0,
    });
    now.contents.insert("removed".to_owned(), Content::Gone);
    let since = Since {
        history: History::Ahead { commits: 1 },
        committed: Some(["restored".to_owned(), "removed".to_owned()].into()),
        renamed: [].into(),
        saved_blobs: [
            ("restored".to_owned(), "1".to_owned()),
            ("edited".to_owned(), "1".to_owned()),
        ]
        .into(),
    };
    assert_eq!(
        drift::compare(&saved.checkpoint, &now, &since).new_since,
        ["edited"]
    );
}

fn brief(checkpoint: &Checkpoint, drift: &Drift) -> String {
    Brief {
        checkpoint,
        drift,
        resume_hint: None,
        warnings: &drift.warnings,
        modified: &Default::default(),
        now: Timestamp::from_millisecond(2),
    }
    .render()
}

/// The lines that give a brief its structure.
fn structure(brief: &str) -> Vec<&str> {
    brief.lines().filter(|line| line.starts_with('#')).collect()
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(\n|\r|\u{2028}|#| |-|`|x|\\[|\\]|\u{1b}\\[2J|\u{202e}|<h2>|1\\.){0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_stored_text_changes_the_structure_of_a_brief(
        strings in prop::collection::vec(any_text(), 8),
    ) {
        let [a, b, c, d, e, f, g, h] = strings.try_into().unwrap();
        let mut facts = modified(&[(e.as_str(), "1"), ("plain", "1")]);
        facts.git = Some(git(&h, "abc"));
        let request = SaveRequest {
            tasks: Some(vec![task(&a, TaskStatus::Pending)]),
            summary: Some(format!("x{b}")),
            next_steps: Some(vec![c]),
            decisions: Some(vec![d]),
            modified_files: Some(vec![GivenFile { path: "plain".to_owned(), note: Some(f.clone()) }]),
            recent_commands: Some(vec![GivenCommand { command: g, exit_code: Some(1), note: Some(f) }]),
            ..goal(&a)
        };
        let checkpoint = save(request, None, &facts, 1).checkpoint;
        let drift = Drift { changed_since: vec![e], warnings: vec![b], ..Drift::default() };
        let text = brief(&checkpoint, &drift);
        prop_assert_eq!(structure(&text), [
            "# Resuming: app (checkpoint saved just now, 1970-01-01 00:00:00 UTC)", "## Goal", "## Tasks",
            "## Where things stand", "## Next steps", "## Decisions & gotchas", "## Files touched (2)",
            "## Recent commands (last 1, oldest first)", "## Since this checkpoint",
        ]);
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        // Every line is one that we begin: nothing stored begins a line of its own.
        let begins = ["# ", "## ", "- ", "1. ", "⚠ ", "Branch "];
        let free = text.lines().filter(|line| !line.is_empty() && !begins.iter().any(|b| line.starts_with(b)));
        prop_assert!(free.count() <= 2, "{}", text);
    }

    #[test]
    fn any_request_makes_a_file_that_fits_and_reads_back(
        goal_text in "\\PC{1,600}",
        items in prop::collection::vec("\\PC{1,300}", 0..60),
        mode in prop_oneof![Just(Mode::Replace), Just(Mode::Merge)],
    ) {
        let request = SaveRequest {
            mode,
            tasks: Some(items.iter().map(|text| task(text, TaskStatus::Done)).collect()),
            next_steps: Some(items.clone()),
            decisions: Some(items.clone()),
            recent_commands: Some(items.iter().map(|text| GivenCommand { command: text.clone(), exit_code: None, note: None }).collect()),
            ..goal(&goal_text)
        };
        let first = save(request.clone(), None, &Facts::default(), 1).checkpoint;
        let text = format::serialize(&first);
        prop_assert!(text.len() <= limits::MAX_FILE);
        prop_assert_eq!(&format::parse(text.as_bytes()).unwrap(), &first);
        let again = save(request, Some(&first), &Facts::default(), 2).checkpoint;
        prop_assert!(format::serialize(&again).len() <= limits::MAX_FILE);
        prop_assert!(again.updated_at > first.updated_at);
    }
}
