use proptest::prelude::*;

use super::rules::RULES;
use super::*;

fn redact(text: &str) -> (String, u64) {
    let mut redactor = Redactor::default();
    let clean = redactor.text(text);
    (clean, redactor.count())
}

/// Letters as an issuer draws them; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn draw(&mut self, alphabet: &str, length: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        (0..length)
            .map(|_| letters[self.roll(letters.len())])
            .collect()
    }
}

const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Fills `{a24}` and its like in.
fn compose(example: &str, dice: &mut Dice) -> String {
    let mut out = String::new();
    let mut rest = example;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        let end = rest[start..].find('}').map(|end| start + end);
        let spec = end.map_or("", |end| &rest[start + 1..end]);
        let (kind, length) = spec.split_at(spec.len().min(1));
        let length = length.parse::<usize>().ok();
        let value = match (kind, length) {
            ("p", None) if spec == "p" => {
                format!(
                    "{}7{}.{}",
                    dice.draw(LETTERS, 4),
                    dice.draw("bcdfgh", 2),
                    dice.draw(LETTERS, 5)
                )
            }
            ("a", Some(n)) => format!("{}4", dice.draw(LETTERS, n - 1)),
            ("w", Some(n)) => format!("{}-{}7", dice.draw(LETTERS, n - 8), dice.draw(LETTERS, 6)),
            ("h", Some(n)) => format!("{}7a", dice.draw(HEX, n - 2)),
            ("x", Some(n)) => format!("{}7", dice.draw(UPPER, n - 1)),
            ("d", Some(n)) => dice.draw(DIGITS, n),
            _ => {
                out.push('{');
                rest = &rest[start + 1..];
                continue;
            }
        };
        out.push_str(&value);
        rest = &rest[end.unwrap() + 1..];
    }
    out + rest
}

/// The text of an example, and what has to become of it.
fn marked(composed: &str) -> (String, String) {
    let mut expected = String::new();
    for (n, part) in composed.split(['‹', '›']).enumerate() {
        expected.push_str(if n % 2 == 1 { REDACTED } else { part });
    }
    (composed.replace(['‹', '›'], ""), expected)
}

