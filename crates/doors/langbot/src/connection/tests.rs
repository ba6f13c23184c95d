//! Connections over channels, with a scripted clerk.

use std::sync::Mutex;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::Client;

impl MessageReader for mpsc::Receiver<String> {
    type End = ();

    async fn read_message(&mut self) -> Result<String, ()> {
        self.recv().await.ok_or(())
    }
}

impl MessageWriter for mpsc::Sender<String> {
    async fn write_message(&mut self, text: String) -> Result<(), Gone> {
        self.send(text).await.map_err(|_| Gone)
    }
}

/// Never answers `broken`, answers `slow` when the test says so, and everything else at once.
#[derive(Clone, Default)]
struct Script {
    tasks: TaskTracker,
    abort: CancellationToken,
    go: Arc<Notify>,
    began: Arc<Mutex<usize>>,
    ended: Arc<Mutex<usize>>,
}

impl Clerk for Script {
    async fn answer(&self, _connection: &Connection, request: Request) -> Option<Reply> {
        *self.began.lock().unwrap() += 1;
        match request.action.as_str() {
            "slow" => self.go.notified().await,
            "broken" => panic!("as the test wants it"),
            _ => {}
        }
        *self.ended.lock().unwrap() += 1;
        let data = json!({ "long": "x".repeat(usize::try_from(request.data.get("bytes").and_then(Value::as_u64).unwrap_or(0)).unwrap()) });
        let reply = Reply::success(request.seq_id, data.as_object().cloned().unwrap_or_else(Map::new));
        (request.action != "overtaken").then_some(reply)
    }

    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn abort(&self) -> &CancellationToken {
        &self.abort
    }
}

struct Wire {
    clerk: Script,
    ask: mpsc::Sender<String>,
    replies: mpsc::Receiver<String>,
    task: JoinHandle<bool>,
}

/// A connection; its replies wait in a channel of one until they are taken.
fn wire() -> Wire {
    let (ask, mut incoming) = mpsc::channel(1);
    let (mut outgoing, replies) = mpsc::channel(1);
    let clerk = Script::default();
    let inner = clerk.clone();
    let task = tokio::spawn(async move {
        let connection = Connection::new(Client::Legacy, 10_000);
        matches!(converse(&inner, connection, &mut incoming, &mut outgoing).await, Ended::Heard(..))
    });
    Wire { clerk, ask, replies, task }
}

fn request(seq_id: usize, action: &str) -> String {
    json!({ "seq_id": seq_id, "action": action, "data": {} }).to_string()
}

impl Wire {
    async fn ask(&self, seq_id: usize, action: &str) {
        self.ask.send(request(seq_id, action)).await.unwrap();
    }

    async fn reply(&mut self) -> Value {
        serde_json::from_str(&self.replies.recv().await.unwrap()).unwrap()
    }
}

#[tokio::test]
async fn replies_come_when_they_are_done_and_not_in_the_order_of_requests() {
    let mut wire = wire();
    wire.ask(1, "slow").await;
    wire.ask(2, "quick").await;
    assert_eq!(wire.reply().await["seq_id"], 2);
    wire.clerk.go.notify_one();
    assert_eq!(wire.reply().await["seq_id"], 1);
}

#[tokio::test]
async fn a_request_that_was_overtaken_is_not_answered() {
    let mut wire = wire();
    wire.ask(1, "overtaken").await;
    wire.ask(2, "quick").await;
    assert_eq!(wire.reply().await["seq_id"], 2);
    drop(wire.ask);
    assert_eq!(wire.replies.recv().await, None);
}

