//! A checkpoint as bytes.
//!
//! The file is JSON in UTF-8, two spaces of indentation, the keys in the order of [`super::model`], no
//! final newline, at most 64 KiB. `version` is read before anything else: 1 is ours, a greater one is
//! refused by name and its file left alone, a lesser one is migrated.
//! A reader bounds what it reads ([`MAX_READ`]) before parsing, and serde_json bounds nesting.

use serde_json::Value;

use super::input::quote;
use super::model::{Checkpoint, VERSION};

/// The most bytes of a file that are read: hand-edited files may be larger than what we write.
pub const MAX_READ: u64 = 1024 * 1024;

/// Why bytes are no checkpoint of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Nothing in the file.
    #[error("it is empty")]
    Empty,
    /// More than [`MAX_READ`].
    #[error("it is larger than {} KiB", MAX_READ / 1024)]
    TooLarge,
    /// Not JSON, or JSON of another shape.
    #[error("it is damaged ({0})")]
    Damaged(String),
    /// No `version`, or one that never was.
    #[error("it has no valid `version`")]
    NoVersion,
    /// From a later release.
    #[error(
        "it has format version {0}, newer than the version {VERSION} that this release knows: upgrade session-checkpoint"
    )]
    Newer(u64),
}

impl FormatError {
    /// Whether the file is sound and only this release too old for it.
    pub fn is_newer(&self) -> bool {
        matches!(self, FormatError::Newer(_))
    }
}

/// Reads a checkpoint.
pub fn parse(bytes: &[u8]) -> Result<Checkpoint, FormatError> {
    if bytes.len() as u64 > MAX_READ {
        return Err(FormatError::TooLarge);
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(FormatError::Empty);
    }
    // Editors on Windows may put a byte order mark in front.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let damaged = |error: serde_json::Error| FormatError::Damaged(quote(&error.to_string()));
    let value: Value = serde_json::from_slice(bytes).map_err(damaged)?;
    let version = value
        .get("version")
        .and_then(Value::as_u64)
        .filter(|version| *version > 0)
        .ok_or(FormatError::NoVersion)?;
    if version > VERSION {
        return Err(FormatError::Newer(version));
    }
    serde_json::from_value(migrate(value, version)).map_err(damaged)
}

/// Brings a file of an older `version` to the current shape. Version 1 is the first, so there is
/// nothing to bring yet; the next format adds its step here.
fn migrate(value: Value, _version: u64) -> Value {
    value
}

/// Writes a checkpoint.
pub fn serialize(checkpoint: &Checkpoint) -> String {
    serde_json::to_string_pretty(checkpoint).expect("a checkpoint has only string keys")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A file of format version 1, read forever.
    const V1: &str = include_str!("../../tests/golden/v1.json");

    #[test]
    fn a_file_of_version_1_comes_out_byte_for_byte_as_it_went_in() {
        assert_eq!(V1.len(), 2202);
        let checkpoint = parse(V1.as_bytes()).unwrap();
        assert_eq!(serialize(&checkpoint), V1);
    }

    #[test]
    fn a_hand_edited_file_is_read() {
        let mut value: Value = serde_json::from_str(V1).unwrap();
        let map = value.as_object_mut().unwrap();
        map.sort_keys();
        for missing in [
            "id",
            "generator",
            "project",
            "summary",
            "decisions",
            "meta",
            "git",
        ] {
            map.remove(missing);
        }
        let edited = format!("\u{feff}  {value}\n\n");
        let checkpoint = parse(edited.as_bytes()).unwrap();
        assert_eq!(checkpoint.modified_files.len(), 3);
        assert_eq!(checkpoint.git, None);
    }

    #[test]
    fn unknown_keys_are_kept_wherever_they_stand() {
        let mut value: Value = serde_json::from_str(V1).unwrap();
        value["x"] = json!({"a": [1]});
        for pointer in [
            "/generator",
            "/project",
            "/git",
            "/goal",
            "/goal/tasks/0",
            "/modifiedFiles/0",
            "/recentCommands/0",
            "/meta",
        ] {
            value.pointer_mut(pointer).unwrap()["x"] = json!(pointer);
        }
        let checkpoint = parse(value.to_string().as_bytes()).unwrap();
        let back: Value = serde_json::from_str(&serialize(&checkpoint)).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn what_is_no_checkpoint_is_refused_by_name() {
        let deep = "[".repeat(100_000);
        let large = " ".repeat(MAX_READ as usize + 1);
        for (bytes, reason) in [
            (&b""[..], "empty"),
            (b" \n ", "empty"),
            (b"{\"version\": 1", "damaged"),
            (&[0; 2202], "damaged"),
            (b"{\"version\": 1, \"goal\": \"\xff\"}", "damaged"),
            (deep.as_bytes(), "damaged"),
            (large.as_bytes(), "larger than"),
            (b"{}", "version"),
            (b"{\"version\": 0}", "version"),
            (b"{\"version\": \"1\"}", "version"),
            (b"{\"version\": 1}", "damaged"),
            (b"{\"version\": 2}", "format version 2, newer than"),
        ] {
            let error = parse(bytes).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(parse(b"{\"version\": 2}").unwrap_err().is_newer());
    }
}
