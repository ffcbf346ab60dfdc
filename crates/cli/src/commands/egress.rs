//! `ringfence egress check`: would this request leave a sandbox? Asked of the code that decides in the Worker, without
//! a sandbox, a stack or the network.

use crate::exit::Exit;
use crate::print;
use ringfence_core::egress::{
    self, Action, Admitted, Asked, Credential, Denial, Method, Query, Rule, compose, profile,
    repository_grant,
};
use ringfence_wire::contract::{Enforcement, Recipe, Repo};
use serde::Serialize;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say whether a request would leave a sandbox, and by which rule
    Check(Check),
}

#[derive(clap::Args)]
#[command(after_help = "\
It decides one hop, as the Worker does before it fetches; a redirect is another hop, to be asked about by itself. What
a consumer may select at all (CONSUMERS) is the deployment's own, and is not looked at here.

Exit 0 when the request would leave, 1 when it would be denied, 2 for wrong usage.

Examples:
  ringfence egress check --profile js-install GET https://registry.npmjs.org/react
  ringfence egress check --repo owner/name GET 'https://github.com/owner/name/info/refs?service=git-upload-pack'
  ringfence egress check --profile browser-fetch --target example.com GET https://example.com/a?b=c")]
struct Check {
    /// A profile of the recipe; may be repeated
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// The recipe's repository
    #[arg(long, value_name = "OWNER/NAME", value_parser = repo)]
    repo: Option<Repo>,
    /// The recipe asks for large files (Git LFS)
    #[arg(long)]
    lfs: bool,
    /// A host of the recipe's targets; may be repeated
    #[arg(long, value_name = "HOST")]
    target: Vec<String>,
    /// The recipe's position
    #[arg(long, value_name = "POSITION", value_parser = position, default_value = "enforce")]
    enforcement: Enforcement,
    /// How much body the request declares
    #[arg(long, value_name = "BYTES")]
    body: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// As it is sent: GET, POST, …
    #[arg(value_name = "METHOD")]
    method: String,
    #[arg(value_name = "URL", value_parser = url)]
    url: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Allowed,
    /// A rule forbids it, and the position lets it go.
    Forwarded,
    Denied,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    verdict: Verdict,
    /// A denial's name, as it would stand in the record. Absent where nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The same for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<Credential>,
    /// What was probably meant otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
}

/// The rule that admits, and who brought it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Named {
    sources: Vec<String>,
    host: String,
    #[serde(flatten)]
    rule: Rule,
}

pub(crate) fn main(arguments: &Arguments) -> anyhow::Result<Exit> {
    let Command::Check(check) = &arguments.command;
    let told = match tell(check) {
        Ok(told) => told,
        Err(fault) => {
            print::note(fault);
            return Ok(Exit::Usage);
        }
    };
    if check.json {
        print::json(&told)?;
    } else {
        print::lines(&text(check, &told))?;
    }
    Ok(if told.verdict == Verdict::Denied { Exit::Failed } else { Exit::Ok })
}

fn tell(check: &Check) -> Result<Told, ringfence_core::recipe::FieldError> {
    let recipe = Recipe {
        version: "check".to_owned(),
        repo: check.repo.clone(),
        lfs: Some(check.lfs),
        profiles: Some(check.profile.clone()),
        targets: Some(check.target.clone()),
        enforcement: Some(check.enforcement),
    };
    let grant = compose(&recipe, check.lfs, None)?;
    let asked = Asked { method: &check.method, url: &check.url, declared_bytes: check.body, upgrade: false };
    let decision = egress::judge(&grant, &asked);
    let (verdict, reason) = match (egress::act(grant.position, &decision), &decision) {
        (Action::Forward, Ok(_)) => (Verdict::Allowed, None),
        (Action::Forward, Err(_)) => (Verdict::Forwarded, None),
        (Action::ForwardAndRecord(reason), _) => (Verdict::Forwarded, Some(reason)),
        (Action::Refuse(reason), _) => (Verdict::Denied, Some(reason.to_owned())),
    };
    let admitted = decision.as_ref().ok();
    Ok(Told {
        verdict,
        reason,
        why: decision.as_ref().err().map(Denial::to_string),
        rule: admitted.map(|admitted| named(check, admitted)),
        credential: admitted.and_then(|admitted| admitted.credential.cloned()),
        hints: hints(check, decision.as_ref().err()),
    })
}

