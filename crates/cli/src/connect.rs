//! Which stack a command speaks to.

use crate::stack::EngineControl;
use anyhow::{Context, bail};
use ringfence_client::Client;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Written by `ringfence dev` when it is ready, removed when it ends.
pub(crate) const DEV_FILE: &str = ".ringfence/dev.json";

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

impl Connect {
    /// Known only where the stack is the one of the nearest dev.json: a deployment's containers are not here.
    pub(crate) fn engine(&self) -> Option<Engine> {
        let file = dev_file().ok()?;
        let same = match (&self.url, &self.token) {
            (None, None) => true,
            (url, token) => url.as_ref() == Some(&file.url) && token.as_ref() == Some(&file.token),
        };
        let control = file.control.filter(|_| same)?;
        Some(Engine { control: EngineControl::new(control), consumer: file.consumer })
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let (url, token) = match (&self.url, &self.token) {
            (Some(url), Some(token)) => (url.clone(), token.clone()),
            (Some(_), None) => bail!("--url needs a token: give --token or set RINGFENCE_TOKEN"),
            (None, Some(_)) => bail!("--token needs a deployment: give --url or set RINGFENCE_URL"),
            (None, None) => {
                let file = dev_file()?;
                (file.url, file.token)
            }
        };
        Ok(Client::new(&url, &token)?)
    }
}

/// The nearest dev.json at or above the working directory.
pub(crate) fn dev_file() -> anyhow::Result<DevFile> {
    let here = std::env::current_dir().context("the working directory")?;
    let found: Option<PathBuf> = here.ancestors().map(|at| at.join(DEV_FILE)).find(|path| path.is_file());
    let Some(path) = found else {
        bail!(
            "no running stack was found: start one with scripts/dev, or give --url and --token \
             (looked for {DEV_FILE} at and above {})",
            here.display()
        );
    };
    read(&path)
}

fn read(path: &Path) -> anyhow::Result<DevFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what `ringfence dev` writes", path.display()))
}
