//! One daemon per user, always there, never in the way (design: Starting, stopping).

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, ClientBuilder, DAEMON, SHIM, World, checkpoint, wait_until};

pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

pub(crate) fn only_daemon(world: &World) -> u32 {
    wait_until("one daemon runs", || match world.daemons()[..] {
        [pid] => Some(pid),
        _ => None,
    })
}

pub(crate) fn merge(client: &mut Client, command: &str) -> Value {
    client
        .save(json!({"goal": "g", "mode": "merge", "recentCommands": [command]}))
        .ok()
}

pub(crate) fn commands(root: impl AsRef<Path>, id: &str) -> Vec<String> {
    checkpoint(root, id)["recentCommands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["command"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_next_call_works_however_the_daemon_ended() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    for (n, name) in ["KILL", "TERM", "INT", "KILL"].iter().enumerate() {
        let pid = only_daemon(&world);
        signal(pid, name);
        // Answered by the one that is leaving, or by the next.
        merge(&mut client, &format!("{n}, at once"));
        wait_until("the old one is gone", || {
            (!world.daemons().contains(&pid)).then_some(())
        });
        merge(&mut client, &format!("{n}, later"));
        assert_eq!(world.daemons().len(), 1);
    }
    let merged: Vec<String> = (0..4)
        .flat_map(|n| [format!("{n}, at once"), format!("{n}, later")])
        .collect();
    assert_eq!(commands(&repo, "s-1")[1..], merged);
}

#[test]
fn the_next_call_works_when_the_socket_or_its_directory_is_gone() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    let first = only_daemon(&world);
    std::fs::remove_file(world.socket()).unwrap();
    merge(&mut client, "1");
    let mut other = world.client(&repo).session("s-2").start();
    merge(&mut other, "x");
    wait_until("the lost daemon leaves", || {
        (!world.daemons().contains(&first)).then_some(())
    });
    let second = only_daemon(&world);
    std::fs::remove_dir_all(world.socket().parent().unwrap()).unwrap();
    merge(&mut client, "2");
    merge(&mut other, "y");
    wait_until("the lost daemon leaves", || {
        (!world.daemons().contains(&second)).then_some(())
    });
    only_daemon(&world);
    assert_eq!(commands(&repo, "s-1"), ["0", "1", "2"]);
    assert_eq!(commands(&repo, "s-2"), ["x", "y"]);
}

#[test]
fn a_frozen_daemon_holds_nobody_up_and_applies_nothing_twice() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    let pid = only_daemon(&world);
    signal(pid, "STOP");
    let save = client.begin_call(
        "save_session_checkpoint",
        json!({"goal": "g", "mode": "merge", "recentCommands": ["1"]}),
    );
    let ping = client.begin("ping", json!({}));
    assert_eq!(client.answer_to(&ping)["result"], json!({}));
    client.end_call(&save).ok();
    let mut newcomer = world.client(&repo).session("s-2").start();
    merge(&mut newcomer, "x");
    signal(pid, "CONT");
    merge(&mut client, "2");
    // What the thawed daemon still had to read is answered, to nobody.
    world.status().expect("it answers again");
    assert_eq!(commands(&repo, "s-1"), ["0", "1", "2"]);
    assert_eq!(commands(&repo, "s-2"), ["x"]);
}

#[test]
fn who_holds_the_lock_for_too_long_is_named() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    let path = repo.root().join(".claude-checkpoints/.lock");
    let lock = File::open(&path).unwrap();
    lock.lock().unwrap();
    // Whoever wrote last waits itself.
    let refused = client.save(json!({"goal": "g"})).error();
    assert!(refused.contains("Another process has held"), "{refused}");
    std::fs::write(&path, format!("{:<10}\n", std::process::id())).unwrap();
    let refused = client.save(json!({"goal": "g"})).error();
    let me = std::process::id();
    assert!(
        refused.contains(&format!("Process {me} has held")),
        "{refused}"
    );
    assert!(refused.contains("hen try again"), "{refused}");
    drop(lock);
    merge(&mut client, "1");
    assert_eq!(commands(&repo, "s-1"), ["0", "1"]);
}

#[test]
fn a_save_that_a_frozen_daemon_may_have_begun_is_not_said_to_be_lost() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    let pid = only_daemon(&world);
    let lock = File::open(repo.root().join(".claude-checkpoints/.lock")).unwrap();
    lock.lock().unwrap();
    signal(pid, "STOP");
    let unsure = client.save(json!({"goal": "g"})).error();
    assert!(unsure.starts_with("It is not known yet"), "{unsure}");
    assert!(unsure.contains("rocess"), "{unsure}");
    drop(lock);
}

#[test]
fn nobody_has_to_read_what_is_complained_about() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world
        .client(&repo)
        .session("s-1")
        .env("SESSION_CHECKPOINT_DAEMON", "off")
        .env("SESSION_CHECKPOINT_LOG", "trace")
        .start();
    // More than a pipe holds.
    for _ in 0..600 {
        client.list(json!({})).ok();
    }
    client.hang_up();
    assert!(client.wait().success());
}

#[test]
fn what_whoever_started_it_blocked_or_ignored_is_not_inherited() {
    let world = World::new();
    let repo = world.repository();
    let mut command = world.command("sh");
    command
        .args(["-c", "trap '' TERM HUP INT; exec \"$0\"", SHIM])
        .current_dir(repo.root());
    let mut client = ClientBuilder::new(command).session("s-1").start();
    merge(&mut client, "0");
    let pid = only_daemon(&world);
    signal(pid, "TERM");
    wait_until("it leaves", || world.daemons().is_empty().then_some(()));
}

