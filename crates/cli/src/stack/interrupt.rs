//! Ctrl-C, SIGTERM and SIGHUP, as one thing to wait for.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Interrupt {
    signals: [Signal; 3],
}

impl Interrupt {
    /// From now on these signals no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            signals: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }

    pub async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
