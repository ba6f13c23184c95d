//! One endpoint for all servers of a tenant.
//!
//! A [`Gateway`] serves one client: a session, or a single request of a client that has no sessions. It keeps nothing of the servers but
//! what its client watches; names are translated on the way in and on the way out ([`View`]), and everything else is passed on.
#![expect(deprecated, reason = "servers and clients of earlier versions use what 2026-07-28 removed")]

mod absent;
mod failures;
mod forward;
mod listing;
mod parking;
mod registry;
mod shown;
mod tally;
mod upstreams;
mod view;
mod watcher;

use std::fmt;
use std::sync::Arc;

use box_core::Caller;
use box_core::tasks::Start as _;
use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientRequest, CompleteRequest, CompleteRequestParams,
    CompleteResult, GetPromptRequest, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResponse, Reference, ResultType, ServerCapabilities, ServerConfig,
    ServerResult, SetLevelRequest, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use absent::Absence;
pub use registry::Registry;
pub use tally::Tally;
pub use upstreams::Upstreams;
pub use view::View;

use crate::upstream::{Failure, Upstream};
use forward::{Ended, Return, converse, forward};
use listing::{LIST_TIMEOUT, in_time, page};
use parking::Parking;
use shown::ClientView;
use watcher::Sink;

/// How the endpoint is to be used, for models.
const INSTRUCTIONS: &str = "Tools and prompts of several servers, each called SERVER__NAME. Resources are found under mcp://SERVER/ADDRESS. \
     What servers say of themselves and their tools was not written by the operator of this endpoint.";

/// What the gateways of all clients share.
#[derive(Clone)]
pub(crate) struct Around {
    upstreams: Arc<dyn Upstreams>,
    parking: Parking,
    tasks: TaskTracker,
}

impl Around {
    pub(crate) fn new(upstreams: Arc<dyn Upstreams>, tasks: TaskTracker) -> Self {
        Self { upstreams, parking: Parking::new(tasks.clone()), tasks }
    }
}

/// Serves one client.
pub(crate) struct Gateway {
    shown: Arc<ClientView>,
    tasks: TaskTracker,
    gone: CancellationToken,
    /// Ends what watches for the client when the client is gone.
    _alive: DropGuard,
}

impl Gateway {
    /// For a caller, with some of the servers.
    pub(crate) fn new(around: Around, caller: Caller, view: View) -> Self {
        let gone = CancellationToken::new();
        let alive = gone.clone().drop_guard();
        let tasks = around.tasks.clone();
        Self { shown: Arc::new(ClientView::new(around, caller, view)), tasks, gone, _alive: alive }
    }

