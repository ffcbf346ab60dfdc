//! Why a call gave no answer. Messages are for people; what a caller acts on are the variants.

use ringfence_wire::refusal::{Refusal, RefusalKind};
use serde::Deserialize;
use std::time::Duration;

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("`{url}` is not a URL this client can call: {why}; give one like http://127.0.0.1:8787")]
    Url { url: String, why: String },
    #[error(
        "plain http is for loopback only and `{host}` is not: use https, or the token would travel in the clear"
    )]
    PlainHttp { host: String },
    #[error("the token cannot be sent in a header: it must be visible ASCII")]
    Token,
    #[error("no root certificate could be loaded for https: {0}")]
    Roots(#[source] std::io::Error),
}

/// `application/problem+json`, the answer to what could not be read as a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Problem {
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub detail: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The facade's typed no.
    #[error("{}: {}{}", kind_name(.0.kind), .0.message, .0.field.as_ref().map(|f| format!(" (field `{f}`)")).unwrap_or_default())]
    Refused(Box<Refusal>),
    /// 401: nothing else is said.
    #[error("the token is not known to this deployment")]
    Unauthorized,
    /// 404 or 405: this deployment does not serve the call (an older version, or a wrong URL).
    #[error("this deployment does not serve {call}")]
    NotServed { call: &'static str },
    /// 400 or 413: the request itself could not be read.
    #[error("{call} was not understood: {}", describe(.problem))]
    Rejected { call: &'static str, status: u16, problem: Problem },
    /// Nothing was received, or the connection ended before the answer did. Whether the call took effect is
    /// unknown; repeating it with the same idempotency key is safe.
    #[error("no answer to {call}: {source}")]
    Transport {
        call: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// As [`CallError::Transport`]: the effect is unknown.
    #[error("no answer to {call} within {after:?}")]
    TimedOut { call: &'static str, after: Duration },
    /// Something answered that is not a Ringfence facade of a version this client knows.
    #[error("{call} was answered with HTTP {status} and something that is not an outcome: {why}")]
    Unintelligible { call: &'static str, status: u16, why: String },
}

impl CallError {
    /// The refusal's kind, when it is one.
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }
    /// True where the call may have taken effect although no answer came.
    pub fn effect_unknown(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::TimedOut { .. })
            || self.refusal() == Some(RefusalKind::EffectUnknown)
    }
}

/// The kind as it stands on the wire.
fn kind_name(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::AdmissionRefused => "admission-refused",
        RefusalKind::ApprovalRequired => "approval-required",
        RefusalKind::AttestationRejected => "attestation-rejected",
        RefusalKind::RecipeRejected => "recipe-rejected",
        RefusalKind::TicketRejected => "ticket-rejected",
        RefusalKind::IdempotencyConflict => "idempotency-conflict",
        RefusalKind::FenceBusy => "fence-busy",
        RefusalKind::EffectUnknown => "effect-unknown",
        RefusalKind::SandboxUnavailable => "sandbox-unavailable",
    }
}

fn describe(problem: &Problem) -> String {
    match (problem.title.as_str(), problem.detail.as_str()) {
        ("", "") => "no reason was given".to_owned(),
        (title, "") => title.to_owned(),
        ("", detail) => detail.to_owned(),
        (title, detail) => format!("{title}: {detail}"),
    }
}
