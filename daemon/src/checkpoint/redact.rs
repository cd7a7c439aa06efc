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

mod named;
mod rules;
mod value;

use named::boundary;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexSet};

use rules::{Check, RULES, VALUE};

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

    /// Redacts one text; a very long one part by part, so that its length costs no more than in proportion.
    pub fn text(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let limit = boundary(rest, MAX_PART);
            let end = match rest[..limit].rfind(char::is_whitespace) {
                Some(space @ 1..) if limit < rest.len() => space,
                _ => limit,
            };
            clean.push_str(&self.part(&rest[..end]));
            rest = &rest[end..];
        }
        clean
    }

    fn part(&mut self, text: &str) -> String {
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

/// Far more than any field keeps, in bytes.
const MAX_PART: usize = 128 * 1024;

/// Each round takes something out for good, so few are needed; a text made to need more gets no more.
const MAX_ROUNDS: usize = 16;

/// The rules, ready to look: one pass tells which of them can find anything.
struct Rules {
    candidates: RegexSet,
    patterns: Vec<Regex>,
}

static COMPILED: LazyLock<Rules> = LazyLock::new(|| {
    let patterns: Vec<String> = RULES
        .iter()
        .map(|rule| rule.pattern.replace("{VALUE}", VALUE))
        .collect();
    let fixed = "the patterns are fixed and tested";
    Rules {
        candidates: RegexSet::new(&patterns).expect(fixed),
        patterns: patterns
            .iter()
            .map(|pattern| Regex::new(pattern).expect(fixed))
            .collect(),
    }
});

/// Where the secrets of `text` stand, in order and without overlaps.
fn find(text: &str) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let joined = join(text);
    for n in &COMPILED.candidates.matches(&joined) {
        find_by_rule(&joined, &COMPILED.patterns[n], RULES[n].check, &mut spans);
    }
    named::find(text, &mut spans);
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

/// Where a shell goes on in the next line, and what a terminal takes for colour.
static SEAMS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[ \t][\\`^]\r?\n|\x1b\[[0-9;]*[A-Za-z]").expect("the pattern is fixed and tested")
});

/// The text as one line of words: spaces stand for its seams, byte for byte, so that a place in it is one in the text.
fn join(text: &str) -> Cow<'_, str> {
    SEAMS.replace_all(text, |seam: &Captures<'_>| " ".repeat(seam[0].len()))
}

/// The cookies whose names say that they open a session.
static COOKIE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)(?:^|;[ \t]*)[a-z0-9_.-]*(?:sess(?:ion)?(?:[._-]?id)?|sid|token|auth|jwt|li_at)[a-z0-9_.-]*=(?P<v3>[^\s"';]+)"#,
    )
    .expect("the pattern is fixed and tested")
});

fn find_by_rule(text: &str, pattern: &Regex, check: Check, spans: &mut Vec<Range<usize>>) {
    // Matches may share text (one value ends where the next name begins), so the search goes
    // on right behind the value, not behind the whole match.
    let mut from = 0;
    while let Some(captures) = pattern.captures_at(text, from) {
        let Some(span) = value_of(&captures) else {
            break;
        };
        from = span.end;
        let value = &text[span.clone()];
        if check == Check::Cookies {
            for cookie in COOKIE.captures_iter(value) {
                let inner = cookie.name("v3").expect("every match has one").range();
                let value = &value[inner.clone()];
                if !value::is_no_secret(value) && value::is_plausible(value) {
                    spans.push(span.start + inner.start..span.start + inner.end);
                }
            }
            continue;
        }
        let holds = check == Check::Block && !value.contains(REDACTED)
            || !value::is_no_secret(value)
                && match check {
                    Check::Any | Check::Block | Check::Cookies => true,
                    Check::Plausible => value::is_plausible(value) && !value::is_path(value),
                    Check::Token => is_token(text, &span),
                };
        if holds {
            spans.push(span);
        }
    }
}

/// Whether an issuer's shape stands by itself and was generated.
fn is_token(text: &str, span: &Range<usize>) -> bool {
    let before = &text[..span.start];
    let value = &text[span.clone()];
    let body = value.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    (!before.ends_with(|c: char| c.is_ascii_alphanumeric()) || ends_in_code(before))
        && value.contains(|c: char| c.is_ascii_digit())
        && !value::is_placeholder(body.trim_start_matches(['-', '_', '.']))
}

/// Whether a character stands there in another spelling: `%20` as in a URL, `\\n` as in a string.
fn ends_in_code(before: &str) -> bool {
    matches!(before.as_bytes(), [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
        || matches!(before.as_bytes(), [.., b'\\', b'n' | b'r' | b't'])
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

/// Makes the rules ready, which takes some milliseconds once.
pub fn prepare() {
    LazyLock::force(&COMPILED);
    LazyLock::force(&SEAMS);
    LazyLock::force(&COOKIE);
    named::prepare();
}

#[cfg(test)]
mod tests;
