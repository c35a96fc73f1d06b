//! Calls of the Web API. Slack sends refusals with status 200 and `ok: false`.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings};
use dray_platform::http::parse_base_url;
use dray_platform::{ByteStream, ErrorKind, FileHosts, PlatformError, SendOutcome, http};
use dray_types::Secret;
use serde_json::Value;

use crate::options::SlackOptions;

/// Wait after a 429 that names no delay.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A Slack app at an API. Its `Debug` shows no token.
pub(crate) struct SlackApi {
    client: HttpClient,
    base: String,
    file_hosts: FileHosts,
    token: Secret,
}

impl SlackApi {
    pub(crate) fn new(options: &SlackOptions) -> Result<Self, PlatformError> {
        let invalid_option =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        if options.token.is_empty() {
            return Err(invalid_option("the token is missing"));
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
            base: base.as_str().trim_end_matches('/').to_owned(),
            file_hosts: FileHosts::with_api(&options.file_hosts, &base),
            token: options.token.clone(),
        })
    }

    /// Calls a method with a form, which every method accepts.
    pub(crate) async fn form(
        &self,
        method: &str,
        fields: &[(&str, &str)],
    ) -> Result<Value, PlatformError> {
        let url = format!("{}/{method}", self.base);
        let request = self.client.post(&url).form(fields);
        self.call(request).await
    }

    /// Calls `auth.test`. Returns the response, and the header that lists the scopes of the token.
    pub(crate) async fn identify(&self) -> Result<(Value, Option<String>), PlatformError> {
        let request = self.client.post(&format!("{}/auth.test", self.base));
        let request = request.form(&[]).authorization("Bearer", &self.token);
        let response = request.send(&|_| {}).await?;
        let scopes = response.header("x-oauth-scopes").map(str::to_owned);
        let identity = check_response(response).await;
        let identity = identity.map_err(|error| error.with_outcome(SendOutcome::NotSent))?;
        Ok((identity, scopes))
    }

    /// Calls a method with JSON, which only some methods accept.
    pub(crate) async fn json(&self, method: &str, value: &Value) -> Result<Value, PlatformError> {
        let url = format!("{}/{method}", self.base);
        let request = self
            .client
            .post(&url)
            .header("content-type", "application/json; charset=utf-8")
            .json(value);
        self.call(request).await
    }

    /// Requests what Slack knows about a file, for a file that a user sent.
    pub(crate) async fn file_info(&self, id: &str) -> Result<Value, PlatformError> {
        let response = self.form("files.info", &[("file", id)]).await;
        let mut response = response.map_err(|error| error.with_outcome(SendOutcome::NotSent))?;
        let file = response.get_mut("file").map(Value::take);
        Ok(file.unwrap_or_default())
    }

    async fn call(&self, request: dray_http::RequestBuilder) -> Result<Value, PlatformError> {
        let request = request.authorization("Bearer", &self.token);
        let response = request.send(&|_| {}).await?;
        check_response(response).await
    }

    /// Uploads bytes to a URL that Slack returned. The token is not sent there. Returns the text of the
    /// response.
    pub(crate) async fn upload(
        &self,
        url: &str,
        media_type: &str,
        size: u64,
        body: ByteStream,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<String, PlatformError> {
        // The URL is checked although the URL came from Slack, because files must not be sent to any other host.
        self.file_hosts.check(url)?;
        let request = self
            .client
            .post(url)
            .stream(media_type, size, http::request_body(body));
        let response = request.send(progress).await?;
        let (status, wait) = (response.status(), response.retry_after());
        if status == 200 {
            return Ok(response.text().await?);
        }
        // An upload is not visible before its completion.
        Err(of_status(status, wait).with_outcome(SendOutcome::NotSent))
    }

    /// Opens a file that a user sent. The token is sent only to Slack's hosts, and redirects are not followed.
    pub(crate) async fn download(&self, url: &str) -> Result<HttpResponse, PlatformError> {
        self.file_hosts.check(url)?;
        let request = self.client.get(url).authorization("Bearer", &self.token);
        let response = request.send(&|_| {}).await?;
        let (status, wait) = (response.status(), response.retry_after());
        if status != 200 {
            return Err(of_status(status, wait).with_outcome(SendOutcome::NotSent));
        }
        // Without the scope `files:read` the response is a login page with status 200 (platform-delivery 7.4).
        if response
            .header("content-type")
            .is_some_and(|media_type| media_type.starts_with("text/html"))
            // A user's HTML file has a `Content-Disposition`; the login page has none.
            && response.header("content-disposition").is_none()
        {
            return Err(PlatformError::new(
                ErrorKind::Auth,
                "the response is a login page instead of the file",
            )
            .code("missing_scope"));
        }
        Ok(response)
    }
}

async fn check_response(response: HttpResponse) -> Result<Value, PlatformError> {
    let (status, wait) = (response.status(), response.retry_after());
    if status != 200 {
        return Err(of_status(status, wait));
    }
    let value: Value = response.json().await?;
    if value.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(value);
    }
    let code = value
        .get("error")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // The response is neither a success nor a refusal: Slack may have executed the request.
    if code.is_empty() {
        let error = PlatformError::new(ErrorKind::Unknown, "the response has neither ok nor error");
        return Err(error.ambiguous());
    }
    Err(refusal_error(code, wait))
}

