use std::sync::Arc;

use box_core::Caller;
use box_core::service::Resource;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Still, service};
use door_http::body::ChargedTo;
use door_http::testing::MemoryStore;

fn request(body: impl Into<Body>) -> Request {
    Request::builder().body(body.into()).unwrap()
}

fn enveloped(value: &Value) -> Vec<u8> {
    Envelope::encode(EnvelopeKind::Message, value.to_string().as_bytes()).unwrap()
}

async fn read(response: Response) -> Vec<(EnvelopeKind, Value)> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/connect+json");
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let mut decoder = box_e2b_wire::Decoder::default();
    decoder.push(&bytes);
    let mut found = Vec::new();
    while let Some(envelope) = decoder.next_envelope().unwrap() {
        found.push((envelope.kind, serde_json::from_slice(&envelope.bytes).unwrap()));
    }
    decoder.finish().unwrap();
    found
}

#[tokio::test]
async fn a_stream_ends_by_saying_how() {
    let messages = vec![Ok(json!(1)), Ok(json!(2))];
    let told = read(stream(streams::iter(messages), CancellationToken::new())).await;
    let expected =
        [(EnvelopeKind::Message, json!(1)), (EnvelopeKind::Message, json!(2)), (EnvelopeKind::End, json!({}))];
    assert_eq!(told, expected);
    let messages = vec![Ok(json!(1)), Err(RpcError::new(Code::NotFound, "gone")), Ok(json!(3))];
    let told = read(stream(streams::iter(messages), CancellationToken::new())).await;
    assert_eq!(told[1], (EnvelopeKind::End, json!({ "error": { "code": "not_found", "message": "gone" } })));
    assert_eq!(told.len(), 2, "nothing follows an error");
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let closing = CancellationToken::new();
    closing.cancel();
    let told = read(stream(streams::pending::<Result<Value, RpcError>>(), closing)).await;
    assert_eq!(told[0].1["error"]["code"], "unavailable");
}

#[tokio::test]
async fn an_error_before_a_stream_is_its_end() {
    let error = Streamed::<Value>::from_request(request(Body::empty()), &()).await.unwrap_err();
    assert_eq!(read(error.into_response()).await[0].1["error"]["code"], "invalid_argument");
    let error = Streamed::<u8>::from_request(request(enveloped(&json!("x"))), &()).await.unwrap_err();
    assert_eq!(read(error.into_response()).await[0].1["error"]["code"], "invalid_argument");
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_stream_is_read_to_its_end() {
    let pieces = |rest: streams::BoxStream<'static, Bytes>| {
        let first = streams::once(async { Bytes::from(enveloped(&json!([7]))) });
        Body::from_stream(first.chain(rest).map(Ok::<_, std::io::Error>))
    };
    let (sender, is_read) = tokio::sync::oneshot::channel();
    let end = streams::once(async move {
        sender.send(()).unwrap();
        Bytes::new()
    });
    let taken = Streamed::<Value>::from_request(request(pieces(end.boxed())), &()).await.unwrap();
    assert_eq!(taken.0, json!([7]));
    is_read.await.expect("the end of the request was read");
    let taken = Streamed::<Value>::from_request(request(pieces(streams::pending().boxed())), &()).await.unwrap();
    assert_eq!(taken.0, json!([7]), "a request that stays open is answered too");
}

