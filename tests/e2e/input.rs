//! Forgiving input, limits, and refusals that teach (contract §1).

use serde_json::{Value, json};

use crate::support::{World, checkpoint};

fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w.as_str().unwrap())
        .collect()
}

#[test]
fn a_change_of_form_is_silent() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    for (arguments, pointer, stored) in [
        (json!({"summary": null}), "/summary", json!("")),
        (
            json!({"tasks": "[{\"description\":\"t\",\"status\":\"done\"}]"}),
            "/goal/tasks/0/status",
            json!("done"),
        ),
        (
            json!({"tasks": {"description": "t", "status": "done"}}),
            "/goal/tasks/0/status",
            json!("done"),
        ),
        (json!({"nextSteps": "one"}), "/nextSteps", json!(["one"])),
        (
            json!({"nextSteps": "[\"one\",\"two\"]"}),
            "/nextSteps",
            json!(["one", "two"]),
        ),
        (json!({"decisions": "d"}), "/decisions", json!(["d"])),
        (
            json!({"modifiedFiles": ["README.md"]}),
            "/modifiedFiles/0/path",
            json!("README.md"),
        ),
        (
            json!({"recentCommands": ["ls"]}),
            "/recentCommands/0/command",
            json!("ls"),
        ),
        (
            json!({"recentCommands": [{"command": "ls", "exitCode": "2"}]}),
            "/recentCommands/0/exitCode",
            json!(2),
        ),
        (
            json!({"recentCommands": [{"command": "ls", "exitCode": 1.0}]}),
            "/recentCommands/0/exitCode",
            json!(1),
        ),
        (
            json!({"mode": "", "resumedFrom": " ", "projectRoot": "", "session": ""}),
            "/summary",
            json!(""),
        ),
    ] {
        let mut arguments = arguments;
        arguments["goal"] = json!("g");
        let saved = client.save(arguments.clone()).ok();
        assert_eq!(warnings(&saved), Vec::<&str>::new(), "{arguments}");
        assert_eq!(
            checkpoint(&repo, "s-1").pointer(pointer),
            Some(&stored),
            "{arguments}"
        );
    }
}

#[test]
fn the_words_that_mean_a_status_are_understood() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    for (words, status) in [
        (["pending", "todo", "To-Do", "not started"], "pending"),
        (
            ["in_progress", "in-progress", "doing", "In Progress"],
            "in_progress",
        ),
        (["done", "completed", "complete", "DONE"], "done"),
        (["blocked", "Blocked", "stuck", "on hold"], "blocked"),
    ] {
        let tasks: Vec<Value> = words
            .iter()
            .map(|word| json!({"description": word, "status": word}))
            .collect();
        let saved = client.save(json!({"goal": "g", "tasks": tasks})).ok();
        assert_eq!(warnings(&saved), Vec::<&str>::new());
        for task in checkpoint(&repo, "s-1")["goal"]["tasks"]
            .as_array()
            .unwrap()
        {
            assert_eq!(task["status"], status);
        }
    }
}

#[test]
fn what_was_dropped_or_guessed_is_quoted_in_a_warning() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    for (arguments, quoted) in [
        (
            json!({"tasks": [{"description": "t", "status": "odd"}]}),
            "odd",
        ),
        (
            json!({"tasks": [{"status": "done"}]}),
            "{\"status\":\"done\"}",
        ),
        (json!({"tasks": [17]}), "17"),
        (
            json!({"decisions": [{"a": 1, "b": 2}]}),
            "{\"a\":1,\"b\":2}",
        ),
        (
            json!({"recentCommands": [{"command": "ls", "exitCode": "many"}]}),
            "many",
        ),
        (
            json!({"recentCommands": [{"command": "ls", "cwd": "/"}]}),
            "cwd",
        ),
        (json!({"modifiedFiles": [{"note": "orphan"}]}), "orphan"),
        (
            json!({"modifiedFiles": [{"path": "../outside"}]}),
            "../outside",
        ),
        (
            json!({"modifiedFiles": [{"path": "/etc/passwd"}]}),
            "/etc/passwd",
        ),
        (
            json!({"modifiedFiles": [{"path": ".claude-checkpoints/x.json"}]}),
            ".claude-checkpoints/x.json",
        ),
        (json!({"unheardOf": 1}), "unheardOf"),
    ] {
        let mut arguments = arguments;
        arguments["goal"] = json!("g");
        let saved = client.save(arguments.clone()).ok();
        let warnings = warnings(&saved);
        assert!(
            warnings.len() == 1 && warnings[0].contains(quoted),
            "{arguments}: {warnings:?}"
        );
        assert!(saved["text"].as_str().unwrap().contains(warnings[0]));
    }
}

