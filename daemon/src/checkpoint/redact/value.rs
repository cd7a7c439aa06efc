//! What a value is by itself: a reference to a secret, a placeholder for one, code, or something that was generated.

use super::REDACTED;

/// As much of a value as is looked at, in bytes: enough to tell, and no more of a text that is one long value
/// behind another.
const LOOKED_AT: usize = 256;

pub(super) fn head(value: &str) -> &str {
    let end = (0..=LOOKED_AT.min(value.len()))
        .rev()
        .find(|at| value.is_char_boundary(*at));
    &value[..end.unwrap_or(0)]
}

/// A reference to a secret that is kept elsewhere, a placeholder, or a value that is already gone.
pub(super) fn is_no_secret(value: &str) -> bool {
    let value = head(value);
    let inner = value.trim_matches(|c: char| matches!(c, '"' | '\'' | '`' | '\\' | ' '));
    let lower = inner.to_ascii_lowercase();
    inner.is_empty()
        || inner.contains(REDACTED)
        || is_reference(inner)
        || is_placeholder(inner)
        || matches!(
            &*lower,
            "null"
                | "none"
                | "nil"
                | "true"
                | "false"
                | "undefined"
                | "yes"
                | "no"
                | "on"
                | "off"
                | "x-oauth-basic"
                | "x-token-auth"
        )
}

