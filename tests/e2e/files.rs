//! The file and what stands around it (contract §5).

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Repository, World, checkpoint};

fn mode(path: impl AsRef<Path>) -> u32 {
    path.as_ref().symlink_metadata().unwrap().mode() & 0o777
}

fn session_file(repo: &Repository, name: &str) -> std::path::PathBuf {
    repo.path(".claude-checkpoints").join(name)
}

#[test]
fn the_file_has_its_form_and_its_keys_in_order() {
    let world = World::new();
    let repo = world.repository();
    repo.write("a.rs", "x");
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({"goal": "ünïcode ✓", "recentCommands": [{"command": "c", "exitCode": 0, "note": "n"}]}))
        .ok();
    let text = std::fs::read_to_string(session_file(&repo, "s-1.json")).unwrap();
    assert_eq!(saved["bytes"], text.len());
    assert!(text.starts_with("{\n  \"version\": 1,\n  \"id\": \"") && text.ends_with("\n}"));
    assert!(text.contains("ünïcode ✓"));
    let file: Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&str> = file
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "version",
            "id",
            "createdAt",
            "updatedAt",
            "generator",
            "project",
            "sessionId",
            "git",
            "goal",
            "summary",
            "nextSteps",
            "decisions",
            "modifiedFiles",
            "recentCommands",
            "meta"
        ]
    );
    assert_eq!(
        file["generator"],
        json!({"name": "session-checkpoint-mcp", "version": env!("CARGO_PKG_VERSION")})
    );
    assert_eq!(file["project"], json!({"name": "repo"}));
    assert_eq!(
        file["git"],
        json!({"branch": "main", "head": repo.head(), "dirty": true})
    );
    assert_eq!(file["meta"], json!({"redactions": 0, "truncated": false}));
    let at = file["updatedAt"].as_str().unwrap();
    assert!(
        at.len() == 24 && at.ends_with('Z') && at.as_bytes()[19] == b'.',
        "{at}"
    );
    assert_eq!(file["recentCommands"][0]["at"], at);
}

#[test]
fn files_are_private_whatever_the_umask() {
    let world = World::new();
    for umask in ["000", "777", "077"] {
        let repo = world.repository_at(&format!("repo-{umask}"));
        let mut command = world.command("sh");
        command
            .args([
                "-c",
                &format!("umask {umask}; exec \"$0\" --stdio"),
                crate::support::DAEMON,
            ])
            .current_dir(&repo);
        let mut client = crate::support::ClientBuilder::new(command)
            .session("s-1")
            .start();
        client.save(json!({"goal": "one"})).ok();
        client.save(json!({"goal": "two"})).ok();
        assert_eq!(mode(repo.path(".claude-checkpoints")), 0o700);
        for name in ["s-1.json", "s-1.json.prev"] {
            assert_eq!(mode(session_file(&repo, name)), 0o600, "{umask} {name}");
        }
    }
}

#[test]
fn a_directory_that_is_open_to_others_is_closed() {
    let world = World::new();
    let repo = world.repository();
    let directory = repo.path(".claude-checkpoints");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    world
        .client(&repo)
        .session("s-1")
        .start()
        .save(json!({"goal": "g"}))
        .ok();
    assert_eq!(mode(&directory), 0o700);
}

