//! Serves one container's outbound side: every redirected connection and every look-up.
//!
//! Invariant: the engine opens no connection to where the container wanted to go. HTTP and HTTPS are handed to the
//! Worker through workerd's egress port, which alone decides; all else is refused here and recorded. A refusal is a
//! reset, so that the caller sees it at once. Whatever is missing (no egress port, no interceptor, a failed
//! handshake) is a refusal.

use super::authority::Authority;
use super::classify::{Speaks, classify};
use super::copy;
use super::denials::Denials;
use super::dns::{self, MAX_QUERY_BYTES, Names};
use super::worker::{self, Named, Refused};
use crate::rewound::Rewound;
use bytes::{Bytes, BytesMut};
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio_rustls::LazyConfigAcceptor;

/// Redirected connections served at once per container; more wait in the backlog.
pub const MAX_CONNECTIONS: usize = 512;
/// What the kernel may keep of an answer on its way to a client. A request that is cut still delivers what is kept
/// anywhere on the way: a client that reads slowly must not find megabytes of it.
const KEPT_BYTES: usize = 32 * 1024;
/// A client that says nothing for that long waits for its server to speak first, or is no client of HTTP.
pub const SILENCE: Duration = Duration::from_secs(2);
/// A head, or a TLS handshake, that is not whole by then is refused.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A resolver that says nothing for that long on a TCP connection is cut.
const DNS_TCP_TIMEOUT: Duration = Duration::from_secs(5);
const DNS_PORT: u16 = 53;
/// A usual request's head, or a TLS hello, in one read.
const FIRST_READ_BYTES: usize = 4096;
/// Ports of protocols whose server speaks first: refused without waiting.
const SERVER_FIRST: [u16; 10] = [21, 22, 23, 25, 110, 143, 465, 587, 3306, 5900];

/// Where workerd takes requests out, asked anew for each connection: it changes when workerd restarts.
pub type EgressPort = Box<dyn Fn() -> Option<u16> + Send + Sync>;

pub struct Relay {
    pub container: String,
    pub denials: Arc<Denials>,
    pub names: Names,
    pub authority: Arc<Authority>,
    pub egress_port: EgressPort,
}

