//! The tool itself: the fixed order of read-attachment 3, from a path to a framed text.
//!
//! These functions do not fail: every outcome is a record, and unexpected failures become records, too.

mod announce;
mod answer;
mod clean;
mod log;
mod prepare;
mod work;

use std::fs::File;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dray_documents::classify::{Class, Kind};
use dray_types::whole_millis;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, ConversionFlights};
use crate::message;
use crate::ocr::{Ocr, OcrSettings};
use crate::policy::Policy;
use crate::range::Range;
use crate::record::{Code, Outcome, Record, Refusal};
use crate::request::Request;
use crate::summary::{Summarizer, SummaryLimits};
use crate::worker::Worker;
use crate::workspace::{Roots, check};
pub use announce::Vision;
use prepare::{KindGate, PrepareSteps, PreparedFile};

/// Progress that is reported to a caller while it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The file was accepted and is being converted.
    Converting,
    /// A summary is in progress; the text describes the progress.
    Summarizing(String),
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Converting => f.write_str("converting…"),
            Self::Summarizing(text) => f.write_str(text),
        }
    }
}

/// Receives the progress of one call, on the task that runs the call. A listener must not block.
pub type Listener<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A file and its classification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classified {
    /// The path as the caller wrote it.
    pub path: String,
    /// Kind, media type and encoding, by content.
    pub class: Class,
    /// Length of the file as it is stored.
    pub size_bytes: u64,
}

/// A conversion without its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnframedMarkdown {
    /// The Markdown, defanged, without a frame.
    pub text: String,
    /// Whether text is missing: a limit or damage ended it early, as its last line says, or it has only the first rows of
    /// a table, as a warning says.
    pub truncated: bool,
    /// Remarks, such as how many rows or how much hidden content was left out. These are texts of this crate, never of the file.
    pub warnings: Vec<String>,
}

/// Reads attachments. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    policy: Policy,
    roots: Arc<Roots>,
    worker: Worker,
    summarizer: Option<Arc<dyn Summarizer>>,
    summary_limits: SummaryLimits,
    cache: Option<Arc<dyn Cache>>,
    ocr: Option<Ocr>,
    flights: Arc<ConversionFlights>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("policy", &self.policy)
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}

/// Time for classifying a file in addition to the time of a conversion; after both, the call fails.
const TIME_GRACE: Duration = Duration::from_secs(2);

impl Reader {
    /// A reader without a model and without a cache.
    pub fn new(policy: Policy, roots: Roots, worker: Worker) -> Self {
        Self {
            policy,
            roots: Arc::new(roots),
            worker,
            summarizer: None,
            summary_limits: SummaryLimits::default(),
            cache: None,
            ocr: None,
            flights: Arc::default(),
        }
    }

    /// Summarises texts that are too large with this model.
    #[must_use]
    pub fn with_summarizer(mut self, summarizer: Arc<dyn Summarizer>) -> Self {
        self.summarizer = Some(summarizer);
        self
    }

    /// Bounds of a summary.
    #[must_use]
    pub fn with_summary_limits(mut self, limits: SummaryLimits) -> Self {
        self.summary_limits = limits;
        self
    }

