//! What a person can ask of `session-checkpointd`.

use serde_json::json;

use crate::support::{DAEMON, World};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn status_tells_how_the_daemon_and_each_project_are() {
    let world = World::new();
    let repo = world.repository();
    let absent = world.daemon_command(&["status"]);
    assert!(!absent.status.success());
    let complaint = text(&absent.stderr);
    assert!(complaint.contains("no daemon listens"), "{complaint}");
    assert!(
        complaint.contains(world.socket().to_str().unwrap()),
        "{complaint}"
    );

    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let status = world.status().unwrap();
    for field in [
        "pid",
        "version",
        "protocol",
        "uptime",
        "socket",
        "connections",
        "memory",
    ] {
        assert!(!status[field].is_null(), "{field} in {status}");
    }
    assert_eq!(status["projects"][0]["root"], repo.root().to_str().unwrap());
    let shown = text(&world.daemon_command(&["status"]).stdout);
    for part in [
        "version",
        "socket",
        "connections",
        repo.root().to_str().unwrap(),
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn what_stands_in_the_sockets_place_is_told_apart() {
    let world = World::new();
    std::fs::create_dir(world.socket().parent().unwrap()).unwrap();
    std::fs::write(world.socket(), "").unwrap();
    let complaint = text(&world.daemon_command(&["status"]).stderr);
    assert!(complaint.contains("is no socket"), "{complaint}");
    std::fs::remove_file(world.socket()).unwrap();
    // Byte by byte, and never the end.
    let listener = std::os::unix::net::UnixListener::bind(world.socket()).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            while std::io::Write::write_all(&mut stream, b"x").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
        }
    });
    let complaint = text(&world.daemon_command(&["status"]).stderr);
    assert!(complaint.contains("no whole answer in time"), "{complaint}");
}

#[test]
fn a_service_that_cannot_be_enabled_leaves_no_units() {
    let world = World::new();
    let output = world
        .command(DAEMON)
        .args(["service", "install"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("nothing was installed"));
    let units = world.home().join(".config/systemd/user");
    assert_eq!(std::fs::read_dir(units).unwrap().count(), 0);
}

#[test]
fn stop_returns_when_the_daemon_has_left() {
    let world = World::new();
    let repo = world.repository();
    assert!(text(&world.daemon_command(&["stop"]).stdout).contains("no daemon runs"));
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "g"})).ok();
    let stopped = world.daemon_command(&["stop"]);
    assert!(stopped.status.success());
    assert!(text(&stopped.stdout).contains("has left"));
    assert!(world.daemons().is_empty());
    client
        .save(json!({"goal": "the next one starts it again"}))
        .ok();
    assert_eq!(world.daemons().len(), 1);
}

#[test]
fn doctor_checks_the_chain_and_says_what_to_do() {
    let world = World::new();
    let repo = world.repository();
    let doctor = || {
        let output = world
            .command(DAEMON)
            .arg("doctor")
            .current_dir(repo.root())
            .output()
            .unwrap();
        (output.status.success(), text(&output.stdout))
    };
    let (well, said) = doctor();
    assert!(well, "{said}");
    assert!(said.contains("the shim answers as version"), "{said}");
    assert!(said.contains("Claude Code doesn't know it"), "{said}");
    assert!(said.contains("claude mcp add"), "{said}");

    repo.write(
        ".mcp.json",
        json!({"mcpServers": {"c": {"command": "session-checkpoint-mcp"}}}).to_string(),
    );
    let (_, said) = doctor();
    assert!(
        said.contains("Claude Code knows it by `.mcp.json`"),
        "{said}"
    );

    world.kill_daemons();
    let socket = world.socket();
    let _removed = std::fs::remove_file(&socket);
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let (well, said) = doctor();
    assert!(!well, "{said}");
    assert!(said.contains("FAIL daemon"), "{said}");
    assert!(said.contains(socket.to_str().unwrap()), "{said}");
}

#[test]
fn logs_prints_what_was_done_and_nothing_of_what_was_said() {
    let world = World::new();
    let repo = world.repository();
    let none = world.daemon_command(&["logs"]);
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("daemon.log"));
    let mut client = world.client(&repo).session("s-1").start();
    client.save(json!({"goal": "a-goal-of-mine"})).ok();
    let logs = text(&world.daemon_command(&["logs"]).stdout);
    let line = logs
        .lines()
        .find(|line| line.contains("answered in"))
        .unwrap();
    for part in [
        "claude-code",
        "save_session_checkpoint",
        repo.root().to_str().unwrap(),
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!logs.contains("a-goal-of-mine"));
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = text(&world.daemon_command(&["completions", shell]).stdout);
        assert!(script.contains("doctor"), "{shell}: {script}");
    }
    let closed = world
        .command("sh")
        .args(["-c", "\"$0\" completions bash | true", DAEMON])
        .output()
        .unwrap();
    assert_eq!(text(&closed.stderr), "");
    let page = text(&world.daemon_command(&["man"]).stdout);
    assert!(page.contains(".TH"), "{page}");
}

#[test]
fn the_units_name_this_program_and_are_removed_again() {
    let world = World::new();
    // A service manager that only takes note.
    let bin = world.directory("bin");
    let notes = world.path().join("notes");
    let script = format!("#!/bin/sh\necho \"$@\" >>'{}'\n", notes.display());
    std::fs::write(bin.join("systemctl"), script).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(
        bin.join("systemctl"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let service = |action: &str| {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let output = world
            .command(DAEMON)
            .args(["service", action])
            .env("PATH", path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let unit = world
        .home()
        .join(".config/systemd/user/session-checkpoint.service");
    assert!(service("status").contains("not installed"));
    service("install");
    let written = std::fs::read_to_string(&unit).unwrap();
    assert!(
        written.contains(&format!("ExecStart=\"{DAEMON}\" run")),
        "{written}"
    );
    assert!(service("status").contains("active"));
    service("uninstall");
    assert!(!unit.exists());
    let notes = std::fs::read_to_string(notes).unwrap();
    assert!(
        notes.contains("--user enable --now session-checkpoint.socket"),
        "{notes}"
    );
    assert!(notes.contains("--user disable --now"), "{notes}");
}

#[test]
fn a_bare_call_says_how_to_call() {
    let world = World::new();
    let bare = world.daemon_command(&[]);
    assert!(!bare.status.success());
    assert!(text(&bare.stderr).contains("Usage"));
    let wrong = world
        .command(crate::support::SHIM)
        .arg("--help")
        .output()
        .unwrap();
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("session-checkpointd --help"));
    assert!(wrong.stdout.is_empty());
}
