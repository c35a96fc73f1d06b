//! Requests to the homeserver, and the meaning of its error codes.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings, RequestBuilder};
use dray_platform::http::parse_base_url;
use dray_platform::{ByteStream, ErrorKind, PlatformError, SendOutcome, http};
use dray_types::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use crate::options::MatrixOptions;

/// Wait after a 429 that names no delay.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Characters that are not escaped in a part of a path (RFC 3986: unreserved).
const PATH_SEGMENT_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A user on a homeserver. Its `Debug` shows no token.
pub(crate) struct MatrixApi {
    client: HttpClient,
    base: String,
    token: Secret,
}

/// The body of a refusal; all fields are empty when the body has another shape.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    errcode: String,
    error: String,
    retry_after_ms: Option<u64>,
}

/// Escapes a text so that it is one part of a path: a slash in it does not divide it.
pub(crate) fn encode_path_segment(text: &str) -> String {
    utf8_percent_encode(text, PATH_SEGMENT_SET).to_string()
}

/// Server and id of `mxc://server/id`. `None` unless both are valid in a path without escapes.
pub(crate) fn media_parts(uri: &str) -> Option<(&str, &str)> {
    let (server, id) = uri.strip_prefix("mxc://")?.split_once('/')?;
    let is_server = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_valid = !server.is_empty()
        && !id.is_empty()
        && uri.len() <= 500
        && server.bytes().all(is_server)
        // `..` would leave the path of downloads.
        && !server.starts_with('.')
        && id.bytes().all(is_id);
    is_valid.then_some((server, id))
}