#[tokio::test]
async fn the_129th_request_at_once_is_told_that_the_connection_is_busy() {
    let mut wire = wire();
    for seq_id in 0..limits::RPC_REQUESTS_MAX {
        wire.ask(seq_id, "slow").await;
    }
    wire.ask(500, "quick").await;
    let reply = wire.reply().await;
    assert_eq!((&reply["seq_id"], &reply["code"]), (&500.into(), &1.into()));
    assert_eq!(reply["message"], "Runtime connection is busy (max 128 concurrent actions)");
    wire.clerk.go.notify_one();
    assert_eq!(wire.reply().await["code"], 0);
    // The place is free when the reply is on its way.
    while wire.clerk.tasks.len() == limits::RPC_REQUESTS_MAX {
        tokio::task::yield_now().await;
    }
    wire.ask(501, "quick").await;
    assert_eq!(wire.reply().await["seq_id"], 501);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from() {
    let mut wire = wire();
    let mut asked = 0;
    // Whatever it asks is taken until nothing moves any more.
    loop {
        let taken = tokio::select! {
            biased;
            taken = wire.ask.send(request(asked, "quick")) => taken.is_ok(),
            () = settled(&wire.clerk) => false,
        };
        if !taken {
            break;
        }
        asked += 1;
        assert!(asked < 1000, "it takes everything");
    }
    assert!(*wire.clerk.began.lock().unwrap() <= limits::RPC_REQUESTS_MAX + limits::RPC_REPLIES_WAITING_MAX + 2);
    for _ in 0..asked {
        wire.reply().await;
    }
}

/// Waits until all that could run has run.
async fn settled(_clerk: &Script) {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_runs_when_the_client_leaves_runs_to_its_end() {
    let wire = wire();
    wire.ask(1, "slow").await;
    while *wire.clerk.began.lock().unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    drop((wire.ask, wire.replies));
    assert!(wire.task.await.unwrap());
    assert_eq!(*wire.clerk.ended.lock().unwrap(), 0);
    wire.clerk.go.notify_one();
    wire.clerk.tasks.close();
    wire.clerk.tasks.wait().await;
    assert_eq!(*wire.clerk.ended.lock().unwrap(), 1);
}

#[tokio::test]
async fn what_is_not_waited_for_any_more_is_dropped() {
    let wire = wire();
    wire.ask(1, "slow").await;
    drop(wire.ask);
    wire.clerk.abort.cancel();
    wire.clerk.tasks.close();
    wire.clerk.tasks.wait().await;
    assert_eq!(*wire.clerk.ended.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_breaks_is_answered_and_the_others_go_on() {
    let mut wire = wire();
    wire.ask(1, "broken").await;
    let reply = wire.reply().await;
    assert_eq!((&reply["seq_id"], &reply["code"]), (&1.into(), &1.into()));
    assert!(reply["message"].as_str().unwrap().starts_with("BoxError: "), "{reply}");
    wire.ask(2, "quick").await;
    assert_eq!(wire.reply().await["code"], 0);
}

#[tokio::test]
async fn a_reply_that_is_too_long_for_the_client_is_an_error() {
    let mut wire = wire();
    wire.ask.send(r#"{"seq_id": 1, "action": "a", "data": {"bytes": 10000}}"#.to_owned()).await.unwrap();
    let reply = wire.reply().await;
    assert_eq!((&reply["seq_id"], &reply["code"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn what_is_no_request_is_passed_over_and_a_bad_one_is_refused() {
    let mut wire = wire();
    for text in ["nonsense", "[]", r#"{"code": 0}"#, r#"{"seq_id": 1, "action": "a", "data": 5}"#] {
        wire.ask.send(text.to_owned()).await.unwrap();
    }
    assert!(wire.reply().await["message"].as_str().unwrap().starts_with("BoxValidationError: "));
}

#[tokio::test]
async fn long_requests_wait_until_there_is_room_for_them() {
    let wire = wire();
    let long =
        json!({ "seq_id": 1, "action": "slow", "data": { "text": "x".repeat(limits::RPC_REQUEST_BYTES_MAX / 4) } });
    for _ in 0..3 {
        wire.ask.send(long.to_string()).await.unwrap();
    }
    let (sent, done) = oneshot::channel();
    let ask = wire.ask.clone();
    let clerk = wire.clerk.clone();
    tokio::spawn(async move {
        ask.send(long.to_string()).await.unwrap();
        ask.send(request(2, "quick")).await.unwrap();
        // The channel takes one more than is read.
        ask.send(request(3, "quick")).await.unwrap();
        sent.send(*clerk.began.lock().unwrap()).unwrap();
    });
    settled(&wire.clerk).await;
    assert_eq!(*wire.clerk.began.lock().unwrap(), 3);
    wire.clerk.go.notify_one();
    assert!(done.await.unwrap() > 3);
}
