//! The calls around the files of a conversation.

use dray_bus::CallError;
use dray_file_context::read::{self, ReadArguments, ReadPlan};
use dray_file_context::sandbox::{FetchPlan, WriteOutcome as Fetched};
use dray_file_context::{ContextBuilder, ContextRequest as Conversation, FileCatalog, substitute};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_reading::frame;
use dray_reading::record::Code;
use dray_reading::request::Request as ReadingRequest;
use dray_service::Request;
use dray_types::{ByteSize, Fault, FaultCode};
use futures_util::stream::{self, StreamExt as _};
use tokio_util::sync::CancellationToken;

use super::ReadingContext;
use super::document::{DocumentAccess, OpenFailure, OpenedDocument};
use crate::service::caller_credentials;

/// Files of one `read_files` call that are read concurrently.
const CONCURRENT_READS: usize = 4;
/// Media type of contexts and arguments.
const JSON_MEDIA_TYPE: &str = "application/json";

impl ReadingContext {
    /// Builds the context of a conversation with links that work now.
    pub(crate) async fn build_context(
        &self,
        request: Request<v1::BuildContextRequest>,
    ) -> Result<v1::BuildContextReply, Fault> {
        let Request { meta, body } = request;
        let bytes = self.content(&meta, body.request, "request").await?;
        let mut conversation: Conversation = parse_field(&bytes, "request")?;
        let scope = (!body.scope.is_empty())
            .then(|| dray_file_context::renew::StoreScope::of(body.scope.iter().cloned()));
        let keys = conversation.keys_to_sign(scope.as_ref());
        let mut renewals = self.renew(&meta.tenant, keys, body.link_seconds).await?;
        renewals.scope = scope;
        // In the contract, an empty list means no restriction.
        renewals.allowed_hosts = (!body.allowed_hosts.is_empty()).then_some(body.allowed_hosts);
        conversation.renewals = Some(renewals);
        let built = ContextBuilder::build(&conversation).map_err(|error| {
            Fault::new(FaultCode::InvalidArgument, error.to_string())
                .detail("context")
                .advice("Leave the file out, or ask the user to upload it again.")
        })?;
        let json = serde_json::to_vec(&built).map_err(|_| Fault::internal())?;
        Ok(v1::BuildContextReply {
            built: Some(self.reply(&meta, json, JSON_MEDIA_TYPE).await?),
        })
    }

    /// Runs the model's `read_files`. Mistakes of the model are reported in the answer, not as faults.
    pub(crate) async fn read_files(
        &self,
        request: Request<v1::ReadFilesRequest>,
    ) -> Result<v1::ReadFilesReply, Fault> {
        self.check_enabled()?;
        let Request { meta, body } = request;
        let catalog = self.catalog(&meta, body.catalog).await?;
        let access = self.document_access(meta, body.credentials, body.external_url_fetch);
        let output = match ReadArguments::parse(&body.tool, &body.arguments) {
            Err(invalid) => invalid.to_string(),
            Ok(arguments) => {
                let budget = match usize::try_from(body.budget) {
                    Ok(0) | Err(_) => dray_file_context::limits::DEFAULT_READ_BUDGET_CHARS,
                    Ok(budget) => budget,
                };
                let plan = ReadPlan::new(&arguments, &catalog, budget);
                let tasks: Vec<_> = plan.tasks().collect();
                let jobs: Vec<_> = tasks
                    .into_iter()
                    .map(|task| self.read_task(&access, task))
                    .collect();
                // `buffered` keeps the order of the tasks, which the plan relies on.
                let results = stream::iter(jobs)
                    .buffered(CONCURRENT_READS)
                    .collect()
                    .await;
                framed(plan.assemble(results))?.json()
            }
        };
        let DocumentAccess { meta, .. } = &access;
        Ok(v1::ReadFilesReply {
            output: Some(
                self.reply(meta, output.into_bytes(), JSON_MEDIA_TYPE)
                    .await?,
            ),
        })
    }