impl MatrixApi {
    pub(crate) fn new(options: &MatrixOptions) -> Result<Self, PlatformError> {
        let invalid_option =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        if options.token.is_empty() {
            return Err(invalid_option("the token is missing"));
        }
        let base = parse_base_url("homeserver", &options.homeserver)?;
        let client = HttpClient::from_settings(HttpSettings {
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            response_timeout: options.response_timeout,
            ca_file: options.ca_file.as_deref(),
        })?;
        Ok(Self {
            client,
            base: base.as_str().trim_end_matches('/').to_owned(),
            token: options.token.clone(),
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}/_matrix{path}", self.base)
    }

    async fn open(
        &self,
        request: RequestBuilder,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<HttpResponse, PlatformError> {
        let request = request.authorization("Bearer", &self.token);
        let response = request.send(progress).await?;
        // Only 200 is a result here. A redirect is not followed, because the token must not be sent to another server.
        if response.status() == 200 {
            return Ok(response);
        }
        Err(refusal_error(response).await)
    }

    /// Reads a path. Errors are never ambiguous, because reading has no visible effect.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, PlatformError> {
        let request = self.client.get(&self.url(path)).query(query);
        self.send_for_json(request).await
    }

    async fn send_for_json(&self, request: RequestBuilder) -> Result<Value, PlatformError> {
        let response = async {
            let response = self.open(request, &|_| {}).await?;
            Ok::<Value, PlatformError>(response.json().await?)
        };
        response
            .await
            .map_err(|error| error.with_outcome(SendOutcome::NotSent))
    }

    /// Makes a `sync` request, whose response the server may delay until there are new events. `wait` is the longest
    /// wait for its response.
    pub(crate) async fn sync(
        &self,
        query: &[(&str, &str)],
        wait: Duration,
    ) -> Result<Value, PlatformError> {
        let request = self.client.get(&self.url("/client/v3/sync")).query(query);
        self.send_for_json(request.response_within(wait)).await
    }

    /// Puts an event into a room. Requests with the same `key` create only one event, because it is the transaction id.
    pub(crate) async fn put(
        &self,
        room: &str,
        key: &str,
        event: &Value,
    ) -> Result<Value, PlatformError> {
        let path = format!(
            "/client/v3/rooms/{}/send/m.room.message/{}",
            encode_path_segment(room),
            encode_path_segment(key)
        );
        let request = self.client.put(&self.url(&path)).json(event);
        let response = self.open(request, &|_| {}).await?;
        Ok(response.json().await?)
    }

    /// Uploads bytes and returns their `mxc` address. The upload is not visible.
    pub(crate) async fn upload(
        &self,
        (name, media_type): (&str, &str),
        size: u64,
        body: ByteStream,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<String, PlatformError> {
        let request = self
            .client
            .post(&self.url("/media/v3/upload"))
            .query(&[("filename", name)])
            .stream(media_type, size, http::request_body(body));
        let response: Value = self.open(request, progress).await?.json().await?;
        let uri = response.get("content_uri").and_then(Value::as_str);
        // The URI is checked here, because the address is used in events and later in paths.
        match uri.filter(|uri| media_parts(uri).is_some()) {
            Some(uri) => Ok(uri.to_owned()),
            None => Err(PlatformError::new(
                ErrorKind::Unknown,
                "the response to the upload has no content URI",
            )),
        }
    }

    /// Opens a file. The token is sent only to the configured homeserver, which itself fetches files of other servers.
    pub(crate) async fn download(&self, uri: &str) -> Result<HttpResponse, PlatformError> {
        let invalid_content_uri = || PlatformError::new(ErrorKind::NotFound, "not a content URI");
        let (server, id) = media_parts(uri).ok_or_else(invalid_content_uri)?;
        let mut path = format!("/client/v1/media/download/{server}/{id}");
        let opened = self.open(self.client.get(&self.url(&path)), &|_| {}).await;
        let opened = match opened {
            // Before version 1.11 of the specification, downloads have another path.
            Err(error) if error.platform_code() == "M_UNRECOGNIZED" => {
                path = format!("/media/v3/download/{server}/{id}");
                self.open(self.client.get(&self.url(&path)), &|_| {}).await
            }
            other => other,
        };
        opened.map_err(|error| error.with_outcome(SendOutcome::NotSent))
    }

    /// Largest file that the homeserver accepts, in bytes; `None` if it announces no limit.
    pub(crate) async fn max_upload_bytes(&self) -> Result<Option<u64>, PlatformError> {
        let config = match self.get("/client/v1/media/config", &[]).await {
            Err(error) if error.platform_code() == "M_UNRECOGNIZED" => {
                self.get("/media/v3/config", &[]).await
            }
            other => other,
        };
        Ok(config?.get("m.upload.size").and_then(Value::as_u64))
    }

    /// The id of a room by its id or alias. Refuses encrypted rooms: our messages are not encrypted, and others could
    /// read them.
    pub(crate) async fn room(&self, chat: &str) -> Result<String, PlatformError> {
        let id = match chat.chars().next() {
            Some('!') => chat.to_owned(),
            Some('#') => {
                let path = format!("/client/v3/directory/room/{}", encode_path_segment(chat));
                let directory = self.get(&path, &[]).await?;
                let id = directory.get("room_id").and_then(Value::as_str);
                id.unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        if id.is_empty() {
            let description = "the room does not begin with ! or #";
            return Err(PlatformError::new(ErrorKind::NotFound, description));
        }
        let path = format!(
            "/client/v3/rooms/{}/state/m.room.encryption/",
            encode_path_segment(&id)
        );
        match self.get(&path, &[]).await {
            Ok(_) => {
                let error = PlatformError::new(ErrorKind::Forbidden, "the room is encrypted");
                Err(error.code("encrypted"))
            }
            // Without this state the room is not encrypted. For a room in which the user is not a member, the error is
            // `M_FORBIDDEN`.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(id),
            Err(error) => Err(error),
        }
    }
}

async fn refusal_error(response: HttpResponse) -> PlatformError {
    let (status, retry_after) = (response.status(), response.retry_after());
    // The page of a proxy has no code, so the status is used.
    let refusal: ErrorBody = response.json().await.unwrap_or_default();
    error_of(status, &refusal, retry_after)
}

fn error_of(status: u16, refusal: &ErrorBody, retry_after: Option<Duration>) -> PlatformError {
    let kind = match (refusal.errcode.as_str(), status) {
        ("M_LIMIT_EXCEEDED", _) | (_, 429) => ErrorKind::RateLimited,
        ("M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED" | "M_USER_LOCKED", _)
        | (_, 401) => ErrorKind::Auth,
        ("M_TOO_LARGE", _) | (_, 413) => ErrorKind::TooLarge,
        (
            "M_FORBIDDEN"
            | "M_GUEST_ACCESS_FORBIDDEN"
            | "M_USER_SUSPENDED"
            | "M_RESOURCE_LIMIT_EXCEEDED",
            _,
        ) => ErrorKind::Forbidden,
        ("M_NOT_FOUND", _) => ErrorKind::NotFound,
        (
            "M_BAD_JSON" | "M_NOT_JSON" | "M_INVALID_PARAM" | "M_MISSING_PARAM"
            | "M_INVALID_ROOM_ID" | "M_BAD_ALIAS",
            _,
        ) => ErrorKind::BadFormat,
        // Callers use the code to detect calls that an old homeserver does not support.
        ("M_UNRECOGNIZED", _) => ErrorKind::Unknown,
        ("M_NOT_YET_UPLOADED", _) | (_, 500..=599) => ErrorKind::Transient,
        (_, 403) => ErrorKind::Forbidden,
        (_, 404) => ErrorKind::NotFound,
        _ => ErrorKind::Unknown,
    };
    let code = if refusal.errcode.is_empty() {
        status.to_string()
    } else {
        refusal.errcode.clone()
    };
    let error = PlatformError::new(kind, format!("status {status}: {}", refusal.error)).code(code);
    let wait = refusal
        .retry_after_ms
        .map(Duration::from_millis)
        .or(retry_after);
    match kind {
        ErrorKind::RateLimited => error.with_retry_after(wait.unwrap_or(DEFAULT_RETRY_DELAY)),
        // This covers 5xx and unexpected statuses: a server failure after the complete request leaves its outcome
        // unknown.
        _ if !(400..500).contains(&status) => error.ambiguous(),
        _ => error,
    }
}

impl fmt::Debug for MatrixApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatrixApi")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_kinds() {
        use ErrorKind::{
            Auth, BadFormat, Forbidden, NotFound, RateLimited, TooLarge, Transient, Unknown,
        };
        for (status, code, kind, outcome) in [
            (413, "M_TOO_LARGE", TooLarge, SendOutcome::NotSent),
            (413, "", TooLarge, SendOutcome::NotSent),
            (403, "M_FORBIDDEN", Forbidden, SendOutcome::NotSent),
            (401, "M_UNKNOWN_TOKEN", Auth, SendOutcome::NotSent),
            (401, "", Auth, SendOutcome::NotSent),
            (404, "M_NOT_FOUND", NotFound, SendOutcome::NotSent),
            (404, "M_UNRECOGNIZED", Unknown, SendOutcome::NotSent),
            (400, "M_BAD_JSON", BadFormat, SendOutcome::NotSent),
            (400, "M_NEW", Unknown, SendOutcome::NotSent),
            (429, "", RateLimited, SendOutcome::NotSent),
            (500, "M_UNKNOWN", Transient, SendOutcome::Ambiguous),
            (502, "", Transient, SendOutcome::Ambiguous),
            (307, "", Unknown, SendOutcome::Ambiguous),
        ] {
            let refusal = ErrorBody {
                errcode: code.to_owned(),
                ..ErrorBody::default()
            };
            let error = error_of(status, &refusal, None);
            let actual = (error.kind(), error.send_outcome());
            assert_eq!(actual, (kind, outcome), "{status} {code}");
        }
        let refusal = ErrorBody {
            errcode: "M_LIMIT_EXCEEDED".to_owned(),
            retry_after_ms: Some(5_821_000),
            ..ErrorBody::default()
        };
        let wait = Some(Duration::from_secs(5821));
        assert_eq!(error_of(429, &refusal, None).retry_after(), wait);
        assert_eq!(
            error_of(429, &ErrorBody::default(), wait).retry_after(),
            wait
        );
    }

    #[test]
    fn r_9_file_addresses_lead_to_the_homeserver_only() {
        assert_eq!(
            media_parts("mxc://example.org:8448/a-Z_9"),
            Some(("example.org:8448", "a-Z_9"))
        );
        for invalid_uri in [
            "",
            "mxc://",
            "mxc://example.org",
            "mxc://example.org/",
            "mxc:///id",
            "mxc://example.org/a/b",
            "mxc://example.org/..",
            "mxc://../id",
            "mxc://example.org/a?b",
            "mxc://example.org/a%2fb",
            "https://example.org/id",
        ] {
            assert_eq!(media_parts(invalid_uri), None, "{invalid_uri}");
        }
        assert_eq!(encode_path_segment("!a/b:c?d#"), "%21a%2Fb%3Ac%3Fd%23");
    }
}
