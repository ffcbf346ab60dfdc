//! The last bytes that a container's PID 1 wrote: bounded, in memory, gone with the container.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Bytes kept per container.
pub const MAX_LOG_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub struct TailLog(Mutex<VecDeque<u8>>);

impl TailLog {
    pub fn push(&self, bytes: &[u8]) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.extend(bytes);
        let over = held.len().saturating_sub(MAX_LOG_BYTES);
        held.drain(..over);
    }

    pub fn text(&self) -> String {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = held.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until every writer is gone.
    pub async fn follow(&self, mut pipe: pipe::Receiver) {
        let mut buffer = [0; 4096];
        while let Ok(count) = pipe.read(&mut buffer).await {
            match buffer.get(..count) {
                Some(bytes) if count > 0 => self.push(bytes),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_bytes_are_kept() {
        let log = TailLog::default();
        log.push(&vec![b'a'; MAX_LOG_BYTES]);
        log.push(b"end");
        let text = log.text();
        assert_eq!(text.len(), MAX_LOG_BYTES);
        assert!(text.ends_with("aend"));
    }
}
