//! The socket and the state: where they are, and what may stand there instead.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::lifecycle::{merge, signal};
use crate::support::{DAEMON, World, wait_until};

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
