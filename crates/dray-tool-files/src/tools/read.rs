//! Tools that read: `read_attachment`, `read_files`, `sandbox_fetch_user_file`. The model gets the reader's text
//! unchanged, including its frame.

use dray_proto::tagged;
use dray_proto::v1::{self, document_source};
use dray_tool::{HandledFailure, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, UrlClass};
use dray_types::{ByteSize, Claim};
use serde_json::{Value, json};

use super::super::ask::PeerService;
use super::super::dial_files::app_file_url;
use super::super::drive::DriveError;
use super::super::scope::time_left;
use super::super::turn::{TurnFiles, text_argument};
use super::{required_argument, tool_declaration};

/// Longest response of the reader, regardless of its limits.
const MAX_ANSWER_BYTES: ByteSize = ByteSize::mib(4);

pub(super) fn attachment_declaration() -> ToolDeclaration {
    tool_declaration(
        "read_attachment",
        "Reads a document (PDF, Office, e-mail, book, text …) as Markdown, or lists an archive (ZIP, tar). Large documents come as a summary; ask for a range \
         or search in them.",
        &json!({
            "file_path": {"type": "string", "description": "The document: a path of the sandbox, an id of a file of the conversation, files/… of DIAL, or an http(s) URL."},
            "summarize": {"type": "boolean", "description": "Summarise even what would fit."},
            "show_hidden": {"type": "boolean", "description": "Show text, rows and columns that are hidden from readers of the document."},
            "focus": {"type": "string", "description": "What a summary must preserve."},
            "range": {"type": "string", "description": "A part: pages 3-5, slides 2, sheet Budget rows 1001-2000, chapter 4, lines 1-200, bytes 100000-."},
            "find": {"type": "string", "description": "Only the places where this text occurs."},
            "member": {"type": "string", "description": "A file of an archive, by its path in the listing."},
        }),
        &["file_path"],
    )
}

pub(super) fn files_declaration() -> ToolDeclaration {
    tool_declaration(
        "read_files",
        "Reads the text of documents of the conversation by their ids; several in one call share one budget, and nextOffset continues a text.",
        &json!({
            "ids": {"type": "array", "items": {"type": "string"}, "description": "Ids of files, as they were announced."},
            "offset": {"type": "integer", "minimum": 0, "description": "Characters to skip."},
            "limit": {"type": "integer", "minimum": 1, "description": "Most characters of each file."},
            "range": {"type": "string", "description": "A part in the document's own terms, such as pages 3-5."},
        }),
        &["ids"],
    )
}

pub(super) fn fetch_declaration() -> ToolDeclaration {
    tool_declaration(
        "sandbox_fetch_user_file",
        "Copies a file of the conversation into the sandbox, and says where it is.",
        &json!({
            "file_index": {"type": "string", "description": "Id of the file, as it was announced."},
            "target_path": {"type": "string", "description": "Where to, relative to the working directory; no leading / and no .. in it."},
        }),
        &["file_index", "target_path"],
    )
}

pub(super) async fn read_attachment(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let path = required_argument(call, "file_path")?;
    let (source, name) = locate_document(files, path).await?;
    let argument = |name| {
        text_argument(&call.arguments, name)
            .unwrap_or_default()
            .to_owned()
    };
    let is_on = |name| match call.arguments.get(name) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    };
    let request = v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(source),
        }),
        name,
        summarize: is_on("summarize"),
        focus: argument("focus"),
        range: argument("range"),
        find: argument("find"),
        member: argument("member"),
        // 0 means the operator's limit.
        inline_budget_bytes: 0,
        credentials: Some(files.scope.credentials()),
        external_url_fetch: files.scope.policy(),
        show_hidden: is_on("show_hidden"),
        plain: false,
    };
    let time = time_left(call);
    let services = &files.scope.services;
    let reply = services
        .call_with_heartbeat(PeerService::Documents, &files.scope.meta(time), &request)
        .await?;
    let output = services
        .read(PeerService::Documents, reply.output, MAX_ANSWER_BYTES, time)
        .await?;
    let text = String::from_utf8_lossy(&output).into_owned();
    if reply.outcome == "refuse" {
        // The reader's message is a failure here, so that the stage closes as failed (quickapps 44.4 R12).
        return Err(HandledFailure::new(text).into());
    }
    Ok(ToolOutput::text(text, "text/markdown"))
}

/// Finds a document: first among the files of the conversation, then as an address, then in the sandbox.
async fn locate_document(
    files: &TurnFiles,
    path: &str,
) -> Result<(document_source::Source, String), ToolFailure> {
    if let Some(entry) = files.catalog.entry(path) {
        if let Some(claim) = files
            .loader
            .names
            .stored(entry.key.as_deref(), &entry.name)
            .await?
        {
            return Ok((document_source::Source::Claim(claim.into()), entry.name));
        }
        // A link in `url` may have expired; a path in DIAL does not.
        let key = entry.key.filter(|key| key.starts_with("files/"));
        return Ok((
            document_source::Source::Url(key.unwrap_or(entry.url)),
            entry.name,
        ));
    }
    let claim: Option<Claim> = files.loader.names.named_claim(path, "").await?;
    if let Some(claim) = claim {
        return Ok((document_source::Source::Claim(claim.into()), String::new()));
    }
    let class = match files.scope.services.classify(path) {
        UrlClass::Dial if is_sandbox_path(files, path).await => UrlClass::Unsupported,
        class => class,
    };
    match class {
        UrlClass::Dial => {
            let url = files
                .scope
                .services
                .dial_path(path)
                .unwrap_or_else(|| path.to_owned());
            Ok((document_source::Source::Url(url), String::new()))
        }
        UrlClass::External => Ok((document_source::Source::Url(path.to_owned()), String::new())),
        UrlClass::Data => {
            let (claim, name) = files
                .loader
                .claim_of(
                    "file_path",
                    path,
                    files.scope.limit(),
                    files.scope.services.config.call_timeout.as_duration(),
                )
                .await?;
            Ok((document_source::Source::Claim(claim.into()), name))
        }
        UrlClass::Unsupported => locate_path(files, path).await,
    }
}

