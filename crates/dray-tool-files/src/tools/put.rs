//! `sandbox_put`: writes a text, or a file of the conversation or the web, into the sandbox.

use bytes::Bytes;
use dray_presentation::size;
use dray_proto::export::proves;
use dray_proto::v1;
use dray_tool::{HandledFailure, ToolCall, ToolDeclaration, ToolFailure, ToolOutput};
use dray_types::Claim;
use serde_json::{Value, json};

use super::super::ask::PeerService;
use super::super::scope::time_left;
use super::super::turn::{TurnFiles, text_argument};
use super::{is_on, required_argument, tool_declaration};

pub(super) fn put_declaration() -> ToolDeclaration {
    tool_declaration(
        "sandbox_put",
        "Writes a file into the sandbox: either a text, or a file of the conversation, of DIAL or of the web. Says where it \
         is; a taken name gets a number unless overwrite is set.",
        &json!({
            "path": {"type": "string", "description": "Where to: absolute, ~/…, or relative to the working directory. Directories are made."},
            "content": {"type": "string", "description": "The text to write."},
            "file": {"type": "string", "description": "Instead of a text: id of a file of the conversation, files/… of DIAL, or an http(s) URL."},
            "overwrite": {"type": "boolean", "description": "Whether a file of that name is replaced; false by default."},
        }),
        &["path"],
    )
}

pub(super) async fn put_file(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let sandbox = files.session.sandbox().await?;
    let path = required_argument(call, "path")?;
    let (directory, name) = split_path(path)?;
    let time = time_left(call);
    let limit = files.scope.services.config.upload_limit.as_u64();
    let claim = match (
        call.arguments.get("content"),
        text_argument(&call.arguments, "file"),
    ) {
        (None | Some(Value::Null), Some(reference)) => {
            files
                .loader
                .claim_of("file", reference, limit, time)
                .await?
                .0
        }
        (Some(Value::String(content)), None) => {
            let bytes = Bytes::copy_from_slice(content.as_bytes());
            files
                .scope
                .services
                .store_bytes(bytes, "text/plain", name)
                .await?
        }
        _ => {
            return Err(ToolFailure::parameter(
                "content",
                "Give either content or file.",
            ));
        }
    };
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(sandbox),
        claim: Some(claim.clone().into()),
        directory: directory.as_bytes().to_vec(),
        name: name.as_bytes().to_vec(),
        collision: if is_on(call, "overwrite") {
            "overwrite"
        } else {
            "rename"
        }
        .to_owned(),
        // 0 means 0644.
        mode: 0,
    };
    let meta = files
        .scope
        .meta(time_left(call))
        // The operation is derived from the id of the call, so that a repeated turn writes the file once.
        .with_operation(files.scope.operation(&format!("put/{}", call.id)));
    let placed = files
        .scope
        .services
        .call_with_heartbeat(PeerService::Sandbox, &meta, &request)
        .await?;
    Ok(ToolOutput::text(
        placed_sentence(&placed, &claim)?,
        "text/plain",
    ))
}

/// The sentence about a file whose placement is proven.
pub(super) fn placed_sentence(
    placed: &v1::PlacedFile,
    claim: &Claim,
) -> Result<String, ToolFailure> {
    let is_placed = placed.size == claim.artifact.size
        && placed.sha256 == claim.artifact.sha256.as_bytes()
        && (placed.existed
            || placed
                .receipt
                .as_ref()
                .is_some_and(|receipt| proves(receipt, claim)));
    if !is_placed {
        return Err(HandledFailure::new(
            "The sandbox did not confirm the whole file; look at it before you use it.",
        )
        .into());
    }
    let path = String::from_utf8_lossy(&placed.path);
    let how = if placed.existed {
        "was there already"
    } else if placed.renamed {
        "is written, under another name because the first was taken"
    } else {
        "is written"
    };
    Ok(format!("{path} ({}) {how}.", size::human_size(placed.size)))
}

/// Directory and name of a path.
pub(super) fn split_path(path: &str) -> Result<(&str, &str), ToolFailure> {
    let (directory, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => (".", path),
    };
    if name.is_empty() || matches!(name, "." | ".." | "~") {
        return Err(ToolFailure::parameter(
            "path",
            "It must end in the name of a file.",
        ));
    }
    Ok((directory, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_must_end_in_a_name() {
        assert_eq!(split_path("a.txt").unwrap(), (".", "a.txt"));
        assert_eq!(split_path("/a.txt").unwrap(), ("/", "a.txt"));
        assert_eq!(split_path("~/b/a.txt").unwrap(), ("~/b", "a.txt"));
        for path in ["a/", "/", "..", "a/.."] {
            assert!(
                matches!(split_path(path), Err(ToolFailure::Parameter { .. })),
                "{path}"
            );
        }
    }
}
