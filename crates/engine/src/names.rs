//! Container names. `wrangler dev` puts the random id of its session into each name; without it a container
//! outlives a restart of wrangler and is found again under the name of its object.

/// The name a container is kept under: percent-decoding is done by the caller; the session id goes.
///
/// `workerd-<16 hex>-rest` → `workerd-rest`; everything else stays as it is.
pub fn canonical(name: &str) -> String {
    const PREFIX: &str = "workerd-";
    const SESSION_HEX: usize = 16;
    let name = name.strip_prefix('/').unwrap_or(name);
    let stripped = name.strip_prefix(PREFIX).and_then(|rest| {
        let (session, rest) = rest.split_at_checked(SESSION_HEX)?;
        let rest = rest.strip_prefix('-')?;
        let hex = session.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (hex && !rest.is_empty()).then(|| format!("{PREFIX}{rest}"))
    });
    stripped.unwrap_or_else(|| name.to_owned())
}

/// Where a Sandbox object writes whose container it starts: `consumer:key`.
pub const SANDBOX_VARIABLE: &str = "RINGFENCE_SANDBOX";
/// The label that names one run of wrangler. Dropped like the session id in names: a container belongs to its
/// object, not to the run that happened to start it.
pub const SESSION_LABEL: &str = "dev.workerd.session";

const SIDECAR_SUFFIX: &str = "-proxy";

/// The application container that a sidecar serves: `<name>-proxy` → `<name>`.
pub fn served_by(sidecar: &str) -> Option<&str> {
    sidecar.strip_suffix(SIDECAR_SUFFIX)
}

/// The sidecar that serves an application container.
pub fn sidecar_of(container: &str) -> String {
    format!("{container}{SIDECAR_SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_session_id_is_stripped_and_nothing_else() {
        assert_eq!(canonical("workerd-0123456789abcdef-app-Sandbox-ff00"), "workerd-app-Sandbox-ff00");
        assert_eq!(
            canonical("workerd-0123456789abcdef-app-Sandbox-ff00-proxy"),
            "workerd-app-Sandbox-ff00-proxy"
        );
        for kept in [
            "workerd-app-Sandbox-ff00",
            "workerd-0123456789abcdeg-app",
            "workerd-0123456789ABCDEF-app",
            "workerd-0123456789abcdef",
            "workerd-0123456789abcdef-",
            "other-0123456789abcdef-app",
            "workerd-0123456789abcdefé-app",
        ] {
            assert_eq!(canonical(kept), kept);
        }
        assert_eq!(canonical("/named"), "named");
    }

    proptest! {
        #[test]
        fn two_sessions_of_one_object_share_a_name(a in "[0-9a-f]{16}", b in "[0-9a-f]{16}", rest in "[a-z]{1,9}-[A-Z]{1,4}-[0-9a-f]{64}") {
            prop_assert_eq!(canonical(&format!("workerd-{a}-{rest}")), canonical(&format!("workerd-{b}-{rest}")));
        }

        #[test]
        fn any_text_has_a_name(text in ".*") {
            let _ = canonical(&text);
        }
    }
}