#[test]
fn fifty_shims_start_one_daemon_beside_what_a_dead_one_left() {
    let world = World::new();
    let repo = world.repository();
    std::fs::create_dir(world.socket().parent().unwrap()).unwrap();
    drop(UnixListener::bind(world.socket()).unwrap());
    let mut clients: Vec<_> = (0..50)
        .map(|n| world.client(&repo).session(&format!("s-{n}")).spawn())
        .collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.open();
        merge(client, &n.to_string());
    }
    only_daemon(&world);
    assert_eq!(world.status().unwrap()["connections"], 50);
    for n in 0..50 {
        assert_eq!(commands(&repo, &format!("s-{n}")), [n.to_string()]);
    }
}

#[test]
fn the_daemon_holds_nothing_of_whoever_started_it() {
    let world = World::new();
    let repo = world.repository();
    // Open descriptors, a working directory that goes, and variables that are nobody else's.
    let gone = world.directory("gone");
    let secret = ["hunter", "2"].concat();
    let output = world
        .command("sh")
        .current_dir(&gone)
        .env("FAKE_API_KEY", &secret)
        .env("SESSION_CHECKPOINT_NUDGE", "off")
        .args(["-c", "exec 9>&1; exec \"$0\" </dev/null", SHIM])
        .stdin(Stdio::null())
        .output() // ends only when nobody holds the pipe any more
        .unwrap();
    assert!(output.status.success());
    std::fs::remove_dir(&gone).unwrap();
    let pid = only_daemon(&world);
    let proc = |name: &str| format!("/proc/{pid}/{name}");
    for entry in std::fs::read_dir(proc("fd")).unwrap() {
        let target = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        assert!(!target.starts_with("pipe:"), "{target}");
        assert!(!target.starts_with("/dev/pts"), "{target}");
    }
    assert_eq!(std::fs::read_link(proc("cwd")).unwrap(), Path::new("/"));
    let stat = std::fs::read_to_string(proc("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    assert_eq!(fields[4], pid.to_string(), "the leader of its session");
    assert_eq!(fields[5], "0", "no terminal");
    let environment = std::fs::read(proc("environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(!environment.contains(&secret), "{environment}");
    assert!(!environment.contains("NUDGE"), "{environment}");
    let status = std::fs::read_to_string(proc("status")).unwrap();
    assert!(status.contains("Umask:\t0077"), "{status}");
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&world.socket()) & 0o077, 0);
    assert_eq!(mode(world.socket().parent().unwrap()), 0o700);
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
}

#[test]
fn a_shim_ends_with_its_client_though_somebody_else_holds_its_input_open() {
    let world = World::new();
    for off in ["", "off"] {
        // The shim's standard input is a FIFO that this test holds open; its parent is a shell that is killed.
        let fifo = world.path().join(format!("fifo{off}"));
        assert!(
            Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let mut wrapper = world
            .command("sh")
            .env("SESSION_CHECKPOINT_DAEMON", off)
            .args(["-c", "\"$0\" <\"$1\" 2>/dev/null & echo $!; wait", SHIM])
            .arg(&fifo)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut hold = File::options().write(true).open(&fifo).unwrap();
        writeln!(
            hold,
            "{}",
            json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        )
        .unwrap();
        let mut lines = std::io::BufReader::new(wrapper.stdout.take().unwrap()).lines();
        let shim: u32 = lines.next().unwrap().unwrap().parse().unwrap();
        assert!(
            lines.next().unwrap().unwrap().contains("result"),
            "the ping is answered"
        );
        wrapper.kill().unwrap();
        wrapper.wait().unwrap();
        wait_until("the shim ends", || {
            let stat = std::fs::read_to_string(format!("/proc/{shim}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z")).then_some(())
        });
        drop(hold);
    }
}

#[test]
fn a_client_that_is_killed_is_forgotten() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let mut other = world.client(&repo).session("s-2").start();
    merge(&mut other, "0");
    client.begin_call("save_session_checkpoint", json!({"goal": "g"}));
    assert_eq!(world.status().unwrap()["connections"], 2);
    drop(client); // with SIGKILL
    wait_until("the daemon forgets it", || {
        (world.status()?["connections"] == 1).then_some(())
    });
    let output = world.command(SHIM).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "end of input is no error");
}

#[test]
fn an_idle_daemon_leaves_and_nobody_notices() {
    let world = World::new();
    let repo = world.repository();
    let daemon = |world: &World| {
        let mut child = world
            .command(DAEMON)
            .args(["run", "--idle-exit", "3"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("it answers or ends", || {
            world
                .status()
                .or_else(|| child.try_wait().unwrap().map(|_| Value::Null))
        });
        child
    };
    let mut child = daemon(&world);
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    assert!(
        child.try_wait().unwrap().is_none(),
        "not while a client is there"
    );
    drop(client);
    let ended = wait_until("it leaves", || child.try_wait().unwrap());
    assert!(ended.success());
    assert!(!world.socket().exists());
    assert!(!world.state().join("daemon.json").exists());
    // Clients that come and go about when it leaves.
    let mut child = daemon(&world);
    for n in 1..6 {
        let mut client = world.client(&repo).session("s-1").start();
        merge(&mut client, &n.to_string());
        drop(client);
        std::thread::sleep(Duration::from_millis(980 + 10 * n));
    }
    assert_eq!(commands(&repo, "s-1"), ["0", "1", "2", "3", "4", "5"]);
    let _ended = child.kill();
    let _ended = child.wait();
}
