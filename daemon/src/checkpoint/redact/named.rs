//! Values that stand behind a name: assignments, flags, headers, JSON, YAML, TOML, properties, connection strings.
//!
//! One pattern finds every pair of a name and a value, whatever the language; what the name says, and whether the
//! value can be one, decides. The name's last words count: `API_KEY` names a secret, `API_KEY_FILE` a file.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::value::{head, is_code, is_no_secret, is_path, is_plausible};

/// What a name says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A secret, whatever it looks like.
    Secret,
    /// A secret, if it looks like one.
    Maybe,
    /// Something else.
    Other,
}

/// Words that name a secret when they come last.
const SECRETS: [&str; 30] = [
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "secret",
    "token",
    "apikey",
    "authkey",
    "authtoken",
    "privatekey",
    "secretkey",
    "accesskey",
    "accesstoken",
    "refreshtoken",
    "sshpass",
    "pgpassword",
    "pwd",
    "psk",
    "kennwort",
    "senha",
    "wachtwoord",
    "salasana",
    "contrasena",
    "dbpass",
    "rootpw",
    "npmauthtoken",
    "apitoken",
    "apisecret",
    "clientsecret",
    "mypassword",
];
/// Words that may, among other things.
const MAYBE: [&str; 12] = [
    "pw",
    "passcode",
    "otp",
    "pass",
    "auth",
    "credential",
    "credentials",
    "creds",
    "jwt",
    "salt",
    "pat",
    "storepass",
];
/// What stands before `key` where it opens something.
const KEYS: [&str; 30] = [
    "api",
    "secret",
    "private",
    "access",
    "master",
    "encryption",
    "signing",
    "account",
    "auth",
    "deploy",
    "role",
    "service",
    "app",
    "application",
    "unseal",
    "age",
    "host",
    "consumer",
    "client",
    "storage",
    "jwt",
    "stripe",
    "hmac",
    "root",
    "admin",
    "license",
    "shared",
    "session",
    "webhook",
    "ssh",
];
/// What stands before `key` where it is that of a table, a map or the public.
const PLAIN_KEYS: [&str; 30] = [
    "recv",
    "public",
    "socket",
    "gpg",
    "pgp",
    "primary",
    "foreign",
    "partition",
    "sort",
    "cache",
    "restore",
    "dedupe",
    "idempotency",
    "i18n",
    "translation",
    "hot",
    "row",
    "shard",
    "group",
    "routing",
    "index",
    "object",
    "websocket",
    "publishable",
    "unique",
    "lookup",
    "query",
    "map",
    "sequence",
    "range",
];
/// Words that may follow and change nothing.
const TAILS: [&str; 12] = [
    "staging",
    "production",
    "dev",
    "string",
    "base",
    "value",
    "primary",
    "secondary",
    "data",
    "current",
    "prod",
    "text",
];

