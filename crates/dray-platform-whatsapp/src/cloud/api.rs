//! Requests to the Graph API, and the meaning of its error codes.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings, RequestBuilder};
use dray_platform::http::parse_base_url;
use dray_platform::{ErrorKind, FileHosts, PlatformError, SendOutcome};
use dray_types::Secret;
use serde::Deserialize;
use serde_json::Value;

use super::CloudOptions;

/// A phone number at an API. Its `Debug` shows no token.
pub(super) struct CloudApi {
    client: HttpClient,
    base: String,
    number: String,
    file_hosts: FileHosts,
    token: Secret,
}

/// The body of a refusal; all fields are empty when the body has another shape.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    error: ErrorDetails,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorDetails {
    code: i64,
    message: String,
}

impl CloudApi {
    pub(super) fn new(options: &CloudOptions) -> Result<Self, PlatformError> {
        let invalid_option =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        if options.token.is_empty() {
            return Err(invalid_option("the token is missing"));
        }
        let number = &options.phone_number_id;
        // The number becomes a part of the path of every request.
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid_option("phone_number_id is not a number"));
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
            number: number.clone(),
            file_hosts: FileHosts::with_api(&options.file_hosts, &base),
            token: options.token.clone(),
        })
    }

    /// Posts to an edge of the phone number: `media` or `messages`.
    pub(super) async fn post(
        &self,
        edge: &str,
        fill: impl FnOnce(RequestBuilder) -> RequestBuilder + std::marker::Send,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Value, PlatformError> {
        let url = format!("{}/{}/{edge}", self.base, self.number);
        let request = fill(self.client.post(&url)).authorization("Bearer", &self.token);
        let response = request.send(progress).await?;
        if response.is_success() {
            return Ok(response.json().await?);
        }
        Err(refusal_error(response).await)
    }

    /// The fields of the phone number itself.
    pub(super) async fn number(&self) -> Result<Value, PlatformError> {
        let fields = "display_phone_number,verified_name,status";
        let url = format!("{}/{}?fields={fields}", self.base, self.number);
        let response = self.get(&url).await?;
        response.json().await.map_err(invisible_failure)
    }

    /// Opens media of a user. Requests its address first, which is valid for five minutes and needs the token too.
    pub(super) async fn media(&self, id: &str) -> Result<HttpResponse, PlatformError> {
        // The id becomes a part of a path.
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(PlatformError::new(
                ErrorKind::NotFound,
                "the media id is invalid",
            ));
        }
        let url = format!("{}/{id}", self.base);
        let media: Value = self
            .get(&url)
            .await?
            .json()
            .await
            .map_err(invisible_failure)?;
        let url = media.get("url").and_then(Value::as_str).ok_or_else(|| {
            PlatformError::new(ErrorKind::Unknown, "the response has no media URL")
        })?;
        // The token must not be sent to a host that a response chose.
        self.file_hosts.check(url)?;
        self.get(url).await
    }

    async fn get(&self, url: &str) -> Result<HttpResponse, PlatformError> {
        let request = self.client.get(url).authorization("Bearer", &self.token);
        let response = request.send(&|_| {}).await.map_err(invisible_failure)?;
        // Only a response with 200 has the media. A redirect is not followed, because the token must not be sent to
        // another host.
        if response.status() == 200 {
            return Ok(response);
        }
        Err(refusal_error(response)
            .await
            .with_outcome(SendOutcome::NotSent))
    }
}

/// The error of a request without a visible effect in a chat, which is never ambiguous.
fn invisible_failure(error: dray_http::HttpError) -> PlatformError {
    PlatformError::from(error).with_outcome(SendOutcome::NotSent)
}

async fn refusal_error(response: HttpResponse) -> PlatformError {
    let (status, retry_after) = (response.status(), response.retry_after());
    // The page of a proxy has no code, so the status is used.
    let refusal: ErrorBody = response.json().await.unwrap_or_default();
    error_of(
        status,
        refusal.error.code,
        &refusal.error.message,
        retry_after,
    )
}

