//! The control API: finds sandboxes and reads their state.

use std::time::Duration;

use dray_http::{HttpClient, HttpResponse, HttpSettings, parse_base_url};
use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_hosted::{MessageRefusal, refused, remaining_lifetime, require_key, unanswered};
use dray_types::Clock;
use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::{Config, ConfigError};

/// A sandbox as the API describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxInfo {
    pub(crate) id: String,
    #[serde(default)]
    state: String,
    #[serde(default, deserialize_with = "time")]
    auto_destroy_at: Option<Timestamp>,
    #[serde(default)]
    toolbox_proxy_url: String,
}

/// The key in use as the API describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyInfo {
    #[serde(default, deserialize_with = "time")]
    expires_at: Option<Timestamp>,
}

/// Reads a time of RFC 3339, which may be absent or empty.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(D::Error::custom))
        .transpose()
}

impl SandboxInfo {
    /// Fails unless the state allows the toolbox to work.
    fn usable(self) -> Result<Self, Error> {
        let kind = match self.state.as_str() {
            "destroyed" | "destroying" => ErrorKind::SandboxGone,
            "stopped" | "stopping" | "archived" | "archiving" => ErrorKind::SandboxStopped,
            "paused" | "pausing" => ErrorKind::SandboxPaused,
            // The toolbox works in these states. The empty state is an API that does not report one.
            "started" | "resizing" | "snapshotting" | "forking" | "" => return Ok(self),
            // All other states are transitions, so a later attempt may succeed.
            _ => ErrorKind::Unavailable,
        };
        Err(Error::new(kind, format!("the sandbox is {}", self.state)))
    }

    /// The remaining lifetime; `None` for a sandbox without an end.
    pub(crate) fn remaining_lifetime(&self, clock: &Clock) -> Option<Duration> {
        let end = self.auto_destroy_at?;
        Some(remaining_lifetime(end.as_millisecond(), clock))
    }
}

/// The API of one organization.
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

    /// The sandbox of this id or name.
    pub(crate) async fn find(&self, name: &str) -> Result<SandboxInfo, Error> {
        let name = check_name(name)?;
        let response = self.get(&format!("/sandbox/{name}")).await?;
        let info: SandboxInfo = match response.status() {
            200 => response.json().await.map_err(unanswered)?,
            // For this request 404 can only mean that the sandbox does not exist.
            404 | 410 => return Err(Error::new(ErrorKind::SandboxGone, "no such sandbox")),
            _ => return Err(refused::<MessageRefusal>(response).await),
        };
        // The id becomes part of the path of every toolbox request.
        let invalid = "the API reports a sandbox without a valid id";
        check_name(&info.id).map_err(|_| Error::new(ErrorKind::Protocol, invalid))?;
        Ok(info)
    }

    /// Requests the description of the key in use, which fails if the key is not accepted. Returns the time at which
    /// the key expires, if it does.
    pub(crate) async fn verify_key(&self) -> Result<Option<Timestamp>, Error> {
        let response = self.get("/api-keys/current").await?;
        if response.status() != 200 {
            return Err(refused::<MessageRefusal>(response).await);
        }
        let key: KeyInfo = response.json().await.map_err(unanswered)?;
        Ok(key.expires_at)
    }

    /// Sends a GET request for a path of the API.
    async fn get(&self, path: &str) -> Result<HttpResponse, Error> {
        require_key(&self.config.api_key)?;
        let base = self.config.api_url.trim_end_matches('/');
        let request = self.client.get(&format!("{base}{path}"));
        let request = request.authorization("Bearer", &self.config.api_key);
        request.send(&|_| {}).await.map_err(unanswered)
    }

    /// The sandbox of this id, when it can be used.
    pub(crate) async fn usable(&self, id: &str) -> Result<SandboxInfo, Error> {
        let info = self.find(id).await?;
        // A sandbox may have the id of another one as its name.
        if info.id != id {
            let other = "the name means another sandbox now";
            return Err(Error::new(ErrorKind::SandboxGone, other));
        }
        info.usable()
    }

    /// URL of a sandbox's toolbox, without a slash at the end.
    pub(crate) fn toolbox(&self, info: &SandboxInfo) -> Result<String, Error> {
        let url = &info.toolbox_proxy_url;
        let base = self.config.toolbox_url.as_ref().unwrap_or(url);
        let parsed = parse_base_url(base)
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "the toolbox URL is not valid"))?;
        // The key is sent to this URL, so a response must not make the client send the key without TLS.
        if self.config.toolbox_url.is_none()
            && parsed.scheme() == "http"
            && parse_base_url(&self.config.api_url).is_some_and(|api| api.scheme() == "https")
        {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the toolbox URL does not use TLS",
            ));
        }
        Ok(format!("{}/{}", base.trim_end_matches('/'), info.id))
    }
}

/// Checks a name, which becomes a part of request paths without escaping.
fn check_name(name: &str) -> Result<&str, Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // `.` and `..` are allowed characters, but would change the path. The empty name counts too.
    let dots = name.bytes().all(|byte| byte == b'.');
    if !dots && name.len() <= 128 && name.bytes().all(is_allowed) {
        return Ok(name);
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        "the name of a sandbox has only letters, digits, `-`, `_` and `.`",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(state: &str, toolbox: &str) -> SandboxInfo {
        let end = "2026-11-20T10:05:00Z";
        serde_json::from_value(json!({
            "id": "i1", "state": state, "toolboxProxyUrl": toolbox, "autoDestroyAt": end,
        }))
        .unwrap()
    }

    #[test]
    fn every_state_has_a_kind() {
        for (state, expected) in [
            ("destroyed", ErrorKind::SandboxGone),
            ("archived", ErrorKind::SandboxStopped),
            ("stopping", ErrorKind::SandboxStopped),
            ("paused", ErrorKind::SandboxPaused),
            ("starting", ErrorKind::Unavailable),
            ("a new one", ErrorKind::Unavailable),
        ] {
            assert_eq!(info(state, "").usable().unwrap_err().kind(), expected);
        }
        assert!(info("started", "").usable().is_ok());
    }

    #[test]
    fn the_key_is_not_sent_to_a_toolbox_without_tls() {
        let control = ControlClient::new(&Config::default(), Clock::system()).unwrap();
        let toolbox = |url| control.toolbox(&info("started", url));
        assert_eq!(toolbox("https://p/t/").unwrap(), "https://p/t/i1");
        for url in ["http://p/t", "HTTP://p/t", "", "https://u:p@host"] {
            assert_eq!(toolbox(url).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn names_that_would_change_a_request_are_refused() {
        for name in ["", "..", "a/b", "a?b", "a%2fb", "ä", &"a".repeat(129)] {
            assert_eq!(check_name(name).unwrap_err().kind(), ErrorKind::InvalidName);
        }
        assert!(check_name("0b1f-my_box.2").is_ok());
    }
}