fn hints(check: &Check, denial: Option<&Denial>) -> Vec<String> {
    let upper = check.method.to_ascii_uppercase();
    let lower_case = Method::parse(&check.method).is_none() && Method::parse(&upper).is_some();
    let grant = match (denial, check.enforcement) {
        (Some(Denial::NoGrant), Enforcement::Enforce) => Some(
            "a recipe without a profile or a repository reaches nothing: give --profile or --repo".to_owned(),
        ),
        (Some(Denial::NoGrant), position) => Some(format!(
            "{} is a position of a recipe with a profile or a repository: give --profile or --repo",
            position_name(position)
        )),
        _ => None,
    };
    let case = lower_case
        .then(|| format!("methods are upper case, and no rule names {}: write {upper}", check.method));
    grant.into_iter().chain(case).collect()
}

fn named(check: &Check, admitted: &Admitted<'_>) -> Named {
    let has = |source: &str| match (profile(source), &check.repo) {
        (Some(profile), _) => {
            let mut rules = profile.hosts.iter().filter(|at| at.host == admitted.host.host);
            rules.any(|at| at.rules.contains(admitted.rule)) || profile.target_rules.contains(admitted.rule)
        }
        (None, Some(repo)) => {
            repository_grant(repo, check.lfs).hosts.iter().any(|at| at.rules.contains(admitted.rule))
        }
        (None, None) => false,
    };
    let sources = admitted.host.sources.iter().map(|source| source.0.clone());
    Named {
        sources: sources.filter(|source| has(source)).collect(),
        host: admitted.host.host.to_string(),
        rule: admitted.rule.clone(),
    }
}

fn text(check: &Check, told: &Told) -> String {
    let mut out = match told.verdict {
        Verdict::Allowed => "allowed".to_owned(),
        Verdict::Forwarded => format!("forwarded, by the position {}", position_name(check.enforcement)),
        Verdict::Denied => "denied".to_owned(),
    };
    if let Some(reason) = &told.reason {
        out.push_str(&format!(" ({reason})"));
    }
    if let Some(why) = &told.why {
        out.push_str(&format!(": {why}"));
    }
    if let Some(Named { sources, host, rule }) = &told.rule {
        let methods: Vec<&str> = rule.methods.iter().map(|method| Method::as_str(*method)).collect();
        let query = match &rule.query {
            Query::None => String::new(),
            Query::Any => "?…".to_owned(),
            Query::Exactly(text) => format!("?{text}"),
        };
        let path = rule.path.as_str();
        out.push_str(&format!(
            "\n  by {}: {} {host}{path}{query}  ({})",
            sources.join(", "),
            methods.join(" "),
            rule.why
        ));
    }
    if let Some(credential) = &told.credential {
        out.push_str(&format!("\n  the Worker adds a header of the secret {}", credential.secret_name));
    }
    for hint in &told.hints {
        out.push_str(&format!("\n  {hint}"));
    }
    out.push('\n');
    out
}

fn position_name(position: Enforcement) -> &'static str {
    match position {
        Enforcement::Enforce => "enforce",
        Enforcement::Report => "report",
        Enforcement::Legacy => "legacy",
    }
}

fn position(text: &str) -> Result<Enforcement, String> {
    [Enforcement::Enforce, Enforcement::Report, Enforcement::Legacy]
        .into_iter()
        .find(|position| position_name(*position) == text)
        .ok_or_else(|| "expected enforce, report or legacy".to_owned())
}

fn repo(text: &str) -> Result<Repo, String> {
    let Some((owner, name)) = text.split_once('/') else { return Err("expected OWNER/NAME".to_owned()) };
    let repo = Repo { owner: owner.to_owned(), name: name.to_owned(), reference: None };
    ringfence_core::recipe::validate_repo(&repo).map_err(|fault| fault.to_string())?;
    Ok(repo)
}

