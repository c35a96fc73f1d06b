//! One endpoint as a tool.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::caller::trace_headers;
use dray_agent::manifest::tool::RestEndpoint;
use dray_agent::manifest::toolset::{ClientIdSecret, RestApi, RestAuthorization};
use dray_http::{HttpClient, HttpResponse};
use dray_tool::{
    CallRules, FileIds, StageStyle, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
    naming, timeout,
};
use dray_types::Secret;
use tokio::time::Instant;

use crate::endpoint::{self, PreparedEndpoint};
use crate::request::PreparedRequest;
use crate::response::ResponseRules;
use crate::{RestOptions, authorization, failure};

/// The shared data of a set's tools.
#[derive(Debug)]
pub(crate) struct ToolsetContext {
    pub(crate) client: HttpClient,
    pub(crate) options: RestOptions,
    pub(crate) authorization: Option<RestAuthorization>,
}

/// A tool that calls one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointTool {
    declaration: ToolDeclaration,
    rules: CallRules,
    endpoint: PreparedEndpoint,
    response_rules: ResponseRules,
    shared: Arc<ToolsetContext>,
}

impl EndpointTool {
    /// Checks an endpoint of a set.
    ///
    /// # Errors
    ///
    /// The problem, for the builder.
    pub(crate) fn new(
        set: &RestApi,
        endpoint: &RestEndpoint,
        shared: &Arc<ToolsetContext>,
    ) -> Result<Self, String> {
        if let Some(authorization) = &set.authorization {
            authorization::check_credentials(authorization)?;
        }
        let function = &endpoint.open_ai_tool.function;
        let own = &endpoint.response_as_attachment;
        Ok(Self {
            declaration: endpoint::endpoint_declaration(
                naming::qualified_name(&set.name, &function.name),
                endpoint,
            ),
            rules: call_rules(set, endpoint),
            endpoint: PreparedEndpoint::new(endpoint)?,
            response_rules: ResponseRules {
                function: function.name.clone(),
                // The value of the set is the default for its tools (quickapps 6.4).
                as_file: own.clone().or_else(|| set.response_as_attachment.clone()),
                limit: shared.options.max_response_bytes,
                clock: shared.options.clock.clone(),
            },
            shared: Arc::clone(shared),
        })
    }

    async fn send(
        &self,
        prepared: &PreparedRequest,
        deadline: Instant,
    ) -> Result<HttpResponse, ToolFailure> {
        let request = prepared.request(&self.shared.client);
        let sent = trace_headers(self.shared.options.trace)
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(name, value)
            })
            .response_within(deadline.saturating_duration_since(Instant::now()))
            .send(&|_| {})
            .await;
        sent.map_err(|error| failure::of_transport(error, "server"))
    }

    /// Sends with a token; once more with a new one when it was refused.
    async fn send_with_token(
        &self,
        client: &ClientIdSecret,
        prepared: &mut PreparedRequest,
        deadline: Instant,
    ) -> Result<HttpResponse, ToolFailure> {
        let (tokens, http) = (&self.shared.options.tokens, &self.shared.client);
        let token = tokens.get(client, http, deadline, None).await?;
        set_bearer(prepared, &token);
        let response = self.send(prepared, deadline).await?;
        if response.status() != 401 {
            return Ok(response);
        }
        // This frees the connection before the next request.
        drop(response);
        let token = tokens.get(client, http, deadline, Some(&token)).await?;
        set_bearer(prepared, &token);
        self.send(prepared, deadline).await
    }
}

fn set_bearer(prepared: &mut PreparedRequest, token: &Secret) {
    prepared.set_header("authorization", &format!("Bearer {}", token.expose()));
}

fn call_rules(set: &RestApi, endpoint: &RestEndpoint) -> CallRules {
    let common = &endpoint.common;
    let function = &endpoint.open_ai_tool.function;
    let parameters = function.parameters.iter();
    let displays = parameters
        .flat_map(|parameters| &parameters.properties)
        .filter_map(|(name, parameter)| Some((name.clone(), parameter.display.clone()?)));
    let seconds = common.timeout_seconds.or(set.common.timeout_seconds);
    CallRules {
        label: function.name.clone(),
        style: StageStyle::Api,
        attachments: common.attachment.clone().unwrap_or_default(),
        fallback: common.fallback_configuration.clone().unwrap_or_default(),
        display: common.display.clone().unwrap_or_default(),
        parameters: displays.collect(),
        timeout: seconds.and_then(timeout::from_seconds),
        file_ids: FileIds::Links,
        hidden: common.hidden_from_model,
        ..CallRules::default()
    }
}

#[async_trait]
impl Tool for EndpointTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let mut prepared = PreparedRequest::new(&self.endpoint, call.arguments)?;
        let authorization = self.shared.authorization.as_ref();
        if let Some(authorization) = authorization {
            authorization::apply_credentials(authorization, &turn.caller, &mut prepared)?;
        }
        let response = if let Some(RestAuthorization::ClientIdSecret(client)) = authorization {
            // The header is set before forwarded headers, so that no forwarded header replaces it.
            prepared.set_header("authorization", "Bearer");
            forward_headers(&mut prepared, turn, &self.shared.options);
            self.send_with_token(client, &mut prepared, call.deadline)
                .await?
        } else {
            forward_headers(&mut prepared, turn, &self.shared.options);
            self.send(&prepared, call.deadline).await?
        };
        self.response_rules
            .output(response, turn.storage.as_ref())
            .await
    }
}

/// Passes on the caller's headers that the operator's list names; none replaces a header that is set (R2).
fn forward_headers(prepared: &mut PreparedRequest, turn: &Turn, options: &RestOptions) {
    for (name, value) in turn.caller.forwarded_only(&options.forward_headers) {
        prepared.add_header(name, value);
    }
}
