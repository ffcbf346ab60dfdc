//! The wrangler configuration that the local stack runs: for each Worker a copy of its own, in the run directory,
//! with paths made absolute, variables set for this run, and its secrets beside it (`.dev.vars`, mode 0600).
//!
//! The reasons for a copy: secrets stay out of the checkout, each Worker sees only its own, and a run can
//! name its own consumers and pools without an edit.
//!
//! wrangler gives the HTTP port to the first configuration alone. With consumers beside the substrate, that first
//! one is a front of a few lines, made here, which passes `/@NAME/…` to the Worker of that name and everything
//! else, untouched, to the substrate. It stands in no one's way otherwise: consumers reach the substrate over
//! their own service bindings.

use super::error::StackError;
use super::secrets::write_private;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One Worker to run.
#[derive(Clone, Debug)]
pub struct WorkerSource {
    /// Its `wrangler.toml`, `.json` or `.jsonc` without comments.
    pub config: PathBuf,
    /// Variables that replace or join those of the file.
    pub vars: BTreeMap<String, Value>,
    /// Another entry module than the file names (a test's build of the Worker).
    pub main: Option<PathBuf>,
    /// Secrets beside those that the stack makes.
    pub secrets: BTreeMap<String, String>,
}

impl WorkerSource {
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self { config: config.into(), vars: BTreeMap::new(), main: None, secrets: BTreeMap::new() }
    }
    #[must_use]
    pub fn var(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.vars.insert(name.to_owned(), value.into());
        self
    }
}

/// A prepared copy.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) name: String,
    pub(super) config: PathBuf,
}

/// Keys whose value is a path, or a list of tables that hold one, relative to the configuration's own directory.
const PATH_KEYS: [&str; 3] = ["main", "base_dir", "tsconfig"];

pub(super) fn prepare(
    source: &WorkerSource,
    run: &Path,
    adjust: impl FnOnce(&mut Map<String, Value>) -> Result<BTreeMap<String, String>, String>,
) -> Result<Prepared, StackError> {
    let bad = |why: String| StackError::Config { path: source.config.clone(), why };
    let mut config = read(&source.config)?;
    let home = source.config.parent().unwrap_or(Path::new("."));
    let home = fs::canonicalize(home).map_err(|error| bad(error.to_string()))?;
    make_absolute(&mut config, &home);
    if let Some(main) = &source.main {
        config.insert("main".to_owned(), json!(main));
    }
    // Built by scripts before the stack starts; wrangler need not watch and rebuild.
    config.remove("build");
    let name = match config.get("name").and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => return Err(bad("it names no Worker: set `name`".to_owned())),
    };
    let mut vars = match config.remove("vars") {
        Some(Value::Object(vars)) => vars,
        Some(_) => return Err(bad("`vars` is not a table".to_owned())),
        None => Map::new(),
    };
    vars.extend(source.vars.clone());
    let mut secrets = adjust(&mut vars).map_err(bad)?;
    secrets.extend(source.secrets.clone());
    config.insert("vars".to_owned(), Value::Object(vars));

    let directory = run.join("workers").join(&name);
    fs::create_dir_all(&directory).map_err(|error| bad(error.to_string()))?;
    let path = directory.join("wrangler.json");
    write_private(&path, &serde_json::to_vec_pretty(&config).unwrap_or_default())?;
    let dev_vars: String = secrets.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
    write_private(&directory.join(".dev.vars"), dev_vars.as_bytes())?;
    Ok(Prepared { name, config: path })
}

/// Writes the front for `substrate` and the consumers.
pub(super) fn prepare_front(
    substrate: &str,
    consumers: &[Prepared],
    run: &Path,
) -> Result<PathBuf, StackError> {
    const MODULE: &str = "\
// Local only: gives each consumer Worker a path on the one port that `wrangler dev` serves.
export default {
  fetch(request, env) {
    const url = new URL(request.url);
    const [, name, rest] = /^\\/@([A-Za-z0-9_-]+)(\\/.*)?$/.exec(url.pathname) ?? [];
    if (name === undefined) return env.SUBSTRATE.fetch(request);
    const worker = Object.hasOwn(env.CONSUMERS, name) ? env[env.CONSUMERS[name]] : undefined;
    if (worker === undefined) return new Response(`no Worker named ${name}\\n`, { status: 404 });
    url.pathname = rest ?? '/';
    return worker.fetch(new Request(url, request));
  },
};
";
    let directory = run.join("workers").join("front");
    let file = |path: &Path, source| StackError::File { what: "writing", path: path.to_path_buf(), source };
    fs::create_dir_all(&directory).map_err(|error| file(&directory, error))?;
    let module = directory.join("front.mjs");
    fs::write(&module, MODULE).map_err(|error| file(&module, error))?;
    let mut services = vec![json!({ "binding": "SUBSTRATE", "service": substrate })];
    let mut table = Map::new();
    for (index, consumer) in consumers.iter().enumerate() {
        let binding = format!("CONSUMER_{index}");
        services.push(json!({ "binding": binding, "service": consumer.name }));
        table.insert(consumer.name.clone(), json!(binding));
    }
    let config = json!({
        "name": "ringfence-local-front",
        "main": module,
        "compatibility_date": "2026-11-01",
        "services": services,
        "vars": { "CONSUMERS": table },
    });
    let path = directory.join("wrangler.json");
    write_private(&path, &serde_json::to_vec_pretty(&config).unwrap_or_default())?;
    Ok(path)
}

