//! The main job: save, edit, load, and the brief names exactly the files whose content changed.

use serde_json::json;

use crate::support::{World, checkpoint};

#[test]
fn a_load_names_exactly_the_files_whose_content_changed() {
    let world = World::new();
    let repo = world.repository();
    for name in [
        "src/kept.rs",
        "src/edited.rs",
        "src/committed.rs",
        "src/gone.rs",
    ] {
        repo.write(name, "one\n");
    }
    repo.commit_all("files");
    for name in [
        "src/kept.rs",
        "src/edited.rs",
        "src/committed.rs",
        "src/gone.rs",
    ] {
        repo.write(name, "two\n");
    }
    repo.write("new.rs", "new\n");

    let mut first = world.client(&repo).session("s-1").start();
    let saved = first
        .save(json!({
            "goal": "Ship it",
            "modifiedFiles": [{"path": "src/edited.rs", "note": "the heart"}],
        }))
        .ok();
    assert_eq!(saved["counts"]["modifiedFiles"], 5);
    assert_eq!(saved["session"], "s-1");
    assert_eq!(saved["sessionSource"], "env");
    let file = checkpoint(&repo, "s-1");
    for record in file["modifiedFiles"].as_array().unwrap() {
        let path = record["path"].as_str().unwrap();
        assert_eq!(record["hash"], repo.hash(path), "{path}");
    }

    repo.git(&["add", "src/committed.rs"]);
    repo.commit("committed as it was");
    repo.write("src/edited.rs", "three\n");
    repo.remove("src/gone.rs");

    let mut second = world.client(&repo).session("s-2").start();
    let blind = second.load(json!({})).ok();
    assert_eq!(blind["found"], false);
    assert_eq!(blind["candidates"][0]["selector"], "s-1");
    let loaded = second.load(json!({"checkpoint": "s-1"})).ok();
    assert_eq!(loaded["found"], true);
    assert_eq!(
        loaded["drift"]["changedSince"],
        json!(["src/edited.rs", "src/gone.rs"])
    );
    assert_eq!(loaded["drift"]["newSince"], json!([]));
    assert_eq!(loaded["drift"]["commitsSince"], 1);
    let brief = loaded["text"].as_str().unwrap();
    assert!(
        brief
            .lines()
            .next()
            .unwrap()
            .contains("resumedFrom: \"s-1\"")
    );
    for part in [
        "# Resuming: repo",
        "## Goal\nShip it",
        "- src/edited.rs (M) — the heart",
        "`src/gone.rs`",
    ] {
        assert!(brief.contains(part), "{part} in {brief}");
    }

    let own = first.load(json!({})).ok();
    assert_eq!(own["found"], true);
    assert!(own.get("resumeHint").is_none());
}

#[test]
fn twenty_shims_at_the_same_moment_start_one_daemon() {
    let world = World::new();
    let repo = world.repository();
    let mut clients: Vec<_> = (0..20)
        .map(|n| world.client(&repo).session(&format!("s-{n}")).spawn())
        .collect();
    for client in &mut clients {
        client.open();
        client.save(json!({"goal": "g"})).ok();
    }
    assert_eq!(world.daemons().len(), 1);
    let status = world.status().expect("a daemon runs");
    assert_eq!(status["pid"], world.daemons()[0]);
    assert_eq!(status["connections"], 20);
    assert_eq!(status["socket"], world.socket().to_str().unwrap());
    let listed = clients[0].list(json!({"limit": 0})).ok();
    assert_eq!(listed["total"], 20);
}

#[test]
fn a_client_that_hangs_up_gets_what_it_asked_for_and_the_shim_ends() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let id = client.begin_call("save_session_checkpoint", json!({"goal": "last words"}));
    client.hang_up();
    client.end_call(&id).ok();
    assert!(client.wait().success());
    assert_eq!(checkpoint(&repo, "s-1")["goal"]["primary"], "last words");
}

#[test]
fn a_signal_ends_the_shim_at_once_and_the_save_is_finished() {
    let world = World::new();
    let repo = world.repository();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut client = world.client(&repo).session("s-1").start();
        client.save(json!({"goal": signal})).ok();
        let killed = std::process::Command::new("kill")
            .args([signal, &client.pid().to_string()])
            .status();
        assert!(killed.unwrap().success());
        client.wait();
    }
    crate::support::wait_until("the daemon forgets them", || {
        (world.status()?["connections"] == 0).then_some(())
    });
}

#[test]
fn without_a_daemon_the_program_serves_its_client_alone() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world
        .client(&repo)
        .session("s-1")
        .env("SESSION_CHECKPOINT_DAEMON", "off")
        .start();
    client.save(json!({"goal": "alone"})).ok();
    assert_eq!(client.load(json!({})).ok()["found"], true);
    assert!(world.daemons().is_empty());
    client.hang_up();
    assert!(client.wait().success());
}

#[test]
fn the_demo_plays_the_main_job_and_ends_with_the_brief() {
    let world = World::new();
    let output = world.daemon_command(&["demo"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("`src/session.ts`"), "{last}");
    assert!(!last.contains("callback.ts"), "{last}");
}