#[test]
fn every_rule_finds_what_its_examples_mark_and_nothing_else() {
    let mut dice = Dice(7);
    let mut wrong = Vec::new();
    for rule in RULES {
        assert!(!rule.examples.is_empty(), "{}", rule.source);
        for example in rule.examples {
            let is_right = (0..20).all(|_| {
                let (text, expected) = marked(&compose(example, &mut dice));
                let count = expected.matches(REDACTED).count() as u64;
                redact(&text) == (expected.clone(), count) && redact(&expected) == (expected, 0)
            });
            if !is_right {
                let (text, _) = marked(&compose(example, &mut dice));
                wrong.push(format!(
                    "{}: {example}\n    {}",
                    rule.source,
                    redact(&text).0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn named_values_go_and_names_flags_and_quotes_stay() {
    let mut dice = Dice(11);
    for example in [
        "GITHUB_CLIENT_SECRET=‹{a20}› npm run dev",
        "export A_KEY=‹{a20}› B_KEY=$B_KEY C_KEY=‹{a20}›",
        "DB_PASSWORD='‹{p}›' run",
        "PASSWORD='‹it'\\''s-{a6}›' run",
        "PASSWORD=\"‹two words {d2}›\" run",
        "API_KEYS=‹{a24}›,‹{a24}› ./gateway",
        "{\"ACCESS_TOKEN\": \"‹{a20}›\", \"a\": 1}",
        "curl -d \"{\\\"password\\\":\\\"‹{p}›\\\"}\" http://localhost/login",
        "mycli --token ‹{a40}› deploy",
        "mycli --password \\\n  ‹{p}› sync",
        "mycli ^\n  --token ‹{a40}› ^\n  deploy",
        "[\"mycli\", \"--token\", \"‹{a40}›\", \"deploy\"]",
        "let api_key = String::from(\"‹{a32}›\");",
        "let token: string = '‹{a40}›';",
        "$env:API_TOKEN = \"‹{a32}›\"",
        "password: |\n  ‹{p}›\nuser: ada",
        "password: ‹{p}›, user ada",
        "数据库 password=‹{p}›，已经改好",
        "\u{1b}[1mAPI_KEY=‹{a24}›\u{1b}[0m",
        "java -Dspring.datasource.password=\"‹{p}›\" -jar app.jar",
        "Server=db;User Id=sa;Password=‹{p}›;Encrypt=true",
        "Set API_KEY=‹{a24}›. Then deploy.",
        "TOKEN=$(AWS_SECRET_ACCESS_KEY=‹{a40}› aws sts get-session-token)",
    ] {
        let (text, expected) = marked(&compose(example, &mut dice));
        assert_eq!(redact(&text).0, expected, "{example}");
    }
}

#[test]
fn references_placeholders_code_and_lookalikes_stay() {
    for same in [
        "PASSWORD=$DB_PASSWORD run",
        "mycli --token \"$TOKEN\" deploy",
        "TOKEN=$(gh auth token) ./release.sh",
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "set API_KEY=%API_KEY%",
        "password: \"{{ .Values.db.password }}\"",
        "'password' => env('DB_PASSWORD', ''),",
        "const apiKey = process.env.API_KEY;",
        "token = parts[1]",
        "password = getpass.getpass()",
        "@click.option(\"--password\", prompt=True)",
        "API_KEY=<your-api-key>",
        "OPENAI_API_KEY=sk-...",
        "PASSWORD=********",
        "primary_key=id",
        "CACHE_KEY=deps-v2",
        "API_KEY_FILE=/run/secrets/key",
        "max_tokens=4096",
        "PWD=/home/ada/app",
        "the token = cookie bug is back",
        "password: required",
        "Next: add --password and --token to the docs",
        "mycli --token-file ~/.token deploy",
        "mycli --password --verbose",
        "git commit -m \"Rename API_KEY= to APP_KEY=\"",
        "sed -i 's/PASSWORD=.*/PASSWORD=/' .env",
        "ssh://git@github.com/acme/app.git",
        "commit 09f3fa6d86b892cf8c857074873c10ede86bdc92",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "trace 3f1c2d4e-5a6b-4c7d-8e9f-0a1b2c3d4e5f",
    ] {
        assert_eq!(redact(same), (same.to_owned(), 0));
    }
}

#[test]
fn what_fuzzing_found_stays_found() {
    // The quotes pair otherwise once the first value is gone.
    let (clean, _) = redact("A_KEy=\"__A_KEY=\"$45F321/A_KEY=\"\\bcDu_");
    assert_eq!(redact(&clean), (clean, 0));
}

/// Where a secret may stand; `@` is the secret.
const FRAMES: [&str; 10] = [
    "API_KEY=@ ./run.sh",
    "x\nexport DB_PASSWORD='@'\ny",
    "{\"client_secret\": \"@\"}",
    "curl -H \"Authorization: Bearer @\" https://x.example",
    "postgres://app:@@db/app",
    "mycli --token=@ deploy",
    "password: @",
    "sshpass -p @ ssh h",
    "mysql -uroot -p@ shop",
    "   <password>@</password>",
];

proptest! {
    /// Whatever surrounds it, a named secret goes whole, and what surrounds it stays to the byte.
    #[test]
    fn the_value_goes_and_the_rest_stays(
        frame in 0..FRAMES.len(), seed: u64, length in 12usize..60, before in "[a-zé中 .,\n]{0,30}", after in "[a-zé中 .,\n]{0,30}"
    ) {
        let secret = format!("{}9{}", Dice(seed).draw(LETTERS, length - 3), Dice(seed ^ 5).draw("xyzw", 2));
        let (head, tail) = FRAMES[frame].split_once('@').unwrap();
        let text = format!("{before}\n{head}{secret}{tail}\n{after}");
        let expected = format!("{before}\n{head}{REDACTED}{tail}\n{after}");
        prop_assert_eq!(redact(&text), (expected, 1));
    }

    /// Any text at all: it ends, and a second time changes nothing.
    #[test]
    fn twice_changes_nothing(text in r#"([ -~«»é密\n]|API_KEY=|password: |--token |https://a:|"|'|\$\{|«redacted»){0,40}"#) {
        let (clean, _) = redact(&text);
        prop_assert_eq!(redact(&clean), (clean.clone(), 0));
    }
}
