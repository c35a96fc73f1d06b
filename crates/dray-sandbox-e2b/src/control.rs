//! The control API: finds sandboxes, and reads and extends their lifetimes.

use std::time::Duration;

use dray_http::{HttpClient, HttpSettings, RequestBuilder};
use dray_sandbox::{Address, Error, ErrorKind, Handle};
use dray_sandbox_hosted::{refused, remaining_lifetime, require_key, require_lifetime, unanswered};
use dray_types::{Clock, Secret};
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::config::{Config, ConfigError};
use crate::fault::Refusal;

/// Added to the lifetime that a transfer needs, because both clocks may be wrong and files are checked afterwards.
const LIFETIME_MARGIN: Duration = Duration::from_secs(30);
/// Longest lifetime in seconds that the call takes which only extends (`SandboxRefreshRequest` of the API).
const MAX_REFRESH_SECONDS: u128 = 3600;

/// A sandbox as the control API describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxInfo {
    #[serde(rename = "sandboxID")]
    id: String,
    #[serde(deserialize_with = "time")]
    started_at: Timestamp,
    #[serde(deserialize_with = "time")]
    end_at: Timestamp,
    #[serde(default)]
    state: String,
    #[serde(default)]
    envd_version: String,
    #[serde(default)]
    envd_access_token: Option<Secret>,
    #[serde(default)]
    domain: Option<String>,
}

/// Reads a time of RFC 3339.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

impl SandboxInfo {
    /// Identity of this run of a sandbox.
    fn incarnation(&self) -> String {
        // The id stays the same when a sandbox is paused and resumed, but its start time changes.
        format!("{}/{}", self.id, self.started_at)
    }

    /// Token of the daemon in the sandbox, if the API reports one.
    pub(crate) fn token(&self) -> Option<&Secret> {
        self.envd_access_token
            .as_ref()
            .filter(|token| !token.is_empty())
    }

    /// Domain of the sandbox, if the API reports one.
    pub(crate) fn domain(&self) -> Option<&str> {
        self.domain.as_deref().filter(|domain| !domain.is_empty())
    }

    /// Whether the daemon has at least this version. A daemon without a version counts as old.
    pub(crate) fn is_at_least(&self, minimum: [u64; 3]) -> bool {
        let version = self.envd_version.trim_start_matches('v');
        let mut parts = version.split(['.', '-', '+']).map(str::parse);
        let mut next = || parts.next().and_then(Result::ok).unwrap_or_default();
        [next(), next(), next()] >= minimum
    }

    /// The remaining lifetime; zero after the end.
    pub(crate) fn remaining_lifetime(&self, clock: &Clock) -> Duration {
        remaining_lifetime(self.end_at.as_millisecond(), clock)
    }
}

/// The control API of one account.
#[derive(Debug)]
pub(crate) struct ControlClient {
    pub(crate) client: HttpClient,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
}

impl ControlClient {
    pub(crate) fn new(config: &Config, clock: Clock) -> Result<Self, ConfigError> {
        config.check()?;
        let client = HttpClient::from_settings(HttpSettings {
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            response_timeout: config.response_timeout,
            ca_file: config.ca_file.as_deref(),
        });
        Ok(Self {
            client: client.map_err(ConfigError::Client)?,
            config: config.clone(),
            clock,
        })
    }

