//! Requests to the configured addresses, and what their statuses mean.

use std::fmt;
use std::time::Duration;

use dray_http::{HttpClient, HttpResponse};
use dray_platform::{ErrorKind, PlatformError};
use url::Url;

use crate::options::WebhookOptions;

/// Wait after a 429 that does not say how long.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(30);

pub(crate) struct WebhookApi {
    pub(crate) client: HttpClient,
    hosts: Vec<String>,
    allow_http: bool,
}

impl WebhookApi {
    pub(crate) fn new(options: &WebhookOptions) -> Result<Self, PlatformError> {
        let wrong = |name: &str, what: &str| {
            PlatformError::new(ErrorKind::BadFormat, format!("webhook {name}: {what}"))
        };
        for (name, hook) in &options.hooks {
            let url =
                Url::parse(hook.url.expose()).map_err(|_| wrong(name, "url is no address"))?;
            if !is_allowed(&url, hook.allow_http) {
                return Err(wrong(name, "url must be https"));
            }
            if hook.secret.is_empty() {
                return Err(wrong(name, "the secret is missing"));
            }
        }
        let limits = dray_http::HttpTimeouts {
            connect: options.connect_timeout.as_duration(),
            idle: options.idle_timeout.as_duration(),
            answer: options.answer_timeout.as_duration(),
        };
        Ok(Self {
            client: HttpClient::new(limits, options.ca_file.as_deref())?,
            hosts: options.file_hosts.clone(),
            allow_http: options.allow_http,
        })
    }

    /// Opens a file on one of the configured hosts. Nothing secret goes there, and no redirect is followed.
    pub(crate) async fn download(&self, url: &str) -> Result<HttpResponse, PlatformError> {
        self.check_host(url)?;
        let answer = self.client.get(url).send(&|_| {}).await?;
        if answer.status() == 200 {
            return Ok(answer);
        }
        let refused = of_status(answer.status(), answer.retry_after());
        Err(refused.at(dray_platform::SendOutcome::NotSent))
    }

    /// Whether attachments may come from there.
    pub(crate) fn check_host(&self, url: &str) -> Result<(), PlatformError> {
        let wrong = || PlatformError::new(ErrorKind::Forbidden, "an address outside of file_hosts");
        let url = Url::parse(url).map_err(|_| wrong())?;
        let host = url.host_str().ok_or_else(wrong)?;
        let found = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        if self.hosts.contains(&found) && is_allowed(&url, self.allow_http) {
            Ok(())
        } else {
            Err(wrong())
        }
    }
}

fn is_allowed(url: &Url, allow_http: bool) -> bool {
    url.has_host() && (url.scheme() == "https" || (allow_http && url.scheme() == "http"))
}

/// What a status other than success means (platform-delivery 7.6).
pub(crate) fn of_status(status: u16, wait: Option<Duration>) -> PlatformError {
    let kind = match status {
        401 => ErrorKind::Auth,
        403 => ErrorKind::Forbidden,
        404 | 410 => ErrorKind::NotFound,
        408 | 425 | 500..=599 => ErrorKind::Transient,
        413 => ErrorKind::TooLarge,
        415 => ErrorKind::UnsupportedKind,
        429 => ErrorKind::RateLimited,
        400..=499 => ErrorKind::BadFormat,
        _ => ErrorKind::Unknown,
    };
    let error = PlatformError::new(kind, "the receiver refused").code(status.to_string());
    let error = match (kind, wait) {
        (ErrorKind::RateLimited, _) => error.with_retry_after(wait.unwrap_or(DEFAULT_RETRY_DELAY)),
        (ErrorKind::Transient, Some(wait)) => error.with_retry_after(wait),
        _ => error,
    };
    // What is neither a success nor a refusal says nothing about what became of it.
    if (400..500).contains(&status) {
        error
    } else {
        error.ambiguous()
    }
}

impl fmt::Debug for WebhookApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
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
        for (status, kind, moment) in [
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
            (302, Unknown, SendOutcome::Ambiguous),
            (500, Transient, SendOutcome::Ambiguous),
            (503, Transient, SendOutcome::Ambiguous),
        ] {
            let error = of_status(status, None);
            assert_eq!((error.kind(), error.moment()), (kind, moment), "{status}");
            assert_eq!(error.platform_code(), status.to_string());
        }
        let wait = Some(Duration::from_secs(5821));
        assert_eq!(of_status(503, wait).retry_after(), wait);
        assert_eq!(of_status(429, wait).retry_after(), wait);
        assert_eq!(
            of_status(429, None).retry_after(),
            Some(DEFAULT_RETRY_DELAY)
        );
    }

    #[test]
    fn options_that_cannot_be_are_told_without_the_address() {
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

    #[test]
    fn r_9_files_come_from_the_configured_hosts_only() {
        let api = WebhookApi::new(&WebhookOptions {
            file_hosts: vec!["files.example".to_owned(), "files.example:8443".to_owned()],
            ..WebhookOptions::default()
        })
        .unwrap();
        for (url, allowed) in [
            ("https://files.example/a", true),
            ("https://files.example:8443/a", true),
            ("http://files.example/a", false),
            ("https://files.example:444/a", false),
            ("https://files.example.evil.example/a", false),
            ("https://evil.example/?files.example", false),
            ("https://files.example@evil.example/", false),
            ("file:///etc/passwd", false),
            ("no address", false),
        ] {
            assert_eq!(api.check_host(url).is_ok(), allowed, "{url}");
        }
    }
}