#[test]
fn the_last_version_becomes_the_backup_and_nothing_else_is_left() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    for goal in ["one", "two", "three"] {
        client.save(json!({"goal": goal})).ok();
    }
    let backup: Value =
        serde_json::from_slice(&std::fs::read(session_file(&repo, "s-1.json.prev")).unwrap())
            .unwrap();
    assert_eq!(backup["goal"]["primary"], "two");
    let mut names: Vec<String> = std::fs::read_dir(repo.path(".claude-checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".gitignore", ".lock", "s-1.json", "s-1.json.prev"]);
    for name in ["s-1.json", "s-1.json.prev"] {
        assert_eq!(session_file(&repo, name).metadata().unwrap().nlink(), 1);
    }
}

#[test]
fn a_damaged_main_file_is_answered_from_its_backup_and_kept_aside() {
    let world = World::new();
    for (n, damage) in [
        "",
        "{\"version\": 1, \"goal\": {\"prim",
        "\0\0\0\0",
        "[[[[",
        "not json",
        "{\"version\": \"x\"}",
    ]
    .iter()
    .enumerate()
    {
        let repo = world.repository_at(&format!("repo-{n}"));
        let mut client = world.client(&repo).session("s-1").start();
        client
            .save(json!({"goal": "one", "decisions": ["kept"]}))
            .ok();
        client.save(json!({"goal": "two", "mode": "merge"})).ok();
        std::fs::write(session_file(&repo, "s-1.json"), damage).unwrap();

        let loaded = client.load(json!({})).ok();
        assert_eq!(
            (&loaded["found"], &loaded["fromBackup"]),
            (&json!(true), &json!(true))
        );
        assert!(loaded["warnings"][0].as_str().unwrap().contains("backup"));
        assert!(loaded["text"].as_str().unwrap().contains("## Goal\none"));
        let listed = client.list(json!({})).ok();
        assert_eq!(listed["entries"][0]["fromBackup"], true);

        let saved = client.save(json!({"goal": "three", "mode": "merge"})).ok();
        assert!(
            saved["warnings"][0].as_str().unwrap().contains("backup"),
            "{saved}"
        );
        let file = checkpoint(&repo, "s-1");
        assert_eq!(
            (&file["goal"]["primary"], &file["decisions"]),
            (&json!("three"), &json!(["kept"]))
        );
        let backup = std::fs::read_to_string(session_file(&repo, "s-1.json.prev")).unwrap();
        assert!(backup.contains("\"one\""), "the good backup stays");
        assert_eq!(
            std::fs::read_to_string(session_file(&repo, "s-1.json.broken")).unwrap(),
            *damage
        );
    }
}

#[test]
fn where_both_are_broken_it_is_said_and_a_save_goes_on() {
    let world = World::new();
    let repo = world.repository();
    world
        .client(&repo)
        .session("good")
        .start()
        .save(json!({"goal": "good"}))
        .ok();
    std::fs::write(session_file(&repo, "bad.json"), "{").unwrap();
    std::fs::write(session_file(&repo, "bad.json.prev"), "").unwrap();
    let mut client = world.client(&repo).session("bad").start();
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["found"], false);
    let warning = loaded["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("bad.json") && warning.contains("damaged"),
        "{warning}"
    );
    assert_eq!(loaded["candidates"][0]["selector"], "good");
    let error = client.load(json!({"checkpoint": "bad"})).error();
    assert!(error.contains("bad.json"), "{error}");
    let listed = client.list(json!({})).ok();
    assert_eq!(listed["entries"][1]["selector"], "bad");
    assert_eq!(
        (
            &listed["entries"][1]["updatedAt"],
            &listed["entries"][1]["age"]
        ),
        (&Value::Null, &Value::Null)
    );
    assert!(listed["warnings"][0].as_str().unwrap().contains("`bad`"));
    client.save(json!({"goal": "again"})).ok();
    assert_eq!(
        std::fs::read_to_string(session_file(&repo, "bad.json.broken")).unwrap(),
        "{"
    );
    assert_eq!(client.load(json!({})).ok()["found"], true);
}