/// The words of a name: by case, `_`, `-`, `.`, spaces; digits at its end don't count.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = ' ';
    let is_loud = !name.chars().any(|c| c.is_lowercase());
    for c in name.trim_end_matches(|c: char| c.is_ascii_digit()).chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && !is_loud && last.is_lowercase());
        if begins || words.is_empty() {
            words.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        last = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What a name says.
pub(super) fn classify(name: &str) -> Name {
    if !name.is_ascii() || name == "mot de passe" {
        return Name::Secret;
    }
    let words = words(name);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    while words.len() > 1 && words.last().is_some_and(|last| TAILS.contains(last)) {
        words.pop();
    }
    let Some((last, before)) = words.split_last() else {
        return Name::Other;
    };
    let previous = before.last().copied().unwrap_or_default();
    match *last {
        "token" | "secret"
            if matches!(
                previous,
                "csrf" | "bos" | "eos" | "pad" | "unk" | "next" | "page"
            ) =>
        {
            Name::Maybe
        }
        "id" if previous == "token" || (previous == "key" && before.contains(&"access")) => {
            Name::Maybe
        }
        word if SECRETS.contains(&word) => Name::Secret,
        "key" | "keys" if PLAIN_KEYS.contains(&previous) => Name::Other,
        "key" if KEYS.contains(&previous) => Name::Secret,
        "key" if !before.is_empty() => Name::Maybe,
        "keys" if matches!(previous, "api" | "secret" | "access") => Name::Secret,
        "signature" if before.contains(&"access") => Name::Secret,
        word if MAYBE.contains(&word) => Name::Maybe,
        word if ["password", "passwd", "passphrase"]
            .iter()
            .any(|end| word.ends_with(end)) =>
        {
            Name::Secret
        }
        word if ["secret", "apikey", "pass", "token", "pwd"]
            .iter()
            .any(|end| word.len() > end.len() + 2 && word.ends_with(end)) =>
        {
            Name::Maybe
        }
        _ => Name::Other,
    }
}

/// A name, what joins it to a value, and the beginning of the value.
static PAIR: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?x)
        (?P<dashes> -- | - | / )?
        (?P<name> (?: [A-Za-z_] [A-Za-z0-9_.-]{0,120} )
                | (?i:api|secret|access|private|auth)\x20(?i:key|token)
                | пароль | contraseña | mot\x20de\x20passe | 密码 | 密碼 | パスワード | 비밀번호
                | hasło | lösenord | şifre | 암호 | 令牌 )
        (?P<close> (?: \\* ["'`\]] | \*\* | \} | \x1b\[[0-9;]*m )* )
        (?: (?P<type> (?: \x20? : \x20? &?(?:'static\x20)? | \x20[Aa]s\x20 ) [A-Za-z]+ ) [\x20\t]* = [\x20\t]*
          | [\x20\t]* (?P<sep> := | => | \|\|= | <- | = | : | ：) [\x20\t]*
          | (?P<comma> , ) [\x20\t]*
          | (?P<space> [\x20\t]+ (?: [\\`^] \r?\n [\x20\t]* )? ) )
        (?P<break> [\\`^]? \r?\n [\x20\t]* )?
    "#;
    Regex::new(pattern).expect("the pattern is fixed and tested")
});

/// What may stand before a value and is no part of it.
static LEAD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"^(?:!!?[a-z]+[ \t]+|&[a-z]+[ \t]+|(?:String::from|String|SecretString::new|SecretString::from|PASSWORD|bytes)\(|[bruN@$](?:["'])|(?i:bearer|basic|token|apikey)[ \t]+|\x1b\[[0-9;]*m)"#,
    )
    .expect("the pattern is fixed and tested")
});

/// Makes the patterns ready.
pub(super) fn prepare() {
    LazyLock::force(&PAIR);
    LazyLock::force(&LEAD);
}

/// Words that follow a flag or a name where prose speaks of it.
const PROSE: [&str; 60] = [
    "and", "or", "to", "is", "are", "was", "were", "flag", "flags", "option", "options", "in",
    "takes", "for", "the", "a", "an", "of", "on", "from", "with", "when", "if", "that", "which",
    "has", "have", "must", "should", "can", "will", "not", "by", "as", "at", "it", "then", "so",
    "but", "field", "header", "value", "values", "argument", "required", "optional", "missing",
    "expired", "invalid", "unset", "set", "get", "list", "refresh", "reset", "support", "also",
    "instead", "now", "works",
];

/// Finds the values of secret names in `text`.
pub(super) fn find(text: &str, found: &mut Vec<Range<usize>>) {
    let mut from = 0;
    let mut reader = Reader { text, word: 0..0 };
    while let Some(captures) = PAIR.captures_at(text, from) {
        let name = captures.name("name").expect("every match has a name");
        let whole = captures.get(0).expect("every match is one").range();
        // What follows may begin another pair.
        from = name.end().max(from + 1);
        let before = &text[..name.start()];
        let spelled = match name.as_str().strip_prefix('m') {
            Some(rest) if ends_in_escape(before) => rest,
            _ => name.as_str(),
        };
        let class = classify(spelled);
        let is_within_word = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && !ends_in_escape(before);
        // The user in a URL may be called `token`; the URL's own rule has the password.
        let is_arn = spelled == "secret" && before.ends_with(':');
        if class == Name::Other || is_within_word || is_arn || before.ends_with("://") {
            continue;
        }
        let dashes = captures.name("dashes").map(|dashes| dashes.as_str());
        let is_quoted_name = captures
            .name("close")
            .is_some_and(|close| close.as_str().ends_with(['"', '\'']));
        let how = Pair {
            class,
            name: spelled,
            sep: captures.name("sep").map_or("", |sep| sep.as_str()),
            is_typed: captures.name("type").is_some(),
            is_listed: captures.name("comma").is_some(),
            is_spaced: captures.name("space").is_some(),
            is_flag: dashes.is_some_and(|dashes| dashes.starts_with('-')),
            is_quoted_name,
            is_broken: captures.name("break").is_some(),
            is_empty: captures.name("sep").is_some_and(|sep| {
                text[..sep.start()].ends_with(|c: char| !c.is_whitespace())
                    && text[sep.end()..].starts_with([' ', '\t'])
            }),
        };
        let mut at = whole.end;
        while let Some(mut value) = how.value(&mut reader, at) {
            // A query ends where the fragment begins.
            if before.ends_with(['?', '&'])
                && let Some(length @ 1..) = text[value.clone()].find('#')
            {
                value.end = value.start + length;
            }
            from = from.max(value.end);
            found.push(value.clone());
            // API_KEYS=one,two
            let more =
                text[value.end..].starts_with(',') && how.name.to_ascii_lowercase().ends_with('s');
            if !more {
                break;
            }
            at = value.end + 1;
        }
    }
}

/// A name and how it is joined to what follows.
struct Pair<'a> {
    class: Name,
    name: &'a str,
    sep: &'a str,
    is_typed: bool,
    is_listed: bool,
    is_spaced: bool,
    is_flag: bool,
    is_quoted_name: bool,
    is_broken: bool,
    /// White space behind the sign alone: to a shell, the value is empty.
    is_empty: bool,
}

/// Whether a terminal's colour begins right before an `m`.
fn ends_in_escape(before: &str) -> bool {
    before
        .trim_end_matches(|c: char| c.is_ascii_digit() || c == ';')
        .ends_with("\u{1b}[")
}

impl Pair<'_> {
    /// Where its secret stands, if the value that begins at `at` is one.
    fn value(&self, reader: &mut Reader<'_>, at: usize) -> Option<Range<usize>> {
        let text = reader.text;
        // "name", "value" is a call's or a list's.
        if self.is_listed && !(self.is_quoted_name || self.is_flag) {
            return None;
        }
        if self.is_spaced && !self.is_flag {
            return None;
        }
        let mut at = at;
        while let Some(lead) = LEAD.find(&text[at..]) {
            // `b"x"`: the quote is the value's.
            let end = match lead.as_str().ends_with(['"', '\'']) {
                true => lead.end() - 1,
                false => lead.end(),
            };
            if end == 0 {
                break;
            }
            at += end;
        }
        let is_block = self.sep == ":" && text[at..].starts_with(['|', '>']);
        if is_block {
            return block(text, at);
        }
        let read = reader.read(at)?;
        let value = head(&text[read.span.clone()]);
        if is_no_secret(value) || is_path(value) || value == self.name {
            return None;
        }
        if !read.is_quoted
            && ((self.is_spaced && value.starts_with('-'))
                || self.is_listed
                || (self.is_empty && self.sep == "="))
        {
            return None;
        }
        // `${NAME:-default}` has a rule of its own.
        if self.sep == ":" && value.starts_with(['-', '?', '+']) && text[..at].ends_with(':') {
            return None;
        }
        // `--creds user:password`, `creds: user/password`: only the password goes, by a rule of its own.
        let is_pair = value.contains([':', '/']) && (self.is_flag || self.sep == ":");
        let name = self.name.to_ascii_lowercase();
        if is_pair
            && (name.contains("cred")
                || (self.is_flag && name.ends_with("auth") && value.contains(':')))
        {
            return None;
        }
        // `PASS: TestName` is a test's result, a text that speaks of a password a message.
        let speaks = ["password", "token", "secret"];
        let is_message = value.contains(' ')
            && speaks
                .iter()
                .any(|word| value.to_ascii_lowercase().contains(word));
        if is_message || (self.name == "PASS" && self.sep == ":") {
            return None;
        }
        // `--token TOKEN`, `--password string`: what a command's help calls the value.
        let is_metavar = value.len() > 1
            && value
                .chars()
                .all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '-'))
            || matches!(value, "string" | "value" | "text");
        if self.is_spaced && !read.is_quoted && is_metavar {
            return None;
        }
        // `--secret id=npmrc` names one.
        if self.is_spaced && self.name == "secret" && value.contains('=') {
            return None;
        }
        if value.contains("-----BEGIN") && value.contains('\n') {
            return None; // its own rule leaves the frame
        }
        let next = text[read.span.end..].chars().next();
        let is_quoted = read.is_quoted;
        if !is_quoted && is_code(value, next) {
            return None;
        }
        let plausible = is_plausible(value);
        let is_loud = !self.name.chars().any(|c| c.is_ascii_lowercase()) && self.name.is_ascii();
        let is_word = value.chars().all(char::is_alphabetic);
        let accepted = match self.class {
            Name::Other => false,
            Name::Maybe => plausible && value.chars().count() >= 8,
            Name::Secret if self.is_broken && !is_quoted => {
                plausible && !value.contains([':', '='])
            }
            Name::Secret if self.is_listed => plausible,
            Name::Secret if self.is_spaced => {
                plausible
                    || (!PROSE.contains(&value.to_ascii_lowercase().as_str())
                        && !matches!(self.name, "secret")
                        && value.chars().count() >= 4
                        && !is_sentence(text, read.span.end))
            }
            // NAME=value is a shell's; --name=value a flag.
            Name::Secret if self.sep == "=" && (is_loud || self.is_flag) => {
                value.chars().count() >= 2 && (self.name != "secret" || plausible)
            }
            Name::Secret if is_loud && self.sep == ":" && !is_word => value.chars().count() >= 4,
            Name::Secret if is_quoted && !self.is_typed => {
                plausible || (value.contains('-') && value.split('-').count() >= 4)
            }
            Name::Secret => {
                plausible || (self.name.ends_with("phrase") && value.split('-').count() >= 4)
            }
        };
        accepted.then_some(read.span)
    }
}

