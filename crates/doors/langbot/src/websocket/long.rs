//! Long answers for clients that do not report their version.
//!
//! SDKs up to 0.4.14 close the connection at a message of more than 1 MiB, and join text messages until these are JSON. SDKs from
//! 0.4.15 on accept 16 MiB and join nothing. Neither reports its version, so the server probes a client before its first long
//! answer, with a message that is both a request and an answer: older SDKs execute it and answer, newer ones take it for an
//! answer to nothing and drop it. It requests the one action that every SDK has, as a no-op: append no bytes to `/dev/null`.

use std::time::Duration;

use axum::extract::ws::Message;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::limits::{RPC_CLIENT_ANSWER_TIME_MAX, RPC_LEGACY_MESSAGE_BYTES_MAX, RPC_PONG_TIME_MAX};

/// The number of the probe; clients count their own from 0.
const SEQ_ID: i64 = -2;

const QUESTION: &str = r#"{"seq_id":-2,"code":0,"message":"success","chunk_status":"continue","action":"__file_chunk","data":{"file_key":"/dev/null","file_length":0,"chunk_base64":"","chunk_index":0,"chunk_amount":1,"chunk_size":0}}"#;

/// Knowledge about a client. Both halves of its connection share it.
#[derive(Debug, Clone)]
pub(super) struct Knowledge(watch::Sender<State>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    is_asked: bool,
    /// It has read the probe.
    has_read: bool,
    /// It executed the probe: it joins messages.
    has_answered: bool,
}

/// The fields that show whether a message is the answer.
#[derive(Deserialize)]
struct Head {
    seq_id: Option<i64>,
    code: Option<serde::de::IgnoredAny>,
}

impl Knowledge {
    /// The state before the probe.
    pub(super) fn none() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Handles the pong to the ping that follows the probe.
    pub(super) fn read(&self) {
        self.0.send_modify(|state| state.has_read |= state.is_asked);
    }

    /// Handles the answer to the probe. Returns false for any other message.
    pub(super) fn takes(&self, text: &str) -> bool {
        let is_answer = self.0.borrow().is_asked
            && text.len() < QUESTION.len() * 2
            && serde_json::from_str::<Head>(text).is_ok_and(|head| head.seq_id == Some(SEQ_ID) && head.code.is_some());
        if is_answer {
            self.0.send_modify(|state| state.has_answered = true);
        }
        is_answer
    }

    /// The probe before the first long answer; none if it was already sent.
    pub(super) fn question(&self) -> Option<[Message; 2]> {
        let is_new = self.0.send_if_modified(|state| !std::mem::replace(&mut state.is_asked, true));
        is_new.then(|| [Message::text(QUESTION), Message::Ping(axum::body::Bytes::new())])
    }

    /// Waits until the client's message format is known.
    pub(super) async fn learned(&self) {
        self.until(RPC_PONG_TIME_MAX, |state| state.has_read || state.has_answered).await;
        self.until(RPC_CLIENT_ANSWER_TIME_MAX, |state| state.has_answered).await;
    }

    /// Splits a text that is too long for the oldest clients, if this client is one of them.
    pub(super) fn messages(&self, text: String) -> Vec<String> {
        if self.0.borrow().has_answered { pieces(&text) } else { vec![text] }
    }

    async fn until(&self, time_max: Duration, is_done: impl FnMut(&State) -> bool) {
        let mut changes = self.0.subscribe();
        // After the timeout, the current state decides.
        let _ = timeout(time_max, changes.wait_for(is_done)).await;
    }
}

/// Splits a text into messages for the oldest clients.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(RPC_LEGACY_MESSAGE_BYTES_MAX));
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_short_enough_and_the_whole_text() {
        let text = format!("x{}", "é".repeat(RPC_LEGACY_MESSAGE_BYTES_MAX));
        let pieces = pieces(&text);
        assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.len() <= RPC_LEGACY_MESSAGE_BYTES_MAX));
        assert_eq!(pieces.concat(), text);
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_the_question_gets_pieces_and_who_only_reads_it_the_whole() {
        let text = "x".repeat(RPC_LEGACY_MESSAGE_BYTES_MAX + 1);
        for (answers, count) in [(true, 2), (false, 1)] {
            let knowledge = Knowledge::none();
            assert!(!knowledge.takes(r#"{"seq_id":-2,"code":0}"#), "before it was asked");
            let [question, ping] = knowledge.question().unwrap();
            assert!(matches!(question, Message::Text(_)) && matches!(ping, Message::Ping(_)));
            assert!(!knowledge.takes(r#"{"seq_id":7,"action":"__ping","data":{}}"#));
            knowledge.read();
            if answers {
                assert!(knowledge.takes(r#"{"seq_id": -2, "code": 0, "message": "success", "data": {}}"#));
            }
            knowledge.learned().await;
            assert_eq!(knowledge.messages(text.clone()).len(), count, "{answers}");
            assert!(knowledge.question().is_none(), "it is asked once");
        }
    }
}
