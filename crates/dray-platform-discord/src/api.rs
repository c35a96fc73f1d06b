//! Requests to the API, and what its codes mean.

use std::fmt;
use std::time::Duration;

use dray_http::{Answer, Client, Request};
use dray_platform::{Error, ErrorKind};
use dray_types::Secret;
use serde::Deserialize;
use serde_json::Value;

use crate::options::Options;

/// Wait after a 429 that does not say how long.
const PAUSE: Duration = Duration::from_secs(5);

/// A bot.
pub(crate) struct Api {
    pub(crate) client: Client,
    base: String,
    token: Secret,
}

/// The body of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: u64,
    message: String,
    retry_after: Option<f64>,
    errors: Value,
}

impl Api {
    pub(crate) fn new(options: &Options) -> Result<Self, Error> {
        let wrong = |what: &str| Error::new(ErrorKind::BadFormat, what);
        if options.token.is_empty() {
            return Err(wrong("the token is missing"));
        }
        if !options.base_url.starts_with("https://") && !options.base_url.starts_with("http://") {
            return Err(wrong("base_url must be http or https"));
        }
        let limits = dray_http::Limits {
            connect: options.connect_timeout.as_duration(),
            idle: options.idle_timeout.as_duration(),
            answer: options.answer_timeout.as_duration(),
        };
        Ok(Self {
            client: Client::new(limits, options.ca_file.as_deref())?,
            base: options.base_url.trim_end_matches('/').to_owned(),
            token: options.token.clone(),
        })
    }

    /// The address of a path below the base.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request with the token and reads the JSON answer.
    pub(crate) async fn call(
        &self,
        request: Request,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Value, Error> {
        let request = request.authorization("Bot", &self.token);
        let answer = request.send(progress).await?;
        if answer.is_success() {
            return Ok(answer.json().await?);
        }
        Err(refused(answer).await)
    }
}

/// The error that a refusal stands for.
pub(crate) async fn refused(answer: Answer) -> Error {
    let (status, header) = (answer.status(), answer.retry_after());
    // A proxy's page has no code; its status says enough.
    let refusal: Refusal = answer.json().await.unwrap_or_default();
    let waits = refusal
        .retry_after
        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
        .map(|seconds| Duration::from_secs_f64(seconds.min(604_800.0)))
        .or(header);
    of(status, &refusal, waits)
}

fn of(status: u16, refusal: &Refusal, waits: Option<Duration>) -> Error {
    let is_about_size = || {
        let text = format!("{} {}", refusal.message, refusal.errors).to_lowercase();
        text.contains("size") || text.contains("too large")
    };
    let kind = match (refusal.code, status) {
        (40_005 | 50_045, _) | (_, 413) => ErrorKind::TooLarge,
        (50_035, _) if is_about_size() => ErrorKind::TooLarge,
        (50_035, _) if refusal.errors.get("content").is_some() => ErrorKind::TooLong,
        (10_003, _) => ErrorKind::NotFound,
        (10_008, _) => ErrorKind::NoThread,
        (20_016 | 20_028 | 40_062, _) | (_, 429) => ErrorKind::RateLimited,
        (50_001 | 50_007 | 50_008 | 50_013 | 50_083 | 160_005 | 40_067, _) => ErrorKind::Forbidden,
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
    let error = Error::new(kind, format!("status {status}: {}", refusal.message)).code(code);
    match kind {
        ErrorKind::RateLimited => error.with_retry_after(waits.unwrap_or(PAUSE)),
        // A failure of the server after all of the request says nothing about what became of it.
        ErrorKind::Transient if refusal.code != 130_000 => error.ambiguous(),
        _ => error,
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use dray_platform::Moment;

    use super::*;

    #[test]
    fn codes_have_their_kinds() {
        use ErrorKind::{Auth, Forbidden, NoThread, NotFound, RateLimited, TooLarge, Transient};
        let check = |status, code, message: &str, kind, moment| {
            let refusal = Refusal {
                code,
                message: message.to_owned(),
                ..Refusal::default()
            };
            let error = of(status, &refusal, None);
            assert_eq!(
                (error.kind(), error.moment()),
                (kind, moment),
                "{status} {code}"
            );
        };
        check(413, 0, "", TooLarge, Moment::NotSent);
        check(
            400,
            40_005,
            "Request entity too large",
            TooLarge,
            Moment::NotSent,
        );
        check(
            400,
            50_035,
            "File exceeds maximum size",
            TooLarge,
            Moment::NotSent,
        );
        check(404, 10_003, "", NotFound, Moment::NotSent);
        check(400, 10_008, "", NoThread, Moment::NotSent);
        check(403, 50_013, "", Forbidden, Moment::NotSent);
        check(403, 50_007, "", Forbidden, Moment::NotSent);
        check(429, 20_016, "", RateLimited, Moment::NotSent);
        check(401, 0, "", Auth, Moment::NotSent);
        check(503, 130_000, "", Transient, Moment::NotSent);
        check(502, 0, "", Transient, Moment::Ambiguous);
    }
}
