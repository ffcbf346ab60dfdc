//! The streams of an exec, between its process and the client's upgraded connection.
//!
//! Invariant: the client's stream ends only after the exec's end is recorded (`ended`), so a client that saw the end can
//! read the exit code. Without a terminal, output travels in frames of 8 header bytes and a payload.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;

const FRAME_STDOUT: u8 = 1;
const FRAME_STDERR: u8 = 2;
const PUMP_BYTES: usize = 32 * 1024;

/// The engine's ends of an exec's streams.
pub enum Ours {
    Pipes { stdin: Option<pipe::Sender>, stdout: pipe::Receiver, stderr: pipe::Receiver },
    Terminal(OwnedFd),
    Nothing,
}

/// Both ends: the process's (input, output, error), and ours.
pub fn plumb(terminal: bool, stdin: bool, detach: bool) -> io::Result<(Vec<OwnedFd>, Ours)> {
    if terminal {
        return Ok((Vec::new(), Ours::Nothing));
    }
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if detach {
        return Ok((vec![null()?, null()?, null()?], Ours::Nothing));
    }
    let make = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let ((out_read, out_write), (err_read, err_write)) = (make()?, make()?);
    let (stdin, theirs) = if stdin {
        let (read, write) = make()?;
        (Some(pipe::Sender::from_owned_fd(write)?), read)
    } else {
        (None, null()?)
    };
    let stdout = pipe::Receiver::from_owned_fd(out_read)?;
    let stderr = pipe::Receiver::from_owned_fd(err_read)?;
    Ok((vec![theirs, out_write, err_write], Ours::Pipes { stdin, stdout, stderr }))
}

/// Passes an attached exec's streams until they and the process have ended.
pub async fn attach(
    client: impl AsyncRead + AsyncWrite + Send + 'static,
    ours: Ours,
    ended: impl Future<Output = ()>,
) {
    let (from_client, to_client) = tokio::io::split(client);
    match ours {
        Ours::Pipes { stdin, stdout, stderr } => {
            let input = tokio::spawn(pump_input(from_client, stdin));
            let to_client = tokio::sync::Mutex::new(to_client);
            // All output first, then the recorded end, then the stream's: see the module's invariant.
            tokio::join!(
                pump_frames(stdout, FRAME_STDOUT, &to_client),
                pump_frames(stderr, FRAME_STDERR, &to_client),
                ended
            );
            let _ = to_client.lock().await.shutdown().await;
            input.abort();
        }
        Ours::Terminal(terminal) => {
            if let Err(error) = attach_terminal(from_client, to_client, terminal, ended).await {
                eprintln!("ringfence engine: terminal: {error}");
            }
        }
        Ours::Nothing => ended.await,
    }
}

async fn pump_input(mut client: impl AsyncRead + Unpin, stdin: Option<pipe::Sender>) {
    match stdin {
        Some(mut stdin) => {
            let _ = tokio::io::copy(&mut client, &mut stdin).await;
        }
        None => {
            let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
        }
    }
}

async fn pump_frames(
    mut from: pipe::Receiver,
    stream: u8,
    client: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
) {
    let mut buffer = vec![0; PUMP_BYTES];
    let mut gone = false;
    // A client that left does not stop the process: its output is read on, and dropped.
    while let Ok(count) = from.read(&mut buffer).await {
        let Some(payload) = buffer.get(..count).filter(|payload| !payload.is_empty()) else { return };
        if gone {
            continue;
        }
        let length = u32::try_from(count).unwrap_or_default().to_be_bytes();
        let [a, b, c, d] = length;
        let mut client = client.lock().await;
        gone = client.write_all(&[stream, 0, 0, 0, a, b, c, d]).await.is_err()
            || client.write_all(payload).await.is_err()
            || client.flush().await.is_err();
    }
}

async fn attach_terminal(
    mut from_client: impl AsyncRead + Unpin + Send + 'static,
    mut to_client: impl AsyncWrite + Unpin,
    terminal: OwnedFd,
    ended: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut reader = tokio::fs::File::from_std(terminal.try_clone()?.into());
    let mut writer = tokio::fs::File::from_std(terminal.into());
    let input = tokio::spawn(async move {
        let mut buffer = vec![0; PUMP_BYTES];
        while let Ok(count) = from_client.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { return };
            if writer.write_all(bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    });
    // The terminal reads as an error once its last user is gone.
    let _ = tokio::io::copy(&mut reader, &mut to_client).await;
    ended.await;
    let _ = to_client.shutdown().await;
    input.abort();
    Ok(())
}
