//! What an origin does with a request, told by the last segment of its path, or, where a rule leaves no room there, by
//! a POST's `User-Agent: do WORD` (with `?QUERY` where one is due):
//!
//! | segment | what it does |
//! |---|---|
//! | `quiet-known`, `quiet-chunked` | sends the head and the first bytes, then nothing more |
//! | `long-BYTES` | sends so many bytes, of known length |
//! | `long-chunked-BYTES` | the same in chunks |
//! | `slow-MS` | answers after so long |
//! | `to-STATUS` | redirects to what the percent-decoded query says; without a query it says no place |
//! | `hops-N` | redirects to `hops-N-1`, and the last of them answers |
//! | `loop`; `ping`, `pong` | redirects to itself; each to the other |
//! | `cookies` | sets two |
//! | `status-N` | answers so, with a body where the status has one |
//! | `gzip` | answers [`GZIP`], whatever was asked for |
//! | `part` | answers a part of ten bytes |
//! | `close` | answers and closes the connection |
//! | anything else | reads the body and answers with method, host, target and the body's length |

use super::{Entry, Seen};
use anyhow::{Result, bail};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a quiet answer sends before it falls silent, and how much more it promises.
pub const QUIET_BEGINS: &str = "the first bytes";
const QUIET_LENGTH: usize = 100_000;
/// `squeezed` and a line's end.
const GZIP: [u8; 29] = [
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x2b, 0x2e, 0x2c, 0x4d, 0x4d, 0xad, 0x4a,
    0x4d, 0xe1, 0x02, 0x00, 0x66, 0xed, 0xbc, 0x53, 0x09, 0x00, 0x00, 0x00,
];
static BLOCK: [u8; 64 * 1024] = [b'x'; 64 * 1024];

pub(super) struct Exchange<'a> {
    pub stream: &'a mut TcpStream,
    /// Read beyond the head: the body's beginning, or the next request.
    pub rest: &'a mut Vec<u8>,
    pub entry: Entry,
}

