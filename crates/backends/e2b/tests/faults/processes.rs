//! Processes of paper: what prepares a sandbox, an agent that lodges, and one that is dialed.

use axum::response::{IntoResponse, Response};
use box_e2b_wire::process::{
    Data, Ended, Event, EventMessage, Input, Selector, SendInputRequest, SendSignalRequest, StartRequest, Started,
};
use box_e2b_wire::{Code, Decoder, Envelope, EnvelopeKind, RpcError};
use box_wire::frame::{self, HEADER_BYTES};
use box_wire::message::Verified;
use box_wire::{ExecOutcome, Exit, Header, Kind, Report, Request, Usage};
use serde_json::json;
use tokio::sync::mpsc;

use crate::double::{Fault, Shared, streamed};

type Pieces = mpsc::UnboundedSender<Result<Vec<u8>, std::io::Error>>;

/// Starts one, by what it is.
pub(crate) fn start(world: &Shared, sandbox: &str, body: &[u8], fault: Option<Fault>) -> Response {
    let mut decoder = Decoder::default();
    decoder.push(body);
    let envelope = decoder.next_envelope().unwrap().unwrap();
    let request: StartRequest = serde_json::from_slice(&envelope.bytes).unwrap();
    let (input, heard) = mpsc::unbounded_channel();
    let (pieces, said) = mpsc::unbounded_channel();
    let pid = {
        let mut world = world.lock().unwrap();
        let pid = world.number();
        world.inputs.insert(pid, input);
        pid
    };
    let writer = OutputWriter { pieces, fault, told: 0, world: Shared::clone(world), sandbox: sandbox.to_owned() };
    tokio::spawn(live(request, pid, heard, writer));
    streamed(said)
}

/// Sends something to one, or ends it.
pub(crate) fn tell(world: &Shared, kind: &str, body: &[u8]) -> Response {
    let mut world = world.lock().unwrap();
    let unknown = || {
        let error = RpcError::new(Code::NotFound, "no such process");
        (axum::http::StatusCode::NOT_FOUND, axum::Json(json!(error))).into_response()
    };
    if kind == "signal" {
        let request: SendSignalRequest = serde_json::from_slice(body).unwrap();
        let Selector::Pid(pid) = request.process else { panic!("{request:?}") };
        world.killed.push(pid);
        return if world.inputs.remove(&pid).is_some() { axum::Json(json!({})).into_response() } else { unknown() };
    }
    let request: SendInputRequest = serde_json::from_slice(body).unwrap();
    let (Selector::Pid(pid), Input::Stdin(bytes)) = (request.process, request.input) else { panic!() };
    match world.inputs.get(&pid).map(|input| input.send(bytes)) {
        Some(Ok(())) => axum::Json(json!({})).into_response(),
        _ => unknown(),
    }
}

/// What one says, until the fault that was ordered for it.
struct OutputWriter {
    pieces: Pieces,
    fault: Option<Fault>,
    told: usize,
    world: Shared,
    sandbox: String,
}

impl OutputWriter {
    fn write_event(&mut self, event: Event) -> bool {
        let message = serde_json::to_vec(&EventMessage { event }).unwrap();
        let envelope = Envelope::encode(EnvelopeKind::Message, &message).unwrap();
        let last = match &self.fault {
            Some(Fault::Cut(after)) if *after == self.told => None,
            Some(Fault::Half(after)) if *after == self.told => Some(envelope[..envelope.len() / 2].to_vec()),
            Some(Fault::Huge(after)) if *after == self.told => Some(vec![0, 0xff, 0xff, 0xff, 0xff]),
            Some(Fault::Gone(after)) if *after == self.told => {
                self.world.lock().unwrap().sandboxes.remove(&self.sandbox);
                let error = json!({ "error": { "code": "unavailable", "message": "The sandbox was not found" } });
                let end = Envelope::encode(EnvelopeKind::End, error.to_string().as_bytes()).unwrap();
                drop(self.pieces.send(Ok(end)));
                return false;
            }
            _ => {
                self.told += 1;
                return self.pieces.send(Ok(envelope)).is_ok();
            }
        };
        if let Some(last) = last {
            drop(self.pieces.send(Ok(last)));
        }
        drop(self.pieces.send(Err(std::io::Error::other("cut"))));
        false
    }

    fn write_frame(&mut self, bytes: Vec<u8>) -> bool {
        self.write_event(Event::Data(Data::Stdout(bytes)))
    }

    fn end(&mut self) {
        let ended = Ended { exited: true, status: "exit status 0".to_owned(), ..Ended::default() };
        if self.write_event(Event::End(ended)) {
            drop(self.pieces.send(Ok(Envelope::encode(EnvelopeKind::End, b"{}").unwrap())));
        }
    }
}

async fn live(request: StartRequest, pid: u32, mut heard: mpsc::UnboundedReceiver<Vec<u8>>, mut writer: OutputWriter) {
    // A fault that was ordered for a stream of an agent waits for one.
    let is_dialled = request.process.args == ["dial"];
    if !writer.write_event(Event::Start(Started { pid })) {
        return;
    }
    let script = request.process.args.get(1).map(String::as_str).unwrap_or_default();
    if script.contains("mkdir") {
        writer.write_frame(b"home /opt/strongbox\nagent 0\nmachine x86_64\n".to_vec());
        return writer.end();
    }
    let Some((kind, payload)) = read_frame(&mut heard).await else { return };
    if !is_dialled {
        assert_eq!(kind, Kind::ContainerSetup);
        let ready = Report::Ready(Verified { workload_confined: true, ..Verified::default() });
        writer.write_frame(frame::encode_within_build(Kind::Report, &ready).unwrap());
        return;
    }
    let event = |event: &box_wire::Event| frame::encode(Kind::Event, event).unwrap();
    match frame::decode::<Request>(kind, &payload).unwrap() {
        Request::Ping => drop(writer.write_frame(event(&box_wire::Event::Done))),
        Request::Exec(_) => {
            let output = b"hello";
            let stdout = [&Header::new(Kind::Stdout, output.len()).unwrap().to_bytes()[..], output].concat();
            let outcome = ExecOutcome {
                exit: Exit::Code(3),
                timed_out: false,
                oom_killed: false,
                tree_gone: true,
                usage: Usage::default(),
            };
            let started = event(&box_wire::Event::Started { pid: 1 });
            for bytes in [started, stdout, event(&box_wire::Event::Exited(outcome))] {
                if !writer.write_frame(bytes) {
                    return;
                }
            }
        }
        other => panic!("{other:?}"),
    }
    writer.end();
}

async fn read_frame(heard: &mut mpsc::UnboundedReceiver<Vec<u8>>) -> Option<(Kind, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        bytes.extend(heard.recv().await?);
        let Some((first, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { continue };
        let header = Header::from_bytes(*first).unwrap();
        if rest.len() >= header.payload_bytes {
            return Some((header.kind, rest[..header.payload_bytes].to_vec()));
        }
    }
}
