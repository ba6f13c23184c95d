//! A server that does everything that a gateway can meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, CompletionInfo,
    ContentBlock, CreateMessageRequestParams, ElicitRequestParams, ElicitationSchema, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
    ProgressNotificationParam, Prompt, PromptMessage, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam,
    Role, SamplingMessage, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::Notify;

/// Does everything.
#[derive(Debug, Clone)]
pub(crate) struct Everything {
    /// The newest version of the protocol that it speaks.
    pub(crate) version: ProtocolVersion,
    /// How many tools it has grown.
    pub(crate) grown: Arc<AtomicUsize>,
    /// A call of `wait` has begun.
    pub(crate) waiting: Arc<Notify>,
    /// A call of `wait` was cancelled.
    pub(crate) cancelled: Arc<Notify>,
    /// How many resources are watched.
    pub(crate) watched: Arc<AtomicUsize>,
    /// What `_meta` the last call had.
    pub(crate) last_meta: Arc<std::sync::Mutex<JsonObject>>,
}

impl Default for Everything {
    fn default() -> Self {
        Self {
            version: ProtocolVersion::LATEST_WITH_INITIALIZE,
            grown: Arc::default(),
            waiting: Arc::default(),
            cancelled: Arc::default(),
            watched: Arc::default(),
            last_meta: Arc::default(),
        }
    }
}

const TOOLS: [&str; 12] =
    ["echo", "steps", "wait", "big", "sample", "elicit", "roots", "grow", "link", "touch", "log", "fail"];

impl ServerHandler for Everything {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_completions()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("everything", "7");
        info.instructions = Some("Use \u{1b}everything.".to_owned());
        info.protocol_version = self.version.clone();
        info
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        std::borrow::Cow::Borrowed(ProtocolVersion::known_up_to(&self.version))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let grown = (0..self.grown.load(Ordering::SeqCst)).map(|number| format!("grown_{number}"));
        let names: Vec<_> = TOOLS.into_iter().map(ToOwned::to_owned).chain(grown).collect();
        // Two pages, to see that both are asked for.
        let second = request.is_some_and(|request| request.cursor.is_some());
        let page = if second { &names[5..] } else { &names[..5] };
        let tools =
            page.iter().map(|name| Tool::new(name.clone(), "does\u{200b} it", Arc::new(JsonObject::new()))).collect();
        Ok(ListToolsResult { tools, next_cursor: (!second).then(|| "2".to_owned()), ..Default::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        *self.last_meta.lock().unwrap() = context.meta.0.0.clone();
        let arguments = request.arguments.unwrap_or_default();
        let text = match request.name.as_ref() {
            "echo" if arguments.contains_key("refuse") => {
                return Err(ErrorData::invalid_params("refused\u{7} to echo", None));
            }
            "echo" => arguments.get("text").and_then(|text| text.as_str()).unwrap_or_default().to_owned(),
            "steps" => steps(&context).await,
            "wait" => self.wait(&context).await,
            "big" => "x".repeat(10 << 20),
            "sample" => sample(&context).await?,
            "elicit" => elicit(&context).await?,
            "roots" => roots(&context).await?,
            "grow" => self.grow(&context).await,
            "link" => return Ok(link()),
            "touch" => touch(&context).await,
            "log" => log(&context).await,
            // No list has it.
            "hidden" => "was called".to_owned(),
            "fail" => return Ok(CallToolResult::error(vec![ContentBlock::text("it failed")]).into()),
            other => return Err(ErrorData::invalid_params(format!("unknown tool\u{7} {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = vec![Prompt::new("greet", Some("greets\u{202e}"), None)];
        Ok(ListPromptsResult { prompts, ..Default::default() })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, format!("prompt {}", request.name))]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult { resources: vec![Resource::new("file:///a/b?c#d", "b")], ..Default::default() })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let resource_templates = vec![ResourceTemplate::new("file:///{path}", "files")];
        Ok(ListResourceTemplatesResult { resource_templates, ..Default::default() })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = ResourceContents::text(format!("contents of {}", request.uri), request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.watched.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.watched.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let told = match request.r#ref {
            Reference::Prompt(prompt) => prompt.name,
            Reference::Resource(resource) => resource.uri,
            _ => String::new(),
        };
        Ok(CompleteResult::new(CompletionInfo::new(vec![told]).unwrap()))
    }
}

impl Everything {
    async fn wait(&self, context: &RequestContext<RoleServer>) -> String {
        self.waiting.notify_one();
        context.ct.cancelled().await;
        self.cancelled.notify_one();
        String::new()
    }

    async fn grow(&self, context: &RequestContext<RoleServer>) -> String {
        self.grown.fetch_add(1, Ordering::SeqCst);
        context.peer.notify_tool_list_changed().await.unwrap();
        "grown".to_owned()
    }
}

async fn steps(context: &RequestContext<RoleServer>) -> String {
    let Some(token) = context.meta.get_progress_token() else { return "nobody wants to know".to_owned() };
    for step in 1..=5 {
        let progress = ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(5.0);
        context.peer.notify_progress(progress).await.unwrap();
    }
    "done".to_owned()
}

async fn sample(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text("what?")], 10);
    let result = context.peer.create_message(params).await;
    result.map(|result| result.model).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn elicit(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let requested_schema = ElicitationSchema::builder().required_string("name").build().unwrap();
    let params =
        ElicitRequestParams::FormElicitationParams { meta: None, message: "who?".to_owned(), requested_schema };
    let result = context.peer.create_elicitation(params).await;
    result
        .map(|result| json!(result.content).to_string())
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn roots(context: &RequestContext<RoleServer>) -> Result<String, ErrorData> {
    let result = context.peer.list_roots().await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(result.roots.into_iter().map(|root| root.uri).collect::<Vec<_>>().join(","))
}

fn link() -> CallToolResponse {
    let contents = ResourceContents::text("inside", "file:///inside");
    let blocks = vec![ContentBlock::resource_link(Resource::new("file:///x", "x")), ContentBlock::resource(contents)];
    CallToolResult::success(blocks).into()
}

async fn touch(context: &RequestContext<RoleServer>) -> String {
    let updated = ResourceUpdatedNotificationParam::new("file:///a/b?c#d");
    context.peer.notify_resource_updated(updated).await.unwrap();
    context.peer.notify_resource_list_changed().await.unwrap();
    "touched".to_owned()
}

async fn log(context: &RequestContext<RoleServer>) -> String {
    for level in [LoggingLevel::Debug, LoggingLevel::Error] {
        context.peer.notify_logging_message(LoggingMessageNotificationParam::new(level, json!("hello"))).await.unwrap();
    }
    "logged".to_owned()
}
