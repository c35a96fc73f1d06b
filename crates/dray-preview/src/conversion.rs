//! The reader converts tables and notebooks to Markdown.
//!
//! The bytes are read here, where the path is checked, and passed to the reader, which has no access to the sandbox. A
//! document that does not fit a message goes through the cache of the store, where it stays for about an hour.

use std::time::Duration;

use dray_bus::{CallError, Meta};
use dray_proto::MAX_INLINE_BYTES;
use dray_proto::convert::ContentSource;
use dray_proto::v1::{self, document_source::Source};
use dray_sandbox::Body;
use dray_store::ArtifactLabel;
use dray_types::{ByteSize, Fault, FaultCode};

use crate::error::PreviewError;
use crate::view::SandboxView;

/// Longest time for one conversion, with the transfers to the reader and back.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest file that is converted; the default limit of the reader.
const MAX_FILE_BYTES: u64 = 25 << 20;
/// Largest Markdown of the reader.
const MAX_MARKDOWN_BYTES: ByteSize = ByteSize::mib(16);

/// The outcome of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// The Markdown, and remarks of the reader.
    Markdown { text: String, warnings: Vec<String> },
    /// The reason why there is none, as a sentence.
    Refused(String),
    /// The reader does not respond, or not in time.
    ReaderUnavailable,
}

/// Converts the pinned file of a view.
///
/// # Errors
///
/// Failures of the sandbox. After `ChangedDuringTransfer`, another attempt may succeed.
pub(crate) async fn convert(view: &SandboxView) -> Result<Conversion, PreviewError> {
    let size = view.pinned.metadata.size;
    if size > MAX_FILE_BYTES {
        return Ok(Conversion::Refused(
            "Files of more than 25 MiB are not shown as a page.".to_owned(),
        ));
    }
    let meta = view.meta(CONVERSION_TIMEOUT);
    let engine = &view.opened.engine;
    let body = engine
        .read_pinned(&view.opened.policy, &view.pinned, 0..size)
        .await?;
    let source = match source_of(view, &meta, body).await? {
        Ok(source) => source,
        Err(fault) => return Ok(outcome_of_fault(&fault)),
    };
    let request = v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(source),
        }),
        name: view.name(),
        plain: true,
        ..v1::ReadAttachmentRequest::default()
    };
    let bus = &view.service.inner.system.bus;
    let reply = match bus.call(&meta, &request).await {
        Ok(reply) => reply,
        Err(CallError::Fault(fault)) => return Ok(outcome_of_fault(&fault)),
        Err(error) => {
            tracing::warn!(%error, "the reader did not convert a file of a preview");
            return Ok(Conversion::ReaderUnavailable);
        }
    };
    Ok(match markdown_of(view, &meta, reply.output).await {
        Err(fault) => outcome_of_fault(&fault),
        Ok(text) if reply.outcome == "inline" => Conversion::Markdown {
            text,
            warnings: reply.warnings,
        },
        Ok(sentence) => Conversion::Refused(sentence),
    })
}

/// The file for the reader: inline if it is small, otherwise as a claim. The inner error is that of the store.
async fn source_of(
    view: &SandboxView,
    meta: &Meta,
    mut body: Body,
) -> Result<Result<Source, Fault>, PreviewError> {
    if view.pinned.metadata.size <= MAX_INLINE_BYTES as u64 {
        let bytes = body.read_all(MAX_INLINE_BYTES).await?;
        return Ok(Ok(Source::Inline(bytes.into())));
    }
    let store = &view.service.inner.system.store;
    let writer = store.writer(&meta.tenant, &meta.operation, 0);
    let mut writer = writer.deadline(meta.deadline).cached();
    // Dropping the writer before its end discards the written bytes, so an error of the sandbox leaves no artifact.
    while let Some(bytes) = body.next().await {
        if let Err(error) = writer.write(bytes?).await {
            return Ok(Err(error.into()));
        }
    }
    let label = ArtifactLabel::new("application/octet-stream", view.name());
    match writer.finish(label).await {
        Ok(claim) => Ok(Ok(Source::Claim(claim.into()))),
        Err(error) => Ok(Err(error.into())),
    }
}

async fn markdown_of(
    view: &SandboxView,
    meta: &Meta,
    output: Option<v1::Content>,
) -> Result<String, Fault> {
    let output = output.unwrap_or_default();
    let bytes = match ContentSource::try_from(output)? {
        ContentSource::Inline(bytes) => bytes,
        ContentSource::Claim(claim) => {
            let store = &view.service.inner.system.store;
            let reader = store.read(&meta.tenant, &claim, meta.deadline).await?;
            reader.read_all(MAX_MARKDOWN_BYTES).await?
        }
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The outcome of a fault: its own message if it concerns the request, otherwise that the reader is not available.
fn outcome_of_fault(fault: &Fault) -> Conversion {
    match fault.code {
        FaultCode::Denied | FaultCode::Unsupported | FaultCode::TooLarge => {
            Conversion::Refused(fault.message.clone())
        }
        _ => {
            tracing::warn!(%fault, "the reader did not convert a file of a preview");
            Conversion::ReaderUnavailable
        }
    }
}
