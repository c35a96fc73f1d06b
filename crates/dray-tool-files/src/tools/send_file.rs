//! `send_file`: files to the person (platform-delivery 2).

use dray_proto::v1;
use dray_tool::{HandledFailure, ToolCall, ToolDeclaration, ToolFailure, ToolOutput};
use serde_json::json;
use tokio::time::Instant;

use super::super::outgoing::OutgoingFiles;
use super::super::scope::time_left;
use super::super::turn::{TurnFiles, text_argument};
use super::{is_on, text_list, tool_declaration};

/// Name of the tool.
pub(in super::super) const SEND_FILE_TOOL: &str = "send_file";
/// Most files of one call.
const MAX_FILES: usize = 50;

pub(super) fn send_file_declaration() -> ToolDeclaration {
    tool_declaration(
        SEND_FILE_TOOL,
        "Sends files to the user: into their chat where there is one, otherwise as attachments of the answer. The result says \
         of each file whether it was really delivered. Calling it again sends again.",
        &json!({
            "path": {"type": "string", "description": "A file or directory of the sandbox: absolute, ~/…, or relative to the working directory. A directory becomes a ZIP."},
            "paths": {"type": "array", "items": {"type": "string"}, "description": "Several of them."},
            "files": {"type": "array", "items": {"type": "string"}, "description": "Files that are not in the sandbox: ids of files of the conversation, files/… of DIAL, or http(s) URLs."},
            "message": {"type": "string", "description": "What to say with them."},
            "as_document": {"type": "boolean", "description": "Exact bytes: no picture, video or audio is made of them."},
            "as_voice": {"type": "boolean", "description": "Audio as a voice message."},
        }),
        &[],
    )
}

pub(super) async fn send_files(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let mut paths = text_list(call, "path")?;
    paths.extend(text_list(call, "paths")?);
    let references = text_list(call, "files")?;
    if paths.is_empty() && references.is_empty() {
        return Err(ToolFailure::parameter(
            "path",
            "Name at least one file in path, paths or files.",
        ));
    }
    if paths.len() + references.len() > MAX_FILES {
        return Err(ToolFailure::parameter(
            "paths",
            format!("At most {MAX_FILES} files go in one call."),
        ));
    }
    if !paths.is_empty() {
        // The sandbox is checked before anything is fetched: paths need a sandbox.
        files.session.sandbox().await?;
    }
    let end = Instant::now() + time_left(call);
    let limit = files.scope.services.config.upload_limit.as_u64();
    let mut claims = Vec::new();
    for reference in &references {
        claims.push(
            files
                .loader
                .claim_of("files", reference, limit, time_left(call))
                .await?,
        );
    }
    let outgoing = OutgoingFiles {
        paths: paths.into_iter().map(String::into_bytes).collect(),
        claims,
        message: text_argument(&call.arguments, "message")
            .unwrap_or_default()
            .to_owned(),
        flags: v1::DeliveryFlags {
            as_voice: is_on(call, "as_voice"),
            as_document: is_on(call, "as_document"),
            spoiler: false,
            as_preview: false,
        },
    };
    let what = format!("send/{}", call.id);
    let sent = files.delivery.dispatch(&what, outgoing, end).await?;
    if !sent.may_have_arrived {
        return Err(HandledFailure::new(sent.result_text).into());
    }
    Ok(ToolOutput {
        content: sent.result_text,
        content_type: "application/json".to_owned(),
        attachments: sent.attachments,
        ..ToolOutput::default()
    })
}
