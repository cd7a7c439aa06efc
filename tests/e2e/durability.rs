//! Nothing lost: the daemon killed at any moment, many writers, full and read-only disks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use crate::support::{DAEMON, World, checkpoint, wait_until};

/// The commands of a checkpoint, counted.
fn commands(root: &Path, id: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for command in checkpoint(root, id)["recentCommands"].as_array().unwrap() {
        *counts
            .entry(command["command"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    counts
}

fn leftovers(root: &Path) -> Vec<PathBuf> {
    let directory = root.join(".claude-checkpoints");
    let is_known = |name: &str| {
        name.ends_with(".json")
            || name.ends_with(".json.prev")
            || [".gitignore", ".lock"].contains(&name)
    };
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !is_known(path.file_name().unwrap().to_str().unwrap()))
        .collect()
}

/// Merges of a round: few enough that a checkpoint holds a command of each.
const ROUND: usize = 12;
const KILLS: usize = 30;

#[test]
fn every_acknowledged_merge_is_there_once_though_the_daemon_is_killed_again_and_again() {
    let world = World::new();
    let repo = world.repository();
    let root = repo.root().to_owned();
    let kills = AtomicUsize::new(0);
    let (acknowledged, acknowledgements) = channel::<()>();
    let mut sessions: Vec<(String, Vec<String>)> = Vec::new();

    std::thread::scope(|scope| {
        // Half of the clients merge into their own sessions, half into shared ones.
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let (world, root, kills, acknowledged) =
                    (&world, &root, &kills, acknowledged.clone());
                scope.spawn(move || {
                    let mut shim = world.client(root).start();
                    let mut done = Vec::new();
                    for round in 0.. {
                        if kills.load(Ordering::Relaxed) >= KILLS {
                            break;
                        }
                        let owner = if client < 4 {
                            client.to_string()
                        } else {
                            "shared".to_owned()
                        };
                        let session = format!("{owner}-{round}");
                        let mut merged = Vec::new();
                        for n in 0..ROUND {
                            let command = format!("c-{client}-{round}-{n}");
                            shim.save(json!({
                                "goal": "g", "mode": "merge", "session": session,
                                "recentCommands": [command],
                            }))
                            .ok();
                            merged.push(command);
                            // Whoever counts may have stopped.
                            let _counted = acknowledged.send(());
                        }
                        done.push((session, merged));
                    }
                    done
                })
            })
            .collect();
        drop(acknowledged);
        let world = &world;
        let kills = &kills;
        scope.spawn(move || {
            // A kill after every few acknowledgements lands in all the moments of a save.
            let mut pause = 1;
            while kills.load(Ordering::Relaxed) < KILLS {
                for _ in 0..pause {
                    if acknowledgements.recv().is_err() {
                        return;
                    }
                }
                pause = pause % 7 + 1;
                world.kill_daemons();
                kills.fetch_add(1, Ordering::Relaxed);
            }
        });
        for client in clients {
            sessions.extend(client.join().unwrap());
        }
    });

    assert!(kills.load(Ordering::Relaxed) >= KILLS);
    let mut expected: HashMap<String, Vec<String>> = HashMap::new();
    for (session, merged) in sessions {
        expected.entry(session).or_default().extend(merged);
    }
    for (session, merged) in expected {
        let found = commands(&root, &session);
        let once: HashMap<String, usize> = merged.into_iter().map(|command| (command, 1)).collect();
        assert_eq!(found, once, "{session}");
    }
    assert_eq!(leftovers(&root), Vec::<PathBuf>::new());
}

#[test]
fn a_first_save_that_is_sent_again_mints_no_second_id() {
    let world = World::new();
    let repo = world.repository();
    for n in 0..10 {
        let mut client = world.client(&repo).start();
        client.list(json!({})).ok();
        let id = client.begin_call("save_session_checkpoint", json!({"goal": format!("g{n}")}));
        world.kill_daemons();
        client.end_call(&id).ok();
    }
    let mut client = world.client(&repo).start();
    let listed = client.list(json!({"limit": 0})).ok();
    assert_eq!(listed["total"], 10, "{listed}");
}

#[test]
fn of_500_concurrent_merges_by_daemon_and_embedded_processes_none_is_lost() {
    let world = World::new();
    let root = world.directory("plain");
    std::thread::scope(|scope| {
        for client in 0..10 {
            let (world, root) = (&world, &root);
            scope.spawn(move || {
                let mut builder = world.client(root);
                if client % 2 == 0 {
                    builder = builder.env("SESSION_CHECKPOINT_DAEMON", "off");
                }
                let mut shim = builder.start();
                for n in 0..50 {
                    shim.save(json!({
                        "goal": "g", "mode": "merge", "session": "shared",
                        "modifiedFiles": [format!("{client}-{n}")],
                    }))
                    .ok();
                }
            });
        }
    });
    let file = checkpoint(&root, "shared");
    assert_eq!(file["modifiedFiles"].as_array().unwrap().len(), 500);
    assert_eq!(file["meta"]["truncated"], false);
    assert_eq!(leftovers(&root), Vec::<PathBuf>::new());
}

