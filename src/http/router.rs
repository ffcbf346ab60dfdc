//! Which call a method and a path name. A table, so that the whole face can be read at once.

use crate::facade::Method;

/// HTTP methods that the face knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// How a request's body becomes arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None is read.
    None,
    /// The body is the call's `input`.
    Input,
    /// The body's fields are arguments by name.
    Fields,
}

#[derive(Debug)]
pub struct Route {
    pub verb: Verb,
    /// Segments; `{name}` binds one of them, `{name..}` the rest.
    pattern: &'static str,
    pub method: Method,
    pub body: Body,
    /// Query parameters that become arguments.
    pub query: &'static [&'static str],
}

const fn get(pattern: &'static str, method: Method, query: &'static [&'static str]) -> Route {
    Route { verb: Verb::Get, pattern, method, body: Body::None, query }
}

const fn post(pattern: &'static str, method: Method, body: Body) -> Route {
    Route { verb: Verb::Post, pattern, method, body, query: &[] }
}

const fn delete(pattern: &'static str, method: Method) -> Route {
    Route { verb: Verb::Delete, pattern, method, body: Body::None, query: &[] }
}

const ROUTES: &[Route] = &[
    get("/v1/sandboxes", Method::Sandboxes, &["label"]),
    post("/v1/sandboxes/{key}", Method::EnsureSandbox, Body::Fields),
    post("/v1/sandboxes/{key}/exec", Method::ExecUnderGrant, Body::Input),
    post("/v1/sandboxes/{key}/detached", Method::StartDetached, Body::Input),
    get("/v1/sandboxes/{key}/detached", Method::DetachedList, &[]),
    get("/v1/sandboxes/{key}/detached/{processId}", Method::DetachedStatus, &[]),
    get(
        "/v1/sandboxes/{key}/detached/{processId}/output",
        Method::DetachedOutput,
        &["cursor", "limit", "waitMs"],
    ),
    post("/v1/sandboxes/{key}/detached/{processId}/stdin", Method::DetachedInput, Body::Input),
    delete("/v1/sandboxes/{key}/detached/{processId}", Method::StopDetached),
    post("/v1/sandboxes/{key}/checkpoint", Method::Checkpoint, Body::Fields),
    post("/v1/sandboxes/{key}/abort", Method::Abort, Body::None),
    get("/v1/sandboxes/{key}/denials", Method::Denials, &[]),
    get("/v1/sandboxes/{key}/events", Method::Events, &["cursor", "limit"]),
    get("/v1/sandboxes/{key}/artifacts", Method::Artifacts, &[]),
    get(
        "/v1/sandboxes/{key}/artifacts/{path..}",
        Method::Artifact,
        &["cursor", "limit", "processId", "source"],
    ),
    get("/v1/sandboxes/{key}/files", Method::ReadFile, &["path"]),
    post("/v1/sandboxes/{key}/admission/enqueue", Method::AdmissionEnqueue, Body::Fields),
    post("/v1/sandboxes/{key}/admission/attempt", Method::AdmissionAttempt, Body::Fields),
    post("/v1/sandboxes/{key}/admission/release", Method::AdmissionRelease, Body::None),
    get("/v1/pools", Method::PoolStatus, &[]),
    post("/v1/canary", Method::CanaryLook, Body::None),
    get("/v1/canary", Method::CanaryReport, &[]),
];

/// What a path names.
#[derive(Debug)]
pub enum Found {
    Route {
        route: &'static Route,
        bound: Vec<(&'static str, String)>,
    },
    /// The path is known, the verb is not served there; these are.
    OtherVerbs(Vec<Verb>),
    Nothing,
}

/// `verb` is none for a method that this face never serves.
pub fn find(verb: Option<Verb>, path: &str) -> Found {
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(bound) = route.matches(path) else { continue };
        if Some(route.verb) == verb {
            return Found::Route { route, bound };
        }
        others.push(route.verb);
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherVerbs(others) }
}

/// Query parameters that are numbers.
const NUMERIC: &[&str] = &["cursor", "limit", "waitMs"];
/// Query parameters that may be given several times.
const REPEATED: &[&str] = &["label"];

impl Route {
    pub fn numeric(&self, name: &str) -> bool {
        NUMERIC.contains(&name)
    }

    pub fn repeated(&self, name: &str) -> bool {
        REPEATED.contains(&name)
    }

    /// The bound segments, percent-decoded.
    fn matches(&self, path: &str) -> Option<Vec<(&'static str, String)>> {
        let mut bound = Vec::new();
        let mut rest = path.strip_prefix('/')?;
        let mut pattern = self.pattern.strip_prefix('/')?;
        loop {
            let (want, want_rest) = split(pattern);
            if let Some(name) = want.strip_prefix('{').and_then(|want| want.strip_suffix("..}")) {
                if rest.is_empty() {
                    return None;
                }
                bound.push((name, decode(rest)));
                return Some(bound);
            }
            let (have, have_rest) = split(rest);
            match want.strip_prefix('{').and_then(|want| want.strip_suffix('}')) {
                Some(_) if have.is_empty() => return None,
                Some(name) => bound.push((name, decode(have))),
                None if want == have => {}
                None => return None,
            }
            match (want_rest, have_rest) {
                (None, None) => return Some(bound),
                (Some(want_rest), Some(have_rest)) => (pattern, rest) = (want_rest, have_rest),
                _ => return None,
            }
        }
    }
}

fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((head, rest)) => (head, Some(rest)),
        None => (path, None),
    }
}

