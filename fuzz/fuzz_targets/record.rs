//! Stored and exported events.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzz::record(data));
