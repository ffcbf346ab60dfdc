//! The one shape of "no". Every failure that a caller must act on is a refusal in the return value, never a
//! thrown string.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    AdmissionRefused,
    ApprovalRequired,
    AttestationRejected,
    RecipeRejected,
    TicketRejected,
    IdempotencyConflict,
    FenceBusy,
    EffectUnknown,
    SandboxUnavailable,
}

/// What the admission gate knew when it said no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFacts {
    pub pool: String,
    /// Slots taken, the ones kept for unreachable sandboxes included.
    pub pool_busy: u32,
    pub cap: u32,
    /// 1-based place in the queue; absent when not queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub position: Option<u32>,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub queued_for_ms: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub retry_after_ms: u64,
}

/// What the sandbox knew when it said that its fence is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct FenceFacts {
    /// Calls that wait for the fence, this one not counted.
    pub waiting: u32,
    /// How many may.
    pub most_waiting: u32,
    /// How long the fence before it has been open.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub held_for_ms: u64,
    /// How long this call waited.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub waited_ms: u64,
    /// How long it may.
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub limit_ms: u64,
    #[cfg_attr(feature = "ts", ts(type = "number"))]
    pub retry_after_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "ts", derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub kind: RefusalKind,
    /// For people: says what is wrong and how to mend it. Carries no secret; nobody parses it.
    pub message: String,
    /// The input field at fault, as a dotted path (`recipe.repo.owner`), when one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub field: Option<String>,
    /// A machine-readable sub-reason (a ticket's five reasons, a floor rule's name, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional, type = "number"))]
    pub retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub admission: Option<AdmissionFacts>,
    /// Of `fence-busy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "ts", ts(optional))]
    pub fence: Option<Box<FenceFacts>>,
}

impl Refusal {
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            field: None,
            reason: None,
            retry_after_ms: None,
            admission: None,
            fence: None,
        }
    }
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}

/// `{ok:true, …T}` or `{ok:false, …Refusal}`: what every facade call returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<T> {
    Done(T),
    Refused(Refusal),
}

impl<T> From<Result<T, Refusal>> for Outcome<T> {
    fn from(result: Result<T, Refusal>) -> Self {
        match result {
            Ok(value) => Self::Done(value),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

impl<T: Serialize> Serialize for Outcome<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Tagged<'a, B> {
            ok: bool,
            #[serde(flatten)]
            body: &'a B,
        }
        match self {
            Self::Done(body) => Tagged { ok: true, body }.serialize(serializer),
            Self::Refused(body) => Tagged { ok: false, body }.serialize(serializer),
        }
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Outcome<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let value = serde_json::Value::deserialize(deserializer)?;
        match value.get("ok").and_then(serde_json::Value::as_bool) {
            Some(true) => serde_json::from_value(value).map(Self::Done).map_err(D::Error::custom),
            Some(false) => serde_json::from_value(value).map(Self::Refused).map_err(D::Error::custom),
            None => Err(D::Error::custom("an outcome says `ok`: true or false")),
        }
    }
}