#[test]
fn where_only_the_own_file_is_there_and_broken_it_is_not_denied() {
    let world = World::new();
    let repo = world.repository();
    std::fs::create_dir(repo.path(".claude-checkpoints")).unwrap();
    std::fs::write(session_file(&repo, "s-1.json"), "{").unwrap();
    std::fs::write(session_file(&repo, "my notes.json"), "{}").unwrap();
    let mut client = world.client(&repo).session("s-1").start();
    let loaded = client.load(json!({})).ok();
    assert_eq!(
        (&loaded["found"], &loaded["candidates"], &loaded["total"]),
        (&json!(false), &json!([]), &json!(0))
    );
    assert!(loaded["text"].as_str().unwrap().contains("can't be used"));
    assert!(
        client.list(json!({})).ok()["warnings"]
            .to_string()
            .contains("my notes.json")
    );
    // What was resumed counts, since the session has no checkpoint that could be built on.
    world
        .client(&repo)
        .session("old")
        .start()
        .save(json!({"goal": "old", "decisions": ["d"]}))
        .ok();
    client
        .save(json!({"goal": "g", "mode": "merge", "resumedFrom": "old"}))
        .ok();
    let file = checkpoint(&repo, "s-1");
    assert_eq!(
        (&file["decisions"], &file["resumedFrom"]),
        (&json!(["d"]), &json!("old"))
    );
    // A second damaged file is not kept, and that is not claimed.
    std::fs::write(session_file(&repo, "s-1.json"), "second").unwrap();
    std::fs::remove_file(session_file(&repo, "s-1.json.prev")).unwrap_or_default();
    let saved = client.save(json!({"goal": "g"})).ok();
    assert!(
        saved["warnings"][0]
            .as_str()
            .unwrap()
            .contains("was replaced"),
        "{saved}"
    );
}

#[test]
fn what_is_kept_is_private_too() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "one"})).ok();
    let open = || {
        std::fs::set_permissions(
            session_file(&repo, "s-1.json"),
            std::fs::Permissions::from_mode(0o644),
        )
        .unwrap()
    };
    open();
    client.save(json!({"goal": "two"})).ok();
    assert_eq!(mode(session_file(&repo, "s-1.json.prev")), 0o600);
    std::fs::write(session_file(&repo, "s-1.json"), "damaged").unwrap();
    open();
    client.save(json!({"goal": "three"})).ok();
    assert_eq!(mode(session_file(&repo, "s-1.json.broken")), 0o600);
}

#[test]
fn a_newer_version_is_refused_by_name_and_left_untouched() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "one"})).ok();
    client.save(json!({"goal": "two"})).ok();
    let path = session_file(&repo, "s-1.json");
    let newer = std::fs::read_to_string(&path)
        .unwrap()
        .replace("\"version\": 1,", "\"version\": 2,");
    std::fs::write(&path, &newer).unwrap();
    for error in [
        client.save(json!({"goal": "three"})).error(),
        client.load(json!({"checkpoint": "s-1"})).error(),
    ] {
        assert!(
            error.contains("version 2") && error.contains("version 1"),
            "{error}"
        );
    }
    assert_eq!(client.load(json!({})).ok()["found"], false);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
}

#[test]
fn hand_edited_files_are_read_and_unknown_keys_survive_a_merge() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "one", "tasks": [{"description": "t", "status": "pending"}], "recentCommands": ["c"]})).ok();
    let mut edited = checkpoint(&repo, "s-1");
    edited["extra"] = json!({"deep": [1, {"x": null}]});
    edited["goal"]["tasks"][0]["owner"] = json!("me");
    edited["recentCommands"][0]["shell"] = json!("zsh");
    edited["meta"]["reviewed"] = json!(true);
    edited.as_object_mut().unwrap().remove("summary");
    edited.as_object_mut().unwrap().sort_keys();
    std::fs::write(session_file(&repo, "s-1.json"), format!("\n{edited}\n\n")).unwrap();
    let loaded = client.load(json!({"format": "full"})).ok();
    assert_eq!(loaded["fromBackup"], false);
    client.save(json!({"goal": "two", "mode": "merge", "tasks": [{"description": "t", "status": "done"}]})).ok();
    let file = checkpoint(&repo, "s-1");
    assert_eq!(file["extra"], edited["extra"]);
    assert_eq!(
        file["goal"]["tasks"][0],
        json!({"description": "t", "status": "done", "owner": "me"})
    );
    assert_eq!(file["recentCommands"][0]["shell"], "zsh");
    assert_eq!(file["meta"]["reviewed"], true);
    client.save(json!({"goal": "three"})).ok();
    assert!(checkpoint(&repo, "s-1").get("extra").is_none());
}

