//! Steps 9 to 12: from the prepared file to the record: notes, hints, inline text, summaries, excerpts.

use std::borrow::Cow;

use dray_documents::classify::{Kind, mime};
use dray_documents::formats::Member;
use dray_documents::limits::{Failure, Limit};
use dray_documents::markdown::{Part, SearchLines, Selection};
use tokio_util::sync::CancellationToken;

use super::clean::CleanConversion;
use super::prepare::{PreparedFile, describe};
use super::{Listener, Progress, Reader, UnframedMarkdown, cancelled_record, internal};
use crate::defang::defang;
use crate::find::{SearchText, find};
use crate::frame::{self, TextOrigin, header};
use crate::message::{self, Cause};
use crate::ocr;
use crate::policy::Policy;
use crate::range::Range;
use crate::record::{self, Code, Outcome, Record};
use crate::request::Request;
use crate::summary::{SummaryFailure, excerpt, summarize};
use crate::worker::WorkerOutcome;

/// The text of a document, and the remark at its end.
struct DocumentText {
    /// The Markdown, defanged. Blank only for a blank part of a text.
    markdown: String,
    /// Pages, slides, sheets, chapters, and where they begin in it.
    parts: Vec<Part>,
    /// Lines of it that only a search reads.
    search_lines: Vec<SearchLines>,
    /// Whether it is plain text without Markdown.
    is_verbatim: bool,
    /// Number of rows and lines that are counted but not in it.
    omitted: u64,
    /// The reason why the conversion ended early; `None` for a complete conversion.
    remark: Option<String>,
}

/// The outcome of a conversion: a text, or the final record.
type TextResult = Result<DocumentText, Box<Record>>;

/// The state of one result while it is built.
struct ResultBuilder<'a> {
    /// The name that the model uses; for a file of an archive, the names of the archive and of the file.
    display_path: Cow<'a, str>,
    /// The path of the file itself, even when one of its members is read.
    path: &'a str,
    /// The file of an archive that was requested.
    member: Option<&'a str>,
    mime: Cow<'static, str>,
    kind: Kind,
    policy: &'a Policy,
    record: Record,
    /// Whether a note is framed, because a model reads it.
    is_framed: bool,
}

