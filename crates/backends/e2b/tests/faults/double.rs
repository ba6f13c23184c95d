//! A provider of paper: sandboxes by name, processes by script, and faults in the order in which they were ordered.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::processes;

/// What goes wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// An answer with this status, and perhaps a wish when to come back.
    Status(u16, Option<u64>),
    /// The right answer, later.
    Slow(Duration),
    /// It is done, and the answer is nonsense.
    Nonsense,
    /// A stream that is cut after so many envelopes.
    Cut(usize),
    /// A stream whose next envelope after so many is only begun.
    Half(usize),
    /// A stream that after so many envelopes announces one beyond every limit.
    Huge(usize),
    /// A stream that says after so many envelopes that the sandbox is gone, which it is then.
    Gone(usize),
}

/// Everything that the provider knows.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) sandboxes: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) paused: Vec<String>,
    /// Requests as method and path without ids, in order.
    pub(crate) seen: Vec<String>,
    faults: HashMap<&'static str, VecDeque<Fault>>,
    pub(crate) inputs: HashMap<u32, mpsc::UnboundedSender<Vec<u8>>>,
    pub(crate) killed: Vec<u32>,
    pub(crate) uploads: usize,
    pub(crate) page_size: Option<usize>,
    next: u32,
}

pub(crate) type Shared = Arc<Mutex<World>>;

/// A running provider.
#[derive(Debug)]
pub(crate) struct Double {
    pub(crate) world: Shared,
    pub(crate) address: SocketAddr,
}

impl Double {
    pub(crate) async fn start() -> Self {
        let world = Shared::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&world));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { world, address }
    }

    /// Orders a fault for the next request of a kind.
    pub(crate) fn fail(&self, kind: &'static str, fault: Fault) {
        self.world.lock().unwrap().faults.entry(kind).or_default().push_back(fault);
    }

    pub(crate) fn sandboxes(&self) -> usize {
        self.world.lock().unwrap().sandboxes.len()
    }

    pub(crate) fn seen(&self, what: &str) -> usize {
        self.world.lock().unwrap().seen.iter().filter(|seen| *seen == what).count()
    }
}

impl World {
    pub(crate) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }
}

async fn answer(State(world): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let words = if words[0] == "v2" { &words[1..] } else { &words[..] };
    let id = words.get(1).copied().filter(|_| words[0] == "sandboxes").unwrap_or_default().to_owned();
    let kind = kind(&parts.method, &path, words);
    let fault = {
        let mut world = world.lock().unwrap();
        let shown = if id.is_empty() { path.clone() } else { path.replace(&id, "ID") };
        world.seen.push(format!("{} {shown}", parts.method));
        world.faults.get_mut(kind).and_then(VecDeque::pop_front)
    };
    match &fault {
        Some(Fault::Status(status, after)) => return refusal(*status, *after),
        Some(Fault::Slow(time)) => tokio::time::sleep(*time).await,
        _ => {}
    }
    let sandbox = parts.headers.get("e2b-sandbox-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    if matches!(kind, "start" | "dial" | "input" | "signal" | "files") && !is_live(&world, &sandbox) {
        let said = json!({ "sandboxId": sandbox, "message": "The sandbox was not found", "code": 502 });
        return (StatusCode::BAD_GATEWAY, axum::Json(said)).into_response();
    }
    let answered = match kind {
        "start" => return processes::start(&world, &sandbox, &body, fault),
        "input" | "signal" => processes::tell(&world, kind, &body),
        "files" => {
            world.lock().unwrap().uploads += 1;
            axum::Json(json!([{ "path": "x", "name": "x", "type": "file" }])).into_response()
        }
        _ => control(&world, kind, &id, &body, parts.uri.query().unwrap_or_default()),
    };
    if matches!(fault, Some(Fault::Nonsense)) { "nonsense".into_response() } else { answered }
}

fn kind(method: &Method, path: &str, words: &[&str]) -> &'static str {
    match (method.as_str(), words) {
        ("POST", ["sandboxes"]) if path.starts_with("/v2") => "create2",
        ("POST", ["sandboxes"]) => "create1",
        ("GET", ["sandboxes"]) => "list",
        ("GET", ["sandboxes", _]) => "detail",
        ("DELETE", ["sandboxes", _]) => "delete",
        ("POST", ["sandboxes", _, "connect"]) => "connect",
        ("POST", ["sandboxes", _, "pause"]) => "pause",
        ("POST", ["sandboxes", _, "timeout"]) => "timeout",
        ("GET", ["sandboxes", _, "metrics"]) => "metrics",
        ("POST", ["files"]) => "files",
        ("POST", ["process.Process", "Start"]) => "start",
        ("POST", ["process.Process", "SendInput"]) => "input",
        ("POST", ["process.Process", "SendSignal"]) => "signal",
        _ => "unknown",
    }
}

