//! Clients that send plain HTTP to a TLS port: they get a readable answer.
//!
//! The reverse needs no code: a TLS client shows its own error for every answer that is not TLS.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Most bytes of a request read after the answer. Closing a connection with unread bytes resets it, and the client may then
/// lose the answer.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;

const BODY: &str = r#"{"error":{"code":"https_required","message":"plain HTTP on a port that speaks TLS: use https:// instead of http://"}}"#;

/// Whether the first byte begins the name of an HTTP method. Every TLS connection begins with 22.
pub(super) async fn is_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    Ok(first[0].is_ascii_uppercase())
}

/// Answers in plain HTTP that the port requires TLS, and closes the connection.
pub(super) async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ";
    stream.write_all(format!("{head}{}\r\n\r\n{BODY}", BODY.len()).as_bytes()).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(REQUEST_BYTES_MAX), &mut tokio::io::sink()).await?;
    Ok(())
}