/// A variable of a shell, of `cmd`, PowerShell, a template or a program.
fn is_reference(value: &str) -> bool {
    let rest = value.strip_prefix('$');
    let is_variable = rest.is_some_and(|rest| {
        rest.starts_with(['{', '(', '@', '*', '_', '$'])
            || rest.starts_with(|c: char| c.is_ascii_alphabetic())
            || (rest.len() <= 2 && rest.chars().all(|c| c.is_ascii_digit()))
    });
    const PROGRAMS: [&str; 9] = [
        "process.env",
        "os.environ",
        "os.getenv",
        "import.meta.env",
        "ENV[",
        "this.",
        "self.",
        "secrets.",
        "arn:aws:",
    ];
    // What a secret may begin with as well.
    const WEAK: [&str; 6] = ["@", "config.", "var.", "local.", "settings.", "env."];
    const MARKS: [&str; 12] = [
        "#{", "ENC[", "{{", "<%", "%{", "!Ref", "@", "vault:", "op://", "ssm:", "ref+", "keyring:",
    ];
    is_variable
        || (value.starts_with('%') && value.len() > 2 && value.ends_with('%'))
        || (value.len() > 2
            && value.starts_with('!')
            && value.ends_with('!')
            && value[1..value.len() - 1].chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        || (value.starts_with('{') && value.ends_with('}') && !has_generated_run(value))
        // A pattern that matches secrets.
        || (value.contains(".*") && !has_generated_run(value))
        || value.starts_with("\\S")
        || matches!(value, "%s" | "%d" | "%v" | "?" | "-" | "~")
        || PROGRAMS.iter().any(|start| value.starts_with(start))
        || MARKS.iter().any(|start| value.starts_with(start))
        || (WEAK.iter().any(|start| value.starts_with(start)) && !has_generated_run(value))
        || (value.starts_with(':') && value[1..].chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// Stands where a secret would.
pub(super) fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let mut letters = value.chars().filter(|c| c.is_alphanumeric());
    let first = letters.next();
    let is_one_letter =
        first.is_none_or(|first| matches!(first, 'x' | 'X' | '0') && letters.all(|c| c == first));
    const WORDS: [&str; 10] = [
        "your",
        "example",
        "placeholder",
        "changeme",
        "change_me",
        "change-me",
        "replace_me",
        "replaceme",
        "dummy",
        "redacted",
    ];
    // ghp_xxxx, T00000000/B00000000/XXXX
    let tail = value.rsplit(['_', '-', '/']).next().unwrap_or_default();
    let is_crossed_out = tail.len() >= 4 && tail.chars().all(|c| matches!(c, 'x' | 'X'));
    is_one_letter
        || is_crossed_out
        || lower.starts_with("aws4-hmac")
        || (value.starts_with('<') && !value.contains(char::is_whitespace))
        || (value.starts_with('<') && value.ends_with('>'))
        || (value.starts_with('[') && value.ends_with(']'))
        || value.ends_with("...")
        || value.ends_with('…')
        || (value.contains("****") && !has_generated_run(value))
        || lower == "todo"
        || (!has_generated_run(value) && WORDS.iter().any(|word| lower.contains(word)))
}

/// A path of a file: that it is secret doesn't make the path so.
pub(super) fn is_path(value: &str) -> bool {
    let bytes = value.as_bytes();
    let starts = value.starts_with("~/")
        || value.starts_with("./")
        || value.starts_with("../")
        || (value.starts_with('/')
            && value[1..].starts_with(|c: char| c.is_ascii_lowercase())
            && value[1..].contains('/'))
        || matches!(bytes, [drive, b':', b'\\' | b'/', ..] if drive.is_ascii_alphabetic());
    starts && value.len() < 200 && !has_generated_run(value)
}

/// Whether letters and digits are mixed as nobody writes words.
pub(super) fn is_plausible(value: &str) -> bool {
    let value = head(value);
    let count = value.chars().count();
    let has = |test: fn(&char) -> bool| value.chars().any(|c| test(&c));
    let digit = has(char::is_ascii_digit);
    let letter = has(|c| c.is_alphabetic());
    // Two at its end are base64's padding, one a name's.
    let special = value
        .trim_end_matches('=')
        .contains(|c| "!@#$%^&*+=~?".contains(c));
    let lower = has(|c| c.is_lowercase());
    let upper = has(|c| c.is_uppercase());
    let spaces = value.trim().contains(char::is_whitespace);
    if spaces {
        return digit && count <= 40 && value.split_whitespace().count() <= 4;
    }
    (digit && letter && count >= 6)
        || (special && letter && count >= 6 && !value.ends_with(['!', '?']))
        || (lower && upper && count >= 8 && has_generated_run(value))
        || (digit && !letter && count >= 6)
}

/// Whether letters, their case and digits follow on each other within a word as in no name: three kinds in turn, or
/// more consonants at a stretch than can be spoken.
fn has_generated_run(value: &str) -> bool {
    let kinds = |c: char| match c {
        'a'..='z' => 1,
        'A'..='Z' => 2,
        '0'..='9' => 3,
        _ => 0,
    };
    let (mut changes, mut consonants, mut most) = (0, 0, 0);
    let (mut last, mut before) = (0, 0);
    for c in value.chars() {
        let kind = kinds(c);
        let is_capitalized = last == 2 && kind == 1 && before != 2;
        if kind != last && kind != 0 && last != 0 && !is_capitalized {
            changes += 1;
        }
        (before, last) = (last, kind);
        let is_consonant = c.is_ascii_alphabetic() && !"aeiouyAEIOUY".contains(c);
        consonants = if is_consonant { consonants + 1 } else { 0 };
        most = most.max(consonants);
    }
    // Names in camel case have humps, but no digits between them.
    let enough = if value.contains(|c: char| c.is_ascii_digit()) {
        2
    } else {
        3
    };
    changes >= enough || (most >= 5 && value.len() >= 8)
}

/// Whether it may be code: an identifier that is looked up, called, or belongs to something.
pub(super) fn is_code(value: &str, next: Option<char>) -> bool {
    let value = head(value);
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_called = matches!(next, Some('(' | '['));
    let parts = || value.split(['.', ':']).filter(|part| !part.is_empty());
    // A name of more than one part; with digits in it, it is rather a secret that has a dot.
    let looks_like_names = parts()
        .all(|part| is_word(part) && !part.contains(|c: char| c.is_ascii_digit()))
        && !has_generated_run(value);
    if has_generated_run(value) {
        return false;
    }
    value.starts_with('&')
        || (is_called && parts().all(is_word))
        || (looks_like_names && parts().count() > 1)
        || value.contains("=>")
        || value.contains("==") && !value.ends_with("==")
}
