//! What both sides ask of the system: what this process is, as a hello describes it (where it runs, and which
//! processes led to it), when the one that started it is gone, and which daemon is said to run.
//!
//! Shim and embedded daemon both stand where the client spawned them and say the same of it, so this
//! one look at the system is shared.
#![expect(
    clippy::disallowed_methods,
    reason = "what both sides ask of the system is asked here, once"
)]

use std::path::Path;

use uuid::Uuid;

use crate::env::Env;
use crate::hello::{Build, Hello};
use crate::state::{DAEMON_FILE, DaemonFile};
use crate::word::{Ancestry, Process};

/// Far more than any client, wrapper and shell stack up.
const GENERATIONS: usize = 24;

/// The hello of this process.
pub fn hello(connection: Uuid, env: &Env) -> Hello {
    let build = Build::of(env);
    Hello {
        protocol: build.protocol,
        version: build.version,
        connection,
        pid: std::process::id(),
        cwd: std::env::current_dir()
            .ok()
            .map(|cwd| cwd.as_os_str().into()),
        variables: env.for_daemon(),
        ancestry: ancestry(),
    }
}

/// The daemon that the state directory names, if any.
pub fn running_daemon(state: &Path) -> Option<DaemonFile> {
    let bytes = std::fs::read(state.join(DAEMON_FILE)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Calls `then`, on a thread of its own, when the process that started this one is gone: a client that was killed can't close a pipe that somebody
/// else holds open too (MCP behind `npx` and shell wrappers). For a process that is nobody's child, that is never.
#[cfg(unix)]
pub fn on_parents_end(then: impl FnOnce() + Send + 'static) {
    use std::os::unix::process::parent_id;
    // Asked for now: it may be gone before the thread runs.
    let parent = parent_id();
    if parent <= 1 {
        return;
    }
    std::thread::spawn(move || {
        while parent_id() == parent {
            await_exit(parent);
        }
        then();
    });
}

/// Until the process ends, where the system has a handle for it; else a while.
#[cfg(target_os = "linux")]
fn await_exit(pid: u32) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let handle = Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let Some(Ok(handle)) = handle {
        let waited = poll(&mut [PollFd::new(&handle, PollFlags::IN)], None);
        if waited.is_ok() {
            // It is a zombie for a moment before this process gets another parent.
            std::thread::sleep(std::time::Duration::from_millis(20));
            return;
        }
    }
    std::thread::sleep(POLL);
}

#[cfg(all(unix, not(target_os = "linux")))]
fn await_exit(_pid: u32) {
    std::thread::sleep(POLL);
}

/// How often the parent is looked for where nothing better is known.
#[cfg(unix)]
const POLL: std::time::Duration = std::time::Duration::from_secs(5);

/// A process, with the boot of the machine that it belongs to: together they name it for good.
#[cfg(unix)]
pub fn identify(pid: u32) -> Option<(String, Process)> {
    Some((boot()?, process(pid)?.0))
}

#[cfg(unix)]
fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

/// The processes that led to this one, as `/proc` tells; none where it doesn't.
#[cfg(unix)]
fn ancestry() -> Ancestry {
    let mut processes = Vec::new();
    let mut next = Some(std::os::unix::process::parent_id());
    while let Some(pid) = next.filter(|pid| *pid > 0 && processes.len() < GENERATIONS) {
        let Some((process, parent)) = process(pid) else {
            break;
        };
        processes.push(process);
        next = Some(parent);
    }
    Ancestry {
        boot: boot().unwrap_or_default(),
        processes,
    }
}

/// A process and its parent's id. <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>
#[cfg(unix)]
fn process(pid: u32) -> Option<(Process, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold some itself.
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let start = fields.get(19)?.parse().ok()?;
    let name = name.to_owned();
    Some((Process { pid, start, name }, parent))
}
