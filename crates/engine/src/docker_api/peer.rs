//! Whether a caller is still there. The server takes half-closed connections (an exec's client closes its side to end the
//! input), so it does not look; a call that is held for long has to.

use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::sync::Arc;
use tokio::net::UnixStream;

/// The caller's side of a connection.
#[derive(Clone)]
pub struct Peer(Arc<OwnedFd>);

impl Peer {
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self(Arc::new(stream.as_fd().try_clone_to_owned()?)))
    }

    /// Waits until the caller has closed its side. For calls whose body was taken, on connections that are not pipelined.
    pub async fn gone(&self) -> io::Result<()> {
        let watched = sys::watch(self.0.try_clone()?)?;
        loop {
            let mut ready = watched.readable().await?;
            match rustix::net::recv(watched.get_ref(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(()),
                Ok(_) => std::future::pending().await,
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
