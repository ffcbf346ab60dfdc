//! What a stack is started with.

use super::error::StackError;
use super::secrets::Secrets;
use super::tools::Tools;
use super::workers::{self, WorkerSource};
use ringfence_engine::BindReadOnly;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long each part may take to become ready.
pub const DEFAULT_STARTUP: Duration = Duration::from_secs(90);

#[derive(Clone, Debug)]
pub struct StackOptions {
    /// Everything this run writes is beneath it: storage, logs, sockets, secrets.
    pub run: PathBuf,
    /// The `ringfence` executable (engine, guard and docker stand-in in one).
    pub ringfence: PathBuf,
    /// `ringfenced`; `None`: beside `ringfence`.
    pub supervisor: Option<PathBuf>,
    pub tools: Tools,
    /// 0: any free one.
    pub port: u16,
    /// Lets faults be injected at the engine's sockets.
    pub faults: bool,
    /// Directories of the host that every container sees, read-only.
    pub bind_read_only: Vec<BindReadOnly>,
    /// The substrate.
    pub substrate: WorkerSource,
    /// Consumer Workers to run beside it.
    pub consumers: Vec<WorkerSource>,
    /// Consumers that get a bearer token for the HTTP face.
    pub http_consumers: Vec<String>,
    /// Rows that join the substrate's `CONSUMERS`, such as `("acme", json!({"faces":["rpc"]}))`.
    pub allow: BTreeMap<String, Value>,
    /// For each part.
    pub startup: Duration,
}

impl StackOptions {
    /// The checkout's own substrate on any port, without consumers, with one HTTP consumer named `local`.
    pub fn new(
        root: &Path,
        run: impl Into<PathBuf>,
        ringfence: impl Into<PathBuf>,
    ) -> Result<Self, StackError> {
        Ok(Self {
            run: run.into(),
            ringfence: ringfence.into(),
            supervisor: None,
            tools: Tools::of_checkout(root)?,
            port: 0,
            faults: false,
            bind_read_only: Vec::new(),
            substrate: WorkerSource::new(root.join("wrangler.toml")),
            consumers: Vec::new(),
            http_consumers: vec!["local".to_owned()],
            allow: BTreeMap::new(),
            startup: DEFAULT_STARTUP,
        })
    }

    /// Writes every Worker's configuration; the first returned is the one that gets the port.
    pub(super) fn prepare_workers(&self, secrets: &Secrets) -> Result<Vec<PathBuf>, StackError> {
        let substrate = workers::prepare(&self.substrate, &self.run, |vars| {
            self.allow_consumers(vars)?;
            Ok(BTreeMap::from([
                ("TICKET_SECRETS".to_owned(), secrets.ticket_secrets_json()),
                ("API_TOKENS".to_owned(), secrets.api_tokens_json(&self.http_consumers)),
            ]))
        })?;
        let consumers = self
            .consumers
            .iter()
            .map(|source| workers::prepare(source, &self.run, |_| Ok(BTreeMap::new())))
            .collect::<Result<Vec<_>, _>>()?;
        let mut configs = Vec::new();
        if !consumers.is_empty() {
            configs.push(workers::prepare_front(&substrate.name, &consumers, &self.run)?);
        }
        configs.push(substrate.config);
        configs.extend(consumers.into_iter().map(|consumer| consumer.config));
        Ok(configs)
    }

    /// Adds this run's rows to `CONSUMERS`, which the file may hold as JSON text or as a table.
    fn allow_consumers(&self, vars: &mut Map<String, Value>) -> Result<(), String> {
        let mut table: Map<String, Value> = match vars.get("CONSUMERS") {
            None => Map::new(),
            Some(Value::Object(table)) => table.clone(),
            Some(Value::String(text)) => {
                serde_json::from_str(text).map_err(|error| format!("`vars.CONSUMERS`: {error}"))?
            }
            Some(_) => return Err("`vars.CONSUMERS` is neither JSON text nor a table".to_owned()),
        };
        for name in &self.http_consumers {
            let row = table.entry(name.clone()).or_insert_with(|| json!({}));
            let faces = row.as_object_mut().map(|row| row.entry("faces").or_insert_with(|| json!([])));
            if let Some(Value::Array(faces)) = faces
                && !faces.contains(&json!("http"))
            {
                faces.push(json!("http"));
            }
        }
        table.extend(self.allow.clone());
        vars.insert("CONSUMERS".to_owned(), json!(Value::Object(table).to_string()));
        Ok(())
    }
}
