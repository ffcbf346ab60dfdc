//! A stream whose first bytes were read already, to tell what it speaks: they are read again first.

use bytes::Bytes;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first bytes were read already.
pub struct Rewound<T> {
    pub start: Bytes,
    pub rest: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.start.is_empty() {
            return Pin::new(&mut self.rest).poll_read(context, buffer);
        }
        let count = self.start.len().min(buffer.remaining());
        buffer.put_slice(&self.start.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write(context, bytes)
    }

    /// Else each record of TLS goes out by a call of its own.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.rest).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.rest).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn slices_that_are_written_together_arrive_together() {
        let (rest, _peer) = tokio::io::duplex(64);
        let mut rewound = Rewound { start: Bytes::from_static(b"hello"), rest };
        let slices = [IoSlice::new(b"one, "), IoSlice::new(b"two")];
        assert_eq!(rewound.write_vectored(&slices).await.unwrap(), 8);
    }
}