#[test]
fn readers_never_meet_half_a_file() {
    let world = World::new();
    let repo = world.repository();
    let path = repo.path(".claude-checkpoints/s-1.json");
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                let bytes = std::fs::read(&path).expect("there is a main file at every moment");
                serde_json::from_slice::<Value>(&bytes).expect("and it is whole");
                reads += 1;
            }
            reads
        });
        // An embedded reader doesn't share the daemon's order.
        let mut other = world
            .client(&repo)
            .session("s-1")
            .env("SESSION_CHECKPOINT_DAEMON", "off")
            .start();
        for n in 0..100 {
            client
                .save(json!({"goal": "g", "summary": "x".repeat(n * 30)}))
                .ok();
            assert_eq!(other.load(json!({})).ok()["fromBackup"], false);
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

/// Runs the test's own world inside a private mount namespace, if this machine allows that.
fn can_mount() -> bool {
    Command::new("unshare")
        .args(["-Urm", "true"])
        .status()
        .is_ok_and(|status| status.success())
}

/// A client of an embedded daemon in a namespace where `setup` was run first.
fn in_namespace(world: &World, root: &Path, setup: &str) -> crate::support::Client {
    let mut command = world.command("unshare");
    command.args([
        "-Urm",
        "sh",
        "-c",
        &format!("{setup}; cd {}; exec {DAEMON} --stdio", root.display()),
    ]);
    crate::support::ClientBuilder::new(command)
        .session("s-1")
        .start()
}

#[test]
fn a_full_disk_loses_nothing_and_is_said() {
    if !can_mount() {
        return;
    }
    let world = World::new();
    let root = world.directory("small");
    let setup = format!("mount -t tmpfs -o size=200k tmpfs {0}", root.display());
    let mut client = in_namespace(&world, &root, &setup);
    client.save(json!({"goal": "one"})).ok();
    let inside = PathBuf::from(format!("/proc/{}/root{}", client.pid(), root.display()));
    let read = |name: &str| std::fs::read(inside.join(".claude-checkpoints").join(name));
    let before = read("s-1.json").unwrap();
    // Fill it to the last byte.
    let filler = std::fs::write(inside.join("filler"), vec![1; 1_000_000]);
    assert!(filler.is_err());
    let error = client
        .save(json!({"goal": "two", "summary": "x".repeat(4000)}))
        .error();
    assert!(
        error.contains("No space left") && error.contains("s-1.json"),
        "{error}"
    );
    assert_eq!(read("s-1.json").unwrap(), before);
    assert!(read("s-1.json.prev").is_err());
    assert_eq!(leftovers(&inside), Vec::<PathBuf>::new());
    assert_eq!(client.load(json!({})).ok()["fromBackup"], false);
    std::fs::remove_file(inside.join("filler")).unwrap();
    client.save(json!({"goal": "three"})).ok();
    assert!(
        String::from_utf8(read("s-1.json").unwrap())
            .unwrap()
            .contains("three")
    );
}

#[test]
fn a_read_only_disk_serves_loads_and_refuses_saves_by_name() {
    if !can_mount() {
        return;
    }
    let world = World::new();
    let root = world.directory("project");
    world
        .client(&root)
        .session("s-1")
        .start()
        .save(json!({"goal": "one"}))
        .ok();
    let setup = format!(
        "mount --bind {0} {0}; mount -o remount,ro,bind {0}",
        root.display()
    );
    let mut client = in_namespace(&world, &root, &setup);
    assert_eq!(client.load(json!({})).ok()["found"], true);
    let error = client.save(json!({"goal": "two"})).error();
    assert!(
        error.contains("Read-only") && error.contains(".claude-checkpoints"),
        "{error}"
    );
    assert_eq!(checkpoint(&root, "s-1")["goal"]["primary"], "one");
}

#[test]
fn a_checkpoint_that_is_a_mount_point_is_never_half_written() {
    if !can_mount() {
        return;
    }
    let world = World::new();
    let root = world.directory("project");
    let mut client = world.client(&root).session("s-1").start();
    client.save(json!({"goal": "one"})).ok();
    let file = root.join(".claude-checkpoints/s-1.json");
    std::fs::copy(&file, world.path().join("other")).unwrap();
    let setup = format!(
        "mount --bind {} {}",
        world.path().join("other").display(),
        file.display()
    );
    let mut inside = in_namespace(&world, &root, &setup);
    let error = inside.save(json!({"goal": "two"})).error();
    assert!(
        error.contains("s-1.json") && error.contains("busy"),
        "{error}"
    );
    assert_eq!(inside.load(json!({})).ok()["found"], true);
    assert_eq!(leftovers(&root), Vec::<PathBuf>::new());
}

#[test]
fn a_directory_without_write_permission_is_refused_by_name() {
    let world = World::new();
    let root = world.directory("project");
    std::fs::write(root.join(".claude-checkpoints"), "a file").unwrap();
    let mut client = world.client(&root).session("s-1").start();
    let error = client.save(json!({"goal": "g"})).error();
    assert!(
        error.contains(".claude-checkpoints") && error.contains("not a directory"),
        "{error}"
    );
    client.load(json!({})).error();
    std::fs::remove_file(root.join(".claude-checkpoints")).unwrap();
    client.save(json!({"goal": "g"})).ok();
}

#[test]
fn a_root_that_went_away_is_named_and_not_made_again() {
    let world = World::new();
    let root = world.directory("project");
    let mut client = world.client(&root).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    std::fs::remove_dir_all(&root).unwrap();
    let error = client.save(json!({"goal": "g"})).error();
    assert!(error.contains("does not exist"), "{error}");
    assert!(!root.exists());
    let daemon = world.daemons()[0];
    let held = wait_until("its descriptors are listed", || {
        std::fs::read_dir(format!("/proc/{daemon}/fd")).ok()
    });
    for descriptor in held {
        let target = std::fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
        assert!(!target.starts_with(&root), "{}", target.display());
    }
}