impl Relay {
    /// Serves until the tasks are dropped.
    pub fn start(self, relay: OwnedFd, responder: OwnedFd) -> io::Result<JoinSet<()>> {
        let listener = TcpListener::from_std(relay.into())?;
        let socket = UdpSocket::from_std(responder.into())?;
        let relay = Arc::new(self);
        let mut tasks = JoinSet::new();
        tasks.spawn(relay.clone().accept(listener));
        tasks.spawn(relay.respond(socket));
        Ok(tasks)
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let permits = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let relay = self.clone();
                    connections.spawn(async move {
                        relay.connection(stream).await;
                        drop(permit);
                    });
                }
                // Out of descriptors, or the peer left before it was accepted: neither may stop the relay.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(&self, stream: TcpStream) {
        // None: straight to the relay's own port, from a job that looked for it.
        let Some(destination) = original_destination(&stream) else { return reset(&stream) };
        if destination.port() == DNS_PORT {
            return self.respond_tcp(stream).await;
        }
        let _ = stream.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, KEPT_BYTES);
        let name = self.names.name(*destination.ip());
        if let Some(name) = &name {
            self.denials.connected(&self.container, name);
        }
        if let Err(reason) = self.pass(stream, destination, name.as_deref()).await {
            let host = name.unwrap_or_else(|| destination.ip().to_string());
            self.denials.connection(&self.container, &host, destination.port(), reason.word());
        }
    }

    /// Hands the connection to the Worker, or refuses it with a reset.
    async fn pass(
        &self,
        mut stream: TcpStream,
        destination: SocketAddrV4,
        name: Option<&str>,
    ) -> Result<(), Refusal> {
        let passed = self.try_pass(&mut stream, destination, name).await;
        if passed.is_err() {
            reset(&stream);
        }
        passed
    }

    async fn try_pass(
        &self,
        stream: &mut TcpStream,
        destination: SocketAddrV4,
        name: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(port) = (self.egress_port)() else { return Err(Refusal::NoEgress) };
        if SERVER_FIRST.contains(&destination.port()) {
            return Err(Refusal::NotHttp);
        }
        let begun = tokio::time::timeout(HANDSHAKE_DEADLINE, first_bytes(stream)).await;
        let (start, speaks) = begun.unwrap_or(Err(Refusal::Silent))?;
        let inside = Rewound { start, rest: stream };
        match speaks {
            Speaks::Http { host } => {
                let host =
                    host.or_else(|| name.map(str::to_owned)).unwrap_or_else(|| destination.ip().to_string());
                let outside = worker::tunnel(port, destination, Named::Host(&host)).await?;
                copy::both_ways(inside, outside).await;
                Ok(())
            }
            Speaks::Tls => self.open_tls(inside, destination, port).await,
            Speaks::More | Speaks::Neither => Err(Refusal::NotHttp),
        }
    }

    /// TLS ends here, with a certificate for the name the client asked for; what is inside goes to the Worker.
    async fn open_tls(
        &self,
        stream: Rewound<&mut TcpStream>,
        destination: SocketAddrV4,
        port: u16,
    ) -> Result<(), Refusal> {
        let accept = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
        let hello = tokio::time::timeout(HANDSHAKE_DEADLINE, accept).await;
        let Ok(Ok(hello)) = hello else { return Err(Refusal::Tls) };
        // No name: the address, which is what the client checks then.
        let name = hello.client_hello().server_name().map(str::to_ascii_lowercase);
        let name = name.unwrap_or_else(|| destination.ip().to_string());
        // The Worker's word first: a refused client learns nothing, not even a certificate.
        let outside = worker::tunnel(port, destination, Named::Sni(&name)).await?;
        let config = self.authority.server(&name).map_err(|_| Refusal::Tls)?;
        let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, hello.into_stream(config)).await;
        let Ok(Ok(inside)) = handshake else { return Err(Refusal::Tls) };
        copy::both_ways(inside, outside).await;
        Ok(())
    }

    async fn respond(self: Arc<Self>, socket: UdpSocket) {
        let mut buffer = [0; MAX_QUERY_BYTES];
        loop {
            let Ok((count, from)) = socket.recv_from(&mut buffer).await else { continue };
            if let Some(reply) = self.answer(buffer.get(..count).unwrap_or_default()) {
                let _ = socket.send_to(&reply, from).await;
            }
        }
    }

    async fn respond_tcp(&self, mut stream: TcpStream) {
        let serve = async {
            loop {
                let length = stream.read_u16().await?;
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await?;
                let Some(reply) = self.answer(&query) else { return io::Result::Ok(()) };
                stream.write_u16(u16::try_from(reply.len()).unwrap_or_default()).await?;
                stream.write_all(&reply).await?;
            }
        };
        let _ = tokio::time::timeout(DNS_TCP_TIMEOUT, serve).await;
    }

    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (reply, question) = dns::answer(query, &self.names)?;
        if let Some(question) = question {
            self.denials.look_up(&self.container, &question.name, question.is_address());
        }
        Some(reply)
    }
}

/// Why the engine refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoEgress,
    NotHttp,
    Silent,
    Tls,
    Worker(Refused),
}

impl Refusal {
    fn word(self) -> &'static str {
        match self {
            Self::NoEgress => "no-egress",
            Self::NotHttp => "not-http",
            Self::Silent => "silent",
            Self::Tls => "tls-failed",
            Self::Worker(refused) => refused.word(),
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::Worker(refused)
    }
}

/// Reads until the bytes tell what they speak.
async fn first_bytes(stream: &mut TcpStream) -> Result<(Bytes, Speaks), Refusal> {
    let mut bytes = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        // Only the first byte has the short deadline: the whole has the handshake's.
        let patience = if bytes.is_empty() { SILENCE } else { HANDSHAKE_DEADLINE };
        let count =
            tokio::time::timeout(patience, stream.read_buf(&mut bytes)).await.map_err(|_| Refusal::Silent)?;
        match (count, classify(&bytes)) {
            (Ok(0) | Err(_), _) => return Err(Refusal::NotHttp),
            (Ok(_), Speaks::More) => {}
            (Ok(_), told) => return Ok((bytes.freeze(), told)),
        }
    }
}

/// Where the connection was meant to go before it was redirected.
fn original_destination(stream: &TcpStream) -> Option<SocketAddrV4> {
    let destination = rustix::net::sockopt::ip_original_dst(stream).ok()?;
    let local = stream.local_addr().ok()?;
    (local != destination.into()).then_some(destination)
}

/// Makes the coming close a reset instead of an orderly end.
pub(super) fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
