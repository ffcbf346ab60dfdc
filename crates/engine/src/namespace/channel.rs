//! Packets of JSON with file descriptors beside them, over a unix `SEQPACKET` socket. Used blocking by the keeper
//! and through readiness by the engine. A packet that was cut, or carries more descriptors than allowed, is an error.

use super::protocol::{MAX_DESCRIPTORS, MAX_MESSAGE_BYTES};
use rustix::cmsg_space;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;

#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the other side is gone")]
    Closed,
    #[error("message of {0} bytes is over the bound of {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    #[error("message was cut on the way")]
    Cut,
    #[error("message is not understood: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("message lacks a file descriptor")]
    MissingDescriptor,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

/// Sends one message. `WOULDBLOCK` comes back as an I/O error on a non-blocking socket.
pub fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(ChannelError::TooLong(bytes.len()));
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ChannelError::TooLong(bytes.len()));
    }
    loop {
        match rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)
        {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one message and the descriptors beside it.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> Result<(T, Vec<OwnedFd>), ChannelError> {
    let mut bytes = vec![0_u8; MAX_MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket.as_fd(), &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(ChannelError::Cut);
    }
    let text = bytes.get(..received.bytes).unwrap_or_default();
    if text.is_empty() {
        return Err(ChannelError::Closed);
    }
    Ok((serde_json::from_slice(text)?, descriptors))
}

/// Bytes as a sealed memory file, to travel as a descriptor.
pub fn to_memory_file(bytes: &[u8]) -> Result<OwnedFd, ChannelError> {
    let file = rustix::fs::memfd_create("ringfence", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    file.rewind()?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file.into())
}

/// Reads a memory file back as a value.
pub fn from_memory_file<T: DeserializeOwned>(file: OwnedFd) -> Result<T, ChannelError> {
    let mut bytes = Vec::new();
    std::fs::File::from(file).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::protocol::ToKeeper;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
    }

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = pair();
        let spec = to_memory_file(br#""inside""#).unwrap();
        send(&a, &ToKeeper::Exec { id: 7 }, &[spec.as_fd()]).unwrap();
        let (message, mut descriptors): (ToKeeper, _) = receive(&b).unwrap();
        assert!(matches!(message, ToKeeper::Exec { id: 7 }));
        assert_eq!(descriptors.len(), 1);
        assert_eq!(from_memory_file::<String>(descriptors.remove(0)).unwrap(), "inside");
    }

    #[test]
    fn a_message_over_the_bound_is_refused_before_it_is_sent() {
        let (a, _b) = pair();
        let directory = "x".repeat(MAX_MESSAGE_BYTES);
        assert!(matches!(
            send(&a, &ToKeeper::Unpack { id: 1, directory }, &[]),
            Err(ChannelError::TooLong(_))
        ));
    }

    #[test]
    fn a_closed_channel_says_so() {
        let (a, b) = pair();
        drop(a);
        assert!(matches!(receive::<ToKeeper>(&b), Err(ChannelError::Closed)));
    }
}
