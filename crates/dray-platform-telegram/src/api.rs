//! Requests to the Bot API. Their URLs contain the token, so no URL is ever shown.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpSettings, MultipartForm};
use dray_platform::http::parse_base_url;
use dray_platform::{ErrorKind, PlatformError};
use dray_types::{Period, Secret};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

use crate::options::TelegramOptions;
use crate::refusal::{ApiError, ResponseEnvelope, refusal_error};

/// Bytes of an upload for which the server gets one more second: responses to large uploads take longer.
const BYTES_PER_SECOND: u64 = 1_000_000;

/// Characters that are escaped in the path of a file. `/` is not escaped, because it separates the parts of the path.
const PATH_SET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A bot at a server. Its `Debug` shows no token.
pub(crate) struct TelegramApi {
    client: HttpClient,
    base: String,
    token: Secret,
    response: Period,
}

impl TelegramApi {
    pub(crate) fn new(options: &TelegramOptions) -> Result<Self, PlatformError> {
        let invalid_option =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        let token = options.token.expose();
        // The token becomes a part of the path: a slash or a question mark in it would address another resource.
        let is_token = token.contains(':')
            && token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b":_-".contains(&byte));
        if !is_token {
            return Err(invalid_option("the token of the bot is missing or invalid"));
        }
        let base = parse_base_url("base_url", &options.base_url)?;
        let client = HttpClient::from_settings(HttpSettings {
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            response_timeout: options.response_timeout,
            ca_file: options.ca_file.as_deref(),
        })?;
        Ok(Self {
            client,
            // `Url` ends an empty path with a slash, and the paths below begin with one.
            base: base.as_str().trim_end_matches('/').to_owned(),
            token: options.token.clone(),
            response: options.response_timeout,
        })
    }

    /// Calls a method. `size` is the number of bytes in the form, roughly; the timeout of the response grows with it.
    pub(crate) async fn call(
        &self,
        method: &str,
        form: MultipartForm,
        size: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Value, ApiError> {
        let url = format!("{}/bot{}/{method}", self.base, self.token.expose());
        let wait = self.response.as_duration() + Duration::from_secs(size / BYTES_PER_SECOND);
        let request = self.client.post(&url).response_within(wait).multipart(form);
        let response = request.send(progress).await.map_err(PlatformError::from)?;
        // Both are read before the body, which consumes the response.
        let (status, retry_after) = (response.status(), response.retry_after());
        if response.is_success() {
            let envelope: ResponseEnvelope = response.json().await.map_err(PlatformError::from)?;
            // `ok` decides, not the status: a server or proxy may send a refusal with status 200.
            if envelope.ok {
                return Ok(envelope.result);
            }
            return Err(refusal_error(status, &envelope, retry_after));
        }
        // The page of a proxy and a response that breaks off have no envelope, so the status decides.
        let text = response.text().await.unwrap_or_default();
        let envelope: ResponseEnvelope = serde_json::from_str(&text).unwrap_or_default();
        Err(refusal_error(status, &envelope, retry_after))
    }

    /// Calls a method without a visible effect in a chat. Its errors are never ambiguous.
    pub(crate) async fn ask(
        &self,
        method: &str,
        form: MultipartForm,
    ) -> Result<Value, PlatformError> {
        self.ask_for(method, form, Duration::ZERO).await
    }

    /// Like [`Self::ask`], for a method that may wait for `wait` before it responds.
    pub(crate) async fn ask_for(
        &self,
        method: &str,
        form: MultipartForm,
        wait: Duration,
    ) -> Result<Value, PlatformError> {
        // The wait is expressed as bytes, because `call` derives the timeout from a size.
        let size = wait.as_secs() * BYTES_PER_SECOND;
        let response = self.call(method, form, size, &|_| {}).await;
        response.map_err(|refused| {
            refused
                .error
                .with_outcome(dray_platform::SendOutcome::NotSent)
        })
    }

    /// Opens a file at the path that `getFile` returned.
    pub(crate) async fn file(&self, path: &str) -> Result<dray_http::HttpResponse, PlatformError> {
        // The server chose this path. With `..` it would leave `/file/bot<token>/` and reach other methods.
        let is_inside = !path.starts_with('/')
            && !path.is_empty()
            && path
                .split(['/', '\\'])
                .all(|part| !matches!(part, "" | "." | ".."));
        if !is_inside {
            return Err(PlatformError::new(
                ErrorKind::BadFormat,
                "the path of the file leads elsewhere",
            ));
        }
        let path = utf8_percent_encode(path, PATH_SET);
        let url = format!("{}/file/bot{}/{path}", self.base, self.token.expose());
        let response = self.client.get(&url).send(&|_| {}).await;
        let response = response.map_err(|error| {
            PlatformError::from(error).with_outcome(dray_platform::SendOutcome::NotSent)
        })?;
        if response.is_success() {
            return Ok(response);
        }
        let (status, retry_after) = (response.status(), response.retry_after());
        if status == 404 {
            // The token was accepted for `getFile`, so the file is missing.
            let missing_file =
                PlatformError::new(ErrorKind::StaleFileId, "the file no longer exists");
            return Err(missing_file.code("404"));
        }
        let error = refusal_error(status, &ResponseEnvelope::default(), retry_after).error;
        Err(error.with_outcome(dray_platform::SendOutcome::NotSent))
    }
}

impl fmt::Debug for TelegramApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelegramApi")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}
