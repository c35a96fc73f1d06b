//! `sandbox_get`: gives the model a file of the sandbox: short text unchanged, other content as a file of the
//! conversation.

use dray_media_type::kind;
use dray_presentation::{name, size};
use dray_tool::{ToolCall, ToolDeclaration, ToolFailure, ToolOutput};
use serde_json::json;

use super::super::export::copy_out;
use super::super::scope::time_left;
use super::super::turn::TurnFiles;
use super::{required_argument, tool_declaration};

pub(super) fn get_declaration() -> ToolDeclaration {
    tool_declaration(
        "sandbox_get",
        "Gets a file of the sandbox: the text itself when it is short, otherwise a file of the conversation with its address. \
         It does not show anything to the user; send_file does.",
        &json!({
            "path": {"type": "string", "description": "The file: absolute, ~/…, or relative to the working directory. A directory becomes a ZIP."},
        }),
        &["path"],
    )
}

pub(super) async fn get_file(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let path = required_argument(call, "path")?;
    let inline_limit = files.scope.services.config.inline_limit.as_u64();
    let copied = copy_out(
        &files.scope,
        &files.session,
        path.as_bytes(),
        time_left(call),
    )
    .await?;
    let claim = &copied.claim;
    let bytes = claim.artifact.size;
    let head = files.scope.services.head(claim, kind::HEAD_BYTES).await?;
    // A NUL in the first bytes shows a binary file without loading the rest.
    if bytes <= inline_limit && !head.contains(&0) {
        let all = files.scope.services.open(claim, time_left(call)).await?;
        let all = all
            .read_all(dray_types::ByteSize::bytes(inline_limit))
            .await;
        let all = all.map_err(super::super::ask::CallFailure::store)?;
        if let Ok(text) = str::from_utf8(&all) {
            return Ok(ToolOutput::text(text, "text/plain"));
        }
    }
    let media_type = super::super::storage::media_type(&head, &copied.name, bytes);
    let stored = files
        .storage
        .keep_claim(claim, &copied.name, media_type)
        .await?;
    let shown = name::shown_name(&copied.name);
    let reference = stored.reference();
    Ok(ToolOutput {
        content: format!(
            "{shown} ({media_type}, {}) is kept as {reference}",
            size::human_size(bytes)
        ),
        content_type: "text/plain".to_owned(),
        attachments: vec![stored.attachment],
        ..ToolOutput::default()
    })
}
