//! One daemon per user, always there, never in the way (design: Starting, stopping).

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, ClientBuilder, DAEMON, SHIM, World, checkpoint, wait_until};

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn only_daemon(world: &World) -> u32 {
    wait_until("one daemon runs", || match world.daemons()[..] {
        [pid] => Some(pid),
        _ => None,
    })
}

fn merge(client: &mut Client, command: &str) -> Value {
    client
        .save(json!({"goal": "g", "mode": "merge", "recentCommands": [command]}))
        .ok()
}

fn commands(root: impl AsRef<Path>, id: &str) -> Vec<String> {
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
    let pid = only_daemon(&world);
    let lock = File::open(repo.root().join(".claude-checkpoints/.lock")).unwrap();
    lock.lock().unwrap();
    let refused = client.save(json!({"goal": "g"})).error();
    assert!(
        refused.contains(&format!("rocess {pid} has held")),
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
fn two_environments_of_one_user_find_the_same_daemon() {
    let world = World::new();
    let repo = world.repository();
    let client = |runtime: &str| {
        let runtime = world.directory(runtime);
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700)).unwrap();
        world
            .client(&repo)
            .env("SESSION_CHECKPOINT_SOCKET", "")
            .env("XDG_RUNTIME_DIR", runtime)
            .env("CLAUDE_CODE_SESSION_ID", "s-1")
            .start()
    };
    let (mut one, mut two) = (client("one"), client("two"));
    merge(&mut one, "1");
    merge(&mut two, "2");
    let daemon: Value =
        serde_json::from_slice(&std::fs::read(world.state().join("daemon.json")).unwrap()).unwrap();
    let socket = daemon["socket"].as_str().unwrap();
    assert!(socket.ends_with("one/session-checkpoint/daemon.sock"));
    assert!(
        !world
            .path()
            .join("two/session-checkpoint/daemon.sock")
            .exists()
    );
    let status = world
        .command(DAEMON)
        .args(["status", "--json"])
        .env("SESSION_CHECKPOINT_SOCKET", "")
        .env("XDG_RUNTIME_DIR", world.path().join("two"))
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["connections"], 2);
    assert_eq!(status["pid"], daemon["pid"]);
    signal(
        u32::try_from(daemon["pid"].as_u64().unwrap()).unwrap(),
        "KILL",
    );
}

#[test]
fn a_runtime_directory_that_is_too_long_or_open_is_passed_over_by_all() {
    let world = World::new();
    let repo = world.repository();
    let long = world.directory(&"x".repeat(150));
    let open = world.directory("open");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut sockets = Vec::new();
    for runtime in [&long, &open] {
        let doctor = world
            .command(DAEMON)
            .arg("doctor")
            .current_dir(repo.root())
            .env("SESSION_CHECKPOINT_SOCKET", "")
            .env("SESSION_CHECKPOINT_DAEMON", "off")
            .env("XDG_RUNTIME_DIR", runtime)
            .output()
            .unwrap();
        let text = String::from_utf8(doctor.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("socket ")).unwrap();
        sockets.push(line.to_owned());
    }
    assert_eq!(sockets[0], sockets[1]);
    assert!(!sockets[0].contains("xxx") && !sockets[0].contains("/open/"));
}

#[test]
fn an_unusable_explicit_socket_is_named_and_the_client_works_without() {
    let world = World::new();
    let repo = world.repository();
    let long = format!("/{}", "x".repeat(150));
    let mut client = world
        .client(&repo)
        .session("s-1")
        .env("SESSION_CHECKPOINT_SOCKET", long)
        .start();
    merge(&mut client, "0");
    client.hang_up();
    client.wait();
    let complaints = client.complaints();
    assert!(
        complaints.contains("SESSION_CHECKPOINT_SOCKET"),
        "{complaints}"
    );
    assert!(
        complaints.contains("107") || complaints.contains("103"),
        "{complaints}"
    );
}

