//! What hostile text must not do to a parser: one property for each, in a file of its own.
//!
//! The fuzzer (`scripts/fuzz`) drives them by coverage, the tests of this crate over the committed corpus and over
//! mutations of it. A property that does not hold is a panic.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a panic is what is looked for")]

pub mod approval_floor;
pub mod candidate;
pub mod dns;
pub mod egress_credential;
pub mod egress_denial;
pub mod egress_hop;
pub mod egress_lfs;
pub mod egress_patterns;
pub mod egress_redirect;
pub mod first_bytes;
pub mod names;
pub mod ticket;

/// Panics if it does not hold for these bytes.
pub type Property = fn(&[u8]);

/// Each property under the name of its fuzz target and of its directories in `fuzz/`.
pub const ALL: &[(&str, Property)] = &[
    ("approval_floor", approval_floor::holds),
    ("candidate", candidate::holds),
    ("dns", dns::holds),
    ("egress_credential", egress_credential::holds),
    ("egress_denial", egress_denial::holds),
    ("egress_hop", egress_hop::holds),
    ("egress_lfs", egress_lfs::holds),
    ("egress_patterns", egress_patterns::holds),
    ("egress_redirect", egress_redirect::holds),
    ("first_bytes", first_bytes::holds),
    ("names", names::holds),
    ("ticket", ticket::holds),
];
