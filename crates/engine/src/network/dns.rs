//! The responder: answers every look-up of a container from a private range of addresses, and forwards nothing.
//!
//! Invariant: no byte of a query leaves the engine. A name gets an address of 198.18.0.0/15 that stands for it while
//! the container lives, so the relay can tell which name a connection meant. No name has an IPv6 address.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// The first synthetic address handed out: the benchmarking range, which is routed nowhere.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 1]);
/// Names one container may have at once.
pub const MAX_NAMES: usize = 65_536;
/// The longest name of the protocol, in text.
const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: u8 = 63;
const HEADER_BYTES: usize = 12;
/// The longest query answered over UDP.
pub const MAX_QUERY_BYTES: usize = 512;

const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
const TTL_SECONDS: u32 = 60;

/// How a query was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok = 0,
    FormatError = 1,
    Failure = 2,
    NotImplemented = 4,
}

/// Names and the addresses that stand for them.
#[derive(Default)]
pub struct Names(Mutex<Table>);

#[derive(Default)]
struct Table {
    addresses: HashMap<String, Ipv4Addr>,
    names: Vec<String>,
}

impl Names {
    /// The address that stands for a name. None: there is no more room.
    pub fn address(&self, name: &str) -> Option<Ipv4Addr> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = table.addresses.get(name) {
            return Some(*address);
        }
        if table.names.len() >= MAX_NAMES {
            return None;
        }
        let index = u32::try_from(table.names.len()).ok()?;
        let address = Ipv4Addr::from(FIRST + index);
        table.names.push(name.to_owned());
        table.addresses.insert(name.to_owned(), address);
        Some(address)
    }

    /// The name an address stands for.
    pub fn name(&self, address: Ipv4Addr) -> Option<String> {
        let index = u32::from(address).checked_sub(FIRST)?;
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(usize::try_from(index).ok()?).cloned()
    }
}

/// What was asked, for the record.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// Lower case, without the last dot.
    pub name: String,
    pub kind: u16,
    class: u16,
    /// Where the question ends in the query.
    end: usize,
}

impl Question {
    /// Whether an address of the name was asked for: what every connection by name begins with.
    pub fn is_address(&self) -> bool {
        const TYPE_AAAA: u16 = 28;
        matches!(self.kind, TYPE_A | TYPE_AAAA)
    }
}

/// The answer to a query, and what it asked. None: not even a header, or itself an answer; it gets silence.
pub fn answer(query: &[u8], names: &Names) -> Option<(Vec<u8>, Option<Question>)> {
    let header = query.get(..HEADER_BYTES)?;
    let [id_high, id_low, flags, ..] = *header else { return None };
    const IS_ANSWER: u8 = 0x80;
    const OPCODE: u8 = 0x78;
    if flags & IS_ANSWER != 0 {
        return None;
    }
    let reply =
        |code, question: &[u8], record: &[u8]| compose([id_high, id_low], flags, code, question, record);
    if flags & OPCODE != 0 {
        return Some((reply(Code::NotImplemented, &[], &[]), None));
    }
    let Some(question) = parse_question(query) else {
        return Some((reply(Code::FormatError, &[], &[]), None));
    };
    let asked = query.get(HEADER_BYTES..question.end).unwrap_or_default();
    if question.kind != TYPE_A || question.class != CLASS_IN {
        return Some((reply(Code::Ok, asked, &[]), Some(question)));
    }
    let bytes = match names.address(&question.name) {
        Some(address) => reply(Code::Ok, asked, &address_record(address)),
        None => reply(Code::Failure, asked, &[]),
    };
    Some((bytes, Some(question)))
}

fn parse_question(query: &[u8]) -> Option<Question> {
    // Exactly one question: more is not used by any resolver.
    let count = query.get(4..6)?;
    if count != [0, 1] {
        return None;
    }
    let mut name = String::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = *query.get(at)?;
        at += 1;
        if length == 0 {
            break;
        }
        // A question's name has no compression.
        if length > MAX_LABEL_BYTES {
            return None;
        }
        let label = query.get(at..at + usize::from(length))?;
        at += usize::from(length);
        if !label.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().map(|b| char::from(b.to_ascii_lowercase())));
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
    }
    let (kind, class) = match query.get(at..at + 4)? {
        [a, b, c, d] => (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])),
        _ => return None,
    };
    (!name.is_empty()).then_some(Question { name, kind, class, end: at + 4 })
}

