//! An object's name reads back as the pair it was made from, and no other text is one.

use arbitrary::{Arbitrary, Unstructured};
use ringfence_core::key::{
    object_name, parse_consumer, parse_idempotency_key, parse_key, parse_object_name, parse_process_id,
};

pub fn holds(bytes: &[u8]) {
    let Ok((one, two)) = <(&str, &str)>::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let _ = (parse_idempotency_key(one), parse_process_id(one));
    if let (Ok(consumer), Ok(key)) = (parse_consumer(one), parse_key(two)) {
        assert_eq!(parse_object_name(&object_name(&consumer, &key)), Ok((consumer, key)));
    }
    if let Ok((consumer, key)) = parse_object_name(one) {
        assert_eq!(object_name(&consumer, &key), one);
    }
}
