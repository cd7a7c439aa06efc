//! Any text through the redactor: redacting twice changes nothing.
#![no_main]

use daemon::checkpoint::redact::Redactor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let clean = Redactor::default().text(text);
    let mut again = Redactor::default();
    assert_eq!(again.text(&clean), clean);
    assert_eq!(again.count(), 0);
});
