//! Requests to the configured addresses, and the meaning of their statuses.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings};
use dray_platform::{ErrorKind, FileHosts, PlatformError};
use url::Url;

use crate::options::WebhookOptions;

/// Wait after a 429 that names no delay.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(30);

pub(crate) struct WebhookApi {
    pub(crate) client: HttpClient,
    file_hosts: FileHosts,
}

impl WebhookApi {
    pub(crate) fn new(options: &WebhookOptions) -> Result<Self, PlatformError> {
        let invalid_hook = |name: &str, reason: &str| {
            // The name of the hook, not its address, which may contain a token.
            PlatformError::new(ErrorKind::BadFormat, format!("webhook {name}: {reason}"))
        };
        for (name, hook) in &options.hooks {
            let url = Url::parse(hook.url.expose())
                .map_err(|_| invalid_hook(name, "url is not a URL"))?;
            if !is_allowed(&url, hook.allow_http) {
                return Err(invalid_hook(name, "url must be https"));
            }
            // An unsigned event could come from anyone.
            if hook.secret.is_empty() {
                return Err(invalid_hook(name, "the secret is missing"));
            }
        }
        let client = HttpClient::from_settings(HttpSettings {
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            response_timeout: options.response_timeout,
            ca_file: options.ca_file.as_deref(),
        })?;
        Ok(Self {
            client,
            file_hosts: FileHosts::new(&options.file_hosts, options.allow_http),
        })
    }

    /// Opens a file on one of the configured hosts. No secret is sent there, and redirects are not followed.
    pub(crate) async fn download(&self, url: &str) -> Result<HttpResponse, PlatformError> {
        self.file_hosts.check(url)?;
        let response = self.client.get(url).send(&|_| {}).await?;
        if response.status() == 200 {
            return Ok(response);
        }
        let refusal = status_error(response.status(), response.retry_after());
        Err(refusal.with_outcome(dray_platform::SendOutcome::NotSent))
    }
}

fn is_allowed(url: &Url, allow_http: bool) -> bool {
    url.has_host() && (url.scheme() == "https" || (allow_http && url.scheme() == "http"))
}

const fn is_redirect(status: u16) -> bool {
    matches!(status, 300..=399)
}

/// Whether the receiver may have processed the event before it responded: 302 and 303 are also responses to a form that
/// was accepted.
const fn may_be_processed(status: u16) -> bool {
    matches!(status, 302 | 303) || !(is_redirect(status) || matches!(status, 400..=499))
}

/// The error for a status that does not confirm the event (platform-delivery 7.6).
pub(crate) fn status_error(status: u16, wait: Option<Duration>) -> PlatformError {
    let kind = match status {
        401 => ErrorKind::Auth,
        403 => ErrorKind::Forbidden,
        // A redirect is not followed, because the operator did not choose its target.
        300..=399 | 404 | 410 => ErrorKind::NotFound,
        408 | 425 | 500..=599 => ErrorKind::Transient,
        413 => ErrorKind::TooLarge,
        415 => ErrorKind::UnsupportedKind,
        429 => ErrorKind::RateLimited,
        400..=499 => ErrorKind::BadFormat,
        _ => ErrorKind::Unknown,
    };
    let error = if is_redirect(status) {
        PlatformError::new(kind, "the address redirects").code(format!("redirect_{status}"))
    } else {
        PlatformError::new(kind, "the receiver refused").code(status.to_string())
    };
    let error = match (kind, wait) {
        (ErrorKind::RateLimited, _) => error.with_retry_after(wait.unwrap_or(DEFAULT_RETRY_DELAY)),
        // 503 and other failures may name a delay too.
        (ErrorKind::Transient, Some(wait)) => error.with_retry_after(wait),
        _ => error,
    };
    // A status that neither confirms nor refuses leaves open the outcome of the request.
    if may_be_processed(status) {
        error.ambiguous()
    } else {
        error
    }
}

impl fmt::Debug for WebhookApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookApi").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use dray_platform::SendOutcome;
    use dray_types::Secret;

    use super::*;
    use crate::options::WebhookAddress;

    #[test]
    fn statuses_have_their_kinds() {
        use ErrorKind::{
            Auth, BadFormat, Forbidden, NotFound, RateLimited, TooLarge, Transient, Unknown,
            UnsupportedKind,
        };
        for (status, kind, outcome) in [
            (400, BadFormat, SendOutcome::NotSent),
            (401, Auth, SendOutcome::NotSent),
            (403, Forbidden, SendOutcome::NotSent),
            (404, NotFound, SendOutcome::NotSent),
            (408, Transient, SendOutcome::NotSent),
            (410, NotFound, SendOutcome::NotSent),
            (413, TooLarge, SendOutcome::NotSent),
            (415, UnsupportedKind, SendOutcome::NotSent),
            (422, BadFormat, SendOutcome::NotSent),
            (425, Transient, SendOutcome::NotSent),
            (429, RateLimited, SendOutcome::NotSent),
            (600, Unknown, SendOutcome::Ambiguous),
            (500, Transient, SendOutcome::Ambiguous),
            (503, Transient, SendOutcome::Ambiguous),
        ] {
            let error = status_error(status, None);
            assert_eq!(
                (error.kind(), error.send_outcome()),
                (kind, outcome),
                "{status}"
            );
            assert_eq!(error.platform_code(), status.to_string());
        }
        for (status, outcome) in [
            (301, SendOutcome::NotSent),
            (302, SendOutcome::Ambiguous),
            (303, SendOutcome::Ambiguous),
            (307, SendOutcome::NotSent),
            (308, SendOutcome::NotSent),
        ] {
            let error = status_error(status, None);
            let found = (error.kind(), error.send_outcome());
            assert_eq!(found, (NotFound, outcome), "{status}");
            assert_eq!(error.platform_code(), format!("redirect_{status}"));
        }
        let wait = Some(Duration::from_secs(5821));
        assert_eq!(status_error(503, wait).retry_after(), wait);
        assert_eq!(status_error(429, wait).retry_after(), wait);
        assert_eq!(
            status_error(429, None).retry_after(),
            Some(DEFAULT_RETRY_DELAY)
        );
    }

    #[test]
    fn errors_for_invalid_options_do_not_show_the_address() {
        let check = |url: &str, secret: &str, allow_http: bool| {
            let hook = WebhookAddress {
                url: Secret::new(url),
                secret: Secret::new(secret),
                allow_http,
                upload_limit: None,
            };
            let options = WebhookOptions {
                hooks: [("ci".to_owned(), hook)].into(),
                ..WebhookOptions::default()
            };
            WebhookApi::new(&options).map(drop)
        };
        assert!(check("https://hooks.example/t0ken", "s", false).is_ok());
        assert!(check("http://hooks.example/t0ken", "s", true).is_ok());
        for (url, secret) in [
            ("http://hooks.example/t0ken", "s"),
            ("https://hooks.example/t0ken", ""),
            ("ftp://hooks.example/t0ken", "s"),
            ("t0ken", "s"),
            ("", "s"),
        ] {
            let error = check(url, secret, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadFormat, "{url}");
            assert!(!format!("{error} {error:?}").contains("t0ken"));
        }
    }
}
