//! Older and newer builds of both programs together.

use std::process::Stdio;

use crate::lifecycle::{commands, merge, only_daemon};
use crate::support::{Client, DAEMON, World, wait_until};

/// A daemon that passes for another build.
fn pretending_daemon(world: &World, build: &str) -> u32 {
    let child = world
        .command(DAEMON)
        .arg("run")
        .env("SESSION_CHECKPOINT_TEST_BUILD", build)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    // It is this process's child: somebody has to take note of its end.
    std::thread::spawn(move || {
        let mut child = child;
        child.wait()
    });
    wait_until("it answers", || world.status());
    pid
}

fn version(world: &World) -> String {
    world.status().unwrap()["version"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_newer_shim_has_an_older_daemon_make_room() {
    for build in ["0.9.0/1", "0.9.0/0"] {
        let world = World::new();
        let repo = world.repository();
        let old = pretending_daemon(&world, build);
        let mut other = world
            .client(&repo)
            .session("s-1")
            .env("SESSION_CHECKPOINT_TEST_BUILD", build)
            .start();
        merge(&mut other, "0");
        let mut client = world.client(&repo).session("s-2").start();
        merge(&mut client, "x");
        assert_eq!(version(&world), env!("CARGO_PKG_VERSION"));
        assert_ne!(only_daemon(&world), old);
        // The session that the old one had goes on, whoever serves it.
        merge(&mut other, "1");
        merge(&mut client, "y");
        assert_eq!(commands(&repo, "s-1"), ["0", "1"]);
        assert_eq!(commands(&repo, "s-2"), ["x", "y"]);
    }
}

#[test]
fn an_older_shim_is_served() {
    let world = World::new();
    let repo = world.repository();
    let mut newer = world.client(&repo).session("s-1").start();
    merge(&mut newer, "0");
    let pid = only_daemon(&world);
    let mut older = world
        .client(&repo)
        .session("s-2")
        .env("SESSION_CHECKPOINT_TEST_BUILD", "0.9.0/1")
        .start();
    merge(&mut older, "x");
    assert_eq!(only_daemon(&world), pid);
    assert_eq!(world.status().unwrap()["connections"], 2);
}

#[test]
fn builds_that_cannot_talk_never_chase_each_other_away() {
    let world = World::new();
    let repo = world.repository();
    let mut clients: Vec<Client> = ["1.0.0/1", "2.0.0/1", "0.9.0/2", "2.0.0/2"]
        .iter()
        .map(|build| {
            let mut client = world
                .client(&repo)
                .session(&format!("s-{}", build.replace(['.', '/'], "-")))
                .env("SESSION_CHECKPOINT_TEST_BUILD", build)
                .start();
            merge(&mut client, "0");
            client
        })
        .collect();
    let pid = only_daemon(&world);
    for n in 1..4 {
        for client in &mut clients {
            merge(client, &n.to_string());
        }
    }
    // Each asked at most once: from then on nothing moves.
    assert_eq!(only_daemon(&world), pid);
    for build in ["1-0-0-1", "2-0-0-1", "0-9-0-2", "2-0-0-2"] {
        assert_eq!(commands(&repo, &format!("s-{build}")), ["0", "1", "2", "3"]);
    }
}
