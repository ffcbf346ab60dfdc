//! Whole grants: what recipes compose to, and what is then admitted, hop by hop.

use super::super::hop::body_fits;
use super::super::{Denial, Hop, decide};
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use url::Url;

fn recipe(change: Value) -> Recipe {
    let mut recipe = json!({"version": "1"});
    for (name, value) in change.as_object().unwrap() {
        recipe[name] = value.clone();
    }
    serde_json::from_value(recipe).unwrap()
}

fn grant(change: Value) -> Grant {
    let recipe = recipe(change);
    compose(&recipe, recipe.lfs.unwrap_or(false), None).unwrap()
}

fn fault_of(change: Value) -> String {
    let recipe = recipe(change);
    compose(&recipe, recipe.lfs.unwrap_or(false), Some(&["js-install".to_owned()])).unwrap_err().field
}

fn ask(grant: &Grant, method: &str, url: &str) -> Result<(), Denial> {
    let hop = Hop { method: Method::parse(method).unwrap(), url: Url::parse(url).unwrap() };
    decide(grant, &hop).map(|_| ())
}

#[test]
fn who_may_select_some_profiles_may_only_enforce() {
    for position in ["report", "legacy"] {
        let change = json!({"profiles": ["js-install"], "enforcement": position});
        assert_eq!(fault_of(change.clone()), "recipe.enforcement");
        assert!(!grant(change).is_empty(), "whoever may select any may choose");
    }
    let enforce = recipe(json!({"profiles": ["js-install"], "enforcement": "enforce"}));
    assert!(compose(&enforce, false, Some(&["js-install".to_owned()])).is_ok());
}

#[test]
fn no_repository_and_no_profile_is_no_egress() {
    let none = grant(json!({}));
    assert!(none.is_empty() && none.granted().is_empty());
    assert_eq!(ask(&none, "GET", "https://github.com/"), Err(Denial::Host));
}

#[test]
fn a_repository_is_read_and_not_written_and_no_other_is_reached() {
    let grant = grant(json!({"repo": {"owner": "o", "name": "n"}}));
    for form in ["o/n", "o/n.git"] {
        let at = |rest: &str| format!("https://github.com/{form}/{rest}");
        assert_eq!(ask(&grant, "GET", &at("info/refs?service=git-upload-pack")), Ok(()));
        assert_eq!(ask(&grant, "POST", &at("git-upload-pack")), Ok(()));
        assert_eq!(ask(&grant, "GET", &at("info/refs?service=git-receive-pack")), Err(Denial::Query));
        assert_eq!(ask(&grant, "GET", &at("info/refs")), Err(Denial::Query));
        assert_eq!(ask(&grant, "POST", &at("git-receive-pack")), Err(Denial::Sink));
        assert_eq!(ask(&grant, "POST", &at("info/lfs/objects/batch")), Err(Denial::Path));
    }
    let other = "https://github.com/o/other.git/info/refs?service=git-upload-pack";
    assert_eq!(ask(&grant, "GET", other), Err(Denial::Path));
    let climbs = "https://github.com/o/n/../other.git/info/refs?service=git-upload-pack";
    assert_eq!(ask(&grant, "GET", climbs), Err(Denial::Path));
    assert_eq!(ask(&grant, "DELETE", "https://github.com/o/n"), Err(Denial::Method));
}

#[test]
fn large_files_are_opted_into_and_looked_into() {
    let grant = grant(json!({"repo": {"owner": "o", "name": "n"}, "lfs": true}));
    let url = Url::parse("https://github.com/o/n.git/info/lfs/objects/batch").unwrap();
    let admitted = decide(&grant, &Hop { method: Method::Post, url }).unwrap();
    assert_eq!(admitted.rule.inspect, Some(Inspect::LfsDownload));
    assert_eq!(ask(&grant, "GET", "https://github-cloud.githubusercontent.com/a/b?sig=1"), Ok(()));
    assert_eq!(ask(&grant, "PUT", "https://github-cloud.s3.amazonaws.com/a/b?sig=1"), Err(Denial::Method));
    assert_eq!(fault_of(json!({"lfs": true})), "recipe.lfs");
}

