//! Requests and notifications of the official protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::fuzz::acp(data));
