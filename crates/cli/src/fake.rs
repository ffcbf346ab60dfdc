//! For tests: a service that gives canned answers.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests are not inside a test function, which is all that is allowed"
)]

use ringfence_client::Client;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A path (its query left out) and the body of its answer. Any other path is 404.
pub(crate) type Answers = &'static [(&'static str, &'static str)];

/// Serves until the test's runtime ends.
pub(crate) async fn client(answers: Answers) -> Client {
    Client::new(&url(answers).await, "t").unwrap()
}

pub(crate) async fn url(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, answers));
        }
    });
    url
}

async fn answer(stream: TcpStream, answers: Answers) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    let path = head.split([' ', '?']).nth(1)?;
    let known = answers.iter().find(|(at, _)| *at == path);
    let (status, body) = known.map_or(("404 Not Found", ""), |(_, body)| ("200 OK", *body));
    let text =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.ok()
}