#[test]
fn a_save_never_dirties_the_work_tree() {
    let world = World::new();
    let repo = world.repository();
    let linked = world.path().join("linked");
    repo.git(&[
        "worktree",
        "add",
        "--quiet",
        linked.to_str().unwrap(),
        "-b",
        "other",
    ]);
    for root in [repo.root(), &linked] {
        let mut client = world.client(root).session("s-1").start();
        let saved = client.save(json!({"goal": "g"})).ok();
        assert_eq!(saved["warnings"], json!([]));
        let there = Repository::at(root.to_owned(), world.home());
        assert_eq!(there.git(&["status", "--porcelain", "-uall"]), "");
        assert_eq!(there.git(&["add", "--all", "--dry-run"]), "");
        assert_eq!(
            there.git(&["stash", "--include-untracked"]),
            "No local changes to save"
        );
        assert!(root.join(".claude-checkpoints/s-1.json").exists());
        assert_eq!(checkpoint(root, "s-1")["git"]["dirty"], false);
    }
    repo.git(&["worktree", "remove", linked.to_str().unwrap()]);
}

#[test]
fn an_ignore_file_that_exists_is_not_edited_and_what_git_sees_is_said() {
    let world = World::new();
    let repo = world.repository();
    repo.write(".claude-checkpoints/.gitignore", "# mine\n");
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client.save(json!({"goal": "g"})).ok();
    assert_eq!(
        std::fs::read_to_string(session_file(&repo, ".gitignore")).unwrap(),
        "# mine\n"
    );
    let warning = saved["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("s-1.json") && warning.contains(".claude-checkpoint*"),
        "{warning}"
    );
    repo.write(".gitignore", ".claude-checkpoint*\n");
    assert_eq!(
        client.save(json!({"goal": "g"})).ok()["warnings"],
        json!([])
    );
    repo.git(&["add", "--force", ".claude-checkpoints/s-1.json"]);
    let saved = client.save(json!({"goal": "g"})).ok();
    assert!(
        saved["warnings"][0]
            .as_str()
            .unwrap()
            .contains("git rm --cached")
    );
}

#[test]
fn secrets_do_not_reach_the_disk() {
    let world = World::new();
    let repo = world.repository();
    let secret = ["Zq7", "pL9w", "Xk2", "mV4t"].concat();
    let with = |text: &str| format!("{text} API_KEY={secret}");
    let mut client = world.client(&repo).session("s-1").start();
    let saved = client
        .save(json!({
            "goal": with("goal"),
            "tasks": [{"description": with("task"), "status": "pending"}],
            "summary": with("summary"),
            "nextSteps": [with("step")],
            "decisions": [with("decision")],
            "modifiedFiles": [{"path": "README.md", "note": with("note")}],
            "recentCommands": [{"command": with("run"), "note": with("note")}],
        }))
        .ok();
    assert_eq!(saved["counts"]["redactions"], 8);
    assert!(saved["warnings"].to_string().contains("8"));
    assert_eq!(checkpoint(&repo, "s-1")["meta"]["redactions"], 8);
    let found = Command::new("grep")
        .args(["-r", &secret])
        .arg(world.path())
        .output()
        .unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
    // A redacted description still matches its earlier self, and redacts no further.
    let again = client
        .save(json!({"goal": "g", "mode": "merge", "tasks": [{"description": with("task"), "status": "done"}]}))
        .ok();
    assert_eq!(again["counts"]["tasks"], 1);
    assert_eq!(
        checkpoint(&repo, "s-1")["goal"]["tasks"][0]["status"],
        "done"
    );
}

#[test]
fn a_secret_at_a_fields_limit_is_redacted_before_it_is_cut() {
    let world = World::new();
    let repo = world.repository();
    let token = ["gh", "p_", &"a1B2c3D4e5".repeat(4)].concat();
    let mut client = world.client(&repo).session("s-1").start();
    for filler in [475, 490, 497] {
        client
            .save(json!({"goal": format!("{} {token}", "x".repeat(filler))}))
            .ok();
        let goal = checkpoint(&repo, "s-1")["goal"]["primary"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(!goal.contains(&token[..10]), "{goal}");
    }
}