#[test]
fn a_warning_that_quotes_does_not_tell_secrets() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let secret = ["Zq7", "pL9w", "Xk2", "mV4t"].concat();
    let saved = client
        .save(json!({"goal": "g", "tasks": [{"status": format!("API_KEY={secret}")}]}))
        .ok();
    assert!(!saved.to_string().contains(&secret), "{saved}");
}

#[test]
fn limits_clip_and_say_what_went() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let long = |n: usize| "é".repeat(n);
    let saved = client
        .save(json!({
            "goal": long(501),
            "summary": long(4001),
            "decisions": (0..21).map(|n| format!("d{n}")).collect::<Vec<_>>(),
            "nextSteps": (0..21).map(|n| format!("n{n}")).collect::<Vec<_>>(),
            "recentCommands": (0..51).map(|n| json!({"command": format!("c{n}")})).collect::<Vec<_>>(),
            "tasks": (0..31).map(|n| json!({"description": format!("t{n}"), "status": if n == 0 {"done"} else {"pending"}})).collect::<Vec<_>>(),
            "modifiedFiles": (0..101).map(|n| json!({"path": format!("f{n}"), "note": if n == 0 {None} else {Some("n")}})).collect::<Vec<_>>(),
        }))
        .ok();
    let file = checkpoint(&repo, "s-1");
    assert_eq!(file["meta"]["truncated"], true);
    assert_eq!(
        file["goal"]["primary"].as_str().unwrap().chars().count(),
        500
    );
    assert_eq!(file["summary"].as_str().unwrap().chars().count(), 4000);
    assert_eq!(file["decisions"][0], "d1");
    assert_eq!(file["nextSteps"][19], "n19");
    assert_eq!(file["recentCommands"][0]["command"], "c1");
    assert_eq!(file["goal"]["tasks"][0]["description"], "t1");
    assert_eq!(file["modifiedFiles"][0]["path"], "f1");
    assert_eq!(
        saved["counts"],
        json!({"tasks": 30, "modifiedFiles": 100, "recentCommands": 50, "redactions": 0})
    );
    let said = warnings(&saved).join("\n");
    for part in [
        "`goal`",
        "`summary`",
        "decision",
        "next step",
        "command",
        "task",
        "file",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // At the limit nothing is said.
    let exact = client
        .save(json!({"goal": long(500), "summary": long(4000)}))
        .ok();
    assert_eq!(warnings(&exact), Vec::<&str>::new());
    assert_eq!(checkpoint(&repo, "s-1")["meta"]["truncated"], false);
}

