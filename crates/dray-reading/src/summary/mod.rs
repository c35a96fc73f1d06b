//! Documents that are too large to return completely: a map-reduce summary by a model, or an excerpt (read-attachment
//! 12).
//!
//! The text is sent to the model in chunks, each framed as untrusted data. The model gets no tools, and its response is
//! untrusted data, too. The number of calls, the size of the text and the depth are limited.

mod chunk;
mod excerpt;
mod model;
mod prompt;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use chunk::chunks;
pub use excerpt::excerpt;
pub use model::{Endpoint, OpenAi, Stub, Summarizer, SummaryError, SummaryPrompt};

/// Bounds of one summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummaryLimits {
    /// Largest Markdown that is summarised, in bytes; for a larger one there is an excerpt and no model call.
    pub max_bytes: usize,
    /// Model calls for one document.
    pub max_calls: usize,
    /// Model calls of one document that run concurrently; 0 counts as 1.
    pub parallel: usize,
    /// About how many words the merged summary has; clamped to 50…4000.
    pub max_words: usize,
}

impl Default for SummaryLimits {
    fn default() -> Self {
        Self {
            max_bytes: 8_000_000,
            max_calls: 64,
            parallel: 4,
            max_words: 500,
        }
    }
}

/// The reason why the summary is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryFailure {
    /// The caller cancelled the summary.
    #[error("cancelled")]
    Cancelled,
    /// The text is larger than [`SummaryLimits::max_bytes`], or than the allowed calls can process.
    #[error("too large to summarise")]
    TooLarge,
    /// A call failed twice.
    #[error("the model did not answer")]
    Model,
    /// The operating system has no random numbers for a frame.
    #[error("no random source")]
    NoRandom,
}

/// Frames untrusted text with a fresh nonce; `None` without a random source.
pub type Framer<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

/// Joined summaries up to this size are merged in one call, in bytes.
const MAX_MERGE_BYTES: usize = 24_000;
/// How often summaries of summaries are made before the final call.
const MAX_DEPTH: usize = 4;
/// Number of summaries per group if there are too many to merge.
const GROUP_SIZE: usize = 5;
/// Smallest chunk that is closed at a line end, in bytes.
const MIN_CHUNK_BYTES: usize = 24_000;

/// Summarises Markdown.
///
/// `progress` is called with `summarizing chunk {i}/{n}…` before each call of the first round.
///
/// # Errors
///
/// [`SummaryFailure`]; the caller then shows an [`excerpt()`].
pub async fn summarize(
    markdown: &str,
    focus: Option<&str>,
    limits: &SummaryLimits,
    model: &dyn Summarizer,
    framer: &Framer<'_>,
    cancel: &CancellationToken,
    progress: &(dyn Fn(&str) + Send + Sync),
) -> Result<String, SummaryFailure> {
    if markdown.len() > limits.max_bytes {
        return Err(SummaryFailure::TooLarge);
    }
    let chunks =
        fitting_chunks(markdown, limits, model.window_bytes()).ok_or(SummaryFailure::TooLarge)?;
    let run = SummaryRun {
        focus: focus.unwrap_or(prompt::DEFAULT_FOCUS),
        limits,
        model,
        framer,
        cancel,
        calls: AtomicUsize::new(0),
    };
    let count = chunks.len();
    let announce = |index: usize| progress(&format!("summarizing chunk {}/{count}…", index + 1));
    let mut summaries = run.map(&chunks, &announce).await?;
    let mut depth = 0;
    while summaries.len() > 1 {
        let joined = summaries.join("\n\n");
        // At the deepest level summaries of any size go into one call: the number of calls is bounded before
        // their length.
        if joined.len() <= MAX_MERGE_BYTES || depth == MAX_DEPTH {
            return run.merge(&joined).await;
        }
        let groups: Vec<String> = summaries
            .chunks(GROUP_SIZE)
            .map(|group| group.join("\n\n"))
            .collect();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        summaries = run.map(&groups, &|_| {}).await?;
        depth += 1;
    }
    Ok(summaries.pop().unwrap_or_default())
}