fn compose(id: [u8; 2], flags: u8, code: Code, question: &[u8], record: &[u8]) -> Vec<u8> {
    const ANSWER_AUTHORITATIVE: u8 = 0x84;
    const RECURSION_DESIRED: u8 = 0x01;
    const RECURSION_AVAILABLE: u8 = 0x80;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + question.len() + record.len());
    bytes.extend(id);
    bytes.push(ANSWER_AUTHORITATIVE | (flags & RECURSION_DESIRED));
    bytes.push(RECURSION_AVAILABLE | code as u8);
    bytes.extend([0, u8::from(!question.is_empty()), 0, u8::from(!record.is_empty()), 0, 0, 0, 0]);
    bytes.extend(question);
    bytes.extend(record);
    bytes
}

fn address_record(address: Ipv4Addr) -> Vec<u8> {
    const NAME_OF_QUESTION: [u8; 2] = [0xc0, HEADER_BYTES as u8];
    const LENGTH: [u8; 2] = [0, 4];
    let mut record = NAME_OF_QUESTION.to_vec();
    record.extend(TYPE_A.to_be_bytes());
    record.extend(CLASS_IN.to_be_bytes());
    record.extend(TTL_SECONDS.to_be_bytes());
    record.extend(LENGTH);
    record.extend(address.octets());
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes
    }

    #[test]
    fn one_name_has_one_address_whatever_its_case_and_the_address_names_it() {
        let names = Names::default();
        let (first, question) = answer(&query("Example.TEST", TYPE_A), &names).unwrap();
        assert_eq!(question.unwrap().name, "example.test");
        assert_eq!(first[..2], [0xab, 0xcd]);
        assert_eq!(first[first.len() - 4..], [198, 18, 0, 1]);
        let (again, _) = answer(&query("example.test", TYPE_A), &names).unwrap();
        assert_eq!(again[again.len() - 4..], [198, 18, 0, 1]);
        assert_eq!(names.name(Ipv4Addr::new(198, 18, 0, 1)).as_deref(), Some("example.test"));
        assert_eq!(names.name(Ipv4Addr::new(198, 18, 0, 2)), None);
        assert_eq!(names.name(Ipv4Addr::new(10, 0, 0, 1)), None);
    }

    #[test]
    fn every_other_type_gets_an_empty_answer_at_once() {
        const TYPE_AAAA: u16 = 28;
        const TYPE_TXT: u16 = 16;
        for kind in [TYPE_AAAA, TYPE_TXT] {
            let (bytes, _) = answer(&query("example.test", kind), &Names::default()).unwrap();
            assert_eq!((bytes[3] & 0x0f, bytes[7]), (0, 0));
        }
    }

    #[test]
    fn the_last_address_is_in_the_range_and_after_it_look_ups_fail() {
        let names = Names::default();
        for index in 0..MAX_NAMES {
            names.address(&index.to_string()).unwrap();
        }
        let last = names.address(&(MAX_NAMES - 1).to_string()).unwrap();
        assert_eq!(last.octets()[..2], [198, 19]);
        let (bytes, _) = answer(&query("one-more.test", TYPE_A), &names).unwrap();
        assert_eq!((bytes[3] & 0x0f, bytes[7]), (Code::Failure as u8, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_get_an_answer_or_silence(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some((reply, _)) = answer(&bytes, &Names::default()) {
                prop_assert_eq!(&reply[..2], &bytes[..2]);
                prop_assert!(reply[2] & 0x80 != 0);
            }
        }

        #[test]
        fn a_cut_query_is_never_answered_with_an_address(cut in 0_usize..29) {
            let whole = query("example.test", TYPE_A);
            let cut = cut.min(whole.len() - 1);
            if let Some((reply, _)) = answer(&whole[..cut], &Names::default()) {
                prop_assert_eq!(reply[7], 0);
            }
        }
    }
}
