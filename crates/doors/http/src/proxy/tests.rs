//! Against services that do as they like.

use std::sync::Arc;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::gate::{Peer, Scheme};
use crate::testing::MemoryStore;

const PORT: NonZeroU16 = NonZeroU16::new(8000).unwrap();

async fn state() -> ServerState {
    crate::testing::state(Arc::new(MemoryStore::default())).await
}

/// The result if a service answers a request with these bytes, then sends nothing and does not hang up.
async fn answered(bytes: &[u8]) -> (Result<http::Response<Incoming>, ProxyError>, DuplexStream) {
    let (near, mut far) = tokio::io::duplex(64 << 10);
    let bytes = bytes.to_vec();
    let service = tokio::spawn(async move {
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            assert_ne!(far.read_buf(&mut asked).await.unwrap(), 0);
        }
        // The proxy may close the connection before all is written.
        let _ = far.write_all(&bytes).await;
        far
    });
    let request = Request::get("/").header("host", "localhost").body(Body::empty()).unwrap();
    let answer = exchange(&state().await, near, PORT, request).await;
    (answer, service.await.unwrap())
}

#[tokio::test]
async fn an_answer_comes_as_it_is() {
    let (answer, _far) = answered(b"HTTP/1.1 418 Short\r\nx-y: z\r\ncontent-length: 2\r\n\r\nhi").await;
    let answer = answer.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["x-y"]), (418, &HeaderValue::from_static("z")));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hi");
}

#[tokio::test]
async fn what_is_no_answer_is_the_fault_of_the_service() {
    let long = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; 200 << 10], b"\r\n\r\n"].concat();
    let many = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"a: b\r\n".repeat(1000), b"\r\n"].concat();
    let interim = b"HTTP/1.1 103 Early\r\n\r\n".repeat(100_000);
    let table: [&[u8]; 9] = [
        b"SSH-2.0-OpenSSH\r\n",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        &long,
        &many,
        &interim,
    ];
    for bytes in table {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        let (answer, _far) = answered(bytes).await;
        assert!(matches!(answer, Err(ProxyError::BadAnswer { .. })), "{shown}: {answer:?}");
    }
}

#[tokio::test]
async fn a_service_that_hangs_up_has_not_answered() {
    let (near, far) = tokio::io::duplex(1 << 10);
    drop(far);
    let request = Request::get("/").header("host", "localhost").body(Body::empty()).unwrap();
    let error = exchange(&state().await, near, PORT, request).await.unwrap_err();
    assert!(matches!(error, ProxyError::BadAnswer { .. }), "{error}");
    assert_eq!(Failure::from(error).status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_says_nothing_is_not_waited_for_forever() {
    let (answer, _far) = answered(b"").await;
    let error = answer.unwrap_err();
    assert!(matches!(error, ProxyError::NoAnswer { .. }), "{error}");
    assert_eq!(Failure::from(error).status(), StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_end_well() {
    let (answer, far) = answered(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
    drop(far);
    assert!(answer.unwrap().into_body().collect().await.is_err());
}

#[tokio::test]
async fn whoever_leaves_ends_the_connection() {
    let (answer, mut far) = answered(b"HTTP/1.1 200 OK\r\n\r\nendless").await;
    drop(answer.unwrap());
    let mut asked = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(30), far.read_to_end(&mut asked));
    read.await.expect("it was closed").unwrap();
}

#[test]
fn a_service_sees_who_asked_and_nothing_that_opens_our_doors() {
    let peer = Peer::Tcp { local: "127.0.0.1:1".parse().unwrap(), remote: "192.0.2.9:7".parse().unwrap() };
    let mut request = Request::post("/")
        .extension(peer)
        .extension(Scheme::Https)
        .header("host", "box.example")
        .header("connection", "close, x-own")
        .header("x-own", "1")
        .header("keep-alive", "timeout=5")
        .header("te", "trailers")
        .header("transfer-encoding", "chunked")
        .header("proxy-authorization", "Basic x")
        .header("authorization", "Bearer sbx_0_1")
        .header("x-api-key", "e2b_00")
        .header("x-access-token", "secret")
        .header("E2B-Traffic-Access-Token", "secret")
        .header("x-forwarded-for", "198.51.100.1")
        .header("cookie", "a=b")
        .body(Body::empty())
        .unwrap();
    headers::to_service(&mut request, &local_name(PORT));
    let mut all: Vec<_> =
        request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    all.sort();
    let expected = [
        "connection: close",
        "cookie: a=b",
        "host: localhost:8000",
        "x-forwarded-for: 198.51.100.1, 192.0.2.9",
        "x-forwarded-host: box.example",
        "x-forwarded-proto: https",
    ];
    assert_eq!(all, expected);
}

#[test]
fn keys_of_the_service_itself_pass() {
    let own = [("authorization", "Basic dTpw"), ("x-api-key", "mine")];
    let mut request = Request::get("/").body(Body::empty()).unwrap();
    for (name, value) in own {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    headers::to_service(&mut request, &local_name(PORT));
    for (name, value) in own {
        assert_eq!(request.headers()[name], value);
    }
}

#[test]
fn a_change_of_protocol_is_asked_for_in_two_headers() {
    let asked = |connection: &'static str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static(connection));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        headers::asked_protocol(&headers)
    };
    assert_eq!(asked("keep-alive, Upgrade").unwrap(), "websocket");
    assert_eq!(asked("keep-alive"), None);
}
