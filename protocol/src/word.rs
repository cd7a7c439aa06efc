//! The hook's word: which session a client's process is in.
//!
//! Claude Code's variable goes stale (after an in-session `/resume`), its hooks always know. So the
//! SessionStart hook writes a small file under the state directory, named after the client's
//! process: boot id, process id and start time, so that a reused process id means nothing. A shim sends its
//! ancestors with the hello; whoever serves its call looks for an entry of the nearest one at that
//! moment, so a restart changes nothing.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;

/// The directory of the entries, in the state directory.
pub const DIRECTORY: &str = "sessions";

/// The processes that led to a shim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestry {
    /// Names this boot of the machine.
    pub boot: String,
    /// The parent first.
    pub processes: Vec<Process>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it started, in the system's own unit; only compared.
    pub start: u64,
    /// Its program's name.
    pub name: String,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The session that the client's process is in.
    pub session: SessionId,
}

impl Ancestry {
    /// The names of the entries that may speak for this shim, nearest first. The walk ends at the first client:
    /// without an entry of its own, none of a client around it counts.
    pub fn candidates(&self) -> Vec<String> {
        let mut names = Vec::new();
        for process in &self.processes {
            names.push(entry_file(&self.boot, process.pid, process.start));
            if process.is_client() {
                break;
            }
        }
        names
    }
}

impl Process {
    /// Whether it is a Claude Code.
    fn is_client(&self) -> bool {
        self.name == "claude" || self.name == "claude.exe"
    }
}

/// The name of a process's entry.
pub fn entry_file(boot: &str, pid: u32, start: u64) -> String {
    let boot: String = boot.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{boot}-{pid}-{start}.json")
}

/// The process that an entry of this name is about.
pub fn pid_of(name: &str) -> Option<u32> {
    name.strip_suffix(".json")?.split('-').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_ends_at_the_nearest_client() {
        let process = |pid, name: &str| Process {
            pid,
            start: 7,
            name: name.to_owned(),
        };
        let ancestry = Ancestry {
            boot: "a-b/c".to_owned(),
            processes: vec![process(3, "sh"), process(2, "claude"), process(1, "claude")],
        };
        assert_eq!(ancestry.candidates(), ["abc-3-7.json", "abc-2-7.json"]);
    }
}
