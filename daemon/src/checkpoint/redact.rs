//! Secrets out, before anything touches a disk, a log or a reply.
//!
//! [`Clean`] is a type, not a habit: only this module makes one, and what stores or answers takes nothing
//! else. A rule finds where a value stands by what surrounds it (its name, its flag, its header,
//! the URL it is in) or by the shape that its issuer gave it; only the value goes, and becomes
//! [`REDACTED`]. The rules all look at the text as it was given; where their finds overlap, they
//! are one value and count once. What is a reference to a secret, a placeholder for one, or
//! already redacted stays as it is, so that redacting twice changes nothing.
//!
//! The `regex` crate matches in linear time; no rule can be made to backtrack.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What stands where a secret was.
pub const REDACTED: &str = "«redacted»";

/// A value whose texts have been redacted.
#[derive(Clone, Debug, PartialEq)]
pub struct Clean<T>(T);

impl<T> Clean<T> {
    /// The value.
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// Redacts texts and counts what it took out.
#[derive(Debug, Default)]
pub struct Redactor {
    count: u64,
}

impl Redactor {
    /// How many values were taken out so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Redacts one text.
    pub fn text(&mut self, text: &str) -> String {
        let mut clean = text.to_owned();
        // What stood inside a value may come to light as another one once that is gone.
        for _ in 0..MAX_ROUNDS {
            let spans = find(&clean);
            if spans.is_empty() {
                break;
            }
            self.count += spans.len() as u64;
            clean = replace(&clean, &spans);
        }
        clean
    }

    /// Vouches that every text of `value` went through [`Redactor::text`] of this redactor; only the
    /// modules that take a request apart field by field may call it.
    pub(super) fn vouch<T>(value: T) -> Clean<T> {
        Clean(value)
    }
}

/// Each round takes something out for good, so few are needed; a text made to need more gets no more.
const MAX_ROUNDS: usize = 16;

/// A way to recognise a secret. Group `v` of the pattern is the value.
struct Rule {
    pattern: Regex,
    /// Whether the value must pass for a secret by itself, because the name that found it is also
    /// used for ordinary things (`primary_key`).
    plausible: bool,
}

/// The forms that the contract names. `(?-u:\b)` is an ASCII word boundary, so that a neighbour in
/// another script doesn't hide a name.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // A value: in quotes up to the closing one, or bare up to white space or what ends a word
    // in a shell, in JSON or in prose.
    const VALUE: &str = r#"(?:"(?P<v1>(?:[^"\\]|\\.)+)|'(?P<v2>[^'\n]+)|(?P<v3>[^\s"'`;|&<>(){}\[\],\\][^\s"'`;|&<>,\\]*))"#;
    let rule = |pattern: &str, plausible: bool| Rule {
        pattern: Regex::new(&pattern.replace("VALUE", VALUE))
            .expect("the pattern is fixed and tested"),
        plausible,
    };
    vec![
        // NAME=value, NAME: value, "NAME": "value" for *_TOKEN, *_SECRET and *_KEY. Keys in lower case are
        // also those of tables and maps, so there the value must look like one.
        rule(
            r#"(?i)[a-z0-9.]+[a-z0-9_.-]*[_-](?:token|secret|(?-i:KEY))\\?["']?[ \t]*[:=][ \t]*\\?VALUE"#,
            false,
        ),
        rule(
            r#"(?i)[a-z0-9.]+[a-z0-9_.-]*[_-]key\\?["']?[ \t]*[:=][ \t]*\\?VALUE"#,
            true,
        ),
        // The same for *PASSWORD, whatever stands before it.
        rule(
            r#"(?i)passw(?:or)?d\\?["']?[ \t]*[:=][ \t]*\\?VALUE"#,
            false,
        ),
        // Authorization: scheme value
        rule(
            r#"(?i)authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:bearer|basic|token|digest|negotiate)[ \t]+(?P<v3>[^\s"'`,;\\<>$][^\s"'`,;\\]*)"#,
            false,
        ),
        rule(
            r#"(?i)(?-u:\b)bearer[ \t]+(?P<v3>[a-z0-9._~+/=-]{16,})"#,
            true,
        ),
        // scheme://user:value@host; the value may hold @ and :, so the last @ before the host counts.
        rule(
            r#"(?i)[a-z][a-z0-9+.-]{1,30}://[^\s/@:"'`<>]*:(?P<v3>[^\s/"'`<>]+)@"#,
            false,
        ),
        // --password value, --password=value and its like.
        rule(
            r#"(?i)(?:^|[\s"'`(\[,])--?(?:password|passwd|token|api-?key|secret)(?:=|[ \t]+)VALUE"#,
            false,
        ),
        // Tokens whose issuer gave them a prefix.
        rule(
            r"(?-u:\b)(?P<v3>sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[a-z]-[A-Za-z0-9-]{10,})",
            false,
        ),
    ]
});