#[test]
fn what_is_no_socket_stays_where_it_is_and_the_client_works_without() {
    for kind in ["file", "directory", "dangling link", "FIFO"] {
        let world = World::new();
        let repo = world.repository();
        let socket = world.socket();
        std::fs::create_dir(socket.parent().unwrap()).unwrap();
        match kind {
            "file" => std::fs::write(&socket, "mine").unwrap(),
            "directory" => std::fs::create_dir(&socket).unwrap(),
            "FIFO" => {
                let made = Command::new("mkfifo").arg(&socket).status();
                assert!(made.unwrap().success());
            }
            _ => symlink("/nonexistent/x", &socket).unwrap(),
        }
        let mut client = world.client(&repo).session("s-1").start();
        merge(&mut client, "0");
        client.hang_up();
        client.wait();
        let complaints = client.complaints();
        assert!(
            complaints.contains(socket.to_str().unwrap()),
            "{complaints}"
        );
        assert!(socket.symlink_metadata().is_ok(), "{kind}");
        assert!(world.daemons().is_empty(), "{kind}");
    }
}

/// Something that listens where the daemon should, and what it does with a connection.
fn peer(world: &World, act: fn(UnixStream)) {
    std::fs::create_dir(world.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(world.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || act(stream));
        }
    });
}

#[test]
fn whatever_else_answers_on_the_socket_is_left_alone_and_the_client_works_without() {
    let silent: fn(UnixStream) = |mut stream| {
        let _read = stream.read_to_end(&mut Vec::new());
    };
    let banner: fn(UnixStream) = |mut stream| {
        let _written = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    };
    let closing: fn(UnixStream) = drop;
    let garbage: fn(UnixStream) = |mut stream| {
        let _written = stream.write_all(&vec![b'x'; 10 << 20]);
    };
    let strange: fn(UnixStream) = |mut stream| {
        let _written = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: session-checkpoint\r\n\r\n{\"protocol\":999,\"version\":\"9.9.9\",\"pid\":1}\n",
        );
        let _read = stream.read_to_end(&mut Vec::new());
    };
    for (name, act) in [
        ("silent", silent),
        ("banner", banner),
        ("closing", closing),
        ("garbage", garbage),
        ("strange", strange),
    ] {
        let world = World::new();
        let repo = world.repository();
        peer(&world, act);
        let mut client = world.client(&repo).session("s-1").start();
        merge(&mut client, "0");
        assert!(world.socket().exists(), "{name}");
        assert!(world.daemons().is_empty(), "{name}");
        client.hang_up();
        client.wait();
        let complaints = client.complaints();
        let socket = world.socket();
        assert!(
            complaints.contains(socket.to_str().unwrap()),
            "{name}: {complaints}"
        );
    }
}

#[test]
fn a_peer_that_sends_rubbish_or_stalls_is_dropped_alone() {
    let world = World::new();
    let repo = world.repository();
    let mut client = world.client(&repo).session("s-1").start();
    let upgrade = "GET /v1/mcp HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: session-checkpoint\r\n\r\n";
    let long_head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let long_hello = format!("{upgrade}{}\n", "x".repeat(1 << 20));
    for rubbish in [
        "\0\0\0\n\n",
        &long_head,
        &format!("{upgrade}[]\n"),
        &long_hello,
    ] {
        let mut stream = UnixStream::connect(world.socket()).unwrap();
        // It may be hung up on before it is done.
        let _written = stream.write_all(rubbish.as_bytes());
        let _read = stream.read_to_end(&mut Vec::new());
    }
    let stalled = UnixStream::connect(world.socket()).unwrap();
    merge(&mut client, "0");
    stalled
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let read = (&stalled).read(&mut [0; 1]);
    assert!(
        matches!(read, Ok(0)),
        "the stalled peer is hung up on: {read:?}"
    );
    merge(&mut client, "1");
    assert_eq!(world.daemons().len(), 1);
}

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
            .args(["run", "--idle-exit", "1"])
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

