//! Which stack a command speaks to, and whether anything is there.
//!
//! A command connects once before its first call: that nothing listens is then said first and once, with the address and
//! the remedy, and not as whatever the first call makes of it.

use crate::exit::Usage;
use crate::stack::EngineControl;
use anyhow::{Context, bail};
use ringfence_client::{Client, SetupError};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use url::Url;

/// Written by `ringfence dev` when it is ready, removed when it ends.
pub(crate) const DEV_FILE: &str = ".ringfence/dev.json";
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DevFile {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) consumer: String,
    /// The engine's control socket, for commands that look at containers.
    #[serde(default)]
    pub(crate) control: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Connect {
    /// The deployment, such as http://127.0.0.1:8787
    #[arg(long, env = "RINGFENCE_URL", value_name = "URL")]
    url: Option<String>,
    /// The bearer token; better given by the environment, where no process list shows it
    #[arg(long, env = "RINGFENCE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// The engine of the stack that a command speaks to, and whose containers there are the command's.
pub(crate) struct Engine {
    pub(crate) control: EngineControl,
    pub(crate) consumer: String,
}

/// Where an address came from, for the remedy.
#[derive(Debug)]
enum Origin {
    Given,
    File(PathBuf),
}

impl Connect {
    /// Known only where the stack is the one of the nearest dev.json: a deployment's containers are not here.
    pub(crate) fn engine(&self) -> Option<Engine> {
        let (_, file) = dev_file().ok()?;
        let same = match (&self.url, &self.token) {
            (None, None) => true,
            (url, token) => url.as_ref() == Some(&file.url) && token.as_ref() == Some(&file.token),
        };
        let control = file.control.filter(|_| same)?;
        Some(Engine { control: EngineControl::new(control), consumer: file.consumer })
    }

    /// A client of a stack that listens.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let (url, token, origin) = match (&self.url, &self.token) {
            (Some(url), Some(token)) => (url.clone(), token.clone(), Origin::Given),
            (Some(_), None) => {
                bail!(Usage("--url needs a token: give --token or set RINGFENCE_TOKEN".to_owned()))
            }
            (None, Some(_)) => {
                bail!(Usage("--token needs a deployment: give --url or set RINGFENCE_URL".to_owned()))
            }
            (None, None) => {
                let (path, file) = dev_file()?;
                (file.url, file.token, Origin::File(path))
            }
        };
        let client = match (Client::new(&url, &token), &origin) {
            (Ok(client), _) => client,
            (Err(error @ SetupError::Roots(_)), _) => return Err(error.into()),
            (Err(error), Origin::Given) => bail!(Usage(format!("--url or --token: {error}"))),
            (Err(error), Origin::File(path)) => {
                return Err(error).with_context(|| not_ours(path));
            }
        };
        reach(client.url(), &origin).await?;
        Ok(client)
    }
}

/// Fails where nothing listens.
async fn reach(url: &str, origin: &Origin) -> anyhow::Result<()> {
    let parsed = Url::parse(url).with_context(|| format!("{url} is no URL"))?;
    let host = parsed.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = parsed.port_or_known_default().unwrap_or_default();
    let why = match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect((bare, port))).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {CONNECT_WITHIN:?}"),
    };
    let remedy = match origin {
        Origin::File(path) => format!(
            "the stack that wrote {} no longer runs: start scripts/dev again, or remove that file",
            path.display()
        ),
        Origin::Given if is_local(bare) => {
            "is `ringfence dev` running, and is this its --url (RINGFENCE_URL)?".to_owned()
        }
        Origin::Given => "is this the deployment's --url (RINGFENCE_URL)?".to_owned(),
    };
    bail!("cannot connect to {url}: {why}; {remedy}")
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The nearest dev.json at or above the working directory, and where it is.
fn dev_file() -> anyhow::Result<(PathBuf, DevFile)> {
    let here = std::env::current_dir().context("the working directory")?;
    let found: Option<PathBuf> = here.ancestors().map(|at| at.join(DEV_FILE)).find(|path| path.is_file());
    let Some(path) = found else {
        bail!(
            "no running stack was found: start one with scripts/dev, or give --url and --token \
             (looked for {DEV_FILE} at and above {})",
            here.display()
        );
    };
    let file = read(&path)?;
    Ok((path, file))
}

fn read(path: &Path) -> anyhow::Result<DevFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| not_ours(path))
}

fn not_ours(path: &Path) -> String {
    format!("{} is not what `ringfence dev` writes; remove it and start scripts/dev", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(url: Option<&str>, token: Option<&str>) -> Connect {
        Connect { url: url.map(str::to_owned), token: token.map(str::to_owned) }
    }

    /// An address where nobody listens.
    async fn nobody() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    #[tokio::test]
    async fn that_nothing_listens_is_said_once_with_the_address_and_the_remedy() {
        let url = nobody().await;
        let error = given(Some(&url), Some("t")).client().await.err().unwrap();
        assert!(error.downcast_ref::<Usage>().is_none(), "no fault of the command line");
        let told = crate::print::causes(error.as_ref());
        assert!(told.starts_with(&format!("cannot connect to {url}: Connection refused")), "{told}");
        assert_eq!(told.matches("refused").count(), 1, "{told}");
        assert!(told.contains("is `ringfence dev` running"), "{told}");
    }

    #[tokio::test]
    async fn a_stale_file_is_named_with_the_remedy() {
        let path = PathBuf::from("/checkout/.ringfence/dev.json");
        let told = reach(&nobody().await, &Origin::File(path)).await.unwrap_err().to_string();
        assert!(
            told.ends_with(
                "the stack that wrote /checkout/.ringfence/dev.json no longer runs: start scripts/dev again, or \
                 remove that file"
            ),
            "{told}"
        );
    }

    #[tokio::test]
    async fn half_an_address_or_a_bad_one_is_wrong_usage() {
        for (url, token) in [
            (Some("http://127.0.0.1:1"), None),
            (None, Some("t")),
            (Some("nonsense"), Some("t")),
            (Some("http://example.com"), Some("t")),
            (Some("http://127.0.0.1:1"), Some("a\nb")),
        ] {
            let error = given(url, token).client().await.err().unwrap();
            assert!(error.downcast_ref::<Usage>().is_some(), "{url:?} {token:?}: {error}");
        }
    }
}