    /// Stores conversions in this cache, and runs equal conversions only once concurrently.
    #[must_use]
    pub fn with_cache(mut self, cache: Arc<dyn Cache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Recognises the text of pictures, if the program for it is installed; by default pictures are not read.
    #[must_use]
    pub fn with_ocr(mut self, settings: OcrSettings) -> Self {
        self.ocr = Some(Ocr::new(settings));
        self
    }

    /// Limits how many bytes of text one caller gets without a summary; the policy's limit also applies.
    #[must_use]
    pub fn with_inline_budget(mut self, bytes: usize) -> Self {
        let budget = &mut self.policy.inline_text_budget_bytes;
        *budget = bytes.min(*budget);
        self
    }

    /// The limits on kinds and sizes.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The roots inside which files may be read.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Reads a file of the workspace. Never fails and never panics; the record says its outcome.
    pub async fn read(
        &self,
        request: &Request,
        cancel: &CancellationToken,
        progress: Listener<'_>,
    ) -> Record {
        let display_path = request.file_path.as_deref().unwrap_or_default();
        let work = async {
            match self.prepare_path(request, KindGate::Read, cancel).await {
                Ok((prepared, range)) => {
                    self.answer(display_path, prepared, request, range, cancel, progress)
                        .await
                }
                Err(record) => *record,
            }
        };
        self.guarded(display_path, work).await
    }

    /// Reads a file from outside the workspace: steps 6 to 12. `display_path` is the name that the model uses, `file` a
    /// regular file without other writers.
    pub async fn read_file(
        &self,
        display_path: &str,
        file: File,
        request: &Request,
        cancel: &CancellationToken,
        progress: Listener<'_>,
    ) -> Record {
        let work = async {
            match self.prepare_file(display_path, file, request, cancel).await {
                Ok((prepared, range)) => {
                    self.answer(display_path, prepared, request, range, cancel, progress)
                        .await
                }
                Err(record) => *record,
            }
        };
        self.guarded(display_path, work).await
    }

    /// The bare conversion of a file of the workspace: Markdown without a frame, for people and programs. A caller
    /// that shows parts of it to a model frames each part. Range and search apply; no summary and no budget apply, and kinds that the tool refuses are converted if
    /// a converter exists.
    ///
    /// # Errors
    ///
    /// The record that [`Reader::read`] would have given, without a text and without a frame.
    pub async fn markdown(
        &self,
        request: &Request,
        cancel: &CancellationToken,
    ) -> Result<UnframedMarkdown, Box<Record>> {
        let display_path = request.file_path.as_deref().unwrap_or_default();
        let (prepared, range) = self
            .prepare_path(request, KindGate::Convert, cancel)
            .await?;
        self.unframed(display_path, prepared, request, range, cancel)
            .await
    }

    /// The bare conversion of a file from outside the workspace; see [`Reader::read_file`].
    ///
    /// # Errors
    ///
    /// Those of [`Reader::markdown`].
    pub async fn markdown_file(
        &self,
        display_path: &str,
        file: File,
        request: &Request,
        cancel: &CancellationToken,
    ) -> Result<UnframedMarkdown, Box<Record>> {
        let (prepared, range) = self
            .prepare_file(display_path, file, request, cancel)
            .await?;
        self.unframed(display_path, prepared, request, range, cancel)
            .await
    }

    /// Classifies a file of the workspace: steps 1 to 7. Blocks the thread while it reads.
    ///
    /// # Errors
    ///
    /// The refusal of the step that fails.
    pub fn classify(&self, path: &str) -> Result<Classified, Refusal> {
        let opened = self.roots.open(Some(path))?;
        self.classify_file(path, opened.file, opened.size)
    }

    /// Classifies an open file of `size` bytes, as [`Self::classify`] does. The name is for messages and has the
    /// extension.
    ///
    /// # Errors
    ///
    /// The refusal of the step that fails.
    pub fn classify_file(
        &self,
        name: &str,
        file: std::fs::File,
        size: u64,
    ) -> Result<Classified, Refusal> {
        // Kinds that the policy refuses to read are classified, too.
        let policy = Policy {
            allow_kinds: Kind::ALL.to_vec(),
            ..self.policy.clone()
        };
        let steps = self.prepare_steps(policy, KindGate::Any, &CancellationToken::new());
        let prepared = steps.prepare(name, file, size).map_err(|record| Refusal {
            code: record.error_code.unwrap_or(Code::Internal),
            output: record.output,
        })?;
        Ok(Classified {
            path: name.to_owned(),
            class: prepared.class,
            size_bytes: prepared.size,
        })
    }

    fn prepare_steps(
        &self,
        policy: Policy,
        gate: KindGate,
        cancel: &CancellationToken,
    ) -> PrepareSteps {
        PrepareSteps {
            policy,
            gate,
            digest: gate != KindGate::Any && self.cache.is_some(),
            show_hidden: false,
            member: None,
            ocr: self.ocr.clone(),
            cancel: cancel.clone(),
        }
    }

    /// Steps 1 to 9 for a path, on a thread that may block.
    async fn prepare_path(
        &self,
        request: &Request,
        gate: KindGate,
        cancel: &CancellationToken,
    ) -> Result<(PreparedFile, Option<Range>), Box<Record>> {
        let display_path = check(request.file_path.as_deref()).map_err(refused_record)?;
        let range = parse_range(request)?;
        let mut steps = self.prepare_steps(self.policy.clone(), gate, cancel);
        steps.show_hidden = request.show_hidden;
        steps.member.clone_from(&request.member);
        let roots = Arc::clone(&self.roots);
        let path = display_path.to_owned();
        let work = move || {
            let opened = roots.open(Some(&path)).map_err(refused_record)?;
            steps.prepare(&path, opened.file, opened.size)
        };
        Ok((self.blocking(display_path, cancel, work).await?, range))
    }

    /// Steps 6 to 9 for an open file.
    async fn prepare_file(
        &self,
        display_path: &str,
        file: File,
        request: &Request,
        cancel: &CancellationToken,
    ) -> Result<(PreparedFile, Option<Range>), Box<Record>> {
        let range = parse_range(request)?;
        let mut steps = self.prepare_steps(self.policy.clone(), KindGate::Read, cancel);
        steps.show_hidden = request.show_hidden;
        steps.member.clone_from(&request.member);
        let path = display_path.to_owned();
        let work = move || {
            let size = match file.metadata() {
                Ok(metadata) => metadata.len(),
                Err(error) => return Err(prepare::unreadable(&path, &error)),
            };
            steps.prepare(&path, file, size)
        };
        Ok((self.blocking(display_path, cancel, work).await?, range))
    }

    /// Runs blocking work until it completes, is cancelled, or exceeds the time of a conversion.
    async fn blocking(
        &self,
        display_path: &str,
        cancel: &CancellationToken,
        work: impl FnOnce() -> Result<PreparedFile, Box<Record>> + Send + 'static,
    ) -> Result<PreparedFile, Box<Record>> {
        if cancel.is_cancelled() {
            return Err(Box::new(cancelled_record(display_path)));
        }
        let wait = Duration::from_millis(self.policy.limits().wall_ms) + TIME_GRACE;
        // A blocking thread cannot be cancelled. After a timeout it ends by itself, and its result is dropped.
        let work = tokio::task::spawn_blocking(work);
        tokio::select! {
            done = tokio::time::timeout(wait, work) => match done {
                Ok(Ok(prepared)) => prepared,
                Ok(Err(_)) => Err(Box::new(internal(display_path))),
                Err(_) => {
                    let timeout = std::io::Error::from_raw_os_error(rustix::io::Errno::TIMEDOUT.raw_os_error());
                    Err(prepare::unreadable(display_path, &timeout))
                }
            },
            () = cancel.cancelled() => Err(Box::new(cancelled_record(display_path))),
        }
    }

    /// Turns even a panic into a record, and writes the log.
    async fn guarded(&self, display_path: &str, work: impl Future<Output = Record>) -> Record {
        let started = Instant::now();
        // Shared state is behind locks that ignore poison, so it stays usable after a panic.
        let done = AssertUnwindSafe(work).catch_unwind().await;
        let mut record = done.unwrap_or_else(|_| internal(display_path));
        record.elapsed_ms = whole_millis(started.elapsed());
        // Callers are promised a text without NUL, which C programs would take for its end.
        if record.output.contains('\0') {
            record.output = record.output.replace('\0', "");
        }
        log::record(display_path, &record);
        record
    }
}

fn refused_record(refusal: Refusal) -> Box<Record> {
    Box::new(refusal.into())
}

/// The record of an unexpected failure; it names no cause.
fn internal(display_path: &str) -> Record {
    Record::new(
        Outcome::Refuse,
        Some(Code::Internal),
        message::internal(display_path),
    )
}

fn cancelled_record(display_path: &str) -> Record {
    Record::cancelled(display_path)
}

/// Parses the range of a request. An invalid range is refused before the file is accessed.
fn parse_range(request: &Request) -> Result<Option<Range>, Box<Record>> {
    let parsed = request.range.as_deref().map(Range::parse).transpose();
    parsed.map_err(|error| {
        let output = format!("Error: {error}");
        Box::new(Record::new(
            Outcome::Refuse,
            Some(Code::RangeInvalid),
            output,
        ))
    })
}