impl Reader {
    fn begin<'a>(
        &'a self,
        display_path: &'a str,
        prepared: &PreparedFile,
        request: &'a Request,
    ) -> ResultBuilder<'a> {
        let mut record = Record::new(Outcome::Inline, None, String::new());
        describe(&mut record, display_path, &prepared.class, prepared.size);
        let member = request.member.as_deref();
        let shown_member = member.map(|member| message::member_path(display_path, member));
        if let Some(path) = &shown_member {
            record.path = Some(message::escape_path(path));
        }
        ResultBuilder {
            display_path: shown_member.map_or(Cow::Borrowed(display_path), Cow::Owned),
            path: display_path,
            member,
            mime: Cow::Borrowed(prepared.class.mime),
            kind: prepared.class.kind,
            policy: self.policy(),
            record,
            is_framed: true,
        }
    }

    /// Steps 9 to 12: converts, then frames, summarises or explains.
    pub(super) async fn answer(
        &self,
        display_path: &str,
        prepared: PreparedFile,
        request: &Request,
        range: Option<Range>,
        cancel: &CancellationToken,
        progress: Listener<'_>,
    ) -> Record {
        let mut builder = self.begin(display_path, &prepared, request);
        if prepared.blank {
            return builder.into_note(Code::Empty, message::EMPTY_FILE_NOTE);
        }
        progress(Progress::Converting);
        let is_search = request.find.is_some();
        let read = self
            .text(&mut builder, prepared, is_search, range.as_ref(), cancel)
            .await;
        let text = match read {
            Ok(text) => text,
            Err(record) => return *record,
        };
        if let Some(query) = &request.find {
            builder.record.metrics = record::converted(text.markdown.len());
            return match text.into_search_results(query).await {
                Some(results) => builder.framed(TextOrigin::Found, &results, Outcome::Inline),
                None => *builder.hint(Cause::Internal),
            };
        }
        let bytes = text.markdown.len();
        let fits = bytes <= self.policy.inline_text_budget_bytes;
        if fits && !request.summarize {
            let named = range.as_ref().map(ToString::to_string);
            let origin = named
                .as_deref()
                .map_or(TextOrigin::Converted, TextOrigin::Range);
            builder.record.metrics = record::converted(bytes);
            return builder.framed(origin, &text.whole(), Outcome::Inline);
        }
        self.shorten(builder, &text, request, fits, cancel, progress)
            .await
    }

    /// The bare Markdown, or the record with the reason for its absence.
    pub(super) async fn unframed(
        &self,
        display_path: &str,
        prepared: PreparedFile,
        request: &Request,
        range: Option<Range>,
        cancel: &CancellationToken,
    ) -> Result<UnframedMarkdown, Box<Record>> {
        let mut builder = self.begin(display_path, &prepared, request);
        builder.is_framed = false;
        if prepared.blank {
            return Err(Box::new(
                builder.into_note(Code::Empty, message::EMPTY_FILE_NOTE),
            ));
        }
        let is_search = request.find.is_some();
        let text = self
            .text(&mut builder, prepared, is_search, range.as_ref(), cancel)
            .await?;
        let text = match &request.find {
            Some(query) => text
                .into_search_results(query)
                .await
                .ok_or_else(|| builder.hint(Cause::Internal))?,
            None => text.whole(),
        };
        Ok(UnframedMarkdown {
            truncated: builder.record.truncated,
            warnings: builder.record.warnings,
            text,
        })
    }

    /// Step 10: a text, or a note or hint instead.
    async fn text(
        &self,
        builder: &mut ResultBuilder<'_>,
        prepared: PreparedFile,
        is_search: bool,
        range: Option<&Range>,
        cancel: &CancellationToken,
    ) -> TextResult {
        let selection = range.map_or(Selection::All, Range::selection);
        // Lines and bytes count in the text that readers are shown.
        let searches_rows =
            is_search && !matches!(range, Some(Range::Lines(_) | Range::Bytes { .. }));
        let again = if searches_rows {
            prepared.try_clone().ok()
        } else {
            None
        };
        let mut work = self
            .convert(prepared, selection.clone(), false, cancel)
            .await;
        let omits_rows =
            matches!(&work.worked, WorkerOutcome::Done(converted) if converted.omitted > 0);
        if let Some(prepared) = again.filter(|_| omits_rows) {
            let complete = self.convert(prepared, selection, true, cancel).await;
            let is_usable = match &complete.worked {
                WorkerOutcome::Done(converted) => !converted.markdown.is_empty(),
                WorkerOutcome::Cancelled => true,
                WorkerOutcome::Stopped(_) | WorkerOutcome::Failed => false,
            };
            if is_usable {
                work = complete;
            }
        }
        builder.record.worker = Some(work.worker);
        match work.worked {
            WorkerOutcome::Done(converted) => {
                let range = range.cloned();
                // Defanging megabytes of text would block the runtime.
                let clean = tokio::task::spawn_blocking(move || {
                    CleanConversion::of(*converted, range.as_ref())
                });
                match clean.await {
                    Ok(clean) => builder.converted(clean),
                    Err(_) => Err(builder.hint(Cause::Internal)),
                }
            }
            WorkerOutcome::Stopped(limit) => Err(builder.hint(Cause::Limit(limit))),
            WorkerOutcome::Failed => Err(builder.hint(Cause::Internal)),
            WorkerOutcome::Cancelled => Err(Box::new(builder.cancelled())),
        }
    }

    /// Step 11 for a text that is too large, or of which a summary was requested.
    async fn shorten(
        &self,
        mut builder: ResultBuilder<'_>,
        text: &DocumentText,
        request: &Request,
        fits: bool,
        cancel: &CancellationToken,
        progress: Listener<'_>,
    ) -> Record {
        let bytes = text.markdown.len();
        let summary = match &self.summarizer {
            Some(model) => {
                summarize(
                    &text.markdown,
                    request.focus.as_deref(),
                    &self.summary_limits,
                    model.as_ref(),
                    &frame::chunk,
                    cancel,
                    &|line| progress(Progress::Summarizing(line.to_owned())),
                )
                .await
            }
            None => Err(SummaryFailure::Model),
        };
        // The summary of untrusted text is untrusted text (11.3): a model can be made to write hidden
        // characters.
        match summary.map(|summary| defang(&summary)) {
            Ok(summary) if !summary.trim().is_empty() => {
                builder.record.metrics = record::summarized(bytes);
                let body = with_line(&summary, text.remark.as_deref());
                builder.framed(TextOrigin::Summary(bytes, fits), &body, Outcome::Summary)
            }
            Err(SummaryFailure::Cancelled) => builder.cancelled(),
            Err(SummaryFailure::NoRandom) => internal(&builder.display_path),
            Ok(_) | Err(SummaryFailure::Model | SummaryFailure::TooLarge) => {
                builder.record.metrics = record::converted(bytes);
                builder.record.truncated = true;
                builder.record.error_code = Some(Code::SummaryFailed);
                let part = if fits {
                    text.markdown.clone()
                } else {
                    excerpt(&text.markdown, self.policy.inline_text_budget_bytes)
                };
                let body = with_line(&part, text.remark.as_deref());
                builder.framed(TextOrigin::Excerpt(bytes, fits), &body, Outcome::Inline)
            }
        }
    }
}