#[test]
fn a_file_stays_within_64_kib_whatever_is_in_the_work_tree() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..1200 {
        repo.write(
            &format!("some/deep/directory/untracked_file_{n:04}.txt"),
            format!("{n}"),
        );
    }
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({"goal": "g", "modifiedFiles": [{"path": "README.md", "note": "kept"}]}))
        .ok();
    assert!(saved["bytes"].as_u64().unwrap() <= 65_536);
    let file = checkpoint(&repo, "s-1");
    assert_eq!(
        (&file["meta"]["truncated"], &file["meta"]["filesIncomplete"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(file["modifiedFiles"][0]["note"], "kept");
    let loaded = client.load(json!({})).ok();
    let text = loaded["text"].as_str().unwrap();
    assert!(
        text.len() < 5000,
        "a big worktree doesn't blow up the brief: {}",
        text.len()
    );
    assert!(
        warnings(&loaded)
            .iter()
            .any(|w| w.contains("doesn't list every file")),
        "{loaded}"
    );
}

#[test]
fn a_refusal_is_a_tool_error_that_names_the_argument_and_the_call_that_works() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).start();
    for (arguments, parts) in [
        (
            json!({}),
            ["`goal`", "call save_session_checkpoint with `goal`"],
        ),
        (
            json!({"goal": " \n"}),
            ["`goal`", "call save_session_checkpoint with `goal`"],
        ),
        (json!({"goal": {}}), ["`goal`", "one or two sentences"]),
        (
            json!({"goal": "g", "mode": "append"}),
            ["`append`", "`mode: \"merge\"`"],
        ),
        (
            json!({"goal": "g", "tasks": 5}),
            ["`tasks`", "{\"description\""],
        ),
        (
            json!({"goal": "g", "session": "../x"}),
            ["`../x`", "Leave `session` out"],
        ),
        (
            json!({"goal": "g", "session": ["a"]}),
            ["`session`", "leave it out"],
        ),
        (
            json!({"goal": "g", "resumedFrom": "a/b"}),
            ["`a/b`", "list_session_checkpoints"],
        ),
        (
            json!({"goal": "g", "projectRoot": "relative"}),
            ["`projectRoot`", "absolute path"],
        ),
        (
            json!({"goal": "g", "projectRoot": "~/x"}),
            ["`~/x`", "absolute path"],
        ),
        (
            json!({"goal": "g", "projectRoot": "/no/such/dir"}),
            ["does not exist", "existing directory"],
        ),
    ] {
        let error = client.save(arguments.clone()).error();
        for part in parts {
            assert!(error.contains(part), "{arguments}: {error}");
        }
    }
    for (arguments, parts) in [
        (
            json!({"checkpoint": "../x"}),
            ["`../x`", "list_session_checkpoints"],
        ),
        (
            json!({"checkpoint": "unknown"}),
            ["`unknown`", "list_session_checkpoints"],
        ),
        (json!({"format": "xml"}), ["`xml`", "`format: \"full\"`"]),
    ] {
        let error = client.load(arguments.clone()).error();
        for part in parts {
            assert!(error.contains(part), "{arguments}: {error}");
        }
    }
    for limit in [json!(-1), json!("many"), json!(1.5), json!([])] {
        let error = client.list(json!({"limit": limit})).error();
        assert!(
            error.contains("`limit`") && error.contains("0 for all"),
            "{error}"
        );
    }
    assert!(!repo.path(".claude-checkpoints").exists());
}

#[test]
fn a_list_is_cut_where_it_is_asked_to_be() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..12 {
        let mut client = world.client(&repo).session(&format!("s-{n}")).start();
        client.save(json!({"goal": format!("g{n}")})).ok();
    }
    let mut client = world.client(&repo).session("s-11").start();
    for (limit, shown) in [
        (json!(null), 10),
        (json!(0), 12),
        (json!("3"), 3),
        (json!(100), 12),
    ] {
        let list = client.list(json!({"limit": limit})).ok();
        let entries = list["entries"].as_array().unwrap();
        assert_eq!(
            (entries.len(), &list["total"], &list["omitted"]),
            (shown, &json!(12), &json!(12 - shown))
        );
        assert_eq!(entries[0]["selector"], "s-11");
        assert_eq!(entries[0]["isCurrentSession"], true);
        assert_eq!(entries[1]["isCurrentSession"], false);
        assert_eq!(list["path"], repo.root().to_str().unwrap());
    }
    let mut other = world.client(&repo).session("new").start();
    let blind = other.load(json!({})).ok();
    assert_eq!(blind["candidates"].as_array().unwrap().len(), 10);
    assert_eq!(
        (&blind["total"], &blind["omitted"]),
        (&json!(12), &json!(2))
    );
    assert!(blind["text"].as_str().unwrap().contains("Ask the user"));
}
