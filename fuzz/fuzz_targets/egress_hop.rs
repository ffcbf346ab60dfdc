#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringfence_properties::egress_hop::holds(bytes));