/// What is not percent-encoded UTF-8 stays as it is: no key, id or path that is taken holds a `%`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.extend(u8::try_from(high * 16 + low)),
            _ => return text.to_owned(),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(verb: Verb, path: &str) -> Option<(Method, Vec<(&'static str, String)>)> {
        match find(Some(verb), path) {
            Found::Route { route, bound } => Some((route.method, bound)),
            _ => None,
        }
    }

    fn bound(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    #[test]
    fn every_route_of_the_contract_is_found() {
        let expected = [
            (Verb::Post, "/v1/sandboxes/k", Method::EnsureSandbox),
            (Verb::Get, "/v1/sandboxes", Method::Sandboxes),
            (Verb::Post, "/v1/sandboxes/k/exec", Method::ExecUnderGrant),
            (Verb::Post, "/v1/sandboxes/k/detached", Method::StartDetached),
            (Verb::Get, "/v1/sandboxes/k/detached", Method::DetachedList),
            (Verb::Get, "/v1/sandboxes/k/detached/i", Method::DetachedStatus),
            (Verb::Get, "/v1/sandboxes/k/detached/i/output", Method::DetachedOutput),
            (Verb::Post, "/v1/sandboxes/k/detached/i/stdin", Method::DetachedInput),
            (Verb::Delete, "/v1/sandboxes/k/detached/i", Method::StopDetached),
            (Verb::Post, "/v1/sandboxes/k/checkpoint", Method::Checkpoint),
            (Verb::Post, "/v1/sandboxes/k/abort", Method::Abort),
            (Verb::Get, "/v1/sandboxes/k/denials", Method::Denials),
            (Verb::Get, "/v1/sandboxes/k/events", Method::Events),
            (Verb::Get, "/v1/sandboxes/k/artifacts", Method::Artifacts),
            (Verb::Get, "/v1/sandboxes/k/artifacts/a", Method::Artifact),
            (Verb::Get, "/v1/sandboxes/k/files", Method::ReadFile),
            (Verb::Post, "/v1/sandboxes/k/admission/enqueue", Method::AdmissionEnqueue),
            (Verb::Post, "/v1/sandboxes/k/admission/attempt", Method::AdmissionAttempt),
            (Verb::Post, "/v1/sandboxes/k/admission/release", Method::AdmissionRelease),
            (Verb::Get, "/v1/pools", Method::PoolStatus),
            (Verb::Post, "/v1/canary", Method::CanaryLook),
            (Verb::Get, "/v1/canary", Method::CanaryReport),
        ];
        assert_eq!(expected.len(), ROUTES.len());
        for (verb, path, method) in expected {
            assert_eq!(found(verb, path).map(|(method, _)| method), Some(method), "{verb:?} {path}");
        }
    }

    #[test]
    fn segments_are_bound_and_percent_decoded() {
        let (_, names) = found(Verb::Get, "/v1/sandboxes/run%3A1/detached/x%2Fy").unwrap();
        assert_eq!(names, bound(&[("key", "run:1"), ("processId", "x/y")]));
        let (_, names) = found(Verb::Get, "/v1/sandboxes/k/artifacts/logs/a%20b.txt").unwrap();
        assert_eq!(names, bound(&[("key", "k"), ("path", "logs/a b.txt")]));
    }

    #[test]
    fn what_cannot_be_decoded_stays_as_it_is() {
        for text in ["%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(decode(text), text);
        }
    }

    #[test]
    fn a_known_path_with_another_verb_says_which_verbs_it_has() {
        let Found::OtherVerbs(verbs) = find(None, "/v1/sandboxes/k/detached") else {
            panic!("the path is known")
        };
        assert_eq!(verbs, [Verb::Post, Verb::Get]);
        assert!(matches!(find(Some(Verb::Delete), "/v1/pools"), Found::OtherVerbs(_)));
    }

    #[test]
    fn near_misses_are_nothing() {
        for path in [
            "",
            "/",
            "/v1",
            "/v1/",
            "/v1/sandboxes/",
            "/v1/sandboxes//exec",
            "/v1/pools/",
            "/v2/pools",
            "/v1/sandboxes/k/artifacts/",
            "/v1/sandboxes/k/exec/x",
            "//v1/pools",
            "v1/pools",
        ] {
            assert!(matches!(find(Some(Verb::Get), path), Found::Nothing), "{path}");
        }
    }
}
