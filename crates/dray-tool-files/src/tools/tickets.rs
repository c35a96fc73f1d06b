//! `request_upload` and `make_download_link`: links for one file each, so that large files do not pass through the
//! model and the chat. The operator must enable them (`files.tickets`), because everyone who has a link can use it.

use dray_presentation::{name, size};
use dray_proto::v1::{self, ticket_destination::Destination};
use dray_tool::{ToolCall, ToolDeclaration, ToolFailure, ToolOutput};
use serde_json::{Value, json};

use super::super::ask::PeerService;
use super::super::scope::time_left;
use super::super::turn::{TurnFiles, text_argument};
use super::{required_argument, tool_declaration};

/// Default lifetime of a link in minutes.
const DEFAULT_LIFETIME_MINUTES: u32 = 60;
/// Longest lifetime of a link in minutes: the longest that a ticket may have.
const MAX_LIFETIME_MINUTES: u32 = 12 * 60;

pub(super) fn upload_declaration() -> ToolDeclaration {
    tool_declaration(
        "request_upload",
        "Makes a link through which the user sends one file, of any size, straight into the sandbox. Give the link to the \
         user as it is. It works once, for everyone who has it.",
        &json!({
            "directory": {"type": "string", "description": "Where the file goes: absolute, ~/…, or relative to the working directory; the uploads directory by default."},
            "name": {"type": "string", "description": "Name of the file there; otherwise the name that the user's browser sends."},
            "media_type": {"type": "string", "description": "What the file must be, such as application/pdf or image/*."},
            "minutes": {"type": "integer", "minimum": 1, "maximum": MAX_LIFETIME_MINUTES, "description": "Minutes until the link ends; 60 by default."},
        }),
        &[],
    )
}

pub(super) fn download_declaration() -> ToolDeclaration {
    tool_declaration(
        "make_download_link",
        "Makes a link that gives out one file of the sandbox, as it is now, once, to anyone who has it. For files \
         that are too large to send.",
        &json!({
            "path": {"type": "string", "description": "The file: absolute, ~/…, or relative to the working directory."},
            "minutes": {"type": "integer", "minimum": 1, "maximum": MAX_LIFETIME_MINUTES, "description": "Minutes until the link ends; 60 by default."},
        }),
        &["path"],
    )
}

pub(super) async fn request_upload(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    files.session.sandbox().await?;
    let text = |name: &str| {
        text_argument(&call.arguments, name)
            .unwrap_or_default()
            .to_owned()
    };
    let request = v1::IssueTicketRequest {
        session: files.scope.session_text(),
        direction: v1::TicketDirection::Upload.into(),
        max_bytes: files.scope.services.config.upload_limit.as_u64(),
        media_type: text("media_type"),
        name: text("name"),
        destination: Some(v1::TicketDestination {
            destination: Some(Destination::SandboxDirectory(text("directory"))),
        }),
        lifetime_s: lifetime_s(call)?,
        ..v1::IssueTicketRequest::default()
    };
    let issued = issue(files, call, &request).await?;
    let limit = size::human_size(request.max_bytes);
    Ok(result(
        &issued,
        &format!("The user sends the file with this link, at most {limit}"),
    ))
}

pub(super) async fn make_download_link(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    files.session.sandbox().await?;
    let request = v1::IssueTicketRequest {
        session: files.scope.session_text(),
        direction: v1::TicketDirection::Download.into(),
        sandbox_path: required_argument(call, "path")?.to_owned(),
        lifetime_s: lifetime_s(call)?,
        ..v1::IssueTicketRequest::default()
    };
    let issued = issue(files, call, &request).await?;
    let ticket = issued.ticket.clone().unwrap_or_default();
    let shown = name::shown_name(&ticket.name);
    let size = size::human_size(ticket.max_bytes);
    Ok(result(
        &issued,
        &format!("{shown} ({size}) is at this link"),
    ))
}

/// Requests the ticket once, because a retry would create another one.
async fn issue(
    files: &TurnFiles,
    call: &ToolCall,
    request: &v1::IssueTicketRequest,
) -> Result<v1::IssuedTicket, ToolFailure> {
    let meta = files.scope.meta(time_left(call));
    let services = &files.scope.services;
    Ok(services
        .call_once(PeerService::Tickets, &meta, request)
        .await?)
}

fn result(issued: &v1::IssuedTicket, sentence: &str) -> ToolOutput {
    let minutes = issued.ticket.as_ref().map_or(0, |ticket| {
        ticket.expires_at_ms.saturating_sub(ticket.created_at_ms) / 60_000
    });
    ToolOutput::text(
        format!("{sentence}, once within {minutes} minutes: {}", issued.url),
        "text/plain",
    )
}

fn lifetime_s(call: &ToolCall) -> Result<u32, ToolFailure> {
    let minutes = match call.arguments.get("minutes") {
        None | Some(Value::Null) => DEFAULT_LIFETIME_MINUTES,
        Some(minutes) => minutes
            .as_u64()
            .and_then(|minutes| u32::try_from(minutes).ok())
            .filter(|minutes| (1..=MAX_LIFETIME_MINUTES).contains(minutes))
            .ok_or_else(|| {
                let text = format!("It must be a whole number from 1 to {MAX_LIFETIME_MINUTES}.");
                ToolFailure::parameter("minutes", text)
            })?,
    };
    Ok(minutes * 60)
}
