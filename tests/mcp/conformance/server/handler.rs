//! The requests: those with names of the suite are handled here, all others by the product.
#![expect(
    deprecated,
    reason = "scenarios of 2025-11-25 require logging and `resources/subscribe`"
)]

use dray_mcp::{InputGate, McpServer};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams,
    GetSkillResult, GetTaskParams, GetTaskResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListSkillsResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
    SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::broadcast;

use super::{inputs, prompts, resources, tasks, tools};

/// The resource that clients of the suite subscribe to. It never changes.
const WATCHED_RESOURCE: &str = "test://watched-resource";
/// Most changes that are buffered for a slow subscriber.
const CHANGE_BACKLOG: usize = 16;

/// A list whose change is announced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangedList {
    Tools,
    Prompts,
}

/// The product with the names of the suite.
#[derive(Clone)]
pub(crate) struct ConformanceServer {
    product: McpServer,
    pub(crate) gate: InputGate,
    pub(crate) tasks: TaskManager,
    pub(crate) changes: broadcast::Sender<ChangedList>,
}

impl ConformanceServer {
    pub(crate) fn new(product: McpServer) -> Self {
        Self {
            product,
            gate: InputGate::default(),
            tasks: TaskManager::new(),
            changes: broadcast::channel(CHANGE_BACKLOG).0,
        }
    }
}

fn added_tools() -> impl Iterator<Item = Tool> {
    tools::definitions().chain(tasks::definitions())
}

impl ServerHandler for ConformanceServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.product.get_info();
        let capabilities = &mut info.capabilities;
        capabilities.logging = Some(rmcp::model::JsonObject::new());
        capabilities.tools.get_or_insert_default().list_changed = Some(true);
        capabilities.prompts.get_or_insert_default().list_changed = Some(true);
        capabilities.resources.get_or_insert_default().subscribe = Some(true);
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut listed = self.product.list_tools(request, context).await?;
        listed.tools.extend(added_tools());
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let added = added_tools().find(|tool| tool.name == name);
        added.or_else(|| self.product.get_tool(name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(response) = tools::call(self, &request, &context).await? {
            return Ok(response);
        }
        if let Some(response) = inputs::call(self, &request, &context).await? {
            return Ok(response);
        }
        if let Some(response) = tasks::call(self, &request, &context).await? {
            return Ok(response);
        }
        self.product.call_tool(request, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut listed = self.product.list_resources(request, context).await?;
        listed.resources.extend(resources::list());
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = self
            .product
            .list_resource_templates(request, context)
            .await?;
        listed.resource_templates.push(resources::template());
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match resources::read(&request.uri) {
            Some(result) => Ok(result.into()),
            None => self.product.read_resource(request, context).await,
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match prompts::complete(&request) {
            Some(result) => Ok(result),
            None => self.product.complete(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut listed = self.product.list_prompts(request, context).await?;
        listed.prompts.extend(prompts::list());
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match prompts::get(self, &request, &context).await? {
            Some(response) => Ok(response),
            None => self.product.get_prompt(request, context).await,
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.tasks.get_task(&request.task_id) {
            Ok(task) => Ok(GetTaskResult::new(task)),
            // No delivery service runs here, so the product cannot distinguish an unknown task from a failed look-up.
            Err(unknown) => {
                let state = self.product.get_task(request, context).await;
                state.map_err(|_| unknown)
            }
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let id = request.task_id.clone();
        match self.tasks.update_task(&id, request.input_responses.clone()) {
            Ok(()) => Ok(()),
            Err(_) => self.product.update_task(request, context).await,
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.tasks.cancel_task(&request.task_id) {
            Ok(()) => Ok(()),
            Err(_) => self.product.cancel_task(request, context).await,
        }
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.product.list_skills(request, context).await
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.product.get_skill(request, context).await
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let version = context.protocol_version();
        if version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
        {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if request.uri == WATCHED_RESOURCE {
            return Ok(());
        }
        self.product.subscribe(request, context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if request.uri == WATCHED_RESOURCE {
            return Ok(());
        }
        self.product.unsubscribe(request, context).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = context.cancelled() => return Ok(()),
            };
            // A list that the client did not ask for is refused by the sink.
            let _ = match change {
                Ok(ChangedList::Tools) => context.sink().notify_tool_list_changed().await,
                Ok(ChangedList::Prompts) => context.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }
}