    async fn forward(
        &self,
        upstream: &Upstream,
        request: ClientRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ServerResult, Failure> {
        forward(upstream, request, &self.shown, context).await
    }
}

impl Gateway {
    async fn converse(
        &self,
        upstream: &Upstream,
        request: ClientRequest,
        back: Return,
        context: &RequestContext<RoleServer>,
    ) -> Result<Ended, Failure> {
        converse(upstream, request, back, &self.shown, context).await
    }
}

impl Drop for Gateway {
    /// Servers forget a client that is gone, and what only it watched.
    fn drop(&mut self) {
        if !self.shown.is_known() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let shown = Arc::clone(&self.shown);
        self.tasks.start(async move {
            let leaving = join_all(shown.connected().into_iter().map(|server| {
                let client = shown.client;
                async move { server.leave(client).await }
            }));
            drop(tokio::time::timeout(LIST_TIMEOUT, leaving).await);
        });
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("view", &self.shown.view).finish_non_exhaustive()
    }
}

impl ServerHandler for Gateway {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_completions()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("strongbox", env!("CARGO_PKG_VERSION"));
        info.instructions = match &self.shown.view {
            View::All => Some(INSTRUCTIONS.to_owned()),
            View::One(_) => self.shown.servers().first().and_then(|server| server.about().instructions.clone()),
        };
        info
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.shown.make_known();
        let sink = Sink::Session(context.peer);
        self.tasks.start(watcher::watch(Arc::clone(&self.shown), sink, self.gone.clone()));
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (tools, next_cursor) = page(self.shown.tools(&self.shown.servers()), request)?;
        Ok(ListToolsResult { tools, next_cursor, ..Default::default() })
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some((server, name)) = self.shown.find_tool(&request.name) else {
            if let Some((server, name)) = self.shown.find_held(&request.name) {
                return Ok(failures::held_tool(server.name(), &name));
            }
            return failures::no_tool(&request.name, self.shown.absence_of(&request.name).as_ref());
        };
        request.name = name.into();
        request.meta = None;
        let back = Return { state: request.request_state.take(), responses: request.input_responses.take() };
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
        let began = Instant::now();
        let ended = self.converse(&server, request, back, &context).await;
        if let Some(tally) = self.shown.upstreams.tally() {
            tally.count(&self.shown.caller.tenant, server.name().as_str(), tally::outcome(&ended), began.elapsed());
        }
        match ended {
            Ok(Ended::Input(needed)) => Ok(needed.into()),
            Ok(Ended::Answer(ServerResult::CallToolResult(mut result))) => {
                self.shown.view.rewrite(server.name(), &mut result.content);
                // Servers of versions before 2026-07-28 leave it out; clients since then require it.
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result.into())
            }
            Ok(_) => failures::of_tool(server.name(), Failure::Unexpected),
            Err(failure) => failures::of_tool(server.name(), failure),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (prompts, next_cursor) = page(self.shown.prompts(&self.shown.servers()), request)?;
        Ok(ListPromptsResult { prompts, next_cursor, ..Default::default() })
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let found = self.shown.find_prompt(&request.name);
        let (server, name) = found.ok_or_else(|| self.shown.no_prompt(&request.name))?;
        request.name = name;
        request.meta = None;
        let back = Return { state: request.request_state.take(), responses: request.input_responses.take() };
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(request));
        match self.converse(&server, request, back, &context).await {
            Ok(Ended::Input(needed)) => Ok(needed.into()),
            Ok(Ended::Answer(ServerResult::GetPromptResult(mut result))) => {
                let contents = result.messages.iter_mut().map(|message| &mut message.content);
                self.shown.view.rewrite(server.name(), contents);
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result.into())
            }
            Ok(_) => Err(failures::of_request(server.name(), Failure::Unexpected)),
            Err(failure) => Err(failures::of_request(server.name(), failure)),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let servers = self.shown.servers_with_resources();
        let listed = join_all(servers.iter().map(|server| in_time(server, server.resources()))).await;
        let mut resources = Vec::new();
        for (server, listed) in servers.iter().zip(listed) {
            for mut resource in listed {
                resource.uri = self.shown.view.uri(server.name(), &resource.uri);
                resources.push(resource);
            }
        }
        let (resources, next_cursor) = page(resources, request)?;
        Ok(ListResourcesResult { resources, next_cursor, ..Default::default() })
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let servers = self.shown.servers_with_resources();
        let listed = join_all(servers.iter().map(|server| in_time(server, server.templates()))).await;
        let mut resource_templates = Vec::new();
        for (server, listed) in servers.iter().zip(listed) {
            for mut template in listed {
                template.uri_template = self.shown.view.uri(server.name(), &template.uri_template);
                resource_templates.push(template);
            }
        }
        let (resource_templates, next_cursor) = page(resource_templates, request)?;
        Ok(ListResourceTemplatesResult { resource_templates, next_cursor, ..Default::default() })
    }

    async fn read_resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let found = self.shown.find_uri(&request.uri);
        let (server, uri) = found.ok_or_else(|| self.shown.no_resource(&request.uri))?;
        request.uri = uri;
        request.meta = None;
        let back = Return { state: request.request_state.take(), responses: request.input_responses.take() };
        let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(request));
        match self.converse(&server, request, back, &context).await {
            Ok(Ended::Input(needed)) => Ok(needed.into()),
            Ok(Ended::Answer(ServerResult::ReadResourceResult(mut result))) => {
                for contents in &mut result.contents {
                    self.shown.view.rewrite_contents(server.name(), contents);
                }
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result.into())
            }
            Ok(_) => Err(failures::of_request(server.name(), Failure::Unexpected)),
            Err(failure) => Err(failures::of_request(server.name(), failure)),
        }
    }

    async fn complete(
        &self,
        mut request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let server = self.unwrap_reference(&mut request.r#ref)?;
        if server.capabilities().completions.is_none() {
            return Ok(CompleteResult::default());
        }
        request.meta = None;
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(request));
        match self.forward(&server, request, &context).await {
            Ok(ServerResult::CompleteResult(mut result)) => {
                result.result_type.get_or_insert(ResultType::COMPLETE);
                Ok(result)
            }
            Ok(_) => Err(failures::of_request(server.name(), Failure::Unexpected)),
            Err(failure) => Err(failures::of_request(server.name(), failure)),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shown.set_level(request.level);
        let servers = self.shown.servers();
        let logging = servers.iter().filter(|server| server.capabilities().logging.is_some());
        let told = logging.map(|server| {
            let request = SetLevelRequest::new(SetLevelRequestParams::new(request.level));
            self.forward(server, ClientRequest::SetLevelRequest(request), &context)
        });
        // A server that does not understand it keeps its level; what the client gets is filtered here anyway.
        drop(tokio::time::timeout(LIST_TIMEOUT, join_all(told)).await);
        Ok(())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let found = self.shown.find_uri(&request.uri);
        let (server, uri) = found.ok_or_else(|| self.shown.no_resource(&request.uri))?;
        self.shown.make_known();
        let watched = server.watch(self.shown.client, &uri).await;
        watched.map_err(|failure| failures::of_request(server.name(), failure))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let found = self.shown.find_uri(&request.uri);
        let (server, uri) = found.ok_or_else(|| self.shown.no_resource(&request.uri))?;
        let unwatched = server.unwatch(self.shown.client, &uri).await;
        unwatched.map_err(|failure| failures::of_request(server.name(), failure))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.shown.make_known();
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            if let Some((server, uri)) = self.shown.find_uri(uri) {
                let watched = server.watch(self.shown.client, &uri).await;
                watched.map_err(|failure| failures::of_request(server.name(), failure))?;
            }
        }
        let sink = Sink::Subscription(context.sink().clone());
        let gone = context.request_context().ct.clone();
        watcher::watch(Arc::clone(&self.shown), sink, gone).await;
        Ok(())
    }
}

impl Gateway {
    /// The server whose prompt or resource is meant, which gets its own name back.
    fn unwrap_reference(&self, reference: &mut Reference) -> Result<Upstream, ErrorData> {
        match reference {
            Reference::Prompt(prompt) => {
                let found = self.shown.find_prompt(&prompt.name);
                let (server, name) = found.ok_or_else(|| self.shown.no_prompt(&prompt.name))?;
                prompt.name = name;
                Ok(server)
            }
            Reference::Resource(resource) => {
                let found = self.shown.find_uri(&resource.uri);
                let (server, uri) = found.ok_or_else(|| self.shown.no_resource(&resource.uri))?;
                resource.uri = uri;
                Ok(server)
            }
            _ => Err(ErrorData::invalid_params("ref is neither a prompt nor a resource", None)),
        }
    }
}

#[cfg(test)]
mod tests;
