//! Any bytes as a hook's input.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shim::fuzz::hook(bytes));
