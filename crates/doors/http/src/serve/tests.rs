//! Real connections: how many, how slow, and how they end.

use std::sync::Arc;
use std::time::Duration;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::testing::MemoryStore;

/// A server that runs, and how to stop it.
struct Running {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn empty() -> ServerState {
    crate::testing::state(Arc::new(MemoryStore::default())).await
}

async fn run(server: Server) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move { drop(stopped.await) };
    let task = tokio::spawn(server.run(Some((listener, None)), None, shutdown));
    Running { address, stop, task }
}

/// A server whose `/slow` reports each request and answers when the test says so.
async fn slow() -> (Running, Arc<Notify>, Arc<Notify>) {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (asking, going) = (Arc::clone(&asked), Arc::clone(&go));
    let handler = move || {
        let (asking, going) = (Arc::clone(&asking), Arc::clone(&going));
        async move {
            asking.notify_one();
            going.notified().await;
            "done"
        }
    };
    let router = Router::new().route("/slow", get(handler)).route("/fast", get(|| async { "fast" }));
    let token = async |request: axum::extract::Request| {
        crate::seats::trust(request.extensions());
        "token"
    };
    let router = router.route("/token", get(token));
    (run(Server::new(empty().await, router)).await, asked, go)
}

async fn send(running: &Running, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A server that drops a connection may reset it; the bytes before that count.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn a_request_that_runs_is_answered_although_the_server_stops() {
    let (running, asked, go) = slow().await;
    let stream = send(&running, &ask("/slow")).await;
    asked.notified().await;
    running.stop.send(()).unwrap();
    while TcpStream::connect(running.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    assert!(rest(stream).await.ends_with("done"));
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_dropped_after_a_while() {
    let (running, asked, _go) = slow().await;
    let stream = send(&running, &ask("/slow")).await;
    asked.notified().await;
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(rest(stream).await, "");
}

#[tokio::test]
async fn an_idle_connection_does_not_keep_the_server() {
    let (running, ..) = slow().await;
    let mut stream = send(&running, "GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut answer = [0; 512];
    assert!(stream.read(&mut answer).await.unwrap() > 0);
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(rest(stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_too_slowly_is_given_up() {
    let (running, ..) = slow().await;
    let stream = send(&running, "GET /fast HTTP/1.1\r\nHost: loc").await;
    let started = tokio::time::Instant::now();
    assert!(!rest(stream).await.contains("fast"));
    assert!(started.elapsed() <= limits::HEADER_TIME_MAX + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_longer_once_a_good_token_was_shown() {
    let (seconds, minutes) = (limits::STRANGER_IDLE_TIME_MAX, limits::IDLE_TIME_MAX);
    let cases = [
        (&["/fast"][..], seconds),
        (&["/fast", "/missing"], seconds),
        (&["/token"], minutes),
        (&["/fast", "/token", "/missing"], minutes),
    ];
    for (paths, expected) in cases {
        let (running, ..) = slow().await;
        let mut stream = send(&running, "").await;
        let mut answer = [0; 512];
        for path in paths {
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
            assert!(stream.read(&mut answer).await.unwrap() > 0);
        }
        let answered = tokio::time::Instant::now();
        assert_eq!(rest(stream).await, "");
        let kept = answered.elapsed();
        assert!(kept >= expected && kept <= expected + Duration::from_secs(1), "{paths:?}: {kept:?}");
    }
}

/// A pool that took it again could find it closed.
#[tokio::test(start_paused = true)]
async fn a_connection_over_which_nothing_good_was_asked_is_closed_with_the_answer() {
    let (running, ..) = slow().await;
    let stream = send(&running, "GET /missing HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let started = tokio::time::Instant::now();
    let answer = rest(stream).await.to_lowercase();
    assert!(answer.contains(" 404 ") && answer.contains("connection: close"), "{answer}");
    assert!(started.elapsed() < limits::HEADER_TIME_MAX, "it was closed by a deadline");
}

#[tokio::test(start_paused = true)]
async fn a_second_head_has_no_more_time_than_the_first() {
    let (running, ..) = slow().await;
    let mut stream = send(&running, "GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut answer = [0; 512];
    assert!(stream.read(&mut answer).await.unwrap() > 0);
    let begun = tokio::time::Instant::now();
    // A byte now and then changes nothing.
    while stream.write_all(b"G").await.is_ok() && begun.elapsed() < limits::IDLE_TIME_MAX {
        let read = timeout(Duration::from_secs(1), stream.read(&mut answer)).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            break;
        }
    }
    assert!(begun.elapsed() <= limits::HEADER_TIME_MAX + Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let (running, ..) = slow().await;
    let large = format!("GET /fast HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\n\r\n", "A".repeat(100_000));
    assert!(rest(send(&running, &large).await).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET /fast HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X-A: b\r\n".repeat(limits::HEADERS_MAX));
    assert!(rest(send(&running, &many).await).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn strangers_keep_no_caller_with_a_token_out() {
    let (running, ..) = slow().await;
    let mut known = send(&running, "GET /token HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut answer = [0; 512];
    assert!(known.read(&mut answer).await.unwrap() > 0);
    let mut strangers = Vec::new();
    for _ in 0..limits::STRANGERS_MAX + 8 {
        let mut stranger = send(&running, "GET /fast HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert!(stranger.read(&mut answer).await.unwrap() > 0, "a newcomer is served");
        strangers.push(stranger);
    }
    let last = strangers.pop().unwrap();
    for lost in strangers.drain(..8) {
        assert_eq!(rest(lost).await, "", "the oldest gave its place up");
    }
    assert!(rest(send(&running, &ask("/token")).await).await.ends_with("token"), "a new caller comes in");
    known.write_all(ask("/fast").as_bytes()).await.unwrap();
    assert!(rest(known).await.ends_with("fast"), "a caller that was there is served");
    drop((strangers, last));
}
