//! The names of things. Newtypes, so that no two kinds of id can be swapped by mistake.
//! They carry no validation: `ringfence_core::key` decides what a good one looks like.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "ts", derive(ts_rs::TS))]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    };
}

text_id!(
    /// A Worker bound to the facade: `[A-Za-z0-9_-]{1,24}`.
    ConsumerName
);
text_id!(
    /// The consumer's name for one sandbox: `[A-Za-z0-9._:-]{1,38}`, neither `.` nor `..`.
    SandboxKey
);
text_id!(
    /// A job's id, a UUID the Sandbox object assigns; never a pid.
    ProcessId
);
text_id!(
    /// A random id the supervisor mints when it starts. A job id means nothing across boot ids.
    BootId
);
text_id!(
    /// The caller's name for one effect: 1 to 128 printable ASCII characters.
    IdempotencyKey
);
text_id!(
    /// A random value the object sends with a job and demands back in its end record.
    Nonce
);

/// The Sandbox object's counter over the commands it sends a supervisor. Strictly increasing, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(transparent)]
pub struct Order(#[cfg_attr(feature = "ts", ts(type = "number"))] pub u64);

/// A position in a job's output: the count of bytes of both streams, in order of arrival, before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(transparent)]
pub struct Cursor(#[cfg_attr(feature = "ts", ts(type = "number"))] pub u64);

/// One process, exactly: a pid is reused, a pid with its start time is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The pid in the supervisor's own pid namespace.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since the machine booted.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub start_time: u64,
}