/// Whether prose goes on behind a word: another word, with nothing of a command about it.
fn is_sentence(text: &str, end: usize) -> bool {
    let rest = &text[end..];
    rest.starts_with(' ')
        && rest[1..]
            .split(' ')
            .next()
            .is_some_and(|word| PROSE.contains(&word))
}

/// A value as it stands in the text.
pub(super) struct Read {
    pub(super) span: Range<usize>,
    pub(super) is_quoted: bool,
}

/// Reads values. A text that is one long word is walked through once, however many names are in it.
struct Reader<'a> {
    text: &'a str,
    /// The bare word that was read last.
    word: Range<usize>,
}

impl Reader<'_> {
    /// Reads the value that begins at `at`: to its closing quote, or to white space or what ends a word in a shell, in
    /// JSON, in a URL, in prose.
    fn read(&mut self, at: usize) -> Option<Read> {
        let text = self.text;
        let rest = &text[at..];
        let slashes = rest.bytes().take_while(|byte| *byte == b'\\').count();
        let quote = rest[slashes..].chars().next()?;
        let closing = match quote {
            '"' | '\'' | '`' => quote,
            '“' => '”',
            '„' => '“',
            '«' => return None,
            _ => return self.bare(at),
        };
        let begin = at + slashes + quote.len_utf8();
        let inner = &text[begin..];
        let inner = &inner[..boundary(inner, MAX_QUOTED)];
        let mut escapes = 0;
        let mut chars = inner.char_indices().peekable();
        while let Some((n, c)) = chars.next() {
            if c == closing && escapes == slashes {
                // 'it'\''s' goes on in a shell.
                if closing == '\'' && inner[n..].starts_with("'\\''") {
                    for _ in 0..3 {
                        chars.next();
                    }
                    escapes = 0;
                    continue;
                }
                let end = begin + n - slashes;
                return (end > begin).then_some(Read {
                    span: begin..end,
                    is_quoted: true,
                });
            }
            if c == closing && closing == '\'' && slashes == 0 {
                let end = begin + n;
                return (end > begin).then_some(Read {
                    span: begin..end,
                    is_quoted: true,
                });
            }
            escapes = match c {
                '\\' if closing != '\'' => escapes + 1,
                _ => 0,
            };
            if slashes == 0 && escapes == 2 {
                escapes = 0;
            }
        }
        // No closing quote: as far as a word goes.
        self.bare(begin)
    }

    fn bare(&mut self, at: usize) -> Option<Read> {
        const ENDS: &str = "\"'`;|&<>(){}[],\\，。；、）」】\u{200b}";
        let rest = &self.text[at..];
        if !self.word.contains(&at) {
            let ends = |c: char| c.is_whitespace() || c.is_control() || ENDS.contains(c);
            self.word = at..at + rest.find(ends).unwrap_or(rest.len());
        }
        let mut length = self.word.end - at;
        // What ends a sentence is no part of its last word; three dots stand for what was left out.
        let trimmed = rest[..length].trim_end_matches(['.', ',', ':', '?']);
        if !rest[..length].ends_with("...")
            && rest[length..]
                .chars()
                .next()
                .is_none_or(|c| !c.is_alphanumeric())
        {
            length = trimmed.len();
        }
        (length > 0).then_some(Read {
            span: at..at + length,
            is_quoted: false,
        })
    }
}

