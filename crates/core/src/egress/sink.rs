//! Deny sinks: places that publish what they are sent. No profile un-denies one, and no position forwards to one.

use super::path::PathPattern;

/// Whole hosts, and every host below them.
const HOSTS: &[&str] = &[
    "gist.github.com",
    "gist.githubusercontent.com",
    "uploads.github.com",
    "upload.pypi.org",
    "upload.crates.io",
    "pastebin.com",
    "paste.rs",
    "dpaste.com",
    "dpaste.org",
    "hastebin.com",
    "ix.io",
    "0x0.st",
    "transfer.sh",
    "file.io",
    "temp.sh",
    "catbox.moe",
    "webhook.site",
    "requestbin.com",
    "pipedream.net",
    "beeceptor.com",
    "interact.sh",
    "oast.fun",
    "ngrok.io",
    "ngrok-free.app",
    "ngrok.app",
    "trycloudflare.com",
    "serveo.net",
    "discord.com",
    "hooks.slack.com",
    "api.telegram.org",
];

/// Paths of hosts that are otherwise fit to be granted.
const PATHS: &[(&str, &str)] = &[
    ("api.github.com", "/gists"),
    ("api.github.com", "/gists/**"),
    ("api.github.com", "/graphql"),
    ("api.github.com", "/repos/*/*/dispatches"),
    ("api.github.com", "/repos/*/*/actions/**"),
    ("api.github.com", "/repos/*/*/keys/**"),
    ("api.github.com", "/repos/*/*/hooks/**"),
    ("github.com", "/*/*/git-receive-pack"),
    ("crates.io", "/api/v1/crates/new"),
    ("registry.npmjs.org", "/-/user/**"),
    ("registry.npmjs.org", "/-/npm/v1/tokens/**"),
    ("registry.npmjs.org", "/-/package/**"),
];

/// Does this folded host, or this path of it, publish?
pub fn is_sink(host: &str, path: &[String]) -> bool {
    let below =
        |sink: &str| host.strip_suffix(sink).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    HOSTS.iter().any(|sink| below(sink))
        || PATHS.iter().any(|(at, pattern)| {
            *at == host && PathPattern::parse(pattern).is_ok_and(|pattern| pattern.admits(path))
        })
}

#[cfg(test)]
mod tests {
    use super::super::host::HostPattern;
    use super::*;

    fn sink(host: &str, path: &str) -> bool {
        let path: Vec<String> = path.trim_start_matches('/').split('/').map(str::to_owned).collect();
        is_sink(host, &path)
    }

    #[test]
    fn gists_uploads_and_hooks_are_sinks_and_their_neighbours_are_not() {
        assert!(sink("gist.github.com", "/"));
        assert!(sink("a.webhook.site", "/x"));
        assert!(sink("api.github.com", "/gists"));
        assert!(sink("api.github.com", "/gists/1/comments"));
        assert!(sink("github.com", "/o/n.git/git-receive-pack"));
        assert!(!sink("github.com", "/o/n.git/git-upload-pack"));
        assert!(!sink("api.github.com", "/repos/o/n"));
        assert!(!sink("notpastebin.com", "/"));
        assert!(!sink("gist.github.com.evil.test", "/"));
    }

    #[test]
    fn every_entry_is_well_formed() {
        for host in HOSTS.iter().chain(PATHS.iter().map(|(host, _)| host)) {
            assert!(HostPattern::parse(host).is_ok(), "{host}");
        }
        for (host, pattern) in PATHS {
            assert!(PathPattern::parse(pattern).is_ok(), "{host}{pattern}");
        }
    }
}
