//! Making foreign text inert, shortening it, and telling ages.
//!
//! What a checkpoint stores was written by a model, or by whoever put the file there. In a brief or a
//! list it must read as text and never act: it can't begin a heading or a list entry, close a code
//! span, hide characters or move a terminal's cursor. So a field becomes one line, without control
//! or invisible characters, and what would be Markdown structure at its start is escaped.

use super::time::Timestamp;

/// `text` on one line: line breaks and tabs become spaces, other control characters, terminal
/// escapes and invisible or direction-changing characters go, runs of spaces shrink to one.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let replacement = match character {
            '\u{1b}' | '\u{9b}' => {
                skip_escape_sequence(character, &mut characters);
                continue;
            }
            '\u{200d}' | '\u{fe0f}' => Some(character), // parts of emoji
            c if is_line_break_or_tab(c) => Some(' '),
            c if is_invisible(c) => None,
            c => Some(c),
        };
        match replacement {
            Some(' ') if line.is_empty() || line.ends_with(' ') => {}
            Some(c) => line.push(c),
            None => {}
        }
    }
    line.truncate(line.trim_end().len());
    line
}

fn is_line_break_or_tab(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// Control characters, zero-width characters, direction marks and overrides, tags, soft hyphens.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Consumes the rest of an ECMA-48 escape sequence, so that no readable remainder of it stays.
fn skip_escape_sequence(first: char, rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let introducer = match first {
        '\u{9b}' => '[',
        _ => match rest.next_if(|c| c.is_ascii_graphic()) {
            Some(c) => c,
            None => return,
        },
    };
    match introducer {
        '[' => {
            while rest.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
            rest.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
        }
        // Strings (OSC, DCS, SOS, PM, APC) end with BEL or ST; one without an end takes no more
        // than its line.
        ']' | 'P' | 'X' | '^' | '_' => {
            while rest
                .next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\u{9c}' | '\n'))
                .is_some()
            {}
        }
        _ => {}
    }
}

/// A field as a line of running text in Markdown: inert at its start and inside.
pub fn paragraph(text: &str) -> String {
    let line = inert(&one_line(text));
    match structure_at_start(&line) {
        Some(at) => format!("{}\\{}", &line[..at], &line[at..]),
        None => line,
    }
}

/// Where a backslash must stand so that the line begins no heading, list, quote, rule, table or fence.
fn structure_at_start(line: &str) -> Option<usize> {
    let first = line.chars().next()?;
    if matches!(
        first,
        '#' | '>' | '-' | '+' | '*' | '=' | '_' | '~' | '`' | '|' | '['
    ) {
        return Some(0);
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let after = line[digits..].chars().next();
    (digits > 0 && matches!(after, Some('.' | ')'))).then_some(digits)
}

/// A line without HTML: a backslash before what would begin a comment or the tag of an HTML element.
/// Type parameters and comparisons (`Vec<String>`, `a < b`) are no elements and stay readable.
pub fn inert(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if begins_html(&from[1..]) {
            out.push('\\');
        }
        out.push('<');
        rest = &from[1..];
    }
    out.push_str(rest);
    out
}

/// Whether what follows a `<` makes it a comment, a declaration or the tag of an element that shows,
/// hides or structures something.
fn begins_html(after: &str) -> bool {
    if after.starts_with(['!', '?']) {
        return true;
    }
    let name: String = after
        .trim_start_matches('/')
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .flat_map(char::to_lowercase)
        .collect();
    ELEMENTS.contains(&name.as_str())
}

const ELEMENTS: [&str; 62] = [
    "a",
    "article",
    "aside",
    "audio",
    "base",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "center",
    "code",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "em",
    "embed",
    "footer",
    "form",
    "frame",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "iframe",
    "img",
    "input",
    "li",
    "link",
    "main",
    "meta",
    "nav",
    "object",
    "ol",
    "p",
    "pre",
    "script",
    "section",
    "select",
    "span",
    "strong",
    "style",
    "summary",
    "svg",
    "table",
    "tbody",
    "td",
    "textarea",
    "th",
    "title",
    "tr",
    "ul",
    "video",
];

/// A field as a Markdown code span, which nothing inside it can close.
/// <https://spec.commonmark.org/0.31.2/#code-spans>
pub fn code(text: &str) -> String {
    let line = one_line(text);
    let mut longest = 0;
    let mut run = 0;
    for c in line.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    if longest == 0 {
        format!("{fence}{line}{fence}")
    } else {
        format!("{fence} {line} {fence}")
    }
}

/// A stored path as running text: the path itself where it is ordinary, else a code span.
pub fn path(path: &str) -> String {
    let ordinary = path.chars().all(|c| {
        c.is_alphanumeric()
            || matches!(
                c,
                '/' | '.'
                    | '_'
                    | '-'
                    | '+'
                    | '@'
                    | ','
                    | ' '
                    | '('
                    | ')'
                    | '['
                    | ']'
                    | '='
                    | '#'
                    | '~'
            )
    }) && path.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_'))
        && structure_at_start(path).is_none()
        && one_line(path) == path;
    if ordinary {
        path.to_owned()
    } else {
        code(path)
    }
}

/// `text` cut to `most` characters, the last of which then says that something is missing.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// How long before `now` it was: `just now`, `42s ago`, `5m ago`, `2h ago`, `3d ago`. An instant in the future,
/// after a step of the clock, is just now.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_millisecond() - then.as_millisecond()) / 1000;
    match seconds {
        ..1 => "just now".to_owned(),
        1..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_keeps_ordinary_text_and_drops_what_acts() {
        for same in ["fn main() { a < b }", "日本語 ünï 👨‍👩‍👧 ❤️", "C:\\x `y` *z*"]
        {
            assert_eq!(one_line(same), same);
        }
        for (text, line) in [
            ("a\nb\r\nc\u{2028}d\te", "a b c d e"),
            ("red\u{1b}[31m!\u{1b}[0m", "red!"),
            ("title\u{1b}]0;x\u{7}!", "title!"),
            ("\u{9b}2Jx", "x"),
            ("a\u{202e}b\u{200b}c\u{0}d", "abcd"),
            ("  a   b  ", "a b"),
        ] {
            assert_eq!(one_line(text), line, "{text:?}");
        }
    }

    #[test]
    fn a_paragraph_begins_no_structure() {
        for (text, out) in [
            ("# Goal", "\\# Goal"),
            ("- [x] done", "\\- [x] done"),
            ("1. first", "1\\. first"),
            ("> quote", "\\> quote"),
            ("```", "\\```"),
            ("x\n## y", "x ## y"),
            (
                "<h2>Goal</h2> Vec<String> c < d",
                "\\<h2>Goal\\</h2> Vec<String> c < d",
            ),
            ("x <!-- y", "x \\<!-- y"),
            ("2026 plan", "2026 plan"),
        ] {
            assert_eq!(paragraph(text), out);
        }
    }

    #[test]
    fn nothing_closes_a_code_span() {
        assert_eq!(code("ls -l"), "`ls -l`");
        assert_eq!(code("a `b` c"), "`` a `b` c ``");
        assert_eq!(code("```\nx"), "```` ``` x ````");
    }

    #[test]
    fn ages_are_never_negative() {
        let at = Timestamp::from_millisecond;
        for (seconds, text) in [
            (-5, "just now"),
            (0, "just now"),
            (59, "59s ago"),
            (60, "1m ago"),
            (7200, "2h ago"),
            (90_000, "1d ago"),
            (864_000, "10d ago"),
        ] {
            assert_eq!(age(at(0), at(seconds * 1000)), text);
        }
    }
}