#[test]
fn a_handed_over_socket_is_used_and_left_in_place() {
    let world = World::new();
    let repo = world.repository();
    std::fs::create_dir(world.socket().parent().unwrap()).unwrap();
    let listener = UnixListener::bind(world.socket()).unwrap();
    let run = |variables: &str| {
        let socket: std::os::fd::OwnedFd = listener.try_clone().unwrap().into();
        world
            .command("sh")
            .arg("-c")
            .arg(format!(
                "exec 3<&0 4<&0 0</dev/null; {variables} exec \"$0\" run --idle-exit 1"
            ))
            .arg(DAEMON)
            .stdin(Stdio::from(socket))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for n in ["0", "1"] {
        let mut daemon = run("LISTEN_FDS=1 LISTEN_PID=$$");
        let mut client = world.client(&repo).session("s-1").start();
        merge(&mut client, n);
        let status = world.status().unwrap();
        assert_eq!(status["pid"], daemon.id());
        assert_eq!(status["supervisor"], "systemd");
        drop(client);
        assert!(wait_until("it leaves", || daemon.try_wait().unwrap()).success());
        assert!(world.socket().exists());
    }
    // A client alone, while the service manager listens and no daemon runs: it doesn't start a second one.
    let daemon = run("LISTEN_FDS=2 LISTEN_PID=$$")
        .wait_with_output()
        .unwrap();
    assert!(!daemon.status.success());
    assert!(String::from_utf8_lossy(&daemon.stderr).contains("one is expected"));
    // What is meant for another process is passed over, and the socket is somebody's.
    let daemon = run("LISTEN_FDS=1 LISTEN_PID=1").wait_with_output().unwrap();
    assert!(!daemon.status.success());
    let complaint = String::from_utf8_lossy(&daemon.stderr).into_owned();
    assert!(complaint.contains("another daemon listens"), "{complaint}");
    assert!(world.socket().exists());
}

#[test]
fn without_a_place_for_state_or_log_everything_works() {
    let world = World::new();
    let repo = world.repository();
    std::fs::write(world.path().join("file"), "").unwrap();
    let mut client = world
        .client(&repo)
        .session("s-1")
        .env(
            "SESSION_CHECKPOINT_STATE_DIR",
            world.path().join("file/state"),
        )
        .start();
    merge(&mut client, "0");
    assert_eq!(world.status().unwrap()["connections"], 1);
}

#[test]
fn what_is_no_log_keeps_nobody_waiting() {
    let world = World::new();
    let repo = world.repository();
    std::fs::create_dir(world.state()).unwrap();
    for name in ["daemon.log", "daemon.lock", "daemon.json"] {
        let made = Command::new("mkfifo")
            .arg(world.state().join(name))
            .status();
        assert!(made.unwrap().success());
    }
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    assert_eq!(world.status().unwrap()["connections"], 1);
}

#[test]
fn another_users_directory_is_no_place_for_a_socket() {
    let world = World::new();
    let repo = world.repository();
    let foreign = world.directory("foreign");
    std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&foreign, Some(4321), Some(4321)).is_err() {
        return; // only root can give something away
    }
    let doctor = |variables: &[(&str, &Path)]| {
        let output = world
            .command(DAEMON)
            .arg("doctor")
            .current_dir(repo.root())
            .env("SESSION_CHECKPOINT_DAEMON", "off")
            .env("SESSION_CHECKPOINT_SOCKET", "")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // A runtime directory and a home that `sudo` left in the environment.
    let text = doctor(&[
        ("XDG_RUNTIME_DIR", &foreign),
        ("HOME", &foreign),
        ("SESSION_CHECKPOINT_STATE_DIR", Path::new("")),
    ]);
    assert!(!text.contains(foreign.to_str().unwrap()), "{text}");
    assert_eq!(std::fs::read_dir(&foreign).unwrap().count(), 0);
}

#[test]
fn a_log_that_grew_is_kept_aside_once() {
    let world = World::new();
    let repo = world.repository();
    std::fs::create_dir(world.state()).unwrap();
    let log = world.state().join("daemon.log");
    std::fs::write(&log, "old line\n".repeat(200_000)).unwrap();
    let mut client = world.client(&repo).session("s-1").start();
    merge(&mut client, "0");
    assert!(world.log().contains("listening"), "the log goes on");
    assert!(!world.log().contains("old line"));
    assert!(log.metadata().unwrap().len() < 100_000);
    let old = std::fs::read_to_string(world.state().join("daemon.log.old")).unwrap();
    assert!(old.starts_with("old line\n"));
}
