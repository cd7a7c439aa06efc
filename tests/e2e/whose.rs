//! Whose checkpoint a call is about: the sources in their order of trust (contract §3).

use serde_json::{Value, json};

use crate::support::{Client, Repository, World, checkpoint};

/// Saves and tells the session and how it was learnt.
fn saved_as(client: &mut Client) -> (String, String) {
    let saved = client.save(json!({"goal": "g"})).ok();
    let text = |key: &str| saved[key].as_str().unwrap_or("-").to_owned();
    (text("session"), text("sessionSource"))
}

fn is(found: (String, String), session: &str, source: &str) {
    assert_eq!(found, (session.to_owned(), source.to_owned()));
}

#[test]
fn claude_codes_variable_names_the_session() {
    let world = World::new();
    let repo = world.repository();
    is(
        saved_as(&mut world.client(&repo).session("s-1").start()),
        "s-1",
        "env",
    );
}

#[test]
fn an_invalid_variable_is_ignored_with_a_warning() {
    let world = World::new();
    let repo = world.repository();
    for bad in ["../x", "legacy", "-a", "con"] {
        let mut client = world.client(&repo).session(bad).start();
        let saved = client.save(json!({"goal": "g"})).ok();
        assert_eq!(saved["sessionSource"], "minted");
        let warning = saved["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("CLAUDE_CODE_SESSION_ID") && warning.contains(bad),
            "{warning}"
        );
    }
    let mut empty = world.client(&repo).session("").start();
    assert_eq!(empty.save(json!({"goal": "g"})).ok()["warnings"], json!([]));
}

#[test]
fn a_known_other_client_inherits_no_variable() {
    let world = World::new();
    let repo = world.repository();
    for name in [
        "cursor-vscode",
        "Visual Studio Code",
        "claude-ai",
        "codex-mcp-client",
        "gemini-cli-mcp-client",
        "Zed",
    ] {
        let mut client = world.client(&repo).session("s-1").name(name).start();
        let (session, source) = saved_as(&mut client);
        assert_eq!(source, "minted", "{name}");
        assert_ne!(session, "s-1");
    }
    is(
        saved_as(
            &mut world
                .client(&repo)
                .session("s-1")
                .name("my-own-client")
                .start(),
        ),
        "s-1",
        "env",
    );
}

#[test]
fn another_clients_own_word_comes_first() {
    let world = World::new();
    let repo = world.repository();
    let turn = json!({"session_id": "t-1", "agent_path": "/root"});
    for (meta, session) in [
        (json!({"x-codex-turn-metadata": turn}), "t-1"),
        (
            json!({"x-codex-turn-metadata": turn.to_string(), "threadId": "other"}),
            "t-1",
        ),
        (json!({"threadId": "t-2"}), "t-2"),
        (json!({"ai.opencode/sessionID": "ses_3"}), "ses_3"),
        (json!({"vscode.conversationId": "t-4"}), "t-4"),
        (json!({"antigravity.google/conversation_id": "t-5"}), "t-5"),
        // SHA-256 of "a/b é".
        (
            json!({"vscode.conversationId": "a/b é"}),
            "x-8449e370893a316d6434dbc26c536110bfd0dbfbb753b7feb4d6625f7b1a94a1",
        ),
    ] {
        let mut client = world
            .client(&repo)
            .session("s-1")
            .meta(meta.clone())
            .start();
        let (found, source) = saved_as(&mut client);
        assert_eq!(found, session, "{meta}");
        assert_eq!(source, "client");
    }
}

#[test]
fn a_subagent_that_its_client_names_does_not_save() {
    let world = World::new();
    let repo = world.repository();
    let meta =
        json!({"x-codex-turn-metadata": {"session_id": "t-1", "agent_path": "/root/helper"}});
    let mut client = world
        .client(&repo)
        .name("codex-mcp-client")
        .meta(meta)
        .start();
    let error = client.save(json!({"goal": "g"})).error();
    assert!(error.contains("parent"), "{error}");
    assert_eq!(client.load(json!({})).ok()["found"], false);
}

#[test]
fn where_the_session_is_known_a_session_argument_must_equal_it() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g", "session": "s-1"})).ok();
    let error = client.save(json!({"goal": "g", "session": "s-2"})).error();
    for part in [
        "s-1",
        "s-2",
        "`checkpoint: \"s-2\"`",
        "`resumedFrom: \"s-2\"`",
    ] {
        assert!(error.contains(part), "{error}");
    }
    client.load(json!({"session": "s-2"})).error();
    client.list(json!({"session": "s-2"})).error();

    let meta = json!({"threadId": "t-1"});
    let mut codex = world
        .client(&repo)
        .name("codex-mcp-client")
        .meta(meta)
        .start();
    codex.save(json!({"goal": "g", "session": "t-1"})).ok();
    codex.save(json!({"goal": "g", "session": "s-1"})).error();
}

