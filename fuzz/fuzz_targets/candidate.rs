#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_properties::candidate::holds(bytes));
