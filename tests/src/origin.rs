//! The stand-in for the internet: origins on loopback, one port for each host that a stack's Worker is told to find
//! there, and one log of what reached them. The log is the witness: what is not in it did not leave a sandbox.
//!
//! An origin speaks HTTP/1.1 and behaves as the path asks ([`behaviour`]). It owns its connections and ends them with
//! itself; a request's entry says when its connection, or its exchange, ended.

mod behaviour;

use crate::eventually::eventually;
use crate::facade::now_ms;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const MAX_HEAD_BYTES: usize = 64 * 1024;

/// One request as an origin saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub host: String,
    pub method: String,
    /// Path and query, as they stood in the request line.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Milliseconds since the epoch, as in the engine's log.
    pub at_ms: u64,
    /// Bytes of its body that have arrived, without their framing.
    pub received: u64,
    /// Bytes of the answer's body that the kernel has taken.
    pub sent: u64,
    pub ended: Option<(u64, Ended)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The answer was sent whole.
    Answered,
    /// The other side went away before that.
    Cut,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

/// Every origin of one stack.
pub struct Origins {
    log: Log,
    ports: BTreeMap<String, u16>,
    /// Ends every connection as it drops.
    _listeners: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Origins {
    pub async fn start(hosts: &[&str]) -> Result<Self> {
        let (log, mut ports, mut listeners) = (Log::default(), BTreeMap::new(), JoinSet::new());
        for host in hosts {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            ports.insert((*host).to_owned(), listener.local_addr()?.port());
            listeners.spawn(accept(listener, (*host).to_owned(), log.clone()));
        }
        Ok(Self { log, ports, _listeners: listeners })
    }

    /// What the Worker's test build is told: where each host is.
    pub fn map(&self) -> BTreeMap<String, String> {
        self.ports.iter().map(|(host, port)| (host.clone(), format!("http://127.0.0.1:{port}"))).collect()
    }

    pub fn port(&self, host: &str) -> u16 {
        self.ports[host]
    }

    /// The requests whose target holds `part`, in the order they came.
    pub fn seen(&self, part: &str) -> Vec<Seen> {
        let log = self.log.0.lock().expect("nobody panics while holding this");
        log.iter().filter(|seen| seen.target.contains(part)).cloned().collect()
    }

    /// Waits until a request whose target holds `part` has come.
    pub async fn met(&self, part: &str) -> Seen {
        let what = format!("a request for {part} reaches its origin");
        eventually(&what, || std::future::ready(self.seen(part).into_iter().next())).await
    }

    /// Waits until the first such request has ended, and says how.
    pub async fn ended(&self, part: &str) -> (u64, Ended) {
        let what = format!("the request for {part} ends at its origin");
        let look = || std::future::ready(self.seen(part).into_iter().find_map(|seen| seen.ended));
        eventually(&what, look).await
    }
}

/// One entry of the log, for whoever serves the request.
#[derive(Clone, Debug)]
struct Entry {
    log: Log,
    at: usize,
}

impl Log {
    fn add(&self, seen: Seen) -> Entry {
        let mut log = self.0.lock().expect("nobody panics while holding this");
        log.push(seen);
        Entry { log: self.clone(), at: log.len() - 1 }
    }
}

impl Entry {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.log.0.lock().expect("nobody panics while holding this")[self.at]);
    }

    fn ended(&self, how: Ended) {
        self.change(|seen| seen.ended = Some((now_ms(), how)));
    }
}

async fn accept(listener: TcpListener, host: String, log: Log) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let (host, log) = (host.clone(), log.clone());
            connections.spawn(async move { serve(stream, &host, &log).await });
        }
        while connections.try_join_next().is_some() {}
    }
}

/// One request after another, until either side goes.
async fn serve(mut stream: TcpStream, host: &str, log: &Log) {
    let _ = stream.set_nodelay(true);
    let mut rest = Vec::new();
    while let Ok(request) = read_head(&mut stream, &mut rest, host).await {
        let entry = log.add(request.clone());
        let mut exchange = behaviour::Exchange { stream: &mut stream, rest: &mut rest, entry: entry.clone() };
        match exchange.serve(&request).await {
            Ok(()) => entry.ended(Ended::Answered),
            Err(_) => return entry.ended(Ended::Cut),
        }
    }
    let _ = stream.shutdown().await;
}

async fn read_head(stream: &mut TcpStream, rest: &mut Vec<u8>, host: &str) -> Result<Seen> {
    let end = loop {
        if let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if rest.len() > MAX_HEAD_BYTES || stream.read_buf(rest).await? == 0 {
            bail!("no head");
        }
    };
    let head = String::from_utf8(rest.drain(..end + 4).collect())?;
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    Ok(Seen {
        host: host.to_owned(),
        method: method.to_owned(),
        target: target.to_owned(),
        headers: lines.map(header).collect(),
        at_ms: now_ms(),
        received: 0,
        sent: 0,
        ended: None,
    })
}