/// Finds a document by a path of the sandbox or, if only these have it, of the app's own files in DIAL.
async fn locate_path(
    files: &TurnFiles,
    path: &str,
) -> Result<(document_source::Source, String), ToolFailure> {
    let has_sandbox = files.session.has_sandbox().await;
    let may_be_in_drive =
        files.scope.reads_drive() && !(has_sandbox && is_in_sandbox(files, path).await);
    if may_be_in_drive && let Some(url) = app_file_url(&files.scope, path).await {
        return Ok((document_source::Source::Url(url), String::new()));
    }
    if !has_sandbox {
        return Err(ToolFailure::parameter(
            "file_path",
            "The file does not exist in this conversation. Pass the id of a file of the conversation, files/… of DIAL, or an \
             http(s) URL.",
        ));
    }
    let location = v1::SandboxPath {
        sandbox: Some(files.session.sandbox().await?),
        path: path.as_bytes().to_vec(),
    };
    Ok((document_source::Source::Sandbox(location), String::new()))
}

/// Whether the sandbox of the session has a file at this path.
async fn is_in_sandbox(files: &TurnFiles, path: &str) -> bool {
    let Ok(sandbox) = files.session.sandbox().await else {
        return false;
    };
    let services = &files.scope.services;
    let meta = files.scope.meta(services.config.call_timeout.as_duration());
    let request = tagged::lookup_request(sandbox, path);
    let found = services.ask(PeerService::Sandbox, &meta, &request).await;
    found.is_ok()
}

/// Whether a text that looks like a path of DIAL, `files/…`, is a path of the sandbox: without DIAL, or if only the
/// sandbox has such a file.
async fn is_sandbox_path(files: &TurnFiles, path: &str) -> bool {
    let services = &files.scope.services;
    let Some(drive) = &services.drive else {
        return true;
    };
    // An absolute URL names DIAL alone.
    if path.contains("://") {
        return false;
    }
    if !files.session.has_sandbox().await {
        return false;
    }
    let url = services.dial_path(path).unwrap_or_default();
    match drive.metadata(&files.scope.caller, &url).await {
        Ok(item) if item.is_folder() => {}
        Err(DriveError::NotFound | DriveError::Denied | DriveError::Invalid) => {}
        Ok(_) | Err(_) => return false,
    }
    is_in_sandbox(files, path).await
}

pub(super) async fn read_files(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let services = &files.scope.services;
    let catalog = services
        .content(files.catalog.json(), "application/json")
        .await?;
    let request = v1::ReadFilesRequest {
        catalog: Some(catalog),
        tool: "read_files".to_owned(),
        arguments: Value::Object(call.arguments.clone()).to_string(),
        // 0 means the reader's default.
        budget: 0,
        credentials: Some(files.scope.credentials()),
        external_url_fetch: files.scope.policy(),
    };
    let time = time_left(call);
    let reply = services
        .call_with_heartbeat(PeerService::Documents, &files.scope.meta(time), &request)
        .await?;
    let output = services
        .read(PeerService::Documents, reply.output, MAX_ANSWER_BYTES, time)
        .await?;
    Ok(ToolOutput::text(
        String::from_utf8_lossy(&output).into_owned(),
        "application/json",
    ))
}

pub(super) async fn fetch_user_file(
    files: &TurnFiles,
    call: &ToolCall,
) -> Result<ToolOutput, ToolFailure> {
    let sandbox = files.session.sandbox().await?;
    let directory = working_directory(files, call, &sandbox).await?;
    let services = &files.scope.services;
    let catalog = services
        .content(files.catalog.json(), "application/json")
        .await?;
    let request = v1::FetchUserFileRequest {
        catalog: Some(catalog),
        arguments: Value::Object(call.arguments.clone()).to_string(),
        sandbox: Some(sandbox),
        directory,
        // 0 means the operator's limit.
        max_bytes: 0,
        credentials: Some(files.scope.credentials()),
        external_url_fetch: files.scope.policy(),
    };
    let time = time_left(call);
    let reply = services
        .call_with_heartbeat(PeerService::Documents, &files.scope.meta(time), &request)
        .await?;
    if !reply.written {
        return Err(HandledFailure::new(reply.output).into());
    }
    Ok(ToolOutput::text(reply.output, "text/plain"))
}

/// The working directory of the session, absolute; the sandbox's default if none was bound.
async fn working_directory(
    files: &TurnFiles,
    call: &ToolCall,
    sandbox: &v1::SandboxRef,
) -> Result<String, ToolFailure> {
    let bound = &files.session.bound().await.working_directory;
    let directory = if bound.is_empty() {
        let request = v1::ProbeSandboxRequest {
            sandbox: Some(sandbox.clone()),
        };
        let probe = files
            .scope
            .services
            .ask(
                PeerService::Sandbox,
                &files.scope.short_meta(call),
                &request,
            )
            .await?;
        probe.working_directory
    } else {
        bound.clone()
    };
    Ok(String::from_utf8_lossy(&directory).into_owned())
}
