//! Requests to the API, and the errors for its error codes.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings, RequestBuilder, url_authority};
use dray_platform::http::parse_base_url;
use dray_platform::{ErrorKind, FileHosts, PlatformError, SendOutcome};
use dray_types::Secret;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::options::DiscordOptions;

/// Wait after a 429 that names no delay.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The name of this client, in the form that Discord requires of every client: requests with another one may be blocked
/// (<https://docs.discord.com/developers/reference#user-agent>).
const USER_AGENT: &str = concat!("DiscordBot (drayage, ", env!("CARGO_PKG_VERSION"), ")");

/// The API with the token of one bot. `Debug` does not show the token.
pub(crate) struct DiscordApi {
    pub(crate) client: HttpClient,
    base: String,
    /// Host and port of the base URL. Gateways are allowed at this host, too.
    own_host: String,
    file_hosts: FileHosts,
    gateway_hosts: Vec<String>,
    pub(crate) token: Secret,
    pub(crate) response_timeout: Duration,
}

/// The body of a refusal. All fields are empty if the body has another form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: u64,
    message: String,
    retry_after: Option<f64>,
    /// Whether a rate limit is that of the bot, not that of one route.
    global: bool,
    errors: Value,
}

impl DiscordApi {
    pub(crate) fn new(options: &DiscordOptions) -> Result<Self, PlatformError> {
        let option_error =
            |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
        if options.token.is_empty() {
            return Err(option_error("the token is missing"));
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
            own_host: url_authority(&base).ok_or_else(|| option_error("base_url names no host"))?,
            file_hosts: FileHosts::with_api(&options.file_hosts, &base),
            gateway_hosts: options.gateway_hosts.clone(),
            token: options.token.clone(),
            response_timeout: options.response_timeout.as_duration(),
        })
    }

    /// Sends a GET request for a path below the base URL. Errors are never ambiguous, because a read makes no message
    /// visible.
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, PlatformError> {
        let request = self.client.get(&self.url(path)).query(query);
        let response = self.call(request, &|_| {}).await;
        response.map_err(|error| error.with_outcome(SendOutcome::NotSent))
    }

    /// Opens the address of a file that a user sent, without the token (R-9).
    pub(crate) async fn file(&self, url: &str) -> Result<HttpResponse, PlatformError> {
        let parsed = self.file_hosts.check(url)?;
        Ok(self.client.get(parsed.as_str()).send(&|_| {}).await?)
    }

    /// The HTTP address of a gateway, for the upgrade request. Fails for hosts that must not receive the token (R-9).
    pub(crate) fn gateway(&self, url: &str) -> Result<String, PlatformError> {
        let host_error = || {
            PlatformError::new(
                ErrorKind::Forbidden,
                "the host of the gateway is not in gateway_hosts",
            )
        };
        let parsed = Url::parse(url).map_err(|_| host_error())?;
        let host = url_authority(&parsed).ok_or_else(host_error)?;
        let is_below = |known: &String| {
            let rest = host.strip_suffix(known.as_str());
            // `discord.gg` covers `gateway.discord.gg`, but not `notdiscord.gg`.
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if host != self.own_host && !self.gateway_hosts.iter().any(is_below) {
            return Err(host_error());
        }
        let scheme = match parsed.scheme() {
            "wss" => "https",
            "ws" if self.is_without_tls() => "http",
            _ => return Err(host_error()),
        };
        // The query of the address is dropped: it could ask for compression, which is not read here.
        let path = parsed.path();
        Ok(format!("{scheme}://{host}{path}?v=10&encoding=json"))
    }

    /// Whether `base_url` is without TLS, as with a fake server.
    fn is_without_tls(&self) -> bool {
        self.base.starts_with("http://")
    }

    /// The URL of a path below the base URL.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request with the token and reads the JSON response.
    pub(crate) async fn call(
        &self,
        request: RequestBuilder,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Value, PlatformError> {
        let request = request
            .header("user-agent", USER_AGENT)
            .authorization("Bot", &self.token);
        let response = request.send(progress).await?;
        // Only 2xx is a success: Discord does not redirect, and the client does not follow redirects.
        if response.is_success() {
            return Ok(response.json().await?);
        }
        Err(refusal_error(response).await)
    }

    /// Sends a request whose URL contains its own token, as for interactions. The bot's token is not sent, and the body
    /// of the response is ignored.
    pub(crate) async fn call_with_url_token(
        &self,
        request: RequestBuilder,
    ) -> Result<(), PlatformError> {
        let request = request.header("user-agent", USER_AGENT);
        let response = request.send(&|_| {}).await?;
        if response.is_success() {
            return Ok(());
        }
        Err(refusal_error(response).await)
    }
}

/// The error for a response that is not a success. Reads its body.
pub(crate) async fn refusal_error(response: HttpResponse) -> PlatformError {
    let (status, header) = (response.status(), response.retry_after());
    // The error page of a proxy has no code; then only the status is used.
    let refusal: ErrorBody = response.json().await.unwrap_or_default();
    let retry_after = refusal
        .retry_after
        // `from_secs_f64` panics for negative, infinite and very large numbers, and this one comes from the network.
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
        .map(|seconds| Duration::from_secs_f64(seconds.min(604_800.0)))
        .or(header);
    error_of(status, &refusal, retry_after)
}

fn error_of(status: u16, refusal: &ErrorBody, retry_after: Option<Duration>) -> PlatformError {
    let is_about_size = || {
        let text = format!("{} {}", refusal.message, refusal.errors).to_lowercase();
        text.contains("size") || text.contains("too large")
    };
    // The code goes first, because Discord uses one status for many codes.
    let kind = match (refusal.code, status) {
        (40_005 | 50_045, _) | (_, 413) => ErrorKind::TooLarge,
        (50_035, _) if is_about_size() => ErrorKind::TooLarge,
        // `content` is the field with the text of the message.
        (50_035, _) if refusal.errors.get("content").is_some() => ErrorKind::TooLong,
        (10_003, _) => ErrorKind::NotFound,
        (10_008, _) => ErrorKind::NoThread,
        // Slow mode, the write limit of a channel, and a limited resource come with other statuses than 429.
        (20_016 | 20_028 | 40_062, _) | (_, 429) => ErrorKind::RateLimited,
        // 240000: the filter for harmful links blocked the message.
        (50_001 | 50_007 | 50_008 | 50_013 | 50_083 | 160_005 | 40_067 | 240_000, _) => {
            ErrorKind::Forbidden
        }
        (50_006 | 50_035 | 50_109, _) => ErrorKind::BadFormat,
        (130_000, _) | (_, 500..=599) => ErrorKind::Transient,
        (_, 401) => ErrorKind::Auth,
        (_, 403) => ErrorKind::Forbidden,
        (_, 404) => ErrorKind::NotFound,
        _ => ErrorKind::Unknown,
    };
    let code = if refusal.code == 0 {
        status.to_string()
    } else {
        refusal.code.to_string()
    };
    let error =
        PlatformError::new(kind, format!("status {status}: {}", refusal.message)).code(code);
    match kind {
        ErrorKind::RateLimited => {
            let error = error.with_retry_after(retry_after.unwrap_or(DEFAULT_RETRY_DELAY));
            if refusal.global {
                error.account_wide()
            } else {
                error
            }
        }
        // After a server error the request may have been executed, except with code 130000, with which Discord refuses
        // the request.
        ErrorKind::Transient if refusal.code != 130_000 => error.ambiguous(),
        _ => error,
    }
}

impl fmt::Debug for DiscordApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscordApi")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_9_the_token_is_shown_to_gateways_of_known_hosts_only() {
        let api = DiscordApi::new(&DiscordOptions {
            token: Secret::new("t"),
            ..DiscordOptions::default()
        })
        .unwrap();
        let allowed = api.gateway("wss://gateway-us-east1-b.discord.gg/?x=1");
        let expected = "https://gateway-us-east1-b.discord.gg/?v=10&encoding=json";
        assert_eq!(allowed.unwrap(), expected);
        for refused in [
            "ws://gateway.discord.gg",
            "wss://evil.example",
            "wss://evildiscord.gg",
            "wss://discord.gg.evil.example",
            "wss://discord.gg:8443",
            "wss://discord.gg@evil.example",
            "https://gateway.discord.gg",
            "nonsense",
        ] {
            let error = api.gateway(refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{refused}");
        }
    }

    #[test]
    fn codes_have_their_kinds() {
        use ErrorKind::{Auth, Forbidden, NoThread, NotFound, RateLimited, TooLarge, Transient};
        let check = |status, code, message: &str, kind, outcome| {
            let refusal = ErrorBody {
                code,
                message: message.to_owned(),
                ..ErrorBody::default()
            };
            let error = error_of(status, &refusal, None);
            assert_eq!(
                (error.kind(), error.send_outcome()),
                (kind, outcome),
                "{status} {code}"
            );
        };
        check(413, 0, "", TooLarge, SendOutcome::NotSent);
        check(
            400,
            40_005,
            "Request entity too large",
            TooLarge,
            SendOutcome::NotSent,
        );
        check(
            400,
            50_035,
            "File exceeds maximum size",
            TooLarge,
            SendOutcome::NotSent,
        );
        check(404, 10_003, "", NotFound, SendOutcome::NotSent);
        check(400, 10_008, "", NoThread, SendOutcome::NotSent);
        check(403, 50_013, "", Forbidden, SendOutcome::NotSent);
        check(403, 50_007, "", Forbidden, SendOutcome::NotSent);
        check(429, 20_016, "", RateLimited, SendOutcome::NotSent);
        check(401, 0, "", Auth, SendOutcome::NotSent);
        check(503, 130_000, "", Transient, SendOutcome::NotSent);
        check(502, 0, "", Transient, SendOutcome::Ambiguous);
    }

    #[test]
    fn only_a_global_rate_limit_applies_to_the_whole_account() {
        for (global, body) in [
            (
                true,
                r#"{"message": "slower", "retry_after": 64.57, "global": true}"#,
            ),
            (
                false,
                r#"{"message": "slower", "retry_after": 64.57, "global": false}"#,
            ),
        ] {
            let refusal: ErrorBody = serde_json::from_str(body).unwrap();
            let error = error_of(429, &refusal, None);
            assert_eq!(error.kind(), ErrorKind::RateLimited);
            assert_eq!(error.is_account_wide(), global, "{body}");
        }
    }
}