impl Exchange<'_> {
    pub async fn serve(&mut self, seen: &Seen) -> Result<()> {
        self.read_body(seen).await?;
        let agent = seen.header("user-agent").filter(|_| seen.method == "POST");
        let asked = agent.and_then(|agent| agent.strip_prefix("do "));
        let asked = asked.unwrap_or_else(|| last(&seen.target));
        let (word, query) = asked.split_once('?').unwrap_or((asked, ""));
        if word == "quiet-known" {
            self.head(200, &format!("Content-Length: {QUIET_LENGTH}\r\n")).await?;
            self.send(QUIET_BEGINS.as_bytes()).await?;
            return self.wait_for_the_end().await;
        }
        if word == "quiet-chunked" {
            self.head(200, "Transfer-Encoding: chunked\r\n").await?;
            self.send_chunk(QUIET_BEGINS.as_bytes()).await?;
            return self.wait_for_the_end().await;
        }
        if let Some(bytes) = word.strip_prefix("long-chunked-") {
            self.head(200, "Transfer-Encoding: chunked\r\n").await?;
            self.long(bytes.parse()?, true).await?;
            return Ok(self.stream.write_all(b"0\r\n\r\n").await?);
        }
        if let Some(bytes) = word.strip_prefix("long-") {
            self.head(200, &format!("Content-Length: {bytes}\r\n")).await?;
            return self.long(bytes.parse()?, false).await;
        }
        if let Some(ms) = word.strip_prefix("slow-") {
            let pause = tokio::time::sleep(Duration::from_millis(ms.parse()?));
            tokio::select! {
                () = pause => {}
                ended = self.wait_for_the_end() => return ended,
            }
        }
        if let Some(status) = word.strip_prefix("to-") {
            let to = decoded(query);
            let location = if to.is_empty() { String::new() } else { format!("Location: {to}\r\n") };
            return self.answer(status.parse()?, &location, b"moved").await;
        }
        if let Some(left) = word.strip_prefix("hops-").and_then(|left| left.parse::<u32>().ok())
            && left > 0
        {
            return self.answer(302, &format!("Location: hops-{}\r\n", left - 1), b"moved").await;
        }
        let back = match word {
            "loop" => Some("loop"),
            "ping" => Some("pong"),
            "pong" => Some("ping"),
            _ => None,
        };
        if let Some(to) = back {
            return self.answer(302, &format!("Location: {to}\r\n"), b"moved").await;
        }
        if let Some(status) = word.strip_prefix("status-") {
            let status: u16 = status.parse()?;
            if matches!(status, 204 | 304) {
                return self.head(status, "").await;
            }
            return self.answer(status, "", word.as_bytes()).await;
        }
        match word {
            "gzip" => return self.answer(200, "Content-Encoding: gzip\r\n", &GZIP).await,
            "part" => return self.answer(206, "Content-Range: bytes 2-4/10\r\n", b"234").await,
            _ => {}
        }
        let headers = match word {
            "cookies" => "Set-Cookie: a=1\r\nSet-Cookie: b=2; Secure\r\n",
            "close" => "Connection: close\r\n",
            _ => "",
        };
        let received = self.received();
        let text = format!("{} {} {} {received}\n", seen.method, seen.host, seen.target);
        if seen.method == "HEAD" {
            self.head(200, &format!("{headers}Content-Length: {}\r\n", text.len())).await?;
        } else {
            self.answer(200, headers, text.as_bytes()).await?;
        }
        if word == "close" { bail!("closed") } else { Ok(()) }
    }

    fn received(&self) -> u64 {
        let mut received = 0;
        self.entry.change(|seen| received = seen.received);
        received
    }

    async fn answer(&mut self, status: u16, headers: &str, body: &[u8]) -> Result<()> {
        self.head(status, &format!("{headers}Content-Length: {}\r\n", body.len())).await?;
        self.send(body).await
    }

    async fn head(&mut self, status: u16, headers: &str) -> Result<()> {
        let head = format!("HTTP/1.1 {status} Word\r\nContent-Type: text/plain\r\n{headers}\r\n");
        Ok(self.stream.write_all(head.as_bytes()).await?)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        self.entry.change(|seen| seen.sent += bytes.len() as u64);
        Ok(())
    }

    async fn send_chunk(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
        self.send(bytes).await?;
        Ok(self.stream.write_all(b"\r\n").await?)
    }

    async fn long(&mut self, bytes: u64, chunked: bool) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let block = &BLOCK[..usize::try_from(left.min(BLOCK.len() as u64))?];
            if chunked {
                self.send_chunk(block).await?
            } else {
                self.send(block).await?
            }
            left -= block.len() as u64;
        }
        Ok(())
    }

    /// The other side sends no more: it can only go.
    async fn wait_for_the_end(&mut self) -> Result<()> {
        let count = self.stream.read_buf(self.rest).await?;
        bail!("{count} bytes, or the end, where nothing was due")
    }

    async fn read_body(&mut self, seen: &Seen) -> Result<()> {
        if seen.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            return self.read_chunks().await;
        }
        let length: u64 = seen.header("content-length").map_or(Ok(0), str::parse)?;
        self.read_exactly(length).await
    }

    async fn read_chunks(&mut self) -> Result<()> {
        loop {
            let line = loop {
                if let Some(end) = self.rest.windows(2).position(|two| two == b"\r\n") {
                    break String::from_utf8(self.rest.drain(..end + 2).collect())?;
                }
                self.more().await?;
            };
            let size = u64::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)?;
            self.read_exactly(size).await?;
            while self.rest.len() < 2 {
                self.more().await?;
            }
            self.rest.drain(..2);
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn read_exactly(&mut self, length: u64) -> Result<()> {
        let mut left = length;
        while left > 0 {
            if self.rest.is_empty() {
                self.more().await?;
            }
            let count = self.rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.rest.drain(..count);
            left -= count as u64;
            self.entry.change(|seen| seen.received += count as u64);
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<()> {
        match self.stream.read_buf(self.rest).await? {
            0 => bail!("the body ended early"),
            _ => Ok(()),
        }
    }
}

/// From the last slash of the path on, the query too.
fn last(target: &str) -> &str {
    let path = target.find('?').unwrap_or(target.len());
    let from = target[..path].rfind('/').map_or(0, |slash| slash + 1);
    &target[from..]
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
