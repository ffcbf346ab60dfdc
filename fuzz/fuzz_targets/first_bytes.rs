#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_properties::first_bytes::holds(bytes));
