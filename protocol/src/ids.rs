//! Session ids and checkpoint selectors.
//!
//! A session id becomes a file name (`<id>.json`), so the rule is strict: what it admits can't
//! leave the directory, can't look like an option and names no device on Windows. Ids arrive from
//! arguments, `_meta`, variables and hook input; all of them pass through [`SessionId::new`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// The word that selects the shared `.claude-checkpoint` file.
pub const LEGACY: &str = "legacy";

/// The rule of [`SessionId`], as error messages quote it.
pub const SESSION_ID_RULE: &str = "a session id is 1 to 128 letters, digits, `_` or `-`, doesn't \
     begin with `-`, and is neither `legacy` nor a Windows device name";

/// A valid session id: `[A-Za-z0-9_-]{1,128}`, no leading `-`, not `legacy`, no Windows device name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

/// The text is no session id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{SESSION_ID_RULE}")]
pub struct InvalidSessionId;

impl SessionId {
    /// Checks `text` against the rule.
    pub fn new(text: &str) -> Result<SessionId, InvalidSessionId> {
        let characters = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !characters
            || text.is_empty()
            || text.len() > 128
            || text.starts_with('-')
            || text.eq_ignore_ascii_case(LEGACY)
            || is_windows_device(text)
        {
            return Err(InvalidSessionId);
        }
        Ok(SessionId(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names that Windows reserves in every directory, whatever the extension.
/// <https://learn.microsoft.com/windows/win32/fileio/naming-a-file>
fn is_windows_device(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    match upper.as_str() {
        "CON" | "PRN" | "AUX" | "NUL" => true,
        _ => {
            let numbered = upper
                .strip_prefix("COM")
                .or_else(|| upper.strip_prefix("LPT"));
            matches!(numbered.map(str::as_bytes), Some([b'0'..=b'9']))
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        SessionId::new(&text).map_err(serde::de::Error::custom)
    }
}

/// Names one checkpoint of a project: a session's own file, or the shared legacy file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// `.claude-checkpoints/<id>.json`
    Session(SessionId),
    /// `.claude-checkpoint`
    Legacy,
}

impl FromStr for Selector {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<Selector, InvalidSessionId> {
        if text == LEGACY {
            Ok(Selector::Legacy)
        } else {
            SessionId::new(text).map(Selector::Session)
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Session(id) => id.fmt(f),
            Selector::Legacy => f.write_str(LEGACY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_follows_the_rule() {
        let longest = "x".repeat(128);
        for good in [
            "a",
            "_",
            "0-1",
            "8ce2c093-d512-42c2-a4d8-aa98280b55df",
            "COM",
            "com10",
            "console",
            longest.as_str(),
        ] {
            assert!(SessionId::new(good).is_ok(), "{good}");
        }
        let too_long = "x".repeat(129);
        for bad in [
            "",
            "-a",
            "legacy",
            "LEGACY",
            "a/b",
            "a\\b",
            "../x",
            "a.b",
            "a b",
            "é",
            "con",
            "NUL",
            "com1",
            "LPT9",
            "a\n",
            "..",
            too_long.as_str(),
        ] {
            assert!(SessionId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_selector_is_a_session_id_or_the_word_legacy() {
        assert_eq!("legacy".parse(), Ok(Selector::Legacy));
        assert_eq!(
            "abc".parse::<Selector>().unwrap().to_string(),
            "abc".to_owned()
        );
        assert!("Legacy".parse::<Selector>().is_err());
        assert!("../x".parse::<Selector>().is_err());
    }
}
