//! A byte stream as frames and messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzz::frames(data));
