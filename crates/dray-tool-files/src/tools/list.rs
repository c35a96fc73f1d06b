//! `sandbox_list`: lists a directory of the sandbox.

use dray_presentation::{name, size};
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, SandboxEntryKind};
use dray_tool::{ToolCall, ToolDeclaration, ToolFailure, ToolOutput};
use serde_json::json;

use super::super::ask::PeerService;
use super::super::turn::{TurnFiles, text_argument};
use super::tool_declaration;

/// Most levels below the directory that one call lists.
const MAX_DEPTH: u64 = 8;
/// Most entries in a result for a model.
const MAX_ENTRIES: u32 = 500;

pub(super) fn list_declaration() -> ToolDeclaration {
    tool_declaration(
        "sandbox_list",
        "Lists files of the sandbox: path, kind and size of each entry of a directory. Links are named, not followed.",
        &json!({
            "path": {"type": "string", "description": "Directory: absolute, ~/…, or relative to the working directory, which is the default."},
            "depth": {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH, "description": "Levels below it; 1 by default."},
        }),
        &[],
    )
}

pub(super) async fn list_files(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let path = text_argument(&call.arguments, "path").unwrap_or(".");
    let depth = call
        .arguments
        .get("depth")
        .and_then(serde_json::Value::as_u64)
        .unwrap_or(1);
    let request = v1::ListSandboxRequest {
        sandbox: Some(files.session.sandbox().await?),
        path: path.as_bytes().to_vec(),
        // Models request more than the schema allows.
        depth: u32::try_from(depth.clamp(1, MAX_DEPTH)).unwrap_or(1),
        limit: MAX_ENTRIES,
        offset: 0,
    };
    let reply = files
        .scope
        .services
        .ask(
            PeerService::Sandbox,
            &files.scope.short_meta(call),
            &request,
        )
        .await?;
    let mut lines: Vec<String> = reply.entries.iter().map(entry_line).collect();
    if lines.is_empty() && reply.denied == 0 {
        lines.push("The directory is empty.".to_owned());
    }
    if reply.denied > 0 {
        lines.push(format!(
            "Left out, because policy refuses them: {}.",
            reply.denied
        ));
    }
    if reply.truncated {
        lines.push(
            "The listing is incomplete; list a directory below this one, or fewer levels."
                .to_owned(),
        );
    }
    Ok(ToolOutput::text(lines.join("\n"), "text/plain"))
}

fn entry_line(entry: &v1::SandboxEntry) -> String {
    let path = name::shown_text(&entry.path, 1000);
    match entry.entry_kind() {
        SandboxEntryKind::File => format!("{path} ({})", size::human_size(entry.size)),
        SandboxEntryKind::Directory => format!("{path}/"),
        kind => format!("{path} ({})", kind.name()),
    }
}
