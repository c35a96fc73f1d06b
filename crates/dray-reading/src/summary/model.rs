//! The models that summarise: any OpenAI-compatible endpoint, or a stub without a model.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use dray_types::Secret;
use serde::Deserialize;

/// The messages of one call of a model.
#[derive(Clone, Copy, Debug)]
pub struct SummaryPrompt<'a> {
    /// The instructions, which are a text of this crate.
    pub system: &'a str,
    /// The text in its frame, sent as the message of the user.
    pub user: &'a str,
    /// The text itself, without its frame.
    pub source: &'a str,
}

/// A call that failed. For the log; the agent gets an excerpt instead.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// The endpoint could not be reached.
    #[error("the model cannot be reached")]
    Unreachable(#[source] dray_http::HttpError),
    /// The endpoint responded with this error status.
    #[error("the model responded with status {0}")]
    Refused(u16),
    /// The response is not a completion.
    #[error("the model's response is not a chat completion")]
    Malformed,
}

/// A model that summarises.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// Returns the model's response. The model gets no tools.
    async fn complete(&self, prompt: &SummaryPrompt<'_>) -> Result<String, SummaryError>;

    /// Bytes of text that one call can take.
    fn window_bytes(&self) -> usize;
}

/// The address of a model, and the limits of a call.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Base of the API, such as `https://api.example/v1`; `/chat/completions` is appended.
    pub url: String,
    /// Name of the model.
    pub model: String,
    /// Bearer token, when one is needed.
    pub key: Option<Secret>,
    /// Longest wait for one response.
    pub timeout: Duration,
    /// Most tokens of one response.
    pub max_tokens: u32,
    /// Bytes of text that one call can take; about three for each token of the model's window.
    pub window_bytes: usize,
    /// More certificate authorities, PEM.
    pub authorities: Option<PathBuf>,
}

impl Endpoint {
    /// An endpoint with the defaults: 300 s, 2048 tokens, 96,000 bytes.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            key: None,
            timeout: Duration::from_mins(5),
            max_tokens: 2048,
            window_bytes: 96_000,
            authorities: None,
        }
    }
}

/// A model behind an OpenAI-compatible chat completions API.
#[derive(Debug)]
pub struct OpenAi {
    endpoint: Endpoint,
    client: dray_http::HttpClient,
}

/// Largest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

impl OpenAi {
    /// A client for the endpoint.
    ///
    /// # Errors
    ///
    /// The file of certificate authorities cannot be read or has no certificate.
    pub fn new(endpoint: Endpoint) -> Result<Self, dray_http::HttpError> {
        let limits = dray_http::HttpTimeouts {
            response: endpoint.timeout,
            ..dray_http::HttpTimeouts::default()
        };
        let client = dray_http::HttpClient::new(limits, endpoint.authorities.as_deref())?;
        Ok(Self { endpoint, client })
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

#[async_trait]
impl Summarizer for OpenAi {
    async fn complete(&self, prompt: &SummaryPrompt<'_>) -> Result<String, SummaryError> {
        let url = format!(
            "{}/chat/completions",
            self.endpoint.url.trim_end_matches('/')
        );
        let mut request = self.client.post(&url).json(&serde_json::json!({
            "model": self.endpoint.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "max_tokens": self.endpoint.max_tokens,
            "stream": false,
        }));
        if let Some(key) = &self.endpoint.key {
            request = request.authorization("Bearer", key);
        }
        let response = request
            .send(&|_| {})
            .await
            .map_err(SummaryError::Unreachable)?;
        // The body of an error may repeat the request, whose content must not be logged (15).
        if !response.is_success() {
            return Err(SummaryError::Refused(response.status()));
        }
        let bytes = response
            .bytes(MAX_RESPONSE_BYTES)
            .await
            .map_err(SummaryError::Unreachable)?;
        let completion: Completion =
            serde_json::from_slice(&bytes).map_err(|_| SummaryError::Malformed)?;
        completion
            .choices
            .into_iter()
            .next()
            .and_then(|choice| choice.message.content)
            .ok_or(SummaryError::Malformed)
    }

    fn window_bytes(&self) -> usize {
        self.endpoint.window_bytes
    }
}

/// A summariser without a model: it returns the size and the first line of its input. Deterministic, for demos and
/// tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stub;

#[async_trait]
impl Summarizer for Stub {
    async fn complete(&self, prompt: &SummaryPrompt<'_>) -> Result<String, SummaryError> {
        let first = prompt
            .source
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty());
        let first: String = first.unwrap_or_default().chars().take(100).collect();
        Ok(format!(
            "[stub summary of {} bytes, {} lines] {first}",
            prompt.source.len(),
            prompt.source.lines().count()
        ))
    }

    /// Enough for the largest text that is summarised within the allowed calls.
    fn window_bytes(&self) -> usize {
        512_000
    }
}
