//! Every query gets its own id back, an address only of the synthetic range, and no answer is answered.

use ringfence_engine::parsers::{Names, answer};

pub fn holds(query: &[u8]) {
    let names = Names::default();
    let Some((reply, question)) = answer(query, &names) else { return };
    assert_eq!(reply[..2], query[..2]);
    assert!(query[2] & 0x80 == 0 && reply[2] & 0x80 != 0);
    let answers = reply[7];
    assert!(answers <= 1 && (answers == 0 || question.is_some()));
    if answers == 1 {
        assert_eq!(reply[reply.len() - 4..], [198, 18, 0, 1]);
    }
}