    /// Reads one file of a `read_files` call; a failure concerns only this file.
    async fn read_task(
        &self,
        access: &DocumentAccess,
        task: &read::ReadTask,
    ) -> Result<read::ReadText, read::ReadFailure> {
        let file = &task.file;
        let opened = self
            .open_file(access, file.key.as_deref(), &file.url, &file.name)
            .await;
        let opened = opened.map_err(|failure| open_failure(failure, access.limit))?;
        let cancel = CancellationToken::new();
        let _ended = cancel.clone().drop_guard();
        let name = shown_name(&file.name, &opened.name);
        let reading_request = ReadingRequest {
            range: task.range.clone(),
            ..ReadingRequest::of_path(name.clone())
        };
        let reader = self.reader(&access.meta.tenant);
        match reader
            .markdown_file(&name, opened.file, &reading_request, &cancel)
            .await
        {
            Ok(markdown) => Ok(read::ReadText {
                text: markdown.text,
                file_name: Some(opened.name).filter(|name| !name.is_empty()),
                incomplete: markdown.truncated,
                warnings: markdown.warnings,
            }),
            Err(record) => Err(unread_failure(record.error_code, access.limit)),
        }
    }

    /// Puts fresh URLs in place of file ids.
    pub(crate) async fn substitute_ids(
        &self,
        request: Request<v1::SubstituteIdsRequest>,
    ) -> Result<v1::SubstituteIdsReply, Fault> {
        let Request { meta, body } = request;
        let catalog = self.catalog(&meta, body.catalog).await?;
        let bytes = self.content(&meta, body.arguments, "arguments").await?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| InvalidMessage::field("arguments", "is not UTF-8"))?;
        let named = substitute::named_in_text(text, &catalog)
            .map_err(|error| not_json("arguments", &error))?;
        let keys = named
            .into_iter()
            .filter_map(|entry| entry.file.key.clone())
            .collect();
        let renewals = self.renew(&meta.tenant, keys, body.link_seconds).await?;
        let done = substitute::substitute_text(text, &catalog, |entry| match &entry.file.key {
            Some(key) => renewals.url(key).ok().map(str::to_owned),
            None => entry.public_url.clone(),
        })
        .map_err(|error| not_json("arguments", &error))?;
        let arguments = done.text.into_bytes();
        Ok(v1::SubstituteIdsReply {
            arguments: Some(self.reply(&meta, arguments, JSON_MEDIA_TYPE).await?),
            replaced: done.replaced,
            unresolved: done.unresolved,
        })
    }

    /// Runs the model's `sandbox_fetch_user_file`. Only a write that the sandbox confirmed is reported as one.
    pub(crate) async fn fetch_user_file(
        &self,
        request: Request<v1::FetchUserFileRequest>,
    ) -> Result<v1::FetchUserFileReply, Fault> {
        let Request { meta, body } = request;
        // An empty directory would make every path a path below `/`.
        if !body.directory.starts_with('/') {
            return Err(InvalidMessage::field("directory", "must be an absolute path").into());
        }
        let catalog = self.catalog(&meta, body.catalog).await?;
        let limit = match body.max_bytes {
            0 => self.config.max_file_size,
            max_bytes => self.config.max_file_size.min(ByteSize::bytes(max_bytes)),
        };
        // Invalid JSON counts as a value without fields, which the plan reports to the model.
        let arguments = serde_json::from_str(&body.arguments).unwrap_or_default();
        let plan = FetchPlan::new(&arguments, &catalog, &body.directory, limit.as_u64());
        let plan = match plan {
            Ok(plan) => plan,
            Err(output) => {
                return Ok(v1::FetchUserFileReply {
                    output,
                    written: false,
                });
            }
        };
        let mut access = self.document_access(meta, body.credentials, body.external_url_fetch);
        access.limit = limit;
        let fetched = match self.fetch(&access, &plan, body.sandbox).await {
            Ok(fetched) => fetched,
            Err(OpenFailure::Refused(refusal)) => Fetched::Failed(refusal.reason),
            Err(OpenFailure::Fault(fault)) => Fetched::Failed(fault.message),
        };
        Ok(v1::FetchUserFileReply {
            written: matches!(fetched, Fetched::Written(_)),
            output: plan.report(&fetched),
        })
    }

    async fn fetch(
        &self,
        access: &DocumentAccess,
        plan: &FetchPlan,
        sandbox: Option<v1::SandboxRef>,
    ) -> Result<Fetched, OpenFailure> {
        let (directory, name) = plan.path.rsplit_once('/').unwrap_or(("", &plan.path));
        if !self
            .resolves_inside(access, plan, sandbox.as_ref(), directory)
            .await?
        {
            return Ok(Fetched::Escaped);
        }
        let file = &plan.file;
        let opened = self
            .open_file(access, file.key.as_deref(), &file.url, &file.name)
            .await?;
        let size = opened.size;
        let claim = self.store_file(access, opened, &file.name).await?;
        let request = v1::PutSandboxFileRequest {
            sandbox,
            claim: Some(claim),
            directory: if directory.is_empty() {
                b"/".to_vec()
            } else {
                directory.into()
            },
            name: name.into(),
            collision: "overwrite".to_owned(),
            mode: 0,
        };
        let placed = self.bus.call(&access.meta, &request).await;
        let placed = placed.map_err(|error| OpenFailure::Fault(error.into()))?;
        // The sandbox reports where the file really is: a link may have been made between check and write (TOCTOU).
        Ok(if is_inside(&placed.path, &plan.directory) {
            Fetched::Written(size)
        } else {
            Fetched::Escaped
        })
    }

    /// Checks whether the deepest existing part of the target's directory is inside the working directory, with links
    /// resolved.
    async fn resolves_inside(
        &self,
        access: &DocumentAccess,
        plan: &FetchPlan,
        sandbox: Option<&v1::SandboxRef>,
        directory: &str,
    ) -> Result<bool, OpenFailure> {
        let mut ancestor = directory;
        // Each turn removes one component, so the loop ends at the working directory.
        while ancestor.len() > plan.directory.len() {
            let request = v1::StatSandboxRequest {
                sandbox: sandbox.cloned(),
                path: ancestor.into(),
                // Links are followed, because a link inside can lead outside (path traversal).
                follow: true,
                ..v1::StatSandboxRequest::default()
            };
            match self.bus.call(&access.meta, &request).await {
                Ok(entry) => return Ok(is_inside(&entry.real_path, &plan.directory)),
                Err(CallError::Fault(fault)) if fault.code == FaultCode::NotFound => {
                    ancestor = ancestor.rsplit_once('/').map_or("", |(parent, _)| parent);
                }
                Err(error) => return Err(OpenFailure::Fault(error.into())),
            }
        }
        Ok(true)
    }

    async fn store_file(
        &self,
        access: &DocumentAccess,
        opened: OpenedDocument,
        name: &str,
    ) -> Result<v1::Claim, OpenFailure> {
        use tokio::io::AsyncReadExt as _;
        let meta = &access.meta;
        let mut writer = self
            .store
            .writer(&meta.tenant, &meta.operation, 0)
            .deadline(meta.deadline);
        let mut file = tokio::fs::File::from_std(opened.file);
        loop {
            // A new buffer for each chunk, because the writer keeps the previous one.
            let mut chunk = bytes::BytesMut::with_capacity(256 * 1024);
            let read = file
                .read_buf(&mut chunk)
                .await
                .map_err(|_| Fault::internal())?;
            if read == 0 {
                break;
            }
            writer.write(chunk.freeze()).await.map_err(Fault::from)?;
        }
        let label = dray_store::ArtifactLabel::new("application/octet-stream", name);
        Ok(writer.finish(label).await.map_err(Fault::from)?.into())
    }

    pub(super) fn document_access(
        &self,
        meta: dray_bus::Meta,
        credentials: Option<v1::DialCredentials>,
        app_policy: Option<v1::AppPolicy>,
    ) -> DocumentAccess {
        DocumentAccess {
            meta,
            credentials: credentials.map(caller_credentials).unwrap_or_default(),
            app_policy,
            limit: self.config.max_file_size,
        }
    }

    async fn catalog(
        &self,
        meta: &dray_bus::Meta,
        catalog: Option<v1::Content>,
    ) -> Result<FileCatalog, Fault> {
        let bytes = self.content(meta, catalog, "catalog").await?;
        parse_field(&bytes, "catalog")
    }

    pub(super) fn check_workspace(&self) -> Result<(), Fault> {
        if !self.config.roots.is_empty() {
            return Ok(());
        }
        Err(Fault::new(FaultCode::Denied, "This system has no workspace whose files can be read by path.")
            .detail("no_workspace")
            .advice("Pass a stored file, a file of a sandbox or a URL, or ask the operator to set file-resolver.reading.roots."))
    }

    pub(super) fn check_enabled(&self) -> Result<(), Fault> {
        if self.config.enabled {
            return Ok(());
        }
        Err(
            Fault::new(FaultCode::Denied, "Reading documents is switched off here.")
                .detail("reading_disabled")
                .advice("Ask the operator to set file-resolver.reading.enabled."),
        )
    }
}