#[tokio::test]
async fn a_message_is_taken_bare_or_in_its_envelope() {
    let Unary(value) = Unary::<Value>::from_request(request(r#"{"a":1}"#), &()).await.unwrap();
    assert_eq!(value, json!({ "a": 1 }));
    let Unary(value) = Unary::<Value>::from_request(request(Body::empty()), &()).await.unwrap();
    assert_eq!(value, json!({}));
    let Streamed(value) = Streamed::<Value>::from_request(request(enveloped(&json!([7]))), &()).await.unwrap();
    assert_eq!(value, json!([7]));
    let response = Unary::<Value>::from_request(request("{"), &()).await.unwrap_err().into_response();
    assert_eq!(response.status(), 400);
    let large = vec![b' '; limits::MESSAGE_BYTES_MAX + 1];
    assert!(Unary::<Value>::from_request(request(large.clone()), &()).await.is_err());
    let input: Vec<u8> = large.into_iter().chain(*b"7").collect();
    let UnaryInput(value, _) = UnaryInput::<Value>::from_request(request(input.clone()), &()).await.unwrap();
    assert_eq!(value, json!(7), "input for a process may be longer");
    let stream = || request(Envelope::encode(EnvelopeKind::Message, &input).unwrap());
    assert!(Incoming::new(stream()).next::<u8>().await.is_err());
    assert_eq!(Incoming::with_input(stream()).next::<u8>().await.unwrap(), Some(7));
}

#[tokio::test]
async fn messages_of_a_client_come_one_by_one() {
    let mut bytes = enveloped(&json!(1));
    bytes.extend(enveloped(&json!(2)));
    let pieces: Vec<_> = bytes.chunks(3).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    let mut incoming = Incoming::new(request(Body::from_stream(streams::iter(pieces))));
    assert_eq!(incoming.next::<u8>().await.unwrap(), Some(1));
    assert_eq!(incoming.next::<u8>().await.unwrap(), Some(2));
    assert_eq!(incoming.next::<u8>().await.unwrap(), None);
    let mut cut = Incoming::new(request(enveloped(&json!("abc"))[..6].to_vec()));
    assert_eq!(cut.next::<Value>().await.unwrap_err().code, Code::InvalidArgument);
}

#[tokio::test]
async fn a_message_counts_for_its_tenant_as_long_as_it_is_held() {
    let service = service(Arc::new(Still::default()), Arc::new(MemoryStore::default())).await;
    let caller = Caller::local();
    let charged = |body: Vec<u8>| {
        let mut request = request(body);
        request.extensions_mut().insert(ChargedTo::new(&service, &caller));
        request
    };
    let held = async || {
        let limits = service.status(&caller).await.unwrap().limits;
        limits.into_iter().find(|limit| limit.resource == Resource::BufferedBytes).unwrap().held
    };
    let text = json!("x".repeat(5000));
    let bare = || charged(text.to_string().into_bytes());
    let mut two = enveloped(&text);
    two.extend(enveloped(&json!(1)));

    let message = UnaryInput::<Value>::from_request(bare(), &()).await.unwrap();
    assert_eq!(held().await, 5002);
    drop(message);
    assert_eq!(held().await, 0);

    let mut incoming = Incoming::with_input(charged(two.clone()));
    assert_eq!(incoming.next::<Value>().await.unwrap(), Some(text.clone()));
    assert_eq!(held().await, two.len() as u64, "its reader has the message");
    assert_eq!(incoming.next::<Value>().await.unwrap(), Some(json!(1)));
    assert!(held().await < 10);
    drop(incoming);
    assert_eq!(held().await, 0);

    let mut others = service.buffered(&caller.tenant);
    others.resize(usize::try_from(box_core::limits::BUFFERED_BYTES_MAX).unwrap() - 1000).unwrap();
    assert_eq!(UnaryInput::<Value>::from_request(bare(), &()).await.unwrap_err().0.code, Code::ResourceExhausted);
    let refused = Incoming::with_input(charged(two)).next::<Value>().await;
    assert_eq!(refused.unwrap_err().code, Code::ResourceExhausted);
    assert!(Unary::<Value>::from_request(charged(b"{}".to_vec()), &()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_client_may_be_silent_between_messages_and_not_within_one() {
    let silent = |bytes: Vec<u8>| {
        let pieces = streams::once(async { Ok::<_, std::io::Error>(Bytes::from(bytes)) });
        Incoming::with_input(request(Body::from_stream(pieces.chain(streams::pending()))))
    };
    let mut within = silent(enveloped(&json!("abc"))[..6].to_vec());
    assert_eq!(within.next::<Value>().await.unwrap_err().code, Code::DeadlineExceeded);
    let mut between = silent(enveloped(&json!(1)));
    assert_eq!(between.next::<Value>().await.unwrap(), Some(json!(1)));
    let hour = Duration::from_hours(1);
    assert!(tokio::time::timeout(hour, between.next::<Value>()).await.is_err(), "it still listens");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_with_its_own_limit() {
    let message = |bytes: usize| request(vec![b' '; bytes + 1]);
    let told = UnaryInput::<Value>::from_request(message(limits::INPUT_MESSAGE_BYTES_MAX), &()).await.unwrap_err().0;
    assert!(told.message.contains("33554432"), "{told}");
    let told = Unary::<Value>::from_request(message(limits::MESSAGE_BYTES_MAX), &()).await.unwrap_err().0;
    assert!(told.message.contains("4194304"), "{told}");
}

#[test]
fn headers_say_who_and_how_long() {
    let headers =
        |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
    assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
    assert_eq!(timeout(&headers("connect-timeout-ms", "0")).unwrap(), None);
    assert_eq!(timeout(&headers("connect-timeout-ms", "1500")).unwrap(), Some(Duration::from_millis(1500)));
    assert!(timeout(&headers("connect-timeout-ms", "soon")).is_err());
    assert_eq!(keepalive(&HeaderMap::new()), Duration::from_secs(90));
    assert_eq!(keepalive(&headers("keepalive-ping-interval", "50")), Duration::from_secs(50));
    assert_eq!(user(&HeaderMap::new(), BoxUser::User), Ok(BoxUser::User));
    assert_eq!(user(&headers("authorization", "Basic cm9vdDo="), BoxUser::User), Ok(BoxUser::Root));
    for bad in ["Basic bm9ib2R5Og==", "Bearer x", "Basic %"] {
        assert_eq!(
            user(&headers("authorization", bad), BoxUser::User).unwrap_err().code,
            Code::Unauthenticated,
            "{bad}"
        );
    }
}
