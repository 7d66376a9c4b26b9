//! A line of shell, read and judged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| guard::fuzz::shell(data));
