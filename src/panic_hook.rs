//! Test builds only (feature `panic-hook`): a call whose sandbox key, command or path is one of these panics at the
//! named place, so that a test can show what a panic takes with it. `scripts/test release` proves that the release bundle holds
//! none of it, by looking for the mark `ringfence-panic-hook`.

/// Where a panic is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    Facade,
    Sandbox,
    Admission,
    /// In a fence, between applying its grant and running its command.
    Apply,
    /// In the egress entrypoint, before the object is told that a request has ended.
    PassageEnd,
}

impl Place {
    /// The text that asks for it.
    fn word(self) -> &'static str {
        match self {
            Self::Facade => "panic-hook.facade",
            Self::Sandbox => "panic-hook.sandbox",
            Self::Admission => "panic-hook.admission",
            Self::Apply => "panic-hook.apply",
            Self::PassageEnd => "panic-hook.passage-end",
        }
    }
}

#[expect(clippy::panic, reason = "this is what it is for")]
pub fn trip(place: Place, text: &str) {
    if text == place.word() {
        panic!("ringfence-panic-hook: a panic was asked for in {place:?}");
    }
}