impl DocumentText {
    fn whole(&self) -> String {
        with_line(&self.markdown, self.remark.as_deref())
    }

    /// The hits of a query; `None` if the search failed.
    async fn into_search_results(self, query: &str) -> Option<String> {
        let query = query.to_owned();
        // A search in megabytes of text would block the runtime.
        let search = tokio::task::spawn_blocking(move || self.search_results(&query));
        search.await.ok()
    }

    fn search_results(&self, query: &str) -> String {
        // Matches are cut out of the text, and a cut can separate a joiner from the characters that made it harmless.
        let document = SearchText {
            markdown: &self.markdown,
            parts: &self.parts,
            search_lines: &self.search_lines,
            is_verbatim: self.is_verbatim,
        };
        let hits = defang(&find(&document, query));
        let omission = (self.omitted > 0).then(|| message::not_searched(self.omitted));
        let hits = with_line(&hits, omission.as_deref());
        with_line(&hits, self.remark.as_deref())
    }
}

fn with_line(body: &str, line: Option<&str>) -> String {
    match line {
        Some(line) => format!("{}\n\n{line}\n", body.trim_end_matches('\n')),
        None => body.to_owned(),
    }
}

impl ResultBuilder<'_> {
    fn converted(&mut self, clean: CleanConversion) -> TextResult {
        let CleanConversion {
            converted,
            miss,
            is_blank,
            markdown,
            parts,
        } = clean;
        self.record.warnings.extend(converted.warnings);
        if let Some(member) = &converted.member {
            self.describe_member(member);
            let has_converter = converted.failure != Some(Failure::Unsupported);
            let is_readable = has_converter || matches!(self.kind, Kind::Document | Kind::Text);
            if !is_readable || !self.policy.allows(self.kind) {
                return Err(self.refused(
                    Code::KindNotAllowed,
                    message::kind_not_allowed(&self.display_path, self.kind, &self.mime),
                ));
            }
        }
        // Code is in a fence, which makes it a part of Markdown.
        let is_verbatim = converted.converter == "text" && !markdown.starts_with("```");
        if !converted.converter.is_empty() {
            self.record.converter = Some(converted.converter);
        }
        if matches!(converted.failure, None | Some(Failure::NoText))
            && let Some(sentence) = miss
        {
            let body = format!("_({})_", defang(&sentence));
            return Err(Box::new(self.note_record(None, &body)));
        }
        let remark = match converted.failure {
            Some(failure) if is_blank => return Err(self.failed(failure)),
            None if is_blank => return Err(self.without_text(converted.stopped)),
            Some(Failure::Corrupt(damage)) => {
                self.record.error_code = Some(Code::Corrupt);
                Some(message::damaged(damage))
            }
            Some(Failure::Stopped(limit)) => Some(message::stopped(limit)),
            Some(failure) => return Err(self.failed(failure)),
            None => converted.stopped.map(message::stopped),
        };
        self.record.truncated = remark.is_some() || converted.omitted > 0;
        Ok(DocumentText {
            markdown,
            parts,
            search_lines: converted.search_lines,
            is_verbatim,
            omitted: converted.omitted,
            remark,
        })
    }

    /// The hint, note or refusal for a conversion without any text.
    fn failed(&mut self, failure: Failure) -> Box<Record> {
        match failure {
            Failure::Stopped(limit) => self.hint(Cause::Limit(limit)),
            Failure::Encrypted => self.hint(Cause::Encrypted),
            Failure::Corrupt(damage) => self.hint(Cause::Corrupt(damage)),
            Failure::Unsupported => self.hint(Cause::Unsupported),
            Failure::Internal => self.hint(Cause::Internal),
            Failure::NoText => self.without_text(None),
            Failure::NoMember => self.refused(
                Code::MemberNotFound,
                message::member_not_found(self.path, self.member.unwrap_or_default()),
            ),
        }
    }

    /// Makes the result describe a file of the archive.
    fn describe_member(&mut self, member: &Member) {
        self.mime = Cow::Owned(member.mime.clone());
        self.kind = member.kind;
        self.record.mime = Some(member.mime.clone());
        self.record.kind = Some(member.kind);
        self.record.size_bytes = Some(member.bytes);
    }

    fn refused(&self, code: Code, output: String) -> Box<Record> {
        Box::new(Record {
            output,
            outcome: Outcome::Refuse,
            error_code: Some(code),
            ..self.record.clone()
        })
    }

    fn without_text(&mut self, stopped: Option<Limit>) -> Box<Record> {
        if let Some(limit) = stopped {
            return self.hint(Cause::Limit(limit));
        }
        let markup = [
            mime::HTML,
            mime::XHTML,
            mime::XML,
            mime::SVG,
            mime::RSS,
            mime::ATOM,
            mime::NOTEBOOK,
        ];
        let is_ocr_missing = self
            .record
            .warnings
            .iter()
            .any(|warning| warning == ocr::UNAVAILABLE_WARNING);
        // Without OCR the note has to say what to install; otherwise a person would think that the file has no content.
        Box::new(if is_ocr_missing && self.mime == mime::PDF {
            let body = format!(
                "{}\n\n_({}.)_",
                message::NO_TEXT_PDF,
                ocr::UNAVAILABLE_WARNING
            );
            self.note_record(Some(Code::NoText), &body)
        } else if self.mime == mime::PDF {
            self.note_record(Some(Code::NoText), message::NO_TEXT_PDF)
        } else if self.kind == Kind::Text && !markup.contains(&&*self.mime) {
            self.note_record(Some(Code::Empty), message::EMPTY_FILE_NOTE)
        } else {
            self.note_record(Some(Code::NoText), message::NO_TEXT)
        })
    }

    fn hint(&mut self, cause: Cause) -> Box<Record> {
        let mut record = self.record.clone();
        record.outcome = Outcome::Hint;
        record.error_code = Some(match cause {
            Cause::Encrypted => Code::Encrypted,
            Cause::Corrupt(_) => Code::Corrupt,
            Cause::Limit(_) => Code::LimitExceeded,
            Cause::Unsupported => Code::UnsupportedFormat,
            Cause::Internal => Code::Internal,
        });
        record.output = if self.member.is_some() {
            message::member_hint(&self.display_path, &self.mime, cause)
        } else {
            message::hint(&self.display_path, &self.mime, cause)
        };
        Box::new(record)
    }

    fn into_note(mut self, code: Code, body: &str) -> Record {
        self.note_record(Some(code), body)
    }

    fn note_record(&mut self, code: Option<Code>, body: &str) -> Record {
        let mut record = self.record.clone();
        record.error_code = code;
        self.finish(record, TextOrigin::Converted, body, Outcome::Note)
    }

    fn framed(self, origin: TextOrigin<'_>, body: &str, outcome: Outcome) -> Record {
        let record = self.record.clone();
        self.finish(record, origin, body, outcome)
    }

    /// Step 12: frames a body. Without random numbers the record becomes an internal error. People and programs get only
    /// the sentence of a note.
    fn finish(
        &self,
        mut record: Record,
        origin: TextOrigin<'_>,
        body: &str,
        outcome: Outcome,
    ) -> Record {
        if !self.is_framed {
            (record.output, record.outcome) = (message::note_sentence(body), outcome);
        } else if let Ok(framed) =
            frame::frame(&header(&self.display_path, &self.mime, origin), body)
        {
            (record.output, record.outcome) = (framed, outcome);
        } else {
            record.output = message::internal(&self.display_path);
            record.outcome = Outcome::Refuse;
            record.error_code = Some(Code::Internal);
        }
        record
    }

    fn cancelled(&self) -> Record {
        let mut record = self.record.clone();
        let cancellation = cancelled_record(&self.display_path);
        (record.output, record.outcome) = (cancellation.output, cancellation.outcome);
        record
    }
}
