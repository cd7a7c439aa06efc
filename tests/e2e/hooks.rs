//! The Claude Code hooks and the plugin that registers them (contract §6, §3.2).

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Repository, SHIM, World, wait_until};

fn hook(world: &World, name: &str) -> Command {
    let mut command = world.command(SHIM);
    command
        .args(["hook", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Gives it `input` and reads what it says.
fn run(command: &mut Command, input: impl AsRef<[u8]>) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may have seen enough already.
    let _written = stdin.write_all(input.as_ref());
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// What it said, which is one JSON object or nothing; it always succeeds.
#[track_caller]
fn said(output: &Output) -> Option<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap())
}

fn started(repo: &Repository, id: &str, source: &str) -> String {
    json!({"session_id": id, "source": source, "cwd": repo.root(), "hook_event_name": "SessionStart",
        "transcript_path": "/x", "of_the_future": [1, {"a": "}"}]})
    .to_string()
}

fn save(world: &World, repo: &Repository, id: &str) {
    let mut client = world.client(repo).session(id).start();
    client.save(json!({"goal": "a-goal-that-is-not-told"})).ok();
}

#[test]
fn a_session_that_starts_where_checkpoints_are_is_told() {
    let world = World::new();
    let repo = world.repository();
    let start = || {
        run(
            &mut hook(&world, "session-start"),
            started(&repo, "n", "startup"),
        )
    };
    assert_eq!(said(&start()), None, "there is nothing to say");

    save(&world, &repo, "s-1");
    let answer = said(&start()).unwrap();
    let output = &answer["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "SessionStart");
    let text = output["additionalContext"].as_str().unwrap();
    for part in [
        "1 session checkpoint,",
        "just now",
        "load_session_checkpoint",
        "confirm",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("a-goal-that-is-not-told"));

    save(&world, &repo, "s-2");
    std::fs::write(repo.root().join(".claude-checkpoint"), "{}").unwrap();
    for source in [
        "startup",
        "resume",
        "clear",
        "compact",
        "fork",
        "of the future",
    ] {
        let answer = run(
            &mut hook(&world, "session-start"),
            started(&repo, "n", source),
        );
        let answer = said(&answer).unwrap().to_string();
        assert!(answer.contains("3 session checkpoints"), "{answer}");
        assert!(answer.len() < 1000);
    }
}

#[test]
fn the_age_is_what_the_newest_checkpoint_says() {
    let world = World::new();
    let repo = world.repository();
    save(&world, &repo, "s-1");
    let path = repo.root().join(".claude-checkpoints/s-1.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    file["updatedAt"] = json!("2020-01-01T00:00:00.000Z");
    std::fs::write(&path, file.to_string()).unwrap();
    let answer = run(
        &mut hook(&world, "session-start"),
        started(&repo, "n", "startup"),
    );
    let text = said(&answer).unwrap().to_string();
    assert!(text.contains("d ago"), "{text}");
    // A damaged one is counted all the same, by the age of its file.
    std::fs::write(&path, "\0\0\0").unwrap();
    let answer = run(
        &mut hook(&world, "session-start"),
        started(&repo, "n", "startup"),
    );
    assert!(said(&answer).unwrap().to_string().contains("just now"));
}

#[test]
fn the_nudge_can_be_switched_off_and_the_word_is_kept_all_the_same() {
    for off in ["off", "0", "false", "no"] {
        let world = World::new();
        let repo = world.repository();
        save(&world, &repo, "s-1");
        let mut hook = hook(&world, "session-start");
        hook.env("SESSION_CHECKPOINT_NUDGE", off)
            .env("CLAUDE_PID", std::process::id().to_string());
        assert_eq!(
            said(&run(&mut hook, started(&repo, "s-9", "startup"))),
            None
        );
        let mut client = world.client(&repo).session("stale").start();
        assert_eq!(client.save(json!({"goal": "g"})).ok()["session"], "s-9");
    }
}

#[test]
fn the_root_is_the_one_that_a_save_would_choose() {
    let world = World::new();
    let (one, two, three) = (
        world.repository_at("one"),
        world.repository_at("two"),
        world.repository_at("three"),
    );
    save(&world, &one, "s-1");
    let start = |variables: &[(&str, &Path)], cwd: &Repository| {
        let mut hook = hook(&world, "session-start");
        hook.envs(variables.iter().copied());
        said(&run(&mut hook, started(cwd, "n", "startup"))).is_some()
    };
    assert!(start(&[], &one));
    assert!(!start(&[], &two));
    assert!(start(&[("CLAUDE_PROJECT_DIR", one.root())], &two));
    assert!(!start(&[("CLAUDE_PROJECT_DIR", two.root())], &one));
    assert!(start(
        &[
            ("CHECKPOINT_PROJECT_ROOT", one.root()),
            ("CLAUDE_PROJECT_DIR", two.root())
        ],
        &three
    ));
    let gone = world.path().join("gone");
    assert!(!start(&[("CHECKPOINT_PROJECT_ROOT", &gone)], &one));
}

#[test]
fn what_is_no_checkpoint_is_not_counted_and_nothing_is_followed() {
    let world = World::new();
    let (one, two) = (world.repository_at("one"), world.repository_at("two"));
    save(&world, &one, "s-1");
    std::os::unix::fs::symlink(
        one.root().join(".claude-checkpoints"),
        two.root().join(".claude-checkpoints"),
    )
    .unwrap();
    let start = |repo: &Repository| {
        said(&run(
            &mut hook(&world, "session-start"),
            started(repo, "n", "startup"),
        ))
    };
    assert_eq!(start(&two), None);
    let directory = one.root().join(".claude-checkpoints");
    std::os::unix::fs::symlink("/etc/hostname", directory.join("s-2.json")).unwrap();
    std::fs::create_dir(directory.join("s-3.json")).unwrap();
    let made = Command::new("mkfifo")
        .arg(directory.join("s-4.json"))
        .status();
    assert!(made.unwrap().success());
    std::fs::write(directory.join("notes.txt"), "").unwrap();
    std::fs::write(directory.join("s-1.json.broken"), "").unwrap();
    assert!(
        start(&one)
            .unwrap()
            .to_string()
            .contains("1 session checkpoint,")
    );
    std::fs::remove_file(directory.join("s-1.json")).unwrap();
    std::fs::write(directory.join("s-1.json.prev"), "{}").unwrap();
    assert!(
        start(&one)
            .unwrap()
            .to_string()
            .contains("1 session checkpoint,")
    );
}

#[test]
fn whatever_is_odd_ends_in_silence_and_success() {
    let world = World::new();
    let repo = world.repository();
    save(&world, &repo, "s-1");
    for input in [
        "",
        "null",
        "[]",
        "nonsense",
        "{",
        "{\"cwd\": 7}",
        "{} trailing",
        "\0\0",
        "{\"a\":}",
    ] {
        for name in ["session-start", "guard", "no-such-hook", ""] {
            let mut hook = hook(&world, name);
            // Nothing that is no object is acted on, though the project is known.
            if serde_json::from_str::<Value>(input).is_err() && !input.starts_with("{}") {
                hook.env("CLAUDE_PROJECT_DIR", repo.root());
            }
            let output = run(&mut hook, input);
            assert_eq!(said(&output), None, "{name}: {input}");
        }
    }
    let bare = world
        .command(SHIM)
        .arg("hook")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(said(&bare), None);
    // No home, no state directory, no socket that could be used.
    let output = run(
        hook(&world, "session-start")
            .env_remove("HOME")
            .env("SESSION_CHECKPOINT_STATE_DIR", "/proc/nowhere")
            .env("SESSION_CHECKPOINT_SOCKET", "relative")
            .env("CLAUDE_PID", "1"),
        started(&repo, "n", "startup"),
    );
    assert!(said(&output).is_some());
}

#[test]
fn an_answer_comes_without_the_end_of_the_input() {
    let world = World::new();
    let repo = world.repository();
    save(&world, &repo, "s-1");
    let answers = |name: &str, input: &str| {
        let mut child: Child = hook(&world, name).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        let mut text = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(child.wait().unwrap().success());
        drop(stdin);
        text
    };
    assert!(answers("session-start", &started(&repo, "n", "startup")).contains("hookSpecific"));
    assert!(answers("guard", &json!({"agent_id": "a1"}).to_string()).contains("deny"));
    assert_eq!(answers("guard", ""), "");
    assert_eq!(answers("guard", "{\"agent_id\": \"a1\""), "");
}

#[test]
fn the_guard_denies_a_subagents_save_alone() {
    let world = World::new();
    let tool = "mcp__plugin_session-checkpoint_session-checkpoint__save_session_checkpoint";
    let guard = |input: Value| said(&run(&mut hook(&world, "guard"), input.to_string()));
    let denied = guard(
        json!({"session_id": "s", "tool_name": tool, "agent_id": "a433fb7130b069dae",
        "agent_type": "general-purpose", "tool_input": {"goal": "x".repeat(200_000)}}),
    )
    .unwrap();
    let output = &denied["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "PreToolUse");
    assert_eq!(output["permissionDecision"], "deny");
    assert!(
        output["permissionDecisionReason"]
            .as_str()
            .unwrap()
            .contains("parent")
    );
    let marked = format!("\u{feff}{}", json!({"agent_id": "a1"}));
    let denied = said(&run(&mut hook(&world, "guard"), marked)).unwrap();
    assert!(denied.to_string().contains("deny"));
    for allowed in [
        json!({"tool_name": tool}),
        json!({"tool_name": tool, "agent_type": "tester"}),
        json!({"tool_name": tool, "agent_id": null}),
        json!({"tool_name": tool, "agent_id": ""}),
        json!({"tool_name": "mcp__x__load_session_checkpoint", "agent_id": "a1"}),
        json!({"tool_name": tool, "tool_input": {"agent_id": "a1"}}),
    ] {
        assert_eq!(guard(allowed.clone()), None, "{allowed}");
    }
}

#[test]
fn the_hooks_word_decides_where_a_save_lands() {
    let world = World::new();
    let repo = world.repository();
    let me = std::process::id().to_string();
    let start = |id: &str, source: &str| {
        let mut hook = hook(&world, "session-start");
        hook.env("CLAUDE_PID", &me);
        said(&run(&mut hook, started(&repo, id, source)));
    };
    // Behind a shell, as behind `npx`.
    let mut client = world.client_behind_a_shell(&repo).session("stale").start();
    let mut saved = || client.save(json!({"goal": "g"})).ok()["session"].clone();
    assert_eq!(saved(), "stale", "nothing better is known");
    start("s-1", "startup");
    assert_eq!(saved(), "s-1");
    start("s-2", "resume");
    assert_eq!(saved(), "s-2");
    start("s-3", "compact");
    start("s-4", "clear");
    assert_eq!(saved(), "s-2", "the conversation goes on");
    world.kill_daemons();
    assert_eq!(saved(), "s-2", "nothing lives in the daemon's memory");
    start("s-5", "fork");
    assert_eq!(saved(), "s-5");
    start("not an id!", "resume");
    assert_eq!(saved(), "s-5");
    start("s-6", "of the future");
    assert_eq!(saved(), "s-6");
}

#[test]
fn entries_of_dead_processes_are_cleared_away() {
    let world = World::new();
    let repo = world.repository();
    let sessions = world.state().join("sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let stale: Vec<PathBuf> = ["boot-1-1.json", "x-999999-7.json", "nonsense"]
        .iter()
        .map(|name| sessions.join(name))
        .collect();
    for path in &stale {
        std::fs::write(path, "{}").unwrap();
    }
    let mut hook = hook(&world, "session-start");
    hook.env("CLAUDE_PID", std::process::id().to_string());
    said(&run(&mut hook, started(&repo, "s-1", "startup")));
    for path in &stale {
        assert!(!path.exists(), "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(&sessions).unwrap().count(), 1);
}

#[test]
fn the_daemon_looks_at_the_project_before_the_first_call() {
    let world = World::new();
    let (one, two) = (world.repository_at("one"), world.repository_at("two"));
    // Starts the daemon, for another project.
    save(&world, &one, "s-1");
    said(&run(
        &mut hook(&world, "session-start"),
        started(&two, "n", "startup"),
    ));
    wait_until("the project is live", || {
        let status = world.status()?;
        let projects = status["projects"].as_array()?;
        projects
            .iter()
            .any(|project| {
                project["root"] == two.root().to_str().unwrap() && project["state"] == "live"
            })
            .then_some(())
    });
}

#[test]
fn a_daemon_that_does_not_answer_holds_no_hook_up() {
    let world = World::new();
    let repo = world.repository();
    save(&world, &repo, "s-1");
    for pid in world.daemons() {
        let stopped = Command::new("kill")
            .args(["-STOP", &pid.to_string()])
            .status();
        assert!(stopped.unwrap().success());
    }
    let output = run(
        &mut hook(&world, "session-start"),
        started(&repo, "n", "startup"),
    );
    assert!(said(&output).is_some());
}

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin")
}

/// A copy of the plugin under a path with spaces, and a home whose `.cargo/bin` has the binaries.
fn installed(world: &World) -> PathBuf {
    let folder = world.directory("My Plugins (x)");
    let copy = folder.join("plugin");
    let copied = Command::new("cp")
        .arg("-R")
        .arg(plugin())
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let bin = world.home().join(".cargo/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(SHIM, bin.join("session-checkpoint-mcp")).unwrap();
    copy
}

#[test]
fn the_plugins_hooks_run_as_registered() {
    let world = World::new();
    let repo = world.repository_at("My Proj & Co");
    save(&world, &repo, "s-1");
    let plugin = installed(&world);
    let hooks: Value =
        serde_json::from_slice(&std::fs::read(plugin.join("hooks/hooks.json")).unwrap()).unwrap();
    assert!(hooks["hooks"]["SessionStart"][0].get("matcher").is_none());
    assert_eq!(
        hooks["hooks"]["PreToolUse"][0]["matcher"],
        "^mcp__.+__save_session_checkpoint$"
    );
    let payload = json!({"agent_id": "a1", "session_id": "s", "cwd": repo.root(),
        "tool_input": {"goal": "-n $(touch SENTINEL) `touch SENTINEL` %s \\n \u{0} \" '".repeat(4000)}})
    .to_string();
    for shell in ["sh", "bash"] {
        for event in ["SessionStart", "PreToolUse"] {
            let command = hooks["hooks"][event][0]["hooks"][0]["command"]
                .as_str()
                .unwrap();
            let mut command_line = world.command(shell);
            command_line
                .args(["-c", command])
                .current_dir(repo.root())
                .env("CLAUDE_PLUGIN_ROOT", &plugin)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let answer = said(&run(&mut command_line, &payload)).unwrap();
            assert_eq!(answer["hookSpecificOutput"]["hookEventName"], event);
            assert!(!repo.root().join("SENTINEL").exists());
        }
    }
}

#[test]
fn the_launcher_says_how_to_install_and_holds_no_hook_up() {
    let world = World::new();
    let launch = plugin().join("bin/launch");
    let run = |arguments: &[&str]| {
        world
            .command("sh")
            .arg(&launch)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let server = run(&[]);
    assert!(!server.status.success());
    assert!(server.stdout.is_empty());
    let complaint = String::from_utf8(server.stderr).unwrap();
    assert_eq!(complaint.lines().count(), 1);
    assert!(complaint.contains("cargo install session-checkpoint"));
    for name in ["session-start", "guard"] {
        assert_eq!(said(&run(&["hook", name])), None);
    }
}

#[test]
fn the_plugins_server_is_started_by_the_launcher() {
    let world = World::new();
    let plugin = installed(&world);
    let servers: Value =
        serde_json::from_slice(&std::fs::read(plugin.join(".mcp.json")).unwrap()).unwrap();
    let server = &servers["mcpServers"]["session-checkpoint"];
    let mut command = world.command(server["command"].as_str().unwrap());
    for argument in server["args"].as_array().unwrap() {
        let root = plugin.to_str().unwrap();
        command.arg(
            argument
                .as_str()
                .unwrap()
                .replace("${CLAUDE_PLUGIN_ROOT}", root),
        );
    }
    let repo = world.repository();
    command.current_dir(repo.root());
    let mut client = crate::support::ClientBuilder::new(command)
        .session("s-1")
        .start();
    assert_eq!(client.save(json!({"goal": "g"})).ok()["session"], "s-1");
}
