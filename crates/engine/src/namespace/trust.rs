//! Where programs in a container find the certificate that its HTTPS is opened with: at the platform's path, in the
//! copies of the system's bundles, and by the variables that programs with bundles of their own look at.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Where the platform puts it, and where workerd unpacks it to. Below `/etc`.
const PLATFORM_PATH: &str = "cloudflare/certs/cloudflare-containers-ca.crt";

/// The bundles of the distributions, below `/etc`. The first is made where there is none.
const BUNDLES: [&str; 4] = [
    "ssl/certs/ca-certificates.crt",
    "pki/tls/certs/ca-bundle.crt",
    "ssl/cert.pem",
    "pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Adds the certificate below `etc`, the container's own.
pub fn install(etc: &Path, authority: &str) -> io::Result<()> {
    let platform = etc.join(PLATFORM_PATH);
    let [first, ..] = BUNDLES;
    for path in [platform.as_path(), etc.join(first).as_path()] {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
    }
    std::fs::write(&platform, authority)?;
    for bundle in BUNDLES {
        let path = etc.join(bundle);
        // One bundle is often a link to another: it is written once.
        let link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if !link && (path.exists() || bundle == first) {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)?
                .write_all(format!("\n{authority}").as_bytes())?;
        }
    }
    Ok(())
}

/// The variables, for PID 1, which passes them on to jobs.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let [bundle, ..] = BUNDLES;
    let of_bundle =
        ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"];
    // Node has its own roots, and adds to them.
    let node = ("NODE_EXTRA_CA_CERTS".to_owned(), format!("/etc/{PLATFORM_PATH}"));
    of_bundle
        .into_iter()
        .map(move |name| (name.to_owned(), format!("/etc/{bundle}")))
        .chain(std::iter::once(node))
}
