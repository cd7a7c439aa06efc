//! End to end, through the real binaries: one promise to the user a file.

#![expect(clippy::unwrap_used, reason = "a test that lacks what it needs fails")]

#[path = "../support/mod.rs"]
mod support;

/// Whether the clients are to do without a daemon.
pub(crate) const EMBEDDED: bool = false;

mod commands; // what a person can ask of the daemon
mod drift; // what changed since, and what could not be told
mod durability; // nothing lost
mod files; // the file and what stands around it
mod hooks; // what Claude Code's hooks say and do
mod hostile; // a directory that came from somebody else
mod input; // forgiving input, and refusals that teach
mod lifecycle; // the daemon killed, frozen, replaced, lost; nobody there, or somebody else
mod live; // the live picture is always what git would say
mod live_git; // what git itself does to a live work tree
mod main_job; // save, edit, load: the brief names what changed
mod metadata; // one version, wherever it is published
mod places; // where the socket and the state are, and what may stand there instead
mod protocol; // both protocol eras, and lines that are no requests
mod roots; // which directory is the project
mod skew; // older and newer builds together
mod status; // what git lists, one letter a path
mod tools_list; // what clients see of the tools
mod whose; // whose checkpoint a call is about