fn is_live(world: &Shared, sandbox: &str) -> bool {
    let world = world.lock().unwrap();
    world.sandboxes.contains_key(sandbox) && !world.paused.iter().any(|paused| paused == sandbox)
}

fn refusal(status: u16, after: Option<u64>) -> Response {
    let code = StatusCode::from_u16(status).unwrap();
    let mut answer = (code, axum::Json(json!({ "code": status, "message": "ordered" }))).into_response();
    if let Some(seconds) = after {
        answer.headers_mut().insert("retry-after", seconds.to_string().parse().unwrap());
    }
    answer
}

fn control(world: &Shared, kind: &str, id: &str, body: &[u8], query: &str) -> Response {
    let mut world = world.lock().unwrap();
    if !id.is_empty() && !world.sandboxes.contains_key(id) {
        return refusal(404, None);
    }
    let sandbox = |id: &str| json!({ "sandboxID": id, "templateID": "base", "clientID": "x", "envdVersion": "0.6.13", "envdAccessToken": "t" });
    match kind {
        "create1" | "create2" => {
            let asked: Value = serde_json::from_slice(body).unwrap();
            assert!(asked["timeout"].as_u64().unwrap() >= 60, "{asked}");
            let id = format!("s{}", world.number());
            world.sandboxes.insert(id.clone(), serde_json::from_value(asked["metadata"].clone()).unwrap());
            (StatusCode::CREATED, axum::Json(sandbox(&id))).into_response()
        }
        "list" => list(&world, query),
        "detail" => {
            let mut told = sandbox(id);
            let state = if world.paused.iter().any(|paused| paused == id) { "paused" } else { "running" };
            told.as_object_mut().unwrap().extend(
                json!({ "state": state, "cpuCount": 1, "memoryMB": 128, "diskSizeMB": 256 })
                    .as_object()
                    .unwrap()
                    .clone(),
            );
            axum::Json(told).into_response()
        }
        "connect" => {
            world.paused.retain(|paused| paused != id);
            axum::Json(sandbox(id)).into_response()
        }
        "pause" if world.paused.iter().any(|paused| paused == id) => refusal(409, None),
        "pause" => {
            world.paused.push(id.to_owned());
            StatusCode::NO_CONTENT.into_response()
        }
        "delete" => {
            world.sandboxes.remove(id);
            StatusCode::NO_CONTENT.into_response()
        }
        "timeout" => StatusCode::NO_CONTENT.into_response(),
        "metrics" => axum::Json(json!([{ "memUsed": 1 }, { "memUsed": 4096, "cpuUsedPct": 3.5 }])).into_response(),
        _ => refusal(404, None),
    }
}

/// All sandboxes whatever the filter says, page by page: clients must look for themselves.
fn list(world: &World, query: &str) -> Response {
    let size = world.page_size.unwrap_or(100);
    let token = query.split('&').find_map(|pair| pair.strip_prefix("nextToken=")).unwrap_or("0");
    let start: usize = token.parse().unwrap();
    let all: Vec<Value> =
        world.sandboxes.iter().map(|(id, metadata)| json!({ "sandboxID": id, "metadata": metadata })).collect();
    let page: Vec<&Value> = all.iter().skip(start).take(size).collect();
    let mut answer = axum::Json(json!(page)).into_response();
    if start + size < all.len() {
        answer.headers_mut().insert("x-next-token", (start + size).to_string().parse().unwrap());
    }
    answer
}

/// A body that is sent piece by piece; an error in it cuts the connection.
pub(crate) fn streamed(pieces: mpsc::UnboundedReceiver<Result<Vec<u8>, std::io::Error>>) -> Response {
    let stream =
        futures_util::stream::unfold(pieces, async |mut pieces| pieces.recv().await.map(|piece| (piece, pieces)));
    Response::builder().header("content-type", "application/connect+json").body(Body::from_stream(stream)).unwrap()
}
