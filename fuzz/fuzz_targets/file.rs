//! Any bytes as a checkpoint file: what is read is written back the same, and makes a brief of our structure.
#![no_main]

use std::collections::HashMap;

use daemon::checkpoint::brief::Brief;
use daemon::checkpoint::drift::{self};
use daemon::checkpoint::facts::{Facts, Since};
use daemon::checkpoint::format;
use daemon::checkpoint::time::Timestamp;
use libfuzzer_sys::fuzz_target;

const HEADINGS: [&str; 8] = [
    "## Goal",
    "## Tasks",
    "## Where things stand",
    "## Next steps",
    "## Decisions & gotchas",
    "## Files touched (",
    "## Recent commands (last ",
    "## Since this checkpoint",
];

fuzz_target!(|bytes: &[u8]| {
    let Ok(checkpoint) = format::parse(bytes) else {
        return;
    };
    let written = format::serialize(&checkpoint);
    if let Ok(again) = format::parse(written.as_bytes()) {
        assert_eq!(again, checkpoint);
    }
    let drift = drift::compare(&checkpoint, &Facts::default(), &Since::nothing());
    let brief = Brief {
        checkpoint: &checkpoint,
        drift: &drift,
        resume_hint: None,
        warnings: &drift.warnings,
        modified: &HashMap::new(),
        now: Timestamp::from_millisecond(0),
    }
    .render();
    for line in brief.lines().filter(|line| line.starts_with("## ")) {
        assert!(HEADINGS.iter().any(|heading| line.starts_with(heading)), "{line}");
    }
    assert!(brief.chars().all(|c| c == '\n' || !c.is_control()));
});