fn of_status(status: u16, wait: Option<Duration>) -> PlatformError {
    let error = match status {
        429 => {
            return PlatformError::new(ErrorKind::RateLimited, "too many requests")
                .with_retry_after(wait.unwrap_or(DEFAULT_RETRY_DELAY))
                .code("ratelimited");
        }
        413 => PlatformError::new(ErrorKind::TooLarge, "request too large"),
        401 | 403 => PlatformError::new(ErrorKind::Auth, "the token is not accepted"),
        500..=599 => PlatformError::new(ErrorKind::Transient, "the server failed").ambiguous(),
        _ => PlatformError::new(ErrorKind::Unknown, "an unexpected status"),
    };
    error.code(status.to_string())
}

/// The error that a code of Slack stands for. `wait` is the header `Retry-After`.
fn refusal_error(code: &str, wait: Option<Duration>) -> PlatformError {
    let kind = match code {
        "not_in_channel"
        | "restricted_action"
        | "is_archived"
        | "cant_post_to_channel"
        | "user_is_restricted"
        | "ekm_access_denied"
        | "posting_to_general_channel_denied" => ErrorKind::Forbidden,
        "channel_not_found" | "user_not_found" | "users_not_found" | "user_disabled" => {
            ErrorKind::NotFound
        }
        "file_upload_size_restricted" | "snippet_too_large" | "file_too_large" => {
            ErrorKind::TooLarge
        }
        // The chat takes texts, so a link may arrive.
        "file_uploads_disabled"
        | "file_uploads_except_images_disabled"
        | "file_type_not_allowed" => ErrorKind::UnsupportedKind,
        "msg_too_long" | "msg_blocks_too_long" | "alt_txt_too_large" => ErrorKind::TooLong,
        "thread_not_found" | "invalid_thread_ts" => ErrorKind::NoThread,
        "file_not_found" | "file_deleted" => ErrorKind::StaleFileId,
        "invalid_auth"
        | "not_authed"
        | "account_inactive"
        | "token_revoked"
        | "token_expired"
        | "missing_scope"
        | "not_allowed_token_type" => ErrorKind::Auth,
        "ratelimited" | "rate_limited" => {
            return PlatformError::new(ErrorKind::RateLimited, code)
                .with_retry_after(wait.unwrap_or(DEFAULT_RETRY_DELAY))
                .code(code);
        }
        // Slack may fail after it executed the request (platform-delivery 7.4), so these errors are ambiguous.
        "internal_error" | "fatal_error" | "service_unavailable" | "request_timeout" => {
            return PlatformError::new(ErrorKind::Transient, code)
                .ambiguous()
                .code(code);
        }
        "missing_argument" | "invalid_arguments" | "no_text" | "invalid_blocks" => {
            ErrorKind::BadFormat
        }
        _ => ErrorKind::Unknown,
    };
    PlatformError::new(kind, code).code(code)
}

impl fmt::Debug for SlackApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackApi")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_error_codes_have_their_kinds() {
        for (code, kind, outcome) in [
            ("not_in_channel", ErrorKind::Forbidden, SendOutcome::NotSent),
            (
                "channel_not_found",
                ErrorKind::NotFound,
                SendOutcome::NotSent,
            ),
            (
                "file_upload_size_restricted",
                ErrorKind::TooLarge,
                SendOutcome::NotSent,
            ),
            (
                "file_uploads_disabled",
                ErrorKind::UnsupportedKind,
                SendOutcome::NotSent,
            ),
            ("missing_scope", ErrorKind::Auth, SendOutcome::NotSent),
            ("fatal_error", ErrorKind::Transient, SendOutcome::Ambiguous),
            (
                "internal_error",
                ErrorKind::Transient,
                SendOutcome::Ambiguous,
            ),
            ("something_new", ErrorKind::Unknown, SendOutcome::NotSent),
        ] {
            let error = refusal_error(code, None);
            assert_eq!(
                (error.kind(), error.send_outcome()),
                (kind, outcome),
                "{code}"
            );
            assert_eq!(error.platform_code(), code);
        }
        let error = refusal_error("ratelimited", Some(Duration::from_secs(5821)));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5821)));
    }

    #[test]
    fn r_9_other_hosts_are_refused() {
        let api = SlackApi::new(&SlackOptions {
            token: Secret::new("xoxb-1"),
            ..SlackOptions::default()
        })
        .unwrap();
        for (url, allowed) in [
            ("https://files.slack.com/upload/v1/abc", true),
            ("https://slack.com/x", true),
            ("http://files.slack.com/upload", false),
            ("https://files.slack.com.evil.example/", false),
            ("https://files.slack.com:8443/", false),
            ("https://evil.example/?files.slack.com", false),
            ("not an address", false),
        ] {
            assert_eq!(api.file_hosts.check(url).is_ok(), allowed, "{url}");
        }
    }
}
