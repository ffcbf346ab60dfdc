//! Serves one container's outbound side: every redirected connection and every look-up.
//!
//! Invariant: no connection is ever opened to where the container wanted to go. A connection is refused here and
//! recorded, and the refusal is a reset, so that the caller sees it at once.

use super::denials::{Attempt, Denials};
use super::dns::{self, MAX_QUERY_BYTES, Names};
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Redirected connections served at once per container; more wait in the backlog.
pub const MAX_CONNECTIONS: usize = 512;
/// A resolver that says nothing for that long on a TCP connection is cut.
const DNS_TCP_TIMEOUT: Duration = Duration::from_secs(5);
const DNS_PORT: u16 = 53;

pub struct Relay {
    container: String,
    denials: Arc<Denials>,
    names: Names,
}

impl Relay {
    /// Serves until the container's network is gone or the tasks are dropped.
    pub fn start(
        container: String,
        denials: Arc<Denials>,
        relay: OwnedFd,
        responder: OwnedFd,
    ) -> io::Result<tokio::task::JoinSet<()>> {
        let listener = TcpListener::from_std(relay.into())?;
        let socket = UdpSocket::from_std(responder.into())?;
        let relay = Arc::new(Self { container, denials, names: Names::default() });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(relay.clone().accept(listener));
        tasks.spawn(relay.respond(socket));
        Ok(tasks)
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let permits = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
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
        match original_destination(&stream) {
            Some(destination) if destination.port() == DNS_PORT => self.respond_tcp(stream).await,
            Some(destination) => {
                let host = self.names.name(*destination.ip()).unwrap_or_else(|| destination.ip().to_string());
                self.denials.record(
                    &self.container,
                    Attempt::Connect,
                    &host,
                    destination.port(),
                    "no-egress",
                );
                reset(stream);
            }
            // Straight to the relay's own port: from a job that looked for it.
            None => reset(stream),
        }
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
        if let Some(question) = question.filter(|question| !question.is_address()) {
            self.denials.record(&self.container, Attempt::Lookup, &question.name, DNS_PORT, "no-such-record");
        }
        Some(reply)
    }
}

/// Where the connection was meant to go before it was redirected.
fn original_destination(stream: &TcpStream) -> Option<SocketAddrV4> {
    let destination = rustix::net::sockopt::ip_original_dst(stream).ok()?;
    let local = stream.local_addr().ok()?;
    (local != destination.into()).then_some(destination)
}

/// Closes with a reset instead of an orderly end.
fn reset(stream: TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
}
