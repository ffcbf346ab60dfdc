//! What a connection speaks does not change with more bytes, and a host it names can stand in a header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence_engine::parsers::{Speaks, classify};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (bytes, more) = input;
    let told = classify(bytes);
    if told == Speaks::More {
        return;
    }
    assert_eq!(classify(&[bytes, more].concat()), told);
    if let Speaks::Http { host: Some(host) } = told {
        assert!(!host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic()));
    }
});
