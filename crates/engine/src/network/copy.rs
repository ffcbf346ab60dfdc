//! Moves bytes both ways between a client inside and the Worker.
//!
//! A client that has gone must be seen to have gone, or its request goes on for nobody. workerd notices a reset at once,
//! an orderly end only when it writes. So the way to it is reset when the client's side broke off, or ended and nothing
//! came for it a while after: who merely has no more to say still gets its answer. A reset in the very moment in which a
//! Worker's answer begins is lost on that Worker, and clients like to go when they have seen an answer begin: the reset
//! comes when nothing was moving.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Moved at once, in either direction. It is kept while a client does not read, so it counts as what a cut request still
/// delivers.
const COPY_BYTES: usize = 32 * 1024;
/// How long a client that has ended its side waits for the next byte of an answer.
const HALF_CLOSED_PATIENCE: Duration = Duration::from_secs(5);
/// Nothing moves if no byte of an answer came for that long.
const STILL_FOR: Duration = Duration::from_millis(250);
/// An answer that keeps coming meets the reset in the middle of its body, where it is not lost.
const STILL_WITHIN: Duration = Duration::from_millis(500);

pub async fn both_ways(inside: impl AsyncRead + AsyncWrite + Unpin, mut outside: TcpStream) {
    let (mut inside_reads, mut inside_writes) = tokio::io::split(inside);
    let (mut outside_reads, mut outside_writes) = outside.split();
    let (sent, came) = (AtomicU64::new(0), AtomicU64::new(0));
    let gone = {
        let mut there = pin!(one_way(&mut inside_reads, &mut outside_writes, &sent));
        let mut back = pin!(one_way(&mut outside_reads, &mut inside_writes, &came));
        tokio::select! {
            ended = &mut there => match ended {
                Err(_) => true,
                Ok(()) => loop {
                    let before = came.load(Ordering::Relaxed);
                    match tokio::time::timeout(HALF_CLOSED_PATIENCE, &mut back).await {
                        Ok(ended) => break ended.is_err(),
                        Err(_) if came.load(Ordering::Relaxed) == before => break true,
                        Err(_) => {}
                    }
                },
            },
            ended = &mut back => match ended {
                Err(_) => true,
                // The answer is out; what the client still says is taken until it has heard so.
                Ok(()) => there.await.is_err(),
            },
        }
    };
    if gone {
        let _ = tokio::time::timeout(STILL_WITHIN, still(&mut outside)).await;
        super::relay::reset(&outside);
    }
}

/// Reads what still comes, for nobody, until nothing more does.
async fn still(outside: &mut TcpStream) {
    let mut buffer = vec![0; COPY_BYTES];
    while let Ok(Ok(1..)) = tokio::time::timeout(STILL_FOR, outside.read(&mut buffer)).await {}
}

/// Until the end of one side, which the other side is told.
async fn one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
        // What TLS still holds back goes out before the next wait.
        to.flush().await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn the_way_of_a_client_that_broke_off_is_reset_and_not_before_nothing_moved() {
        let ((client, inside), (outside, mut worker)) = (connected().await, connected().await);
        let copying = tokio::spawn(both_ways(inside, outside));
        let begun = Instant::now();
        super::super::relay::reset(&client);
        drop(client);
        worker.write_all(b"an answer begins").await.unwrap();
        let seen = worker.read(&mut [0; 16]).await.unwrap_err();
        assert_eq!(seen.kind(), io::ErrorKind::ConnectionReset);
        assert!(begun.elapsed() >= STILL_FOR, "after {:?}", begun.elapsed());
        copying.await.unwrap();
    }
}