    /// Reads the current state of the sandbox with this address.
    pub(crate) async fn find(&self, address: &Address) -> Result<SandboxInfo, Error> {
        let id = check_name(&address.name)?;
        let url = format!("{}/sandboxes/{id}", self.config.api());
        let info: SandboxInfo = self.request_json(self.client.get(&url)).await?;
        // The API returns the id with or without the client id after the `-`.
        if info.id.split('-').next() != id.split('-').next() {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the response is about another sandbox",
            ));
        }
        Ok(info)
    }

    /// Lists at most one sandbox, which shows whether the key is accepted.
    pub(crate) async fn verify_key(&self) -> Result<(), Error> {
        let url = format!("{}/v2/sandboxes?limit=1", self.config.api());
        let _sandboxes: Vec<serde::de::IgnoredAny> =
            self.request_json(self.client.get(&url)).await?;
        Ok(())
    }

    /// The handle of a sandbox that was found.
    pub(crate) fn handle(address: &Address, info: &SandboxInfo) -> Handle {
        Handle {
            address: address.clone(),
            incarnation: info.incarnation(),
        }
    }

    /// Reads the current state of this incarnation; another one is [`ErrorKind::SandboxGone`].
    pub(crate) async fn require_incarnation(&self, handle: &Handle) -> Result<SandboxInfo, Error> {
        let info = self.find(&handle.address).await?;
        if info.incarnation() != handle.incarnation {
            let other = "another run of the sandbox has the name now";
            return Err(Error::new(ErrorKind::SandboxGone, other));
        }
        if info.state == "paused" {
            return Err(Error::new(ErrorKind::SandboxPaused, "paused"));
        }
        Ok(info)
    }

    /// Extends the lifetime of an incarnation to at least `needed` from now, or fails. The lifetime also reaches
    /// `promised_end_ms`, the end that earlier calls promised, which becomes later with this one.
    pub(crate) async fn prolong(
        &self,
        handle: &Handle,
        needed: Duration,
        promised_end_ms: &mut u64,
    ) -> Result<(), Error> {
        let remaining = self
            .require_incarnation(handle)
            .await?
            .remaining_lifetime(&self.clock);
        let now_ms = self.clock.now_ms();
        let promised = Duration::from_millis(promised_end_ms.saturating_sub(now_ms));
        let needed_ms = u64::try_from(needed.as_millis()).unwrap_or(u64::MAX);
        let needed_end_ms = now_ms.saturating_add(needed_ms);
        // Another process may have set a shorter lifetime than this one promised to a transfer that still runs.
        let wanted = needed.max(promised);
        if remaining >= wanted {
            *promised_end_ms = needed_end_ms.max(*promised_end_ms);
            return Ok(());
        }
        let longest = self.config.longest_life.as_duration();
        let lifetime = wanted.saturating_add(LIFETIME_MARGIN).min(longest);
        if lifetime > remaining {
            // A plan that allows no more refuses. The lifetime is read again below and decides.
            match self.extend(handle, lifetime).await {
                Err(error) if error.kind() == ErrorKind::Protocol => {
                    tracing::debug!(%error, "the lifetime of the sandbox was not extended");
                }
                extended => extended?,
            }
        }
        let remaining = self
            .require_incarnation(handle)
            .await?
            .remaining_lifetime(&self.clock);
        require_lifetime(remaining, needed)?;
        *promised_end_ms = needed_end_ms.max(*promised_end_ms);
        Ok(())
    }

    /// Extends the lifetime to this time from now. Up to an hour, a longer lifetime that another client has set
    /// meanwhile stays, if the server has the call for it.
    async fn extend(&self, handle: &Handle, lifetime: Duration) -> Result<(), Error> {
        let id = check_name(&handle.address.name)?;
        let url = format!("{}/sandboxes/{id}", self.config.api());
        let seconds = lifetime.as_millis().div_ceil(1000);
        if seconds <= MAX_REFRESH_SECONDS {
            let body = json!({ "duration": seconds });
            let request = self.client.post(&format!("{url}/refreshes")).json(&body);
            match self.send(request).await {
                // Other servers with this API may lack the call. They respond as for a missing sandbox.
                Err(error) if error.kind() == ErrorKind::SandboxGone => {}
                extended => return extended.map(drop),
            }
        }
        // This call sets the lifetime, so it may shorten that of another client.
        let body = json!({ "timeout": seconds });
        let request = self.client.post(&format!("{url}/timeout")).json(&body);
        self.send(request).await.map(drop)
    }

    async fn request_json<T: serde::de::DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, Error> {
        let response = self.send(request).await?;
        response.json().await.map_err(unanswered)
    }

    async fn send(&self, request: RequestBuilder) -> Result<dray_http::HttpResponse, Error> {
        require_key(&self.config.api_key)?;
        let request = request.header("x-api-key", self.config.api_key.expose());
        let response = request.send(&|_| {}).await.map_err(unanswered)?;
        match response.status() {
            200..=299 => Ok(response),
            // On this API only the sandbox itself can be missing.
            404 | 410 => Err(Error::new(ErrorKind::SandboxGone, "no such sandbox")),
            _ => Err(refused::<Refusal>(response).await),
        }
    }
}

/// Checks a name, which becomes a part of request paths and host names without escaping.
fn check_name(name: &str) -> Result<&str, Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    // The limits of a DNS label.
    if !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(is_allowed)
        && !name.starts_with('-')
    {
        return Ok(name);
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        "the name of a sandbox has only letters, digits and `-`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str) -> SandboxInfo {
        serde_json::from_value(json!({
            "sandboxID": "i1",
            "startedAt": "2026-11-20T10:00:00.5Z",
            "endAt": "2026-11-20T10:05:00Z",
            "envdVersion": version,
        }))
        .unwrap()
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, expected) in [
            ("0.5.7", true),
            ("0.5.10", true),
            ("v1.0.0", true),
            ("0.6", true),
            ("0.5.7-rc1", true),
            ("0.5.6", false),
            ("0.4.99", false),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(info(version).is_at_least([0, 5, 7]), expected, "{version}");
        }
    }

    #[test]
    fn r_11_the_remaining_lifetime_is_never_negative() {
        let info = info("");
        let start = u64::try_from(info.started_at.as_millisecond()).unwrap();
        let clock = Clock::manual(start);
        assert_eq!(
            info.remaining_lifetime(&clock),
            Duration::from_millis(299_500)
        );
        clock.advance(Duration::from_mins(10));
        assert_eq!(info.remaining_lifetime(&clock), Duration::ZERO);
    }

    #[test]
    fn names_that_would_change_a_request_are_refused() {
        for name in ["", "a/b", "a?b", "a.b", "a%2fb", "-a", "ä", &"a".repeat(64)] {
            assert_eq!(check_name(name).unwrap_err().kind(), ErrorKind::InvalidName);
        }
        assert!(check_name("i3xy8z-4f2a").is_ok());
    }
}