#[test]
fn without_a_known_session_the_argument_names_it_and_must_be_passed_back() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).name("some-client").start();
    let saved = client.save(json!({"goal": "g", "session": "mine"})).ok();
    assert_eq!(
        (&saved["session"], &saved["sessionSource"]),
        (&json!("mine"), &json!("argument"))
    );
    assert!(
        saved["text"]
            .as_str()
            .unwrap()
            .contains("session: \"mine\"")
    );
    assert_eq!(client.load(json!({"session": "mine"})).ok()["found"], true);
}

#[test]
fn a_save_without_any_id_mints_one_and_never_writes_into_an_existing_checkpoint() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).start();
    let first = client.save(json!({"goal": "one"})).ok();
    let id = first["session"].as_str().unwrap().to_owned();
    assert_eq!(first["sessionSource"], "minted");
    assert!(first["text"].as_str().unwrap().contains(&id));
    assert_eq!(id.len(), 36);
    let second = client.save(json!({"goal": "two", "mode": "merge"})).ok();
    assert_ne!(second["session"], first["session"]);
    assert_eq!(checkpoint(&repo, &id)["goal"]["primary"], "one");
    let blind = client.load(json!({})).ok();
    assert_eq!(
        (&blind["found"], &blind["total"]),
        (&json!(false), &json!(2))
    );
    client
        .save(json!({"goal": "three", "mode": "merge", "session": id}))
        .ok();
    assert_eq!(checkpoint(&repo, &id)["goal"]["primary"], "three");
}

fn legacy_file(repo: &Repository) -> Value {
    serde_json::from_slice(&std::fs::read(repo.path(".claude-checkpoint")).unwrap()).unwrap()
}

#[test]
fn legacy_shares_one_file_where_no_id_is_known() {
    let world = World::new();
    let repo = world.repository();
    let legacy = || world.client(&repo).env("CHECKPOINT_SESSION_IDS", "legacy");
    let mut client = legacy().start();
    let saved = client.save(json!({"goal": "shared"})).ok();
    assert!(saved.get("session").is_none() && saved.get("sessionSource").is_none());
    assert!(legacy_file(&repo).get("sessionId").is_none());
    let warning = saved["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains(".claude-checkpoint*"),
        "git would see it: {warning}"
    );
    let loaded = legacy().start().load(json!({})).ok();
    assert_eq!(loaded["found"], true);
    assert!(loaded.get("resumeHint").is_none());

    // Who set it asked for the shared file, so it goes before the client's own word, and yields to the rest.
    let mut other = legacy()
        .name("opencode")
        .meta(json!({"ai.opencode/sessionID": "o-1"}))
        .start();
    is(saved_as(&mut other), "-", "-");
    is(saved_as(&mut legacy().session("s-1").start()), "s-1", "env");
    let mut named = legacy().start();
    assert_eq!(
        named.save(json!({"goal": "g", "session": "a-1"})).ok()["sessionSource"],
        "argument"
    );
    assert_eq!(legacy_file(&repo)["goal"]["primary"], "g");

    // Without the setting it is listed, named, never written.
    let mut plain = world.client(&repo).session("s-9").start();
    let listed = plain.list(json!({"limit": 0})).ok();
    let selectors: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["selector"])
        .collect();
    assert!(selectors.contains(&&json!("legacy")));
    let loaded = plain.load(json!({"checkpoint": "legacy"})).ok();
    assert!(
        loaded["resumeHint"]
            .as_str()
            .unwrap()
            .contains("\"legacy\"")
    );

    let mut odd = world
        .client(&repo)
        .env("CHECKPOINT_SESSION_IDS", "yes")
        .start();
    let saved = odd.save(json!({"goal": "g"})).ok();
    assert_eq!(saved["sessionSource"], "minted");
    assert!(saved["warnings"][0].as_str().unwrap().contains("`yes`"));
    let mut mint = world
        .client(&repo)
        .env("CHECKPOINT_SESSION_IDS", "mint")
        .start();
    assert_eq!(mint.save(json!({"goal": "g"})).ok()["warnings"], json!([]));
}

