//! The names of checkpoint files under a root.
//!
//! ```text
//! <root>/.claude-checkpoint            the shared, legacy file     .claude-checkpoint.prev
//! <root>/.claude-checkpoints/          one directory, mode 0700    <id>.json   <id>.json.prev
//! ```
//! A file that was found damaged is kept aside as `<name>.broken`. The directory also holds a
//! `.gitignore` for itself, a lock, and for moments a writer's temporary file; none of their names
//! ends with `.json`.

use crate::ids::{Selector, SessionId};

/// The directory of the sessions' checkpoints.
pub const DIRECTORY: &str = ".claude-checkpoints";
/// The shared file.
pub const LEGACY_FILE: &str = ".claude-checkpoint";
/// The lock that every writer of the root takes, in [`DIRECTORY`].
pub const LOCK: &str = ".lock";
/// How temporary files begin.
pub const TEMPORARY: &str = ".claude-checkpoint.tmp-";

/// The name of a selector's file: in [`DIRECTORY`] for a session, in the root for legacy.
pub fn main(selector: &Selector) -> String {
    match selector {
        Selector::Session(id) => format!("{id}.json"),
        Selector::Legacy => LEGACY_FILE.to_owned(),
    }
}

/// The name of a file's backup.
pub fn backup(main: &str) -> String {
    format!("{main}.prev")
}

/// The name under which a damaged file is kept.
pub fn broken(main: &str) -> String {
    format!("{main}.broken")
}

/// The session whose main file or backup has this name in [`DIRECTORY`].
pub fn session_of(name: &str) -> Option<SessionId> {
    let main = name.strip_suffix(".prev").unwrap_or(name);
    SessionId::new(main.strip_suffix(".json")?).ok()
}

/// Whether a component of a path is one of ours, which no checkpoint records.
pub fn is_ours(component: &str) -> bool {
    component == DIRECTORY
        || component == LEGACY_FILE
        || component
            .strip_prefix(LEGACY_FILE)
            .is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_and_selectors_belong_together() {
        let id = SessionId::new("a-1").unwrap();
        assert_eq!(main(&Selector::Session(id.clone())), "a-1.json");
        assert_eq!(session_of("a-1.json"), Some(id.clone()));
        assert_eq!(session_of("a-1.json.prev"), Some(id));
        for other in [
            "a-1.json.broken",
            ".lock",
            ".gitignore",
            "a b.json",
            "legacy.json",
        ] {
            assert_eq!(session_of(other), None, "{other}");
        }
    }

    #[test]
    fn our_names_are_known_wherever_they_stand() {
        for ours in [
            ".claude-checkpoints",
            ".claude-checkpoint",
            ".claude-checkpoint.prev",
        ] {
            assert!(is_ours(ours));
        }
        for other in [".claude", ".claude-checkpoints-old", "claude-checkpoint"] {
            assert!(!is_ours(other));
        }
    }
}
