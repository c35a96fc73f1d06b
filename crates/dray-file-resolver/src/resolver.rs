//! Resolves the arguments of one tool call: reads them, finds references, loads files, writes the result (quickapps
//! 30, 31).
//!
//! Arguments are processed one after another, and the first failure ends the call. Memory per call is bounded and
//! does not grow with the files: the arguments themselves (`max_arguments`), the inline limit, one chunk of a file,
//! and 8 MiB in a store writer.

mod fill;
pub(crate) mod plan;

use bytes::Bytes;
use prost::Message as _;

use dray_bus::{Bus, Meta};
use dray_dial::DialClient;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::{ArtifactLabel, Store};
use dray_types::{ByteSize, Clock, Deadline, Period};

use crate::arguments::{self, ReferenceScope};
use crate::dial::CallerCredentials;
use crate::downloads::{DownloadIndex, DownloadScope};
use crate::error::ResolveError;
use crate::external::ExternalFetch;
use crate::loader::{FileLoader, LoadError, LoadScope};
use crate::metrics::ResolverMetrics;
use crate::output::{ArgumentsOutput, MEDIA_TYPE};
use crate::reply;

use plan::PlannedSlot;

/// The operator's limits on tool calls.
#[derive(Clone, Copy, Debug)]
pub struct ResolveLimits {
    /// Most bytes of one file when the app sets no limit.
    pub default_file: ByteSize,
    /// Most bytes of one file, an upper bound for apps.
    pub max_file: ByteSize,
    /// Most bytes of the arguments before they are resolved.
    pub max_arguments: ByteSize,
    /// Most references in one tool call.
    pub max_references: usize,
    /// Time for one tool call when the app sets none.
    pub tool_timeout: Period,
}

/// Sizes that the reply has to fit.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// Most bytes of arguments inside the message; larger ones go to the store.
    pub inline: usize,
    /// Most bytes of the encoded reply.
    pub message: usize,
}

/// One tool call to resolve.
#[derive(Clone, Debug)]
pub struct ResolveJob {
    /// Envelope of the call or of the work.
    pub meta: Meta,
    /// Number of the attempt, part of staging keys; 0 for calls.
    pub epoch: u64,
    /// Time by which the reply must be sent.
    pub work_until: Deadline,
    /// Name of the tool, for the log; empty when unknown.
    pub tool: String,
    /// The arguments as sent.
    pub arguments: Option<v1::Content>,
    /// Limits and switches of the app.
    pub options: v1::ResolveOptions,
    /// Credentials for requests to DIAL.
    pub credentials: CallerCredentials,
    /// Sizes that the reply has to fit.
    pub reply_limits: ReplyLimits,
}

/// The outcome of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ResolveOutcome {
    /// Every reference was replaced.
    Resolved(v1::ResolvedArguments),
    /// One argument cannot be used; the model can correct it.
    Invalid(v1::InvalidParameter),
}

/// Resolves tool calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ToolCallResolver {
    /// Bus for calls to the egress-fetcher.
    pub bus: Bus,
    /// Store for results that do not fit a message.
    pub store: Store,
    /// Clock of the deadlines.
    pub clock: Clock,
    /// Client of DIAL Core, when one is configured.
    pub dial: Option<DialClient>,
    /// The operator's limits on tool calls.
    pub limits: ResolveLimits,
    /// Files that other calls of the same requests loaded.
    pub downloads: DownloadIndex,
    /// Counters of references and results.
    pub metrics: ResolverMetrics,
}