/// Frames the texts, each page for itself: the model sees pages, and offsets count in the text without frames.
fn framed(mut answer: read::ReadAnswer) -> Result<read::ReadAnswer, Fault> {
    for file in &mut answer.files {
        if file.status == read::ReadStatus::Ok {
            let header = frame::page(&file.file_name);
            file.content = frame::frame(&header, &file.content).map_err(|_| Fault::internal())?;
        }
    }
    Ok(answer)
}

/// Returns whether a path of the sandbox is the directory or lies below it.
fn is_inside(path: &[u8], directory: &str) -> bool {
    path.strip_prefix(directory.as_bytes())
        // The rest begins at a separator: `/work2` is not below `/work`.
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The name of a document for the model: the caller's, otherwise that of its source, otherwise a fixed one.
pub(super) fn shown_name(given_name: &str, source_name: &str) -> String {
    [given_name, source_name, "attachment"]
        .into_iter()
        .find(|name| !name.trim().is_empty())
        .unwrap_or("attachment")
        .to_owned()
}

fn parse_field<T: serde::de::DeserializeOwned>(
    bytes: &[u8],
    field: &'static str,
) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| not_json(field, &error))
}

fn not_json(field: &'static str, error: &serde_json::Error) -> Fault {
    // The message of the parser may quote content, so only the line is reported.
    InvalidMessage::field(
        field,
        format!("line {} is not the expected JSON", error.line()),
    )
    .into()
}

