//! What the tests run inside a sandbox where a shell will not do.
//!
//!   probe serve PORT WORD      answers every connection on 127.0.0.1 with WORD
//!   probe dial ADDRESS         prints what the address answers; exit 1 if it does not

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A server that is being started answers soon or not at all.
const DIAL_FOR: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", port, word] => serve(port, word),
        ["dial", address] => dial(address),
        _ => Err(Error::new(ErrorKind::InvalidInput, "usage: probe serve PORT WORD | probe dial ADDRESS")),
    }
}

fn serve(port: &str, word: &str) -> Result<()> {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    for connection in listener.incoming() {
        writeln!(connection?, "{word}")?;
    }
    Ok(())
}

fn dial(address: &str) -> Result<()> {
    let end = std::time::Instant::now() + DIAL_FOR;
    let mut connection = loop {
        match TcpStream::connect(address) {
            Ok(connection) => break connection,
            Err(error) if std::time::Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    print!("{answer}");
    Ok(())
}