impl ToolCallResolver {
    /// Resolves one tool call within its deadline and its own time.
    pub async fn resolve(&self, job: ResolveJob) -> Result<ResolveOutcome, ResolveError> {
        let now = self.clock.now_ms();
        let tool_timeout = match job.options.tool_timeout_ms {
            0 => self.limits.tool_timeout,
            millis => Period::millis(millis),
        };
        let deadline = Deadline::after(now, tool_timeout.as_duration()).min(job.work_until);
        let running = Box::pin(self.run(&job, deadline, tool_timeout));
        match tokio::time::timeout(deadline.remaining(now), running).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ResolveError::TimedOut),
        }
    }

    async fn run(
        &self,
        job: &ResolveJob,
        deadline: Deadline,
        tool_timeout: Period,
    ) -> Result<ResolveOutcome, ResolveError> {
        let content = job
            .arguments
            .clone()
            .ok_or(dray_proto::convert::InvalidMessage::Missing("arguments"))
            .and_then(ContentSource::try_from)
            .map_err(ResolveError::Request)?;
        let text = self.read_arguments(job, &content, deadline).await?;
        let scope = if job.options.nested {
            ReferenceScope::Nested
        } else {
            ReferenceScope::TopLevel
        };
        let slots = arguments::find_slots(&text, scope).map_err(ResolveError::Arguments)?;
        let limit = self.limits.max_references;
        if slots.len() > limit {
            let count = slots.len();
            return Err(ResolveError::TooManyReferences { count, limit });
        }
        // The arguments are returned unchanged, without a copy through the output.
        if slots.is_empty() {
            return self
                .fit_reply(
                    job,
                    v1::ResolvedArguments {
                        arguments: Some(content.into()),
                        ..v1::ResolvedArguments::default()
                    },
                )
                .await;
        }
        let planned = plan::plan_slots(slots, self.dial.as_ref().map(DialClient::origin));
        let loader = self.loader(job, deadline, tool_timeout);
        self.write_arguments(job, deadline, &text, &planned, &loader)
            .await
    }

    /// Reads the text of the arguments, up to the operator's limit.
    async fn read_arguments(
        &self,
        job: &ResolveJob,
        content: &ContentSource,
        deadline: Deadline,
    ) -> Result<Bytes, ResolveError> {
        let limit = self.limits.max_arguments;
        let size = match content {
            ContentSource::Inline(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            ContentSource::Claim(claim) => claim.artifact.size,
        };
        if size > limit.as_u64() {
            return Err(ResolveError::ArgumentsTooLarge { size, limit });
        }
        match content {
            ContentSource::Inline(bytes) => Ok(bytes.clone()),
            ContentSource::Claim(claim) => {
                let reader = self.store.read(&job.meta.tenant, claim, deadline).await;
                let text = reader
                    .map_err(ResolveError::StoredArguments)?
                    .read_all(limit)
                    .await;
                text.map_err(ResolveError::StoredArguments)
            }
        }
    }

    fn loader(&self, job: &ResolveJob, deadline: Deadline, tool_timeout: Period) -> FileLoader {
        let limit = match job.options.size_limit_bytes {
            0 => self.limits.default_file,
            bytes => ByteSize::bytes(bytes),
        }
        // An app may lower the operator's ceiling, not raise it.
        .min(self.limits.max_file);
        let scope = LoadScope {
            tenant: job.meta.tenant.clone(),
            operation: job.meta.operation.clone(),
            epoch: job.epoch,
            deadline,
            limit,
            credentials: job.credentials.clone(),
            fetch: ExternalFetch {
                // The fetch ends with the tool call, even if the caller would wait longer.
                meta: job.meta.clone().with_deadline(deadline),
                app_policy: job.options.external_url_fetch.clone(),
                limit,
                tool_timeout_ms: tool_timeout.as_millis(),
            },
        };
        let loader = FileLoader::new(
            self.bus.clone(),
            self.store.clone(),
            self.dial.clone(),
            scope,
        );
        match job.options.request.as_str() {
            "" => loader,
            request => {
                let sharing_scope = DownloadScope::Request(request.to_owned());
                loader.sharing(&self.downloads, sharing_scope)
            }
        }
    }

    /// Copies the text and fills every slot. The first failure discards the written output.
    async fn write_arguments(
        &self,
        job: &ResolveJob,
        deadline: Deadline,
        text: &Bytes,
        planned: &[PlannedSlot],
        loader: &FileLoader,
    ) -> Result<ResolveOutcome, ResolveError> {
        let Meta {
            tenant, operation, ..
        } = &job.meta;
        let inline = job.reply_limits.inline;
        let mut output =
            ArgumentsOutput::new(&self.store, tenant, operation, job.epoch, deadline, inline);
        let mut files = Vec::with_capacity(planned.len());
        let mut copied = 0;
        for slot in planned {
            let before = text.slice(copied..slot.range.start);
            copied = slot.range.end;
            output.write(before).await.map_err(ResolveError::Store)?;
            let filled = fill::fill_slot(&mut output, loader, slot).await;
            self.metrics.reference(slot, filled.as_ref());
            match filled {
                Ok(file) => {
                    log_file(&file);
                    files.push(file);
                }
                Err(LoadError::Correctable(fault)) => {
                    let tool = reply::shown_name(&job.tool);
                    tracing::info!(tool, detail = fault.detail, "argument cannot be used");
                    // Waits until the output is removed; dropping it would remove it only in the background.
                    output.abort().await;
                    return Ok(ResolveOutcome::Invalid(invalid_parameter(slot, fault)));
                }
                Err(LoadError::Failed(error)) => {
                    output.abort().await;
                    return Err(error);
                }
            }
        }
        output
            .write(text.slice(copied..))
            .await
            .map_err(ResolveError::Store)?;
        let arguments = output.finish().await.map_err(ResolveError::Store)?;
        self.fit_reply(
            job,
            v1::ResolvedArguments {
                arguments: Some(arguments.into()),
                files,
                url: None,
            },
        )
        .await
    }

    /// Ensures that the reply fits its message: if it does not, inline arguments are moved to the store.
    async fn fit_reply(
        &self,
        job: &ResolveJob,
        mut resolved: v1::ResolvedArguments,
    ) -> Result<ResolveOutcome, ResolveError> {
        let inline = match &resolved.arguments {
            Some(v1::Content {
                body: Some(v1::content::Body::Inline(bytes)),
            }) => Some(bytes.clone()),
            _ => None,
        };
        let is_too_large = resolved.encoded_len() > job.reply_limits.message;
        if let Some(bytes) = inline
            && (is_too_large || bytes.len() > job.reply_limits.inline)
        {
            let Meta {
                tenant, operation, ..
            } = &job.meta;
            let label = ArtifactLabel::new(MEDIA_TYPE, "");
            let claim = self.store.put(tenant, operation, bytes, label).await;
            resolved.arguments =
                Some(ContentSource::Claim(claim.map_err(ResolveError::Store)?).into());
        }
        // No other part can be moved to the store: the list of files alone is too long.
        if resolved.encoded_len() > job.reply_limits.message {
            return Err(ResolveError::AnswerTooLarge);
        }
        self.metrics.resolved(&resolved);
        tracing::info!(
            tool = reply::shown_name(&job.tool),
            references = resolved.files.len(),
            bytes = resolved.files.iter().map(|file| file.size).sum::<u64>(),
            "tool call resolved"
        );
        Ok(ResolveOutcome::Resolved(resolved))
    }
}

/// Logs reference, type and size, never the bytes (R8).
fn log_file(file: &v1::ResolvedFile) {
    tracing::debug!(
        form = file.form,
        reference = file.reference,
        size = file.size,
        media_type = file.media_type,
        "reference resolved"
    );
}

fn invalid_parameter(slot: &PlannedSlot, fault: dray_types::Fault) -> v1::InvalidParameter {
    v1::InvalidParameter {
        parameter: slot.parameter.clone(),
        pointer: slot.pointer.clone(),
        tool_message: reply::invalid_parameter(&slot.parameter, &fault.message),
        fault: Some(fault.into()),
    }
}
