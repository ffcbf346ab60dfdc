//! Test builds only (feature `panic-hook`): a call whose sandbox key is one of these panics at the named place, so
//! that a test can show what a panic takes with it. `scripts/test release` proves that the release bundle holds
//! none of it, by looking for the mark `ringfence-panic-hook`.

/// Where a panic is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Facade,
    Sandbox,
    Admission,
}

impl Place {
    /// The key that asks for it.
    fn key(self) -> &'static str {
        match self {
            Self::Facade => "panic-hook.facade",
            Self::Sandbox => "panic-hook.sandbox",
            Self::Admission => "panic-hook.admission",
        }
    }
}

#[expect(clippy::panic, reason = "this is what it is for")]
pub fn trip(place: Place, key: &str) {
    if key == place.key() {
        panic!("ringfence-panic-hook: a panic was asked for in {place:?}");
    }
}