#[test]
fn each_profile_admits_what_it_is_for_and_refuses_the_writes_beside_it() {
    use Denial::{Host, Method, Path, Query, Sink};
    type Request = (&'static str, &'static str, Result<(), Denial>);
    let cases: &[(&str, &[Request])] = &[
        (
            "js-install",
            &[
                ("GET", "https://registry.npmjs.org/react", Ok(())),
                ("GET", "https://registry.npmjs.org/@types%2fnode", Ok(())),
                ("GET", "https://registry.npmjs.org/@types/node", Ok(())),
                ("GET", "https://registry.npmjs.org/react/-/react-19.0.0.tgz", Ok(())),
                ("GET", "https://registry.npmjs.org/@types/node/-/node-24.0.0.tgz", Ok(())),
                ("PUT", "https://registry.npmjs.org/react", Err(Method)),
                ("GET", "https://registry.npmjs.org/-/user/org.couchdb.user:x", Err(Sink)),
                ("GET", "https://registry.npmjs.org/-/v1/search?text=x", Err(Path)),
                ("GET", "https://registry.npmjs.org/react?leak=1", Err(Query)),
                ("GET", "https://registry.npmjs.org.evil.test/react", Err(Host)),
            ],
        ),
        (
            "rust-install",
            &[
                ("GET", "https://index.crates.io/se/rd/serde", Ok(())),
                ("GET", "https://static.crates.io/crates/serde/1.0.0/download", Ok(())),
                ("GET", "https://static.crates.io/crates/serde/serde-1.0.0.crate", Ok(())),
                ("GET", "https://static.rust-lang.org/dist/channel-rust-stable.toml.sha256", Ok(())),
                ("PUT", "https://crates.io/api/v1/crates/new", Err(Sink)),
                ("DELETE", "https://crates.io/api/v1/crates/serde/1.0.0/yank", Err(Method)),
            ],
        ),
        (
            "public-repo-read",
            &[
                ("GET", "https://github.com/a/b.git/info/refs?service=git-upload-pack", Ok(())),
                ("POST", "https://github.com/a/b/git-upload-pack", Ok(())),
                ("GET", "https://raw.githubusercontent.com/a/b/main/README.md", Ok(())),
                ("GET", "https://codeload.github.com/a/b/tar.gz/refs/tags/v1", Ok(())),
                ("GET", "https://github.com/a/b.git/info/refs?service=git-receive-pack", Err(Query)),
                ("POST", "https://github.com/a/b/git-receive-pack", Err(Sink)),
                ("GET", "https://gist.github.com/a/1", Err(Sink)),
            ],
        ),
        (
            "github-api-read",
            &[
                ("GET", "https://api.github.com/repos/a/b/issues?state=open", Ok(())),
                ("POST", "https://api.github.com/repos/a/b/issues", Err(Method)),
                ("GET", "https://api.github.com/gists", Err(Sink)),
                ("POST", "https://api.github.com/graphql", Err(Sink)),
                ("POST", "https://uploads.github.com/repos/a/b/releases/1/assets", Err(Sink)),
            ],
        ),
        (
            "cf-api",
            &[
                ("GET", "https://api.cloudflare.com/client/v4/zones?page=2", Ok(())),
                ("POST", "https://api.cloudflare.com/client/v4/zones", Err(Method)),
                ("GET", "https://api.cloudflare.com/other", Err(Path)),
            ],
        ),
    ];
    for (name, requests) in cases {
        let grant = grant(json!({ "profiles": [name] }));
        for (method, url, expect) in *requests {
            assert_eq!(ask(&grant, method, url), *expect, "{name} {method} {url}");
        }
    }
}

#[test]
fn targets_are_for_a_profile_that_takes_them() {
    let grant =
        grant(json!({"profiles": ["browser-fetch"], "targets": ["docs.example.com", "*.example.org"]}));
    assert_eq!(ask(&grant, "GET", "https://docs.example.com/a?b=c"), Ok(()));
    assert_eq!(ask(&grant, "GET", "https://a.example.org/"), Ok(()));
    assert_eq!(ask(&grant, "POST", "https://docs.example.com/a"), Err(Denial::Method));
    assert_eq!(ask(&grant, "GET", "https://example.com/"), Err(Denial::Host));
    let js = json!({"profiles": ["js-install"], "targets": ["a.example.com"]});
    assert_eq!(fault_of(js), "recipe.targets");
    let bare = recipe(json!({"profiles": ["browser-fetch"]}));
    assert_eq!(compose(&bare, false, None).unwrap_err().field, "recipe.targets");
    let bad = json!({"profiles": ["browser-fetch"], "targets": ["ok.test", "https://bad.test"]});
    assert_eq!(fault_of(bad), "recipe.targets[1]");
}

