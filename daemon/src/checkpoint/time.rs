//! Instants in UTC with milliseconds, the only precision a checkpoint stores.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The instant this many milliseconds after 1970; the nearest one that can be written.
    pub fn from_millisecond(millisecond: i64) -> Timestamp {
        let nearest = if millisecond < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        };
        Timestamp(jiff::Timestamp::from_millisecond(millisecond).unwrap_or(nearest))
    }

    /// Milliseconds since 1970.
    pub fn as_millisecond(self) -> i64 {
        self.0.as_millisecond()
    }

    /// As the brief shows it: `2026-10-08 02:23:55 UTC`.
    pub fn to_seconds(self) -> String {
        self.0.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let instant: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Timestamp::from_millisecond(instant.as_millisecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_written_in_utc_with_milliseconds() {
        let at = Timestamp::from_millisecond(1_791_426_235_477);
        assert_eq!(at.to_string(), "2026-10-08T02:23:55.477Z");
        assert_eq!(at.to_seconds(), "2026-10-08 02:23:55 UTC");
        let whole = Timestamp::from_millisecond(1_791_426_235_000);
        assert_eq!(whole.to_string(), "2026-10-08T02:23:55.000Z");
    }

    #[test]
    fn other_spellings_of_an_instant_are_read() {
        let read = |text: &str| serde_json::from_value::<Timestamp>(text.into());
        let written = read("2026-10-08T04:23:55.4779+02:00").unwrap();
        assert_eq!(written.to_string(), "2026-10-08T02:23:55.477Z");
        assert!(read("yesterday").is_err());
    }
}
