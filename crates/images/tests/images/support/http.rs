//! A few lines of HTTP: enough to push an image, and to play a registry that does what no real one would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// An answer, as far as it matters here.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
}

/// Sends one request.
pub(crate) fn send(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}{}\r\n", lines(headers)).as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let location = text.lines().find_map(|line| line.strip_prefix("Location: ")).map(|at| at.trim().to_owned());
    Reply { status: text[9..12].parse().unwrap(), location }
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: Vec<String>,
}

impl ReceivedRequest {
    /// What was shown as a proof of who asks.
    pub(crate) fn authorization(&self) -> Option<&str> {
        let is_it = |line: &&String| line.to_lowercase().starts_with("authorization: ");
        self.headers.iter().find(is_it).map(|line| &line["authorization: ".len()..])
    }
}

/// A server that answers each request with scripted bytes.
pub(crate) struct Player {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Player {
    pub(crate) fn start(answer: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let player = Self { address, asked: Arc::clone(&asked) };
        // Ends with the process: it waits for the next caller and has nothing to clean up.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let request = read(&stream);
                    asked.lock().unwrap().push(request.clone());
                    // Who asked may have gone away.
                    drop(stream.write_all(&answer(&request)));
                });
            }
        });
        player
    }

    /// Everything that was asked so far.
    pub(crate) fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> ReceivedRequest {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    ReceivedRequest { path, headers }
}

/// An answer with these lines and this body.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    [format!("{head}{}\r\n", lines(headers)).as_bytes(), body].concat()
}

fn lines(headers: &[(&str, &str)]) -> String {
    headers.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect()
}
