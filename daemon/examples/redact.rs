//! Redacts lines of JSON: `{"text": …}` in, `{"text": …, "n": …}` out, so that corpora can be scored.

use std::io::{self, BufRead as _, Write as _};

use daemon::checkpoint::redact::Redactor;
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let mut redactor = Redactor::default();
        let text = redactor.text(request["text"].as_str().unwrap_or_default());
        writeln!(out, "{}", json!({"text": text, "n": redactor.count()}))?;
    }
    out.flush()
}
