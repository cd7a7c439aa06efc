//! This process, as a hello describes it: where it runs, and which processes led to it.
//!
//! Shim and embedded daemon both stand where the client spawned them and say the same of it, so this
//! one look at the system is shared.
#![expect(
    clippy::disallowed_methods,
    reason = "what both sides ask of the system is asked here, once"
)]

use uuid::Uuid;

use crate::VERSION;
use crate::env::Env;
use crate::hello::{Hello, PROTOCOL};
use crate::word::{Ancestry, Process};

/// Far more than any client, wrapper and shell stack up.
const GENERATIONS: usize = 24;

/// The hello of this process.
pub fn hello(connection: Uuid, env: &Env) -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        connection,
        pid: std::process::id(),
        cwd: std::env::current_dir()
            .ok()
            .map(|cwd| cwd.as_os_str().into()),
        variables: env.for_daemon(),
        ancestry: ancestry(),
    }
}

/// The processes that led to this one, as `/proc` tells; none where it doesn't.
#[cfg(unix)]
fn ancestry() -> Ancestry {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
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
        boot: boot.trim().to_owned(),
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
