//! A client that remembers what it hears.

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProtocolVersion, ResourceUpdatedNotificationParam, Root, SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::json;
use tokio::sync::mpsc;

/// What a client hears.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Progress(f64),
    Tools,
    Prompts,
    Resources,
    Updated(String),
    Log(Option<String>),
}

/// A client that remembers what it hears.
#[derive(Debug)]
pub(crate) struct Client {
    name: String,
    capabilities: ClientCapabilities,
    version: ProtocolVersion,
    heard: mpsc::UnboundedSender<Heard>,
}

impl Client {
    /// One that offers everything.
    pub(crate) fn new(name: &str) -> (Self, mpsc::UnboundedReceiver<Heard>) {
        let (heard, receiver) = mpsc::unbounded_channel();
        let capabilities = ClientCapabilities::builder().enable_roots().enable_sampling().enable_elicitation().build();
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        (Self { name: name.to_owned(), capabilities, version, heard }, receiver)
    }

    /// One that offers nothing.
    pub(crate) fn plain(name: &str) -> Self {
        Self { capabilities: ClientCapabilities::default(), ..Self::new(name).0 }
    }

    /// One that speaks an older version.
    pub(crate) fn of_version(self, version: ProtocolVersion) -> Self {
        Self { version, ..self }
    }

    fn hear(&self, heard: Heard) {
        let _ = self.heard.send(heard);
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(self.capabilities.clone(), Implementation::new(self.name.clone(), "1"))
            .with_protocol_version(self.version.clone())
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("that"), format!("model of {}", self.name)))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": self.name})))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new(format!("file:///{}", self.name))]))
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Progress(progress.progress));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Tools);
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Prompts);
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Resources);
    }

    async fn on_resource_updated(&self, updated: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Updated(updated.uri));
    }

    async fn on_logging_message(&self, message: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(Heard::Log(message.logger));
    }
}
