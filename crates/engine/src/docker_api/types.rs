//! Bodies of the calls that have one. Fields that have no effect here are not read.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateContainer {
    #[serde(default)]
    pub image: String,
    pub cmd: Option<Vec<String>>,
    pub entrypoint: Option<serde_json::Value>,
    pub env: Option<Vec<String>>,
    pub labels: Option<BTreeMap<String, String>>,
    pub exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    pub host_config: HostConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostConfig {
    #[serde(default)]
    pub network_mode: String,
    pub binds: Option<Vec<serde_json::Value>>,
    pub mounts: Option<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateExec {
    #[serde(default)]
    pub attach_stdin: bool,
    #[serde(default)]
    pub tty: bool,
    #[serde(default)]
    pub cmd: Vec<String>,
    pub env: Option<Vec<String>>,
    pub working_dir: Option<String>,
    pub user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StartExec {
    #[serde(default)]
    pub detach: bool,
    #[serde(default)]
    pub tty: bool,
    /// `[height, width]`.
    pub console_size: Option<[u16; 2]>,
}

/// `NAME=value` → the pair. A name alone has no value and is dropped, as Docker does.
pub fn environment(list: Option<Vec<String>>) -> Vec<(String, String)> {
    let pairs = list.unwrap_or_default().into_iter();
    pairs
        .filter_map(|entry| entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect()
}
