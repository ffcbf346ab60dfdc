//! The way out: workerd's egress port, which takes one `CONNECT` per connection and answers whether an interceptor
//! takes it. 200: HTTP follows, to the Worker. Anything else (202 would mean "let it pass as it is") is a refusal.

use crate::sys;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The answer's head is far shorter.
const MAX_ANSWER_BYTES: usize = 8 * 1024;
/// What the kernel may keep of an answer that the relay has not read yet.
const WINDOW_BYTES: u32 = 16 * 1024;
/// With the bookkeeping of one it just fits the 8 KiB that the kernel counts for it, and eight of them are what BBR
/// sends at once, with little left over: the least that it lets the other side keep.
const SEGMENT_BYTES: i32 = 7_500;
const DEADLINE: Duration = Duration::from_secs(10);

/// By what name the client meant its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// The host of an HTTP request.
    Host(&'a str),
    /// The name of a TLS handshake.
    Sni(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// workerd is not there, or did not answer.
    Unreachable,
    /// No interceptor takes it.
    NotIntercepted,
}

impl Refused {
    pub fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "worker-unreachable",
            Self::NotIntercepted => "not-intercepted",
        }
    }
}

/// A connection that leads to the Worker.
pub async fn tunnel(port: u16, destination: SocketAddrV4, named: Named<'_>) -> Result<TcpStream, Refused> {
    tokio::time::timeout(DEADLINE, open(port, destination, named)).await.unwrap_or(Err(Refused::Unreachable))
}

async fn open(port: u16, destination: SocketAddrV4, named: Named<'_>) -> Result<TcpStream, Refused> {
    let unreachable = |_: std::io::Error| Refused::Unreachable;
    let socket = TcpSocket::new_v4().map_err(unreachable)?;
    // Before it connects. The window bounds what is kept here, the size of a segment what the kernel lets workerd's
    // side keep: it allows for twice as many segments as a window takes.
    socket.set_recv_buffer_size(WINDOW_BYTES).map_err(unreachable)?;
    sys::set_segment_size(&socket, SEGMENT_BYTES).map_err(|errno| unreachable(errno.into()))?;
    let mut stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let (header, name) = match named {
        Named::Host(name) => ("X-Hostname", name),
        Named::Sni(name) => ("X-Tls-Sni", name),
    };
    let request =
        format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{header}: {name}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    match answer(&mut stream).await {
        Some(200) => Ok(stream),
        Some(_) => Err(Refused::NotIntercepted),
        None => Err(Refused::Unreachable),
    }
}

/// The status. Reads byte by byte: what follows the head is not ours.
async fn answer(stream: &mut TcpStream) -> Option<u16> {
    let mut head = Vec::with_capacity(128);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_ANSWER_BYTES {
            return None;
        }
        head.push(stream.read_u8().await.ok()?);
    }
    let mut response_headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut response_headers);
    match response.parse(&head) {
        Ok(httparse::Status::Complete(_)) => response.code,
        _ => None,
    }
}