/// Chunks for which all calls together stay within the limit. They are larger if there would be too many, up to the
/// model's window.
fn fitting_chunks<'a>(
    markdown: &'a str,
    limits: &SummaryLimits,
    window: usize,
) -> Option<Vec<&'a str>> {
    let mut size = MIN_CHUNK_BYTES;
    loop {
        let chunks = chunks(markdown, size);
        if max_calls_for(chunks.len()) <= limits.max_calls {
            return Some(chunks);
        }
        if size >= window {
            return None;
        }
        size = (size + size / 4).min(window);
    }
}

/// Most calls that this number of chunks needs, merges included.
fn max_calls_for(chunks: usize) -> usize {
    let mut all = chunks;
    let mut level = chunks;
    while level > 1 {
        level = level.div_ceil(GROUP_SIZE);
        all += level;
    }
    all
}

/// Whether a response is the error message of the model or of a gateway, which is never shown as a summary
/// (read-attachment 12.4).
fn is_error(response: &str) -> bool {
    const ERROR_PREFIXES: [&str; 4] = ["error:", "error code:", "[error]", "exception:"];
    let begins = |beginning: &&str| {
        let head = response.get(..beginning.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(beginning))
    };
    if ERROR_PREFIXES.iter().any(begins) {
        return true;
    }
    let object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(response);
    object.is_ok_and(|object| object.contains_key("error"))
}

/// State that all calls for one document share.
struct SummaryRun<'a> {
    focus: &'a str,
    limits: &'a SummaryLimits,
    model: &'a dyn Summarizer,
    framer: &'a Framer<'a>,
    cancel: &'a CancellationToken,
    calls: AtomicUsize,
}

impl SummaryRun<'_> {
    /// One summary for each chunk, in order.
    async fn map(
        &self,
        chunks: &[&str],
        announce: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<Vec<String>, SummaryFailure> {
        let of = chunks.len();
        let jobs: Vec<_> = chunks
            .iter()
            .enumerate()
            .map(|(index, chunk)| async move {
                // The cancellation is checked before each call, including queued ones (12.3), because a call costs
                // money once it is sent.
                if self.cancel.is_cancelled() {
                    return Err(SummaryFailure::Cancelled);
                }
                announce(index);
                self.ask(prompt::map(self.focus, index + 1, of), chunk)
                    .await
            })
            .collect();
        // `buffered` keeps the order of the chunks, which the merge relies on; the first error drops the other
        // calls.
        stream::iter(jobs)
            .buffered(self.limits.parallel.max(1))
            .try_collect()
            .await
    }

    async fn merge(&self, joined: &str) -> Result<String, SummaryFailure> {
        let max_words = self.limits.max_words.clamp(50, 4000);
        self.ask(prompt::merge(self.focus, max_words), joined).await
    }

    /// Calls the model, and once more if the call fails.
    async fn ask(&self, system: String, source: &str) -> Result<String, SummaryFailure> {
        for _ in 0..2 {
            if self.cancel.is_cancelled() {
                return Err(SummaryFailure::Cancelled);
            }
            // Every planned call may be repeated once. The counter publishes no data, so relaxed ordering is
            // enough.
            if self.calls.fetch_add(1, Ordering::Relaxed) >= self.limits.max_calls.saturating_mul(2)
            {
                return Err(SummaryFailure::TooLarge);
            }
            let user = (self.framer)(source).ok_or(SummaryFailure::NoRandom)?;
            let request = SummaryPrompt {
                system: &system,
                user: &user,
                source,
            };
            // The dropped future closes its connection, so the endpoint can stop as well.
            let response = tokio::select! {
                response = self.model.complete(&request) => response,
                () = self.cancel.cancelled() => return Err(SummaryFailure::Cancelled),
            };
            match response {
                Ok(text) if is_error(text.trim()) => {
                    tracing::warn!("the summary model answered with an error message");
                }
                Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
                Ok(_) => tracing::warn!("the summary model returned an empty response"),
                Err(error) => tracing::warn!(error = %error, "the summary model failed"),
            }
        }
        Err(SummaryFailure::Model)
    }
}
