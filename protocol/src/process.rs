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
use std::sync::Arc;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::env::Env;
use crate::hello::{Build, Hello};
use crate::os;
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

/// A process, with the boot of the machine that it belongs to: together they name it for good.
pub fn identify(pid: u32) -> Option<(String, Process)> {
    Some((os::boot()?, os::Processes::now().get(pid)?.0))
}

/// The processes that led to this one, as far as the system tells.
fn ancestry() -> Ancestry {
    let known = os::Processes::now();
    let mut processes = Vec::new();
    let mut next = os::parent();
    while let Some(pid) = next.filter(|_| processes.len() < GENERATIONS) {
        let Some((process, parent)) = known.get(pid) else {
            break;
        };
        processes.push(process);
        next = parent;
    }
    Ancestry {
        boot: os::boot().unwrap_or_default(),
        processes,
    }
}

/// Returns when the process that started this one is gone: a client that was killed can't close a pipe that somebody
/// else holds open too (MCP behind `npx` and shell wrappers). For a process that is nobody's child, that is never.
pub fn parents_end() -> impl Future<Output = ()> {
    let gone = Arc::new(Notify::new());
    let told = gone.clone();
    // Asked for now: it may be gone before the thread runs.
    if let Some(parent) = os::Parent::find() {
        std::thread::spawn(move || {
            parent.wait();
            told.notify_one();
        });
    }
    async move { gone.notified().await }
}