/// Where the secrets of `text` stand, in order and without overlaps.
fn find(text: &str) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for rule in RULES.iter() {
        // Matches may share text (one value ends where the next name begins), so the search goes
        // on right behind the value, not behind the whole match.
        let mut from = 0;
        while let Some(captures) = rule.pattern.captures_at(text, from) {
            let Some(span) = value_of(&captures) else {
                break;
            };
            from = span.end;
            let value = &text[span.clone()];
            if !is_no_secret(value) && (!rule.plausible || is_plausible(value)) {
                spans.push(span);
            }
        }
    }
    spans.sort_by_key(|span| (span.start, span.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

fn value_of(captures: &Captures<'_>) -> Option<Range<usize>> {
    ["v1", "v2", "v3"]
        .iter()
        .find_map(|name| captures.name(name))
        .map(|found| found.range())
}

fn replace(text: &str, spans: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for span in spans {
        out.push_str(&text[from..span.start]);
        out.push_str(REDACTED);
        from = span.end;
    }
    out.push_str(&text[from..]);
    out
}

/// A reference to a secret, a placeholder, or a value that is already gone.
fn is_no_secret(value: &str) -> bool {
    let inner = value.trim_matches(|c: char| matches!(c, '"' | '\'' | '\\'));
    inner.is_empty()
        || inner.contains(REDACTED)
        || inner.starts_with(['$', '<', '%', '{'])
        || inner.starts_with("process.env")
        || inner.starts_with("os.environ")
        || inner
            .chars()
            .all(|c| matches!(c, '*' | 'x' | 'X' | '.' | '…' | '-' | '_' | '«' | '»'))
        || matches!(
            inner.to_ascii_lowercase().as_str(),
            "null" | "none" | "nil" | "true" | "false" | "undefined"
        )
}

/// Long enough and mixed enough to be a secret where the name alone doesn't say so.
fn is_plausible(value: &str) -> bool {
    value.chars().count() >= 8
        && value
            .chars()
            .any(|c| c.is_ascii_digit() || c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(text: &str) -> (String, u64) {
        let mut redactor = Redactor::default();
        let clean = redactor.text(text);
        (clean, redactor.count())
    }

    /// A made-up secret, composed so that no scanner finds it in this file.
    fn secret() -> String {
        ["Zq7", "pL9w", "Xk2", "mV4t", "Rb8"].concat()
    }

    #[test]
    fn the_contracts_forms_lose_their_value_and_nothing_else() {
        let s = &secret();
        let token = &["gh", "p_", s, s].concat();
        for form in [
            "GITHUB_CLIENT_SECRET={} npm run dev",
            "API_KEY: {}",
            "{\"ACCESS_TOKEN\": \"{}\", \"a\": 1}",
            "DB_PASSWORD='{}' run",
            "curl -H \"Authorization: Bearer {}\" https://x.example",
            "postgres://app:{}@db:5432/app",
            "mycli --token {} deploy",
            "mycli --password={} deploy",
            "mycli --api-key \"{}\" deploy",
        ] {
            let (clean, count) = redact(&form.replace("{}", s));
            assert_eq!((clean, count), (form.replace("{}", REDACTED), 1), "{form}");
        }
        assert_eq!(
            redact(&format!("see {token}, ok")).0,
            format!("see {REDACTED}, ok")
        );
    }

    #[test]
    fn references_placeholders_and_lookalikes_stay() {
        for same in [
            "PASSWORD=$DB_PASSWORD run",
            "mycli --token \"$TOKEN\" deploy",
            "API_KEY=<your-api-key>",
            "PASSWORD=********",
            "primary_key=id",
            "max_tokens=4096",
            "the token = cookie bug is back",
            "mycli --token-file ~/.token deploy",
            "ssh://git@github.com/acme/app.git",
            "commit 09f3fa6d86b892cf8c857074873c10ede86bdc92",
        ] {
            assert_eq!(redact(same), (same.to_owned(), 0));
        }
    }

    #[test]
    fn adjacent_values_count_one_by_one_and_twice_changes_nothing() {
        let s = &secret();
        let (clean, count) = redact(&format!("A_TOKEN={s};B_TOKEN={s} --password {s}"));
        assert_eq!(count, 3);
        assert!(!clean.contains(s.as_str()));
        assert_eq!(redact(&clean), (clean, 0));
        // Found by fuzzing: the quotes pair otherwise once the first value is gone.
        let (clean, _) = redact("A_KEy=\"__A_KEY=\"$45F321/A_KEY=\"\\bcDu_");
        assert_eq!(redact(&clean), (clean, 0));
    }
}