#[test]
fn a_target_that_publishes_stays_denied() {
    let grant = grant(json!({"profiles": ["browser-fetch"], "targets": ["webhook.site", "x.ngrok.io"]}));
    for url in ["https://webhook.site/x", "https://x.ngrok.io/"] {
        assert_eq!(ask(&grant, "GET", url), Err(Denial::Sink));
    }
}

#[test]
fn an_unknown_profile_and_one_the_consumer_may_not_select_are_named() {
    assert_eq!(fault_of(json!({"profiles": ["js-install", "nope"]})), "recipe.profiles[1]");
    assert_eq!(fault_of(json!({"profiles": ["cf-api"]})), "recipe.profiles[0]");
}

#[test]
fn a_host_named_twice_has_the_rules_of_both() {
    let grant = grant(json!({"repo": {"owner": "o", "name": "n"}, "profiles": ["public-repo-read"]}));
    assert_eq!(grant.hosts.iter().filter(|host| host.host.as_str() == "github.com").count(), 1);
    let told = grant.granted();
    for profile in ["repository", "public-repo-read"] {
        assert!(told.contains(&Granted { host: "github.com".into(), profile: profile.into() }), "{profile}");
    }
    let twice = super::tests::grant(json!({"profiles": ["js-install", "js-install"]}));
    assert_eq!(twice, super::tests::grant(json!({"profiles": ["js-install"]})));
}

#[test]
fn only_a_profile_brings_a_credential_and_only_to_its_host() {
    let grant = grant(json!({"profiles": ["cf-api", "js-install"]}));
    for granted in &grant.hosts {
        let expect = (granted.host.as_str() == "api.cloudflare.com").then_some("CF_API_TOKEN");
        assert_eq!(granted.credential.as_ref().map(|c| c.secret_name.as_str()), expect);
    }
}

#[test]
fn a_body_is_bounded_by_its_rule() {
    let grant = grant(json!({"repo": {"owner": "o", "name": "n"}}));
    let url = Url::parse("https://github.com/o/n/git-upload-pack").unwrap();
    let rule = decide(&grant, &Hop { method: Method::Post, url }).unwrap().rule;
    assert_eq!(body_fits(rule, Some(MAX_FETCH_BYTES)), Ok(()));
    assert_eq!(body_fits(rule, Some(MAX_FETCH_BYTES + 1)), Err(Denial::BodyTooLarge));
}

#[test]
fn a_grant_survives_the_way_to_the_entrypoint() {
    let grant = grant(json!({"profiles": ["js-install", "cf-api"], "enforcement": "report"}));
    let text = serde_json::to_string(&grant).unwrap();
    assert_eq!(serde_json::from_str::<Grant>(&text).unwrap(), grant);
}

proptest! {
    #[test]
    fn nothing_but_the_granted_host_is_ever_admitted(
        host in "[a-z0-9.@:%-]{1,24}", path in "(/[a-z%2F.@-]{0,8}){0,4}", method in 0usize..7,
    ) {
        const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        let grant = grant(json!({"profiles": ["js-install"]}));
        if let Ok(url) = Url::parse(&format!("https://{host}{path}")) {
            let admitted = ask(&grant, METHODS[method], url.as_str()).is_ok();
            let named = grant.hosts.iter().any(|granted| Some(granted.host.as_str()) == url.host_str());
            prop_assert!(!admitted || (named && method < 2));
        }
    }

    #[test]
    fn no_repository_name_widens_its_grant(owner in "[a-zA-Z0-9-]{1,8}", name in "[a-zA-Z0-9._*/-]{1,8}") {
        let grant = repository_grant(&Repo { owner, name, reference: None }, false);
        let other = "https://github.com/someone/else/info/refs?service=git-upload-pack";
        prop_assert!(ask(&grant, "GET", other).is_err());
    }
}
