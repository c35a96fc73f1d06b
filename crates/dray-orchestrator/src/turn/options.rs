//! How the model is called in a turn, and how its response is sent to the client.

use dray_agent::manifest::Manifest;
use dray_agent::manifest::feature::StageLevel;

use super::body::ClientParameters;
use super::mcp_report::McpReport;
use super::prepare::OutgoingMessages;
use super::provider_quirks::PromptAdapter;
use super::tool_search::DeferredTools;
use super::{SharedParts, plain};
use crate::http::ChatRequest;

/// How the model is called, and how its response is sent to the client.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent option of the response"
)]
pub(super) struct ResponseOptions {
    pub(super) outgoing: OutgoingMessages,
    /// Tokens of a prompt from which on old messages are compacted.
    pub(super) compaction: Option<u64>,
    pub(super) client_parameters: ClientParameters,
    /// Whether the client requests the number of tokens.
    pub(super) counts: bool,
    /// Whether the client speaks DIAL.
    pub(super) is_dial: bool,
    /// Whether the text of the answer ends with links to its files.
    pub(super) links_files: bool,
    /// Whether files of the answer become files of `/v1/files`.
    pub(super) cites_files: bool,
    /// Which calls of MCP servers the client sees.
    pub(super) mcp: McpReport,
    /// Whether the tools of MCP servers are listed.
    pub(super) lists_mcp: bool,
}

/// How the response is sent to the client.
pub(super) fn response_options(
    parts: &SharedParts,
    request: &ChatRequest,
    is_dial: bool,
    outgoing: OutgoingMessages,
    client_parameters: ClientParameters,
    compaction: Option<u64>,
    level: StageLevel,
) -> ResponseOptions {
    ResponseOptions {
        mcp: McpReport {
            is_wanted: request.shows_mcp_calls,
            level,
        },
        lists_mcp: request.lists_mcp_tools,
        outgoing,
        compaction,
        cites_files: request.cites_files,
        links_files: !is_dial
            && !request.cites_files
            && !request.knows_custom_content
            && plain::is_text(client_parameters.response_format.as_ref()),
        client_parameters,
        // Complete answers of `OpenAI`'s API always contain their tokens.
        counts: request.include_usage
            || parts.config.show_usage_statistics
            || (!is_dial && !request.stream),
        is_dial,
    }
}

/// Tokens of a prompt from which on old messages are compacted: by the manifest, else by the operator.
pub(super) fn compaction_threshold(parts: &SharedParts, manifest: &Manifest) -> Option<u64> {
    let default = parts.config.compaction_threshold_tokens;
    let tokens = match manifest.features.compaction {
        None => default,
        Some(compaction) if compaction.enabled => compaction.threshold_tokens.or(default),
        Some(_) => None,
    };
    tokens.map(u64::from)
}

/// How messages are sent to a model that accepts these types of files.
pub(super) fn outgoing_messages(
    parts: &SharedParts,
    manifest: &Manifest,
    accepts: Vec<String>,
) -> OutgoingMessages {
    let strategy = manifest.orchestrator.attachment_strategy;
    OutgoingMessages {
        clock: parts.services.clock.clone(),
        stamps: manifest.features.timestamp.is_some(),
        lazy: strategy.map(|_| accepts),
        plain: parts.config.model_url.is_some() || parts.core.is_none(),
        reminders: Vec::new(),
        recovered: false,
        deferred: DeferredTools::default(),
        adapter: PromptAdapter::new(parts.known_quirks.clone()),
    }
}
