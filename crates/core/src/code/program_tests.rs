//! The programs of contexts, run by the interpreters of this machine as they are run in a box.

mod bash;
mod node;
mod python;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use crate::call::{Cursor, FollowEvent, StreamName};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::CodeEvent;
use super::language::{Cell, CodeLanguage};
use super::listener::Listener;

const NONCE: &str = "0123456789abcdef";
const PATIENCE: Duration = Duration::from_mins(1);

/// A context without a box.
struct Program {
    language: CodeLanguage,
    child: Child,
    stdin: ChildStdin,
    number: u64,
}

/// What a cell came to.
#[derive(Debug, Default)]
struct Came {
    stdout: String,
    stderr: String,
    results: Vec<Value>,
    errors: Vec<Value>,
    /// Kinds of events in order, each once in a row.
    order: Vec<String>,
    /// Whether the process ended instead of the cell.
    died: bool,
}

impl Came {
    /// The text of the only value.
    fn text(&self) -> &str {
        assert!(self.errors.is_empty() && self.results.len() == 1, "{self:?}");
        self.results[0]["text"].as_str().unwrap()
    }

    /// Name and value of the only error.
    fn error(&self) -> (&str, &str) {
        assert_eq!(self.errors.len(), 1, "{self:?}");
        (self.errors[0]["name"].as_str().unwrap(), self.errors[0]["value"].as_str().unwrap())
    }

    fn add(&mut self, event: &CodeEvent) {
        let kind = match event {
            CodeEvent::Started { .. } => "started",
            CodeEvent::Output(output) if output.stream == StreamName::Stdout => {
                self.stdout.push_str(&output.text);
                "stdout"
            }
            CodeEvent::Output(output) => {
                self.stderr.push_str(&output.text);
                "stderr"
            }
            CodeEvent::Display(value) => {
                self.results.push(serde_json::to_value(value).unwrap());
                "result"
            }
            CodeEvent::Failed(error) => {
                self.errors.push(serde_json::to_value(error).unwrap());
                "error"
            }
            CodeEvent::Ended(_) => "ended",
        };
        if self.order.last().map(String::as_str) != Some(kind) {
            self.order.push(kind.to_owned());
        }
    }
}

impl Program {
    async fn start(language: CodeLanguage) -> Self {
        let (command, arguments) = language.launch(NONCE);
        let mut command = Command::new(command);
        command.args(arguments).process_group(0).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&language.program()).await.unwrap();
        Self { language, child, stdin, number: 100 }
    }

    /// Runs a cell to its end.
    async fn run(&mut self, code: &str) -> Came {
        self.run_with(code, &[]).await
    }

    async fn run_with(&mut self, code: &str, env: &[(&str, &str)]) -> Came {
        self.ask(code, env).await;
        self.hear().await
    }

    /// Runs a cell, and interrupts it when it has been at it for a while.
    async fn interrupted(&mut self, code: &str) -> Came {
        self.ask(code, &[]).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.interrupt();
        self.hear().await
    }

    fn interrupt(&self) {
        let group = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
    }

    async fn ask(&mut self, code: &str, env: &[(&str, &str)]) {
        self.number += 1;
        let env: BTreeMap<_, _> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(self.language.check(code, &env), Ok(()));
        let cell = Cell { number: self.number, code: code.to_owned(), env };
        self.stdin.write_all(&self.language.request(&cell)).await.unwrap();
    }

    async fn hear(&mut self) -> Came {
        tokio::time::timeout(PATIENCE, self.hear_all()).await.expect("the cell must end")
    }

    async fn hear_all(&mut self) -> Came {
        let mut listener = Listener::new(self.number, NONCE);
        let mut came = Came::default();
        let (mut out, mut err) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let (stdout, stderr) = (self.child.stdout.as_mut().unwrap(), self.child.stderr.as_mut().unwrap());
        let (mut out_open, mut err_open) = (true, true);
        while !listener.is_done() {
            let (stream, bytes) = tokio::select! {
                count = stdout.read(&mut out), if out_open => (StreamName::Stdout, &out[..count.unwrap()]),
                count = stderr.read(&mut err), if err_open => (StreamName::Stderr, &err[..count.unwrap()]),
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    listener.flush().iter().for_each(|event| came.add(event));
                    continue;
                }
            };
            if bytes.is_empty() {
                out_open &= stream != StreamName::Stdout;
                err_open &= stream != StreamName::Stderr;
                came.died = !out_open && !err_open;
            }
            if came.died {
                break;
            }
            let event = FollowEvent::Output { stream, bytes: bytes.to_vec(), cursor: Cursor::default() };
            listener.hear(&event).iter().for_each(|event| came.add(event));
        }
        listener.verdict().iter().for_each(|event| came.add(event));
        came
    }
}