#[test]
fn the_hooks_word_outranks_the_variable_and_is_read_at_each_call() {
    let world = World::new();
    let repo = world.repository();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_ascii_whitespace()
        .collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot: String = boot.chars().filter(char::is_ascii_alphanumeric).collect();
    let directory = world.state().join("sessions");
    std::fs::create_dir_all(&directory).unwrap();
    let entry = |start: &str| directory.join(format!("{boot}-{}-{start}.json", std::process::id()));

    let mut client = world.client(&repo).session("stale").start();
    is(saved_as(&mut client), "stale", "env");
    // An entry of an earlier process with this id says nothing.
    std::fs::write(entry("1"), r#"{"session": "reused"}"#).unwrap();
    is(saved_as(&mut client), "stale", "env");
    std::fs::write(entry(fields[19]), r#"{"session": "real"}"#).unwrap();
    is(saved_as(&mut client), "real", "env");
    client.save(json!({"goal": "g", "session": "stale"})).ok();
    client
        .save(json!({"goal": "g", "session": "other"}))
        .error();
    world.kill_daemons();
    is(saved_as(&mut client), "real", "env");
    // Nor does it speak for another client.
    let mut cursor = world.client(&repo).name("cursor").start();
    assert_eq!(saved_as(&mut cursor).1, "minted");
    std::fs::write(entry(fields[19]), "damaged").unwrap();
    is(saved_as(&mut client), "stale", "env");
}

#[test]
fn resumed_from_counts_on_the_first_save_alone() {
    let world = World::new();
    let repo = world.repository();
    let mut old = world.client(&repo).session("old").start();
    old.save(json!({"goal": "old", "decisions": ["d"], "tasks": [{"description": "t", "status": "pending"}]})).ok();
    let before = checkpoint(&repo, "old");

    let mut merged = world.client(&repo).session("merged").start();
    merged
        .save(json!({"goal": "new", "mode": "merge", "resumedFrom": "old"}))
        .ok();
    let file = checkpoint(&repo, "merged");
    assert_eq!(
        (&file["decisions"], &file["resumedFrom"]),
        (&json!(["d"]), &json!("old"))
    );
    assert_eq!(file["sessionId"], "merged");
    assert_ne!(file["id"], before["id"]);
    assert_eq!(
        checkpoint(&repo, "old"),
        before,
        "the original is never modified"
    );

    // Later it is ignored, whatever it is, and what was recorded stays.
    for later in [
        json!("a/b"),
        json!("missing"),
        json!({"x": 1}),
        json!("old"),
    ] {
        for mode in ["merge", "replace"] {
            let saved = merged
                .save(json!({"goal": "later", "mode": mode, "resumedFrom": later}))
                .ok();
            assert_eq!(saved["warnings"], json!([]));
        }
    }
    let file = checkpoint(&repo, "merged");
    assert_eq!(
        (&file["decisions"], &file["resumedFrom"]),
        (&json!([]), &json!("old"))
    );

    let mut replaced = world.client(&repo).session("replaced").start();
    replaced
        .save(json!({"goal": "new", "resumedFrom": "old"}))
        .ok();
    let file = checkpoint(&repo, "replaced");
    assert_eq!(
        (&file["decisions"], &file["resumedFrom"]),
        (&json!([]), &json!("old"))
    );

    let mut missing = world.client(&repo).session("missing").start();
    missing
        .save(json!({"goal": "g", "resumedFrom": "a/b"}))
        .error();
    let saved = missing
        .save(json!({"goal": "g", "resumedFrom": "nobody"}))
        .ok();
    assert!(saved["warnings"][0].as_str().unwrap().contains("`nobody`"));
    assert!(checkpoint(&repo, "missing").get("resumedFrom").is_none());
}

#[test]
fn a_file_of_another_session_is_never_taken_for_ones_own() {
    let world = World::new();
    let repo = world.repository();
    world
        .client(&repo)
        .session("real")
        .start()
        .save(json!({"goal": "real"}))
        .ok();
    let directory = repo.path(".claude-checkpoints");
    std::fs::rename(directory.join("real.json"), directory.join("renamed.json")).unwrap();
    let before = std::fs::read(directory.join("renamed.json")).unwrap();
    let mut client = world.client(&repo).session("renamed").start();
    let error = client.save(json!({"goal": "g"})).error();
    assert!(
        error.contains("`real`") && error.contains("renamed.json"),
        "{error}"
    );
    assert_eq!(
        std::fs::read(directory.join("renamed.json")).unwrap(),
        before
    );
    let loaded = client.load(json!({})).ok();
    assert_eq!(loaded["found"], false);
    assert!(loaded["warnings"][0].as_str().unwrap().contains("`real`"));
    assert_eq!(loaded["candidates"][0]["selector"], "renamed");
    assert_eq!(loaded["candidates"][0]["isCurrentSession"], false);
}

#[test]
fn nothing_lives_in_the_daemons_memory() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "one", "decisions": ["d"]})).ok();
    let before = client.load(json!({"format": "full"})).ok()["checkpoint"].clone();
    world.kill_daemons();
    let after = client.load(json!({"format": "full"})).ok()["checkpoint"].clone();
    assert_eq!(before, after);
    client.save(json!({"goal": "two", "mode": "merge"})).ok();
    assert_eq!(checkpoint(&repo, "s-1")["decisions"], json!(["d"]));
}
