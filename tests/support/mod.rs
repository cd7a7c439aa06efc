//! The harness of the end-to-end tests: a world of its own for each test, real binaries in it, and a client
//! that speaks plain JSON-RPC, so that what is tested is what goes over the pipe.
//!
//! ```no_run
//! let world = World::new();
//! let repo = world.repository();
//! let mut client = world.client(&repo).session("s-1").start();
//! let saved = client.save(json!({"goal": "g"})).ok();
//! ```
//! Nothing here asserts what the program should do, but for one promise that concerns every single answer: it
//! validates against its tool's output schema ([`schemas`]). A failure prints the daemon's log.

mod client;
mod repository;
mod schemas;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) use client::{Client, ClientBuilder, Roots};
pub(crate) use repository::Repository;
pub(crate) use schemas::TOOLS_LIST;

/// How long anything may take before the harness gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_session-checkpointd");
pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_session-checkpoint-mcp");

/// A home, a state directory and a socket, used by nobody else.
pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> World {
        // Directly in /tmp, so that a socket's path stays short whatever TMPDIR is.
        let folder = tempfile::Builder::new()
            .prefix("sc-")
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let world = World { folder };
        std::fs::create_dir(world.home()).expect("a home");
        world
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("run/daemon.sock")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// An empty directory that is no repository.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path.canonicalize().expect("its real path")
    }

    /// A repository with one commit.
    pub(crate) fn repository(&self) -> Repository {
        self.repository_at("repo")
    }

    pub(crate) fn repository_at(&self, name: &str) -> Repository {
        let repository = self.empty_repository_at(name, &[]);
        repository.write("README.md", "start\n");
        repository.git(&["add", "--all"]);
        repository.commit("start");
        repository
    }

    /// A repository before its first commit.
    pub(crate) fn empty_repository_at(&self, name: &str, init: &[&str]) -> Repository {
        let repository = Repository::at(self.directory(name), self.home());
        let mut arguments = vec!["init", "--quiet", "--initial-branch=main"];
        arguments.extend(init);
        repository.git(&arguments);
        repository
    }

    /// A program in this world and in no other: its environment is ours alone.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment());
        command
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("HOME", self.home().into()),
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("SESSION_CHECKPOINT_SOCKET", self.socket().into()),
            ("SESSION_CHECKPOINT_STATE_DIR", self.state().into()),
        ];
        if crate::EMBEDDED {
            environment.push(("SESSION_CHECKPOINT_DAEMON", "off".into()));
        }
        environment
    }

    /// A client of the shim, to be configured and started.
    pub(crate) fn client(&self, cwd: impl AsRef<Path>) -> ClientBuilder {
        let mut command = self.command(SHIM);
        command.current_dir(cwd.as_ref());
        ClientBuilder::new(command)
    }

    /// A client whose shim is not its child, as behind `npx` and other wrappers.
    pub(crate) fn client_behind_a_shell(&self, cwd: impl AsRef<Path>) -> ClientBuilder {
        let mut command = self.command("sh");
        command.args(["-c", "\"$0\"; true", SHIM]);
        command.current_dir(cwd.as_ref());
        ClientBuilder::new(command)
    }

    /// Runs the daemon's command line to its end.
    pub(crate) fn daemon_command(&self, arguments: &[&str]) -> Output {
        self.command(DAEMON)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the daemon's program runs")
    }

    /// `status --json`, if a daemon runs.
    pub(crate) fn status(&self) -> Option<Value> {
        let output = self.daemon_command(&["status", "--json"]);
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).expect("status is JSON"))
    }

    /// The process ids of this world's daemons.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        let socket = self.socket();
        let wanted = format!("SESSION_CHECKPOINT_SOCKET={}", socket.display());
        processes()
            .filter(|pid| {
                let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let is_daemon = std::fs::read(format!("/proc/{pid}/cmdline"))
                    .is_ok_and(|line| line.split(|b| *b == 0).nth(1) == Some(b"run"));
                is_daemon
                    && environment
                        .split(|b| *b == 0)
                        .any(|one| one == wanted.as_bytes())
            })
            .collect()
    }

    pub(crate) fn kill_daemons(&self) {
        for pid in self.daemons() {
            let _status = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.state().join("daemon.log")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        #[expect(
            clippy::print_stderr,
            reason = "the test harness shows it with the failure"
        )]
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}---", self.log());
        }
        self.kill_daemons();
    }
}

fn processes() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Waits until `condition` gives a value; panics with `what` when it doesn't in time.
pub(crate) fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "gave up waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The JSON of a checkpoint file.
pub(crate) fn checkpoint(root: impl AsRef<Path>, id: &str) -> Value {
    let path = root
        .as_ref()
        .join(".claude-checkpoints")
        .join(format!("{id}.json"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).expect("a checkpoint is JSON")
}