/// The meaning of a code in a response or in a later status. `None` for an unknown code.
pub(super) fn kind_of_code(code: i64) -> Option<ErrorKind> {
    Some(match code {
        4 | 80_007 | 130_429 | 131_048 | 131_056 => ErrorKind::RateLimited,
        2 | 131_000 | 131_016 | 133_016 => ErrorKind::Transient,
        131_047 => ErrorKind::WindowClosed,
        // 131021: sender and recipient are the same number.
        131_026 | 131_021 => ErrorKind::NotFound,
        131_030 | 131_049 | 368 | 131_031 => ErrorKind::Forbidden,
        131_051..=131_053 => ErrorKind::UnsupportedKind,
        131_008 | 131_009 | 100 => ErrorKind::BadFormat,
        0 | 3 | 10 | 190 | 200..=299 => ErrorKind::Auth,
        _ => return None,
    })
}

fn error_of(status: u16, code: i64, message: &str, retry_after: Option<Duration>) -> PlatformError {
    // The code 0 is valid (`AuthException`), so a message also shows that the body is an error of the API.
    let has_code = code != 0 || !message.is_empty();
    let kind = match (has_code.then(|| kind_of_code(code)).flatten(), status) {
        (Some(kind), _) => kind,
        (None, 413) => ErrorKind::TooLarge,
        (None, 429) => ErrorKind::RateLimited,
        (None, 401 | 403) => ErrorKind::Auth,
        (None, 404) => ErrorKind::NotFound,
        (None, 500..=599) => ErrorKind::Transient,
        (None, _) => ErrorKind::Unknown,
    };
    let reported_code = if code == 0 { i64::from(status) } else { code };
    let error = PlatformError::new(kind, format!("status {status}: {message}"))
        .code(reported_code.to_string());
    // These are limits of the app, the business account and the number; 131056 is that of one person.
    let error = match code {
        4 | 80_007 | 130_429 | 131_048 => error.account_wide(),
        _ => error,
    };
    match (kind, retry_after) {
        (ErrorKind::RateLimited, Some(delay)) => error.with_retry_after(delay),
        // A response with a code means that the API did not send the message. An error page of a proxy has no such
        // code.
        (ErrorKind::Transient, _) if code == 0 => error.ambiguous(),
        _ => error,
    }
}

impl fmt::Debug for CloudApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudApi")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_kinds() {
        for (status, code, expected, outcome) in [
            (400, 131_047, ErrorKind::WindowClosed, SendOutcome::NotSent),
            (400, 131_026, ErrorKind::NotFound, SendOutcome::NotSent),
            (
                400,
                131_053,
                ErrorKind::UnsupportedKind,
                SendOutcome::NotSent,
            ),
            (400, 131_056, ErrorKind::RateLimited, SendOutcome::NotSent),
            (400, 100, ErrorKind::BadFormat, SendOutcome::NotSent),
            (401, 190, ErrorKind::Auth, SendOutcome::NotSent),
            (400, 210, ErrorKind::Auth, SendOutcome::NotSent),
            (400, 368, ErrorKind::Forbidden, SendOutcome::NotSent),
            (500, 131_000, ErrorKind::Transient, SendOutcome::NotSent),
            (502, 0, ErrorKind::Transient, SendOutcome::Ambiguous),
            (413, 0, ErrorKind::TooLarge, SendOutcome::NotSent),
        ] {
            let message = if code == 0 { "" } else { "refused" };
            let error = error_of(status, code, message, None);
            assert_eq!(
                (error.kind(), error.send_outcome()),
                (expected, outcome),
                "{status} {code}"
            );
        }
    }

    #[test]
    fn the_limit_of_a_pair_is_not_that_of_the_number() {
        for (code, is_account_wide) in [(4, true), (130_429, true), (131_056, false)] {
            let error = error_of(400, code, "slower", None);
            assert_eq!(error.kind(), ErrorKind::RateLimited);
            assert_eq!(error.is_account_wide(), is_account_wide, "{code}");
        }
    }

    #[test]
    fn only_the_delay_of_a_response_is_reported() {
        let delay = |retry_after| error_of(400, 131_056, "slower", retry_after).retry_after();
        assert_eq!(delay(None), None);
        let named = Some(Duration::from_secs(90));
        assert_eq!(delay(named), named);
    }
}