/// The reason for which a file could not be opened, in the codes of `read_files`.
fn open_failure(failure: OpenFailure, limit: ByteSize) -> read::ReadFailure {
    let refusal = match failure {
        OpenFailure::Refused(refusal) => refusal,
        OpenFailure::Fault(fault) if fault.code == FaultCode::Timeout => {
            return read::ReadFailure::of(read::FailureCode::Timeout);
        }
        OpenFailure::Fault(_) => return read::ReadFailure::of(read::FailureCode::Failed),
    };
    match (refusal.code, refusal.detail.as_str()) {
        (Code::TooLarge, _) => read::ReadFailure::too_large(limit.as_u64()),
        (Code::NotFound, _) => read::ReadFailure::of(read::FailureCode::Expired),
        // The fetcher's code for an address that is not public (I-8: which one is not stated).
        (_, "ssrf_blocked" | "blocked_host") => {
            read::ReadFailure::of(read::FailureCode::PrivateNetwork)
        }
        (_, "timeout" | "deadline_expired") => read::ReadFailure::of(read::FailureCode::Timeout),
        _ => read::ReadFailure::with_message(read::FailureCode::Failed, refusal.reason),
    }
}

/// The reason for which a file has no text, in the codes of `read_files`.
fn unread_failure(code: Option<Code>, limit: ByteSize) -> read::ReadFailure {
    let Some(code) = code else {
        // The part that was requested does not exist in the document.
        return read::ReadFailure::of(read::FailureCode::OutOfRange);
    };
    match code {
        Code::TooLarge => read::ReadFailure::too_large(limit.as_u64()),
        Code::Empty | Code::NoText => read::ReadFailure::of(read::FailureCode::Empty),
        Code::KindNotAllowed | Code::NotAnArchive | Code::UnsupportedFormat | Code::Encrypted => {
            read::ReadFailure::of(read::FailureCode::UnsupportedType)
        }
        Code::LimitExceeded => read::ReadFailure::of(read::FailureCode::Timeout),
        Code::RangeInvalid => read::ReadFailure::of(read::FailureCode::OutOfRange),
        _ => read::ReadFailure::of(read::FailureCode::Failed),
    }
}
