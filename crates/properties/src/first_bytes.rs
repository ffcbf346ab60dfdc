//! What a connection speaks does not change with more bytes, and a host it names can stand in a header.

use arbitrary::{Arbitrary, Unstructured};
use ringfence_engine::parsers::{Speaks, classify};

pub fn holds(bytes: &[u8]) {
    let Ok((bytes, more)) = <(&[u8], &[u8])>::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let told = classify(bytes);
    if told == Speaks::More {
        return;
    }
    assert_eq!(classify(&[bytes, more].concat()), told);
    if let Speaks::Http { host: Some(host) } = told {
        assert!(!host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic()));
    }
}
