//! Characters that come in pieces, and going on from any cursor.

use std::sync::Arc;

use box_core::call::{ExecInfo, Target};
use box_core::{Caller, Store};
use http_body_util::BodyExt;
use proptest::prelude::*;

use super::*;
use door_http::testing::{MemoryStore, ended_exec, service};

fn output(stream: StreamName, bytes: &[u8], stdout: u64, stderr: u64) -> FollowEvent {
    FollowEvent::Output { stream, bytes: bytes.to_vec(), cursor: Cursor { run: 0, stdout, stderr } }
}

/// Events of an output that came in these pieces, from a cursor on, as the service would tell them.
fn follow(pieces: &[(StreamName, Vec<u8>)], from: Cursor) -> Vec<FollowEvent> {
    let mut at = Cursor::default();
    let mut events = Vec::new();
    for (stream, bytes) in pieces {
        let (start, wanted) = (position(at, *stream), position(from, *stream));
        let skip = usize::try_from(wanted.saturating_sub(start)).unwrap().min(bytes.len());
        match stream {
            StreamName::Stdout => at.stdout += bytes.len() as u64,
            StreamName::Stderr => at.stderr += bytes.len() as u64,
        }
        let cursor = Cursor { stdout: at.stdout.max(from.stdout), stderr: at.stderr.max(from.stderr), ..at };
        if skip < bytes.len() {
            events.push(FollowEvent::Output { stream: *stream, bytes: bytes[skip..].to_vec(), cursor });
        }
    }
    events
}

fn tell_all(pieces: &[(StreamName, Vec<u8>)], from: Cursor) -> Vec<EventFrame> {
    let mut teller = Teller::new(from);
    let mut told: Vec<_> = follow(pieces, from).iter().flat_map(|event| teller.tell(event)).collect();
    told.extend(teller.flush_all());
    told
}

fn bytes_of(told: &[EventFrame], stream: StreamName) -> Vec<u8> {
    let name = serde_json::to_value(stream).unwrap();
    let of_stream = told.iter().filter(|told| told.data["stream"] == name);
    let bytes = of_stream.map(|told| match told.data["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => STANDARD.decode(told.data["base64"].as_str().unwrap()).unwrap(),
    });
    bytes.flatten().collect()
}

#[test]
fn a_character_in_two_pieces_is_told_whole_and_the_cursor_waits_before_it() {
    let mut teller = Teller::default();
    let first = teller.tell(&output(StreamName::Stdout, b"a\xe2\x82", 3, 0));
    assert_eq!(first[0].data, json!({ "stream": "stdout", "offset": 0, "text": "a" }));
    assert_eq!(first[0].id.unwrap().to_string(), "0.1.0");
    let other = teller.tell(&output(StreamName::Stderr, b"x", 3, 1));
    assert_eq!(other[0].id.unwrap().to_string(), "0.1.1", "what is held back of the other stream counts too");
    let rest = teller.tell(&output(StreamName::Stdout, b"\xac!", 5, 1));
    assert_eq!(rest[0].data, json!({ "stream": "stdout", "offset": 1, "text": "€!" }));
    assert_eq!(rest[0].id.unwrap().to_string(), "0.5.1");
}

#[test]
fn what_is_no_text_is_told_as_base64() {
    let told = Teller::default().tell(&output(StreamName::Stdout, b"\xff\xfe", 2, 0));
    assert_eq!(told[0].data, json!({ "stream": "stdout", "offset": 0, "base64": "//4=" }));
}

#[test]
fn a_character_that_never_ends_is_told_at_the_end() {
    for ending in [
        FollowEvent::Gap { stream: StreamName::Stdout, bytes: 5, cursor: Cursor { run: 0, stdout: 6, stderr: 0 } },
        FollowEvent::Restarted { cursor: Cursor { run: 1, stdout: 0, stderr: 0 } },
    ] {
        let mut teller = Teller::default();
        assert_eq!(teller.tell(&output(StreamName::Stdout, b"\xe2", 1, 0)), []);
        let told = teller.tell(&ending);
        assert_eq!(told[0].data["base64"], "4g==");
        assert_eq!(told[0].id.unwrap().to_string(), "0.1.0");
        assert_eq!(told.len(), 2, "and then what happened");
    }
}