fn read(path: &Path) -> Result<Map<String, Value>, StackError> {
    let text = fs::read_to_string(path).map_err(|source| StackError::File {
        what: "reading",
        path: path.to_path_buf(),
        source,
    })?;
    let parsed = if path.extension().is_some_and(|extension| extension == "toml") {
        toml::from_str::<Map<String, Value>>(&text).map_err(|error| error.to_string())
    } else {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    };
    parsed.map_err(|why| StackError::Config { path: path.to_path_buf(), why })
}

fn make_absolute(config: &mut Map<String, Value>, home: &Path) {
    let absolute = |value: &mut Value| {
        if let Some(text) = value.as_str() {
            *value = json!(home.join(text));
        }
    };
    for key in PATH_KEYS {
        if let Some(value) = config.get_mut(key) {
            absolute(value);
        }
    }
    if let Some(Value::Array(containers)) = config.get_mut("containers") {
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(value) = container.get_mut("image_build_context") {
                absolute(value);
            }
            // An image is a file's path or a registry's reference; only what exists is a path.
            if let Some(value) = container.get_mut("image")
                && value.as_str().is_some_and(|text| home.join(text).exists())
            {
                absolute(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str, extension: &str) -> (tempfile::TempDir, WorkerSource) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(format!("wrangler.{extension}"));
        fs::write(&path, text).unwrap();
        fs::write(home.path().join("Dockerfile"), "FROM scratch\n").unwrap();
        let source = WorkerSource::new(path);
        (home, source)
    }

    fn written(prepared: &Prepared) -> Value {
        serde_json::from_slice(&fs::read(&prepared.config).unwrap()).unwrap()
    }

    #[test]
    fn the_copy_finds_its_files_from_another_directory() {
        let (home, source) = source(
            "name = \"w\"\nmain = \"src/entry.js\"\n[[containers]]\nclass_name = \"A\"\nimage = \"./Dockerfile\"\n\
             [[containers]]\nclass_name = \"B\"\nimage = \"registry.example/b:1\"\n",
            "toml",
        );
        let run = tempfile::tempdir().unwrap();
        let prepared = prepare(&source, run.path(), |_| Ok(BTreeMap::new())).unwrap();
        let config = written(&prepared);
        let home = fs::canonicalize(home.path()).unwrap();
        assert_eq!(config["main"], json!(home.join("src/entry.js")));
        assert_eq!(config["containers"][0]["image"], json!(home.join("./Dockerfile")));
        assert_eq!(config["containers"][1]["image"], json!("registry.example/b:1"));
    }

    #[test]
    fn secrets_stand_beside_the_copy_and_not_in_it() {
        let (_home, source) = source("{\"name\":\"w\",\"main\":\"a.js\",\"vars\":{\"A\":\"1\"}}", "json");
        let source = source.var("B", "2");
        let run = tempfile::tempdir().unwrap();
        let secret = BTreeMap::from([("TICKET_SECRETS".to_owned(), "[\"hush\"]".to_owned())]);
        let prepared = prepare(&source, run.path(), |_| Ok(secret)).unwrap();
        let config = written(&prepared);
        assert_eq!(config["vars"], json!({ "A": "1", "B": "2" }));
        assert!(!config.to_string().contains("hush"));
        let beside = fs::read_to_string(prepared.config.with_file_name(".dev.vars")).unwrap();
        assert_eq!(beside, "TICKET_SECRETS='[\"hush\"]'\n");
    }

    #[test]
    fn a_configuration_without_a_name_says_so() {
        let (_home, source) = source("main = \"a.js\"", "toml");
        let run = tempfile::tempdir().unwrap();
        let error = prepare(&source, run.path(), |_| Ok(BTreeMap::new())).unwrap_err();
        assert!(error.to_string().contains("`name`"), "{error}");
    }
}