/// The most that is looked through for a closing quote, in bytes, and the most lines of a block: a key in PEM fits.
const MAX_QUOTED: usize = 16 * 1024;
const MAX_LINES: usize = 100;

/// The last character's beginning that is not behind `at`.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

/// A YAML block: the lines behind, as long as they are indented.
fn block(text: &str, at: usize) -> Option<Range<usize>> {
    let start = at + text[at..].find('\n')? + 1;
    if !text[at..start]
        .trim_end()
        .chars()
        .skip(1)
        .all(|c| matches!(c, '+' | '-' | '0'..='9'))
    {
        return None;
    }
    let indent = text[start..].len() - text[start..].trim_start_matches([' ', '\t']).len();
    if indent == 0 {
        return None;
    }
    let mut end = start;
    for line in text[start..].split_inclusive('\n').take(MAX_LINES) {
        if !line.starts_with(&text[start..start + indent]) {
            break;
        }
        end += line.len();
    }
    let span = start + indent..start + text[start..end].trim_end().len();
    let value = text.get(span.clone())?;
    (is_plausible(value) && !is_no_secret(value) && !value.contains("-----BEGIN")).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_name_decide() {
        for (names, class) in [
            (
                "PASSWORD db.password userPassword POSTGRES_PASSWORD API_KEY api-key apiKey X-Api-Key API_KEY2 \
                 AccountKeyPrimary SECRET_KEY_BASE clientSecret awsSecretKey access_token API_KEYS psk",
                Name::Secret,
            ),
            (
                "STRIPE_CONSUMED_KEY pass auth VAULT_DEV_ROOT_TOKEN_ID AWS_ACCESS_KEY_ID csrf_token",
                Name::Maybe,
            ),
            (
                "API_KEY_FILE token_type max_tokens TOKEN_TTL key keyboard public_key CACHE_KEY primary_key \
                 password-policy tokenizer author bypass2 PASSWORD_RESET_TIMEOUT secretName",
                Name::Other,
            ),
        ] {
            for name in names.split_whitespace() {
                assert_eq!(classify(name), class, "{name}");
            }
        }
    }
}
