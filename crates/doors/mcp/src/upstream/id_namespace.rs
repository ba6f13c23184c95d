//! Tells the answers to us from those to whoever was connected to a process before us.
//!
//! A process outlives its connections, and rmcp counts the requests of each from zero. An answer to the fifth request of before would be taken for
//! that to our fifth. So the numbers of each connection begin at a place of their own.

use box_core::random;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetMeta, JsonRpcMessage, NumberOrString, ProgressToken,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;

/// Places that there are, as bits. Two connections of one process hardly ever get the same.
const PLACE_BITS: u32 = 24;
/// Numbers from one place to the next, as bits. Both together stay below 2⁵³, up to which every language counts exactly.
const APART_BITS: u32 = 28;
/// Numbers that rmcp gives to one connection.
const NUMBERS_MAX: i64 = 1 << 32;

/// A transport whose requests have numbers of their own.
#[derive(Debug)]
pub(super) struct IdNamespace<T> {
    transport: T,
    start: i64,
}

impl<T> IdNamespace<T> {
    /// A connection of its own.
    pub(super) fn new(transport: T) -> std::io::Result<Self> {
        let place = i64::from(u32::from_le_bytes(random::bytes()?) >> (u32::BITS - PLACE_BITS));
        Ok(Self { transport, start: place << APART_BITS })
    }

    fn leaving(&self, number: &mut NumberOrString) {
        if let NumberOrString::Number(number) = number {
            *number = number.saturating_add(self.start);
        }
    }

    /// Gives a number back as rmcp knows it; not, if it is none of ours.
    fn arriving(&self, number: &mut NumberOrString) -> bool {
        let NumberOrString::Number(number) = number else { return true };
        let ours = number.saturating_sub(self.start);
        if !(0..NUMBERS_MAX).contains(&ours) {
            return false;
        }
        *number = ours;
        true
    }

    /// Whether a message is for us.
    fn is_ours(&self, message: &mut ServerJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Response(response) => self.arriving(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut().is_none_or(|id| self.arriving(id)),
            JsonRpcMessage::Notification(notification) => match &mut notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.arriving(&mut progress.params.progress_token.0)
                }
                _ => true,
            },
            JsonRpcMessage::Request(_) => true,
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for IdNamespace<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &mut message {
            JsonRpcMessage::Request(request) => {
                self.leaving(&mut request.id);
                let token: Option<ProgressToken> = request.request.get_meta().get_progress_token();
                if let Some(ProgressToken(mut token)) = token {
                    self.leaving(&mut token);
                    request.request.get_meta_mut().set_progress_token(ProgressToken(token));
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
                    && let Some(id) = &mut cancelled.params.request_id
                {
                    self.leaving(id);
                }
            }
            // Answers carry the numbers of the server.
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let mut message = self.transport.receive().await?;
            if self.is_ours(&mut message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::RequestId;

    use super::*;
    use crate::stdio::{Garbage, Stdio};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    #[tokio::test]
    async fn an_answer_to_somebody_before_us_is_not_ours() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(ours);
        let mut id_namespace = IdNamespace::new(Stdio::new(reader, writer, Garbage::default())).unwrap();
        id_namespace.start = 7 << APART_BITS;
        let request = r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{"_meta":{"progressToken":5}}}"#;
        id_namespace.send(serde_json::from_str(request).unwrap()).await.unwrap();
        let (reader, mut writer) = tokio::io::split(theirs);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).await.unwrap();
        let sent: serde_json::Value = serde_json::from_str(&line).unwrap();
        let number = (7 << APART_BITS) + 5;
        assert_eq!(
            (&sent["id"], &sent["params"]["_meta"]["progressToken"]),
            (&number.into(), &number.into()),
            "{sent}"
        );
        let answer = |id: i64| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
        let answers = answer(5) + &answer((6 << APART_BITS) + 5) + &answer(number);
        writer.write_all(answers.as_bytes()).await.unwrap();
        let Some(JsonRpcMessage::Response(heard)) = id_namespace.receive().await else { panic!("no answer") };
        assert_eq!(heard.id, RequestId::Number(5));
    }
}