#[test]
fn a_gap_says_how_much_is_missing_and_where_to_go_on() {
    let cursor = Cursor { run: 0, stdout: 100, stderr: 0 };
    let told = Teller::default().tell(&FollowEvent::Gap { stream: StreamName::Stdout, bytes: 100, cursor });
    assert_eq!(told, [EventFrame { name: "gap", id: Some(cursor), data: json!({ "stream": "stdout", "bytes": 100 }) }]);
}

/// Tells what it was given, and then nothing for ever.
struct Given(VecDeque<FollowEvent>);

impl Feed for Given {
    async fn next(&mut self) -> box_core::Result<Option<FollowEvent>> {
        match self.0.pop_front() {
            Some(event) => Ok(Some(event)),
            None => std::future::pending().await,
        }
    }
}

async fn response(events: Vec<FollowEvent>, first: Option<Value>, closing: CancellationToken) -> Response {
    let service = service(Arc::new(MemoryStore::default()) as Arc<dyn Store>).await;
    let target = Target::Exec("e".parse().unwrap());
    let line = Line { service, caller: Caller::local(), session: "s".parse().unwrap(), target };
    respond(Given(events.into()), line, Cursor::default(), first, closing)
}

async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn ended(cursor: Cursor) -> FollowEvent {
    let info = ExecInfo { exit_code: Some(3), stdout_bytes: 3, ..ended_exec() };
    FollowEvent::Ended { info: Box::new(info), cursor }
}

#[tokio::test]
async fn events_are_written_as_browsers_read_them() {
    let at = Cursor { run: 0, stdout: 3, stderr: 0 };
    let events = vec![output(StreamName::Stdout, b"a\nb", 3, 0), ended(at)];
    let response = response(events, Some(json!({ "exec_id": "e" })), CancellationToken::new()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = text(response).await;
    let events: Vec<&str> = text.trim_end().split("\n\n").collect();
    assert_eq!(events[0], "event: started\nid: 0.0.0\ndata: {\"exec_id\":\"e\"}");
    assert_eq!(events[1], "event: output\nid: 0.3.0\ndata: {\"offset\":0,\"stream\":\"stdout\",\"text\":\"a\\nb\"}");
    assert!(events[2].starts_with("event: ended\nid: 0.3.0\ndata: {"), "{text}");
    assert!(events[2].contains("\"exit_code\":3"), "what is known is told even without a result: {text}");
    assert_eq!(events.len(), 3, "nothing follows the end");
}

#[tokio::test]
async fn a_stopping_server_ends_its_streams_without_an_end_of_the_command() {
    let closing = CancellationToken::new();
    let response = response(vec![], None, closing.clone()).await;
    closing.cancel();
    assert_eq!(text(response).await, "");
}

fn pieces() -> impl Strategy<Value = Vec<(StreamName, Vec<u8>)>> {
    let stream = prop_oneof![Just(StreamName::Stdout), Just(StreamName::Stderr)];
    let text = proptest::collection::vec(
        prop_oneof!["[a€😀\n]{0,4}".prop_map(String::into_bytes), any::<[u8; 2]>().prop_map(Vec::from)],
        0..4,
    );
    let cut = (text, 1..5_usize)
        .prop_map(|(parts, size)| parts.concat().chunks(size).map(<[u8]>::to_vec).collect::<Vec<_>>());
    proptest::collection::vec((stream, cut), 0..4).prop_map(|runs| {
        runs.into_iter().flat_map(|(stream, cut)| cut.into_iter().map(move |bytes| (stream, bytes))).collect()
    })
}

proptest! {
    #[test]
    fn every_byte_is_told_once_also_when_one_goes_on_from_any_event(pieces in pieces(), stop in any::<prop::sample::Index>()) {
        let whole = tell_all(&pieces, Cursor::default());
        let streams = [StreamName::Stdout, StreamName::Stderr];
        for stream in streams {
            let said: Vec<u8> = pieces.iter().filter(|piece| piece.0 == stream).flat_map(|piece| piece.1.clone()).collect();
            prop_assert_eq!(bytes_of(&whole, stream), said);
        }
        if !whole.is_empty() {
            let seen = &whole[..=stop.index(whole.len())];
            let rest = tell_all(&pieces, seen.last().unwrap().id.unwrap());
            for stream in streams {
                let both = [bytes_of(seen, stream), bytes_of(&rest, stream)].concat();
                prop_assert_eq!(both, bytes_of(&whole, stream));
            }
        }
    }
}
