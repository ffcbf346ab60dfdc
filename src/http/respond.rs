//! Responses: the status of an outcome, and what every response carries.

use ringfence_wire::refusal::RefusalKind;
use serde::Serialize;
use worker::{Headers, Response, Result};

use super::router::Verb;
use crate::facade::{Answer, Verdict};

/// RFC 9457.
#[derive(Debug, Serialize)]
pub struct Problem<'a> {
    pub title: &'a str,
    pub status: u16,
    pub detail: String,
    /// Where malformed JSON stops making sense; both count from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

/// The outcome as it is; its status says the same in HTTP's words.
pub fn answer(answer: Answer) -> Result<Response> {
    let (status, retry_after_ms) = match answer.verdict() {
        Ok(Verdict::Done) => (200, None),
        Ok(Verdict::Refused { kind, retry_after_ms }) => (status_of(kind), retry_after_ms),
        Err(error) => {
            return problem(&Problem {
                title: "Unreadable answer",
                status: 500,
                detail: format!("the object's answer is not an outcome of the contract: {error}"),
                line: None,
                column: None,
            });
        }
    };
    let headers = headers("application/json")?;
    if let Some(seconds) = retry_after(status, retry_after_ms) {
        headers.set("Retry-After", &seconds.to_string())?;
    }
    Ok(Response::from_bytes(answer.0.into_bytes())?.with_status(status).with_headers(headers))
}

fn status_of(kind: RefusalKind) -> u16 {
    match kind {
        RefusalKind::RecipeRejected => 422,
        RefusalKind::ApprovalRequired => 428,
        RefusalKind::AttestationRejected | RefusalKind::TicketRejected => 403,
        RefusalKind::IdempotencyConflict | RefusalKind::EffectUnknown => 409,
        RefusalKind::AdmissionRefused | RefusalKind::FenceBusy => 429,
        RefusalKind::SandboxUnavailable => 503,
    }
}

/// Whole seconds, rounded up, at least one. A 429 always says when to come back.
fn retry_after(status: u16, retry_after_ms: Option<u64>) -> Option<u64> {
    let ms = match retry_after_ms {
        None if status != 429 => return None,
        ms => ms.unwrap_or(0),
    };
    Some(ms.div_ceil(1_000).max(1))
}

pub fn problem(problem: &Problem<'_>) -> Result<Response> {
    let body = serde_json::to_vec(problem)?;
    let headers = headers("application/problem+json")?;
    Ok(Response::from_bytes(body)?.with_status(problem.status).with_headers(headers))
}

fn plain_problem(title: &str, status: u16, detail: impl Into<String>) -> Result<Response> {
    problem(&Problem { title, status, detail: detail.into(), line: None, column: None })
}

pub fn too_large(most: usize) -> Result<Response> {
    plain_problem("Body too large", 413, format!("a body is at most {most} bytes"))
}

pub fn not_found() -> Result<Response> {
    plain_problem("Not found", 404, "no such path; the README lists them")
}

pub fn unreadable_body(error: &worker::Error) -> Result<Response> {
    plain_problem("Unreadable body", 400, format!("the body could not be read: {error}"))
}

/// The call's work ended without an answer: it panicked, and the log says where.
pub fn failed() -> Result<Response> {
    plain_problem("Internal error", 500, "the call failed; what it did is not known")
}

/// `allow` with nothing else: the path exists, this verb does not serve it.
pub fn method_not_allowed(verbs: &[Verb]) -> Result<Response> {
    let response = plain_problem("Method not allowed", 405, format!("this path serves {}", allowed(verbs)))?;
    response.headers().set("Allow", &allowed(verbs))?;
    Ok(response)
}

/// The answer to OPTIONS. No cross-origin reading is offered.
pub fn options(verbs: &[Verb]) -> Result<Response> {
    let response = empty(204)?;
    response.headers().set("Allow", &allowed(verbs))?;
    Ok(response)
}

/// 401 and nothing else.
pub fn unauthorized() -> Result<Response> {
    let response = empty(401)?;
    response.headers().set("WWW-Authenticate", "Bearer")?;
    Ok(response)
}

pub fn empty(status: u16) -> Result<Response> {
    let headers = headers("text/plain")?;
    headers.delete("Content-Type")?;
    Ok(Response::empty()?.with_status(status).with_headers(headers))
}

pub fn json(status: u16, body: &impl Serialize) -> Result<Response> {
    let body = serde_json::to_vec(body)?;
    Ok(Response::from_bytes(body)?.with_status(status).with_headers(headers("application/json")?))
}

/// Nothing here is a page, is cached, or may be taken for another type.
fn headers(content_type: &str) -> Result<Headers> {
    let headers = Headers::new();
    headers.set("Content-Type", content_type)?;
    headers.set("Cache-Control", "no-store")?;
    headers.set("X-Content-Type-Options", "nosniff")?;
    headers.set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")?;
    headers.set("Referrer-Policy", "no-referrer")?;
    Ok(headers)
}

fn allowed(verbs: &[Verb]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for verb in verbs {
        names.push(verb.name());
        if *verb == Verb::Get {
            names.push("HEAD");
        }
    }
    names.push("OPTIONS");
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_the_status_of_the_contract() {
        use RefusalKind::*;
        let expected = [
            (RecipeRejected, 422),
            (ApprovalRequired, 428),
            (AttestationRejected, 403),
            (TicketRejected, 403),
            (IdempotencyConflict, 409),
            (EffectUnknown, 409),
            (AdmissionRefused, 429),
            (FenceBusy, 429),
            (SandboxUnavailable, 503),
        ];
        for (kind, status) in expected {
            assert_eq!(status_of(kind), status, "{kind:?}");
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_always_on_a_429() {
        assert_eq!(retry_after(429, Some(1)), Some(1));
        assert_eq!(retry_after(429, Some(1_001)), Some(2));
        assert_eq!(retry_after(429, Some(0)), Some(1));
        assert_eq!(retry_after(429, None), Some(1));
        assert_eq!(retry_after(503, Some(2_000)), Some(2));
        assert_eq!(retry_after(503, None), None);
        assert_eq!(retry_after(422, None), None);
    }

    #[test]
    fn allow_names_what_get_brings_along() {
        assert_eq!(allowed(&[Verb::Post, Verb::Get]), "POST, GET, HEAD, OPTIONS");
        assert_eq!(allowed(&[Verb::Delete]), "DELETE, OPTIONS");
    }
}
