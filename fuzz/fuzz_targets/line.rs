//! Any bytes as a line of JSON-RPC.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| daemon::fuzz::line(bytes));
