//! HTTP endpoints as tools (quickapps 23).
//!
//! - [`build_set`]: the tools of a `rest-api` tool set, and the reasons why some cannot be used.
//! - [`RestOptions`]: the settings for all of them.
//! - [`TokenCache`]: tokens of client credentials, shared by all tool sets until they expire.
//!
//! What it does not do: it follows no redirects and never retries, except after a refused token. The manifest's author
//! chooses the endpoints; text of the model never selects a host.
//!
//! ```
//! use dray_tool_rest::{DEFAULT_MAX_RESPONSE_BYTES, RestOptions};
//!
//! let options = RestOptions::default();
//! assert!(options.forward_headers.is_empty());
//! assert_eq!(options.max_response_bytes, DEFAULT_MAX_RESPONSE_BYTES);
//! ```

mod authorization;
mod body;
mod endpoint;
mod failure;
mod place;
mod request;
mod response;
mod token;
mod tool;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::TraceSource;
use dray_agent::manifest::tool::RestTool;
use dray_agent::manifest::toolset::RestApi;
use dray_http::HttpClient;
use dray_tool::{SetupIssue, ToolsetResult};
use dray_types::Clock;

pub use token::TokenCache;

/// Most bytes of a response by default.
pub const DEFAULT_MAX_RESPONSE_BYTES: usize = 10 << 20;

/// Longest silence of a server in the middle of a response. The limit of the call ends it earlier.
const MAX_SERVER_SILENCE: Duration = Duration::from_hours(1);

/// The settings for all REST tools.
#[derive(Clone, Debug)]
pub struct RestOptions {
    /// The caller's headers that the operator allows for third parties; none by default (R2).
    pub forward_headers: Vec<String>,
    /// Most bytes of a response.
    pub max_response_bytes: usize,
    /// Tokens of client credentials. The service has one cache for its whole run.
    pub tokens: TokenCache,
    /// The clock for time stamps in names of files.
    pub clock: Clock,
    /// The source of the trace in requests; none by default.
    pub trace: Option<TraceSource>,
}

impl Default for RestOptions {
    fn default() -> Self {
        Self {
            forward_headers: Vec::new(),
            max_response_bytes: DEFAULT_MAX_RESPONSE_BYTES,
            tokens: TokenCache::default(),
            clock: Clock::system(),
            trace: None,
        }
    }
}

/// Builds the tools of a set. Disabled ones are left out; one that cannot be used becomes an issue. Predefined tools
/// must have been resolved before.
pub fn build_set(set: &RestApi, client: &HttpClient, options: &RestOptions) -> ToolsetResult {
    let mut built = ToolsetResult::default();
    if !set.common.enabled {
        return built;
    }
    let client = client.clone();
    let shared = Arc::new(tool::ToolsetContext {
        client: client.with_body_timeouts(MAX_SERVER_SILENCE, MAX_SERVER_SILENCE),
        options: options.clone(),
        authorization: set.authorization.clone(),
    });
    for tool in &set.tools {
        let (name, made) = match tool {
            RestTool::Endpoint(endpoint) if !endpoint.common.enabled => continue,
            RestTool::Predefined(predefined) if !predefined.enabled => continue,
            RestTool::Endpoint(endpoint) => (
                endpoint.open_ai_tool.function.name.clone(),
                tool::EndpointTool::new(set, endpoint, &shared),
            ),
            RestTool::Predefined(predefined) => (
                predefined.template_name.clone(),
                Err("The predefined tool is not known.".to_owned()),
            ),
        };
        match made {
            Ok(tool) => built.tools.push(Arc::new(tool)),
            Err(message) => built.issues.push(SetupIssue {
                tool: Some(name),
                toolset: Some(set.name.clone()),
                message,
                details: Vec::new(),
                is_for_user: false,
            }),
        }
    }
    built
}
