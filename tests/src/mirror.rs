//! Stand-ins, on loopback, of the places that real clients speak to: git's own smart HTTP (through `git http-backend`),
//! Git LFS, and static mirrors of npm's, cargo's and pip's registries, each with one small package. One port for each
//! host, one log of what reached them: what is not in the log did not leave a sandbox.
//!
//! It serves writes as readily as reads, so that a write which is refused was refused by the fence. It is made once for
//! the whole test process and ends with it; its directory goes with it.

mod content;
mod git;
mod serve;

use crate::eventually::eventually;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use tempfile::TempDir;

pub use content::{LFS_TEXT, PACKAGE, PACKAGE_TEXT, README, SIDE_README};

/// What stands in for what.
pub const HOSTS: &[&str] = &[
    "github.com",
    "github-cloud.githubusercontent.com",
    "gist.github.com",
    "registry.npmjs.org",
    "index.crates.io",
    "static.crates.io",
    "crates.io",
    "pypi.org",
    "files.pythonhosted.org",
    "upload.pypi.org",
    "api.cloudflare.com",
    "api.github.com",
    "pages.test",
];

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub host: String,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Arrived {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

type Log = Arc<Mutex<Vec<Arrived>>>;
/// What the requests for one path wait for.
type Hold = tokio::sync::watch::Sender<Option<String>>;

pub struct Mirror {
    ports: BTreeMap<&'static str, u16>,
    log: Log,
    hold: Hold,
    directory: TempDir,
}

static MIRROR: OnceLock<Mirror> = OnceLock::new();

impl Mirror {
    /// The one of this process.
    pub fn of_this_process() -> &'static Self {
        MIRROR.get_or_init(|| Self::start().expect("git, tar and python3 make what is mirrored"))
    }

    fn start() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ringfence-mirror-").tempdir()?;
        let content = Arc::new(content::Content::make(directory.path())?);
        let log = Log::default();
        let (hold, held) = tokio::sync::watch::channel(None);
        let mut ports = BTreeMap::new();
        let mut listeners = Vec::new();
        for host in HOSTS {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            listener.set_nonblocking(true)?;
            ports.insert(*host, listener.local_addr()?.port());
            listeners.push((*host, listener));
        }
        let heard = log.clone();
        std::thread::Builder::new().name("mirror".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve::all(listeners, &content, &heard, &held));
        })?;
        Ok(Self { ports, log, hold, directory })
    }

    /// `EGRESS_ORIGINS` of a Worker's test build.
    pub fn map(&self) -> String {
        let map: BTreeMap<&str, String> =
            self.ports.iter().map(|(host, port)| (*host, format!("http://127.0.0.1:{port}"))).collect();
        serde_json::to_string(&map).expect("it serialises")
    }

    /// The requests of one host whose target holds `part`, in the order they came.
    pub fn arrived(&self, host: &str, part: &str) -> Vec<Arrived> {
        let log = self.log.lock().expect("nobody panics while holding this");
        log.iter().filter(|arrived| arrived.host == host && arrived.target.contains(part)).cloned().collect()
    }

    /// Waits until such a request has come.
    pub async fn met(&self, host: &str, part: &str) -> Arrived {
        let what = format!("a request for {host} {part} arrives");
        eventually(&what, || std::future::ready(self.arrived(host, part).into_iter().next())).await
    }

    /// Answers no more requests for this path until the release. One path at a time.
    pub fn hold(&self, path: &str) {
        self.hold.send_replace(Some(path.to_owned()));
    }

    pub fn release(&self) {
        self.hold.send_replace(None);
    }

    /// The bare repository `owner/name.git` behind github.com.
    pub fn repository(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join("git").join(name)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
