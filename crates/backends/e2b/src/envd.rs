//! What is asked of one sandbox, by the daemon in it: processes and files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use box_e2b_wire::process::{
    Done, Event, Input, ProcessRequest, Selector, SendInputRequest, SendSignalRequest, Signal, StartRequest,
};
use box_e2b_wire::{BoxUser, Code, ENVD_PORT, Envelope, EnvelopeKind, RpcError, SandboxId};
use reqwest::{Client, RequestBuilder};
use serde::Serialize;
use tokio::time::timeout;

use crate::config::Secret;
use crate::events::Events;
use crate::failure::Failure;
use crate::limits::{INPUT_BYTES_MAX, KEEPALIVE_SEC, REQUEST_TIMEOUT, SAID_BYTES_MAX};
use crate::parcel::Parcel;
use crate::{http, retry};

/// Version of the daemon from which on files are taken as they are, compressed if one likes.
const PLAIN_UPLOADS_SINCE: (u64, u64, u64) = (0, 5, 7);

/// Between the parts of a form. It is in none of them: it is nothing that a program has in it by chance.
const BOUNDARY: &str = "strongbox-5d1c0e8a7b3f4296";

/// The daemon of one sandbox, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Envd {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) sandbox: SandboxId,
    pub(crate) token: Option<Secret>,
    pub(crate) version: String,
}

/// What a command said, and what it returned.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) exit_code: i32,
}

impl Envd {
    /// Starts a process. It ends by itself or by a signal, and survives the end of this stream.
    pub(crate) async fn start(&self, user: BoxUser, request: &StartRequest) -> Result<(u32, Events), Failure> {
        let message = encoded(request)?;
        let envelope = Envelope::encode(EnvelopeKind::Message, &message)
            .ok_or_else(|| Failure::Broken("a message is too large to be sent".to_owned()))?;
        let make = || {
            self.rpc("Start", user)
                .header("Content-Type", "application/connect+json")
                .header("Keepalive-Ping-Interval", KEEPALIVE_SEC.to_string())
                .body(envelope.clone())
        };
        let answer = timeout(REQUEST_TIMEOUT, retry::send_stream(make)).await;
        let answer =
            answer.map_err(|_| Failure::Broken("the sandbox did not start a process in time".to_owned()))??;
        let mut events = Events::of(answer).await?;
        match events.next().await? {
            Some(Event::Start(started)) if started.pid != 0 => Ok((started.pid, events)),
            _ => Err(Failure::Broken("the sandbox does not say which process it has started".to_owned())),
        }
    }

