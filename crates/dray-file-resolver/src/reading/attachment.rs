//! The call that reads one document: framed for a model, or as plain Markdown for people.

use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_reading::message;
use dray_reading::record::{Code, Record};
use dray_reading::request::Request as ReadingRequest;
use dray_service::Request;
use dray_types::Fault;
use tokio_util::sync::CancellationToken;

use super::ReadingContext;
use super::calls::shown_name;
use super::document::{DocumentAccess, OpenFailure, RefusedDocument};

impl ReadingContext {
    /// Handles `ReadAttachment` calls, each of which reads one document.
    pub(crate) async fn read_attachment(
        &self,
        request: Request<v1::ReadAttachmentRequest>,
    ) -> Result<v1::ReadAttachmentReply, Fault> {
        self.check_enabled()?;
        let Request { meta, body } = request;
        let source = body.source.clone().and_then(|source| source.source);
        let location = source.ok_or_else(|| InvalidMessage::field("source", "is missing"))?;
        let access = self.document_access(
            meta,
            body.credentials.clone(),
            body.external_url_fetch.clone(),
        );
        let cancel = CancellationToken::new();
        // The guard drops when the caller cancels, which ends a running conversion.
        let _ended = cancel.clone().drop_guard();
        let reader = self.reader(&access.meta.tenant);
        let mut reading_request = ReadingRequest {
            file_path: Some(body.name.clone()),
            summarize: body.summarize,
            focus: non_empty(&body.focus),
            range: non_empty(&body.range),
            find: non_empty(&body.find),
            member: non_empty(&body.member),
            show_hidden: body.show_hidden,
        };
        // 0 is absent in the contract: the policy alone bounds the text.
        let budget = match usize::try_from(body.inline_budget_bytes) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(bytes) => bytes,
        };
        let reader = reader.with_inline_budget(budget);
        let record = if let v1::document_source::Source::Path(path) = location {
            // Without a root, reading by path is refused before the path is looked at.
            self.check_workspace()?;
            reading_request.file_path = Some(path);
            if body.plain {
                Record::of_plain(reader.markdown(&reading_request, &cancel).await)
            } else {
                reader.read(&reading_request, &cancel, &|_| {}).await
            }
        } else {
            match self.open(&access, location).await {
                Ok(opened) => {
                    let display_name = shown_name(&body.name, &opened.name);
                    let file = opened.file;
                    if body.plain {
                        Record::of_plain(
                            reader
                                .markdown_file(&display_name, file, &reading_request, &cancel)
                                .await,
                        )
                    } else {
                        reader
                            .read_file(&display_name, file, &reading_request, &cancel, &|_| {})
                            .await
                    }
                }
                Err(OpenFailure::Refused(reason)) => {
                    refused_record(&shown_name(&body.name, ""), &reason)
                }
                Err(OpenFailure::Fault(fault)) => return Err(fault),
            }
        };
        self.reply_from_record(&access, record).await
    }

    /// Turns the record of a reading into the reply.
    async fn reply_from_record(
        &self,
        access: &DocumentAccess,
        record: Record,
    ) -> Result<v1::ReadAttachmentReply, Fault> {
        let DocumentAccess { meta, .. } = access;
        let output = record.output.into_bytes();
        Ok(v1::ReadAttachmentReply {
            output: Some(self.reply(meta, output, "text/markdown").await?),
            outcome: record.outcome.word().to_owned(),
            error_code: record
                .error_code
                .map(Code::word)
                .unwrap_or_default()
                .to_owned(),
            metrics: record.metrics,
            kind: record
                .kind
                .map(|kind| kind.word().to_owned())
                .unwrap_or_default(),
            mime: record.mime.unwrap_or_default(),
            path: record.path.unwrap_or_default(),
            size_bytes: record.size_bytes,
            converter: record.converter.unwrap_or_default(),
            elapsed_ms: record.elapsed_ms,
            truncated: record.truncated,
            warnings: record.warnings,
        })
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn refused_record(shown: &str, refusal: &RefusedDocument) -> Record {
    Record::refused(refusal.code, message::cannot_read(shown, &refusal.reason))
}