fn url(text: &str) -> Result<String, String> {
    const WHOLE: &str = "write the URL whole, with https://, like https://example.com/path";
    match url::Url::parse(text) {
        Ok(url) if url.has_host() => Ok(text.to_owned()),
        // `example.com:443/path` is a URL of the scheme `example.com`.
        Ok(_) | Err(url::ParseError::RelativeUrlWithoutBase) => Err(WHOLE.to_owned()),
        Err(error) => Err(format!("{error}; {WHOLE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        check: Check,
    }

    fn check(line: &str) -> Check {
        Line::try_parse_from(std::iter::once("check").chain(line.split(' '))).unwrap().check
    }

    fn told(line: &str) -> Told {
        tell(&check(line)).unwrap()
    }

    #[test]
    fn an_allowed_request_names_its_rule_and_the_profile_that_brought_it() {
        let told = told(
            "--profile rust-install --profile js-install GET https://registry.npmjs.org/react/-/r-1.tgz",
        );
        assert_eq!(told.verdict, Verdict::Allowed);
        let rule = told.rule.unwrap();
        assert_eq!((rule.sources, rule.rule.path.as_str()), (vec!["js-install".to_owned()], "/*/-/*.tgz"));
    }

    #[test]
    fn of_two_that_name_a_host_the_one_with_the_rule_is_named() {
        let line = |path: &str| {
            told(&format!("--repo o/n --profile public-repo-read GET https://github.com{path}"))
                .rule
                .unwrap()
                .sources
        };
        assert_eq!(line("/o/n/info/refs?service=git-upload-pack"), ["repository"]);
        assert_eq!(line("/a/b/info/refs?service=git-upload-pack"), ["public-repo-read"]);
    }

    #[test]
    fn a_denied_one_says_how_far_it_came() {
        let reason = |line: &str| told(line).reason.unwrap();
        assert_eq!(reason("GET https://example.com/"), "no-grant");
        assert_eq!(reason("--profile js-install GET https://example.com/"), "host");
        assert_eq!(reason("--profile js-install PUT https://registry.npmjs.org/react"), "method");
        assert_eq!(reason("--profile js-install GET https://registry.npmjs.org/-/whoami"), "path");
        assert_eq!(reason("--profile js-install GET http://registry.npmjs.org/react"), "not-https");
        assert_eq!(reason("--profile github-api-read GET https://api.github.com/gists"), "sink");
        let body = "--repo o/n --body 999999999 POST https://github.com/o/n/git-upload-pack";
        assert_eq!(reason(body), "body-too-large");
    }

    #[test]
    fn a_position_that_forwards_is_told_as_that_and_a_sink_is_denied_in_each() {
        let told_in = |position: &str, url: &str| {
            told(&format!("--profile github-api-read --enforcement {position} GET {url}"))
        };
        let report = told_in("report", "https://example.com/");
        assert_eq!(
            (report.verdict, report.reason.as_deref()),
            (Verdict::Forwarded, Some("would-deny: host"))
        );
        let legacy = told_in("legacy", "https://example.com/");
        assert_eq!((legacy.verdict, legacy.reason), (Verdict::Forwarded, None));
        for position in ["report", "legacy", "enforce"] {
            assert_eq!(told_in(position, "https://gist.github.com/").verdict, Verdict::Denied);
        }
    }

    #[test]
    fn a_credential_is_named_and_is_no_secret() {
        let told = told("--profile cf-api GET https://api.cloudflare.com/client/v4/zones");
        assert_eq!(told.credential.unwrap().secret_name, "CF_API_TOKEN");
    }

    #[test]
    fn a_method_in_lower_case_is_denied_with_a_hint() {
        let hint = "methods are upper case, and no rule names get: write GET";
        let granted = told("--profile js-install get https://registry.npmjs.org/react");
        assert_eq!((granted.verdict, granted.hints), (Verdict::Denied, vec![hint.to_owned()]));
        let check = check("get https://registry.npmjs.org/react");
        assert!(text(&check, &tell(&check).unwrap()).ends_with(&format!("\n  {hint}\n")));
        assert_eq!(told("--profile js-install OWN https://registry.npmjs.org/react").hints, [""; 0]);
    }

    #[test]
    fn without_a_grant_it_says_what_the_position_asked_for_needs() {
        for position in ["report", "legacy"] {
            let told = told(&format!("--enforcement {position} GET https://example.com/"));
            assert_eq!((told.verdict, told.reason.as_deref()), (Verdict::Denied, Some("no-grant")));
            let needs = format!("{position} is a position of a recipe with a profile or a repository");
            assert!(told.hints.iter().any(|hint| hint.starts_with(&needs)), "{:?}", told.hints);
        }
        assert_eq!(told("--profile js-install GET https://example.com/").hints, [""; 0]);
    }

    #[test]
    fn a_url_that_is_not_whole_is_refused_with_what_it_lacks() {
        for bad in ["/react", "registry.npmjs.org/react", "registry.npmjs.org:443/react", "https://"] {
            let told = url(bad).unwrap_err();
            assert!(told.contains("write the URL whole, with https://"), "{bad}: {told}");
        }
    }

    #[test]
    fn what_no_recipe_could_say_is_wrong_usage() {
        for line in [
            "--profile js-instal GET https://a.test/",
            "--profile js-install --target a.test GET https://a.test/",
            "--profile browser-fetch GET https://a.test/",
            "--lfs GET https://a.test/",
        ] {
            assert!(tell(&check(line)).is_err(), "{line}");
        }
        for line in ["GET a.test", "--repo o GET https://a.test/", "--enforcement no GET https://a.test/"] {
            assert!(Line::try_parse_from(std::iter::once("check").chain(line.split(' '))).is_err(), "{line}");
        }
    }
}