    /// Runs a short command to its end.
    pub(crate) async fn run(&self, user: BoxUser, request: &StartRequest) -> Result<Said, Failure> {
        let (_, mut events) = self.start(user, request).await?;
        let (mut stdout, mut stderr, mut exit_code) = (Vec::new(), Vec::new(), -1);
        let heard = async {
            while let Some(event) = events.next().await? {
                match event {
                    Event::Data(box_e2b_wire::process::Data::Stdout(bytes)) => stdout.extend(bytes),
                    Event::Data(box_e2b_wire::process::Data::Stderr(bytes)) => stderr.extend(bytes),
                    Event::End(end) => exit_code = end.exit_code,
                    _ => {}
                }
                if stdout.len() + stderr.len() > SAID_BYTES_MAX {
                    return Err(Failure::Broken("a command in the sandbox says more than it should".to_owned()));
                }
            }
            Ok(())
        };
        let heard = timeout(REQUEST_TIMEOUT, heard).await;
        heard.map_err(|_| Failure::Broken("a command in the sandbox did not end in time".to_owned()))??;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Said { stdout: text(stdout), stderr: text(stderr), exit_code })
    }

    /// Sends bytes to the standard input of a process. Waits while the process does not read them, however long that is.
    pub(crate) async fn send_input(&self, user: BoxUser, pid: u32, bytes: &[u8]) -> Result<(), Failure> {
        for piece in bytes.chunks(INPUT_BYTES_MAX) {
            let request = SendInputRequest { process: Selector::Pid(pid), input: Input::Stdin(piece.to_vec()) };
            self.call("SendInput", user, &request).await?;
        }
        Ok(())
    }

    /// Ends the standard input of a process.
    pub(crate) async fn close_input(&self, user: BoxUser, pid: u32) -> Result<(), Failure> {
        self.call("CloseStdin", user, &ProcessRequest { process: Selector::Pid(pid) }).await
    }

    /// Ends a process. One that is gone already is fine.
    pub(crate) async fn kill(&self, user: BoxUser, pid: u32) -> Result<(), Failure> {
        let request = SendSignalRequest { process: Selector::Pid(pid), signal: Signal::Kill };
        match timeout(REQUEST_TIMEOUT, self.call("SendSignal", user, &request)).await {
            Ok(Err(Failure::Rpc(error))) if error.code == Code::NotFound => Ok(()),
            Ok(done) => done,
            Err(_) => Err(Failure::Broken("the sandbox did not answer in time".to_owned())),
        }
    }

    /// Puts a file into the sandbox.
    pub(crate) async fn upload(&self, user: BoxUser, path: &str, parcel: &Parcel) -> Result<(), Failure> {
        let is_plain = version(&self.version) >= PLAIN_UPLOADS_SINCE;
        let body = if is_plain { parcel.compressed()? } else { form(&parcel.plain).into() };
        let query = http::with_query("/files", [("username", user.name()), ("path", path)].into_iter());
        let answer = retry::send(|| {
            let request = self.request(&query).body(body.clone());
            if is_plain {
                request.header("Content-Type", "application/octet-stream").header("Content-Encoding", "gzip")
            } else {
                request.header("Content-Type", format!("multipart/form-data; boundary={BOUNDARY}"))
            }
        });
        http::done(answer.await?).await
    }

    /// A call with one message each way; the answer has nothing in it that matters.
    async fn call(&self, method: &str, user: BoxUser, request: &impl Serialize) -> Result<(), Failure> {
        let message = encoded(request)?;
        let answer = self.rpc(method, user).header("Content-Type", "application/json").body(message).send().await?;
        let status = answer.status();
        let body = http::body(answer).await?;
        if status.is_success() {
            return match serde_json::from_slice::<Done>(&body) {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::Broken(format!("unexpected response of the sandbox: {error}"))),
            };
        }
        match serde_json::from_slice::<RpcError>(&body) {
            Ok(error) => Err(Failure::of_rpc(&error)),
            Err(_) => Err(Failure::of_answer(status.as_u16(), &body)),
        }
    }

    fn rpc(&self, method: &str, user: BoxUser) -> RequestBuilder {
        let name = STANDARD.encode(format!("{user}:"));
        self.request(&format!("/process.Process/{method}"))
            .header("Connect-Protocol-Version", "1")
            .header("Authorization", format!("Basic {name}"))
    }

    fn request(&self, path: &str) -> RequestBuilder {
        let request = self
            .client
            .post(format!("{}{path}", self.base))
            .header("E2b-Sandbox-Id", self.sandbox.as_str())
            .header("E2b-Sandbox-Port", ENVD_PORT.to_string());
        match &self.token {
            Some(token) => request.header("X-Access-Token", token.reveal()),
            None => request,
        }
    }
}

fn encoded(message: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(message).map_err(|error| Failure::Broken(format!("a message cannot be written: {error}")))
}

/// One file as a form. Where it goes is said by the query.
fn form(bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    [head.as_bytes(), bytes, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat()
}

/// A version as numbers; what cannot be read is old.
fn version(text: &str) -> (u64, u64, u64) {
    let mut numbers = text.trim_start_matches('v').split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("0.5.10") >= PLAIN_UPLOADS_SINCE);
        assert!(version("v0.6.0-rc1") >= PLAIN_UPLOADS_SINCE);
        for old in ["", "0.5.6", "0.4", "nonsense"] {
            assert!(version(old) < PLAIN_UPLOADS_SINCE, "{old}");
        }
    }
}
