//! The settings of a console: the data that it shows, and the permissions of people who log in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use dray_bus::Bus;
use dray_store::{DerivedKeys, Store};
use dray_types::{Secret, TenantId};

use crate::oidc::OidcSettings;
use crate::rules_in_force::PolicyBucketReader;

/// The role of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsoleRole {
    /// May see every page, but not change anything or download content of users.
    Look,
    /// May also resend, redrive, copy files into and out of sandboxes, chat with agents, and resolve names.
    Act,
}

impl ConsoleRole {
    /// The name in links, on the command line and in audit events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Act => "act",
        }
    }
}

impl fmt::Display for ConsoleRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ConsoleRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "look" => Ok(Self::Look),
            "act" => Ok(Self::Act),
            _ => Err("write `look` or `act`".to_owned()),
        }
    }
}

/// Settings of the console's server.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// URL under which browsers reach the console where a proxy is in front of it, `https://console.example.org`. With
    /// `https` its cookie is never sent over plain HTTP.
    pub public_url: Option<String>,
    /// The highest role of a login: a link for a higher role is refused.
    pub highest_role: ConsoleRole,
    /// Events that the index keeps, newest first; each takes at most about 4 KiB of memory.
    pub max_events: usize,
    /// Largest file that is copied into a sandbox, in bytes.
    pub max_upload_bytes: u64,
    /// The identity provider; without one, people log in with links alone.
    pub oidc: Option<OidcSettings>,
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            public_url: None,
            highest_role: ConsoleRole::Look,
            max_events: 10_000,
            max_upload_bytes: 256 * 1024 * 1024,
            oidc: None,
        }
    }
}

/// The running system that a console shows.
#[derive(Clone)]
pub struct ConsoleSystem {
    /// The bus with calls, events and dead letters.
    pub bus: Bus,
    /// The store of the services; without one no file is copied into or out of a sandbox.
    pub store: Option<Store>,
    /// The only tenant whose data is shown.
    pub tenant: TenantId,
    /// The configuration of this process with the source of each value, for the set-up page. Holds no secrets.
    pub config: Vec<ConfigValue>,
    /// The orchestrator of the playground; without it, the playground cannot be used.
    pub agents: Option<AgentEndpoint>,
    /// Reads the egress policy in the bucket of the bus; without it, pages show no revision.
    pub policy_bucket: Option<Arc<dyn PolicyBucketReader>>,
    /// Keys of `LoginLink`s, from [`dray_store::Store::derive_keys`] with
    /// [`LINK_KEY_PURPOSE`](crate::LINK_KEY_PURPOSE).
    pub link_keys: DerivedKeys,
}

impl fmt::Debug for ConsoleSystem {
    /// Omits the key, because its holder can log in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleSystem")
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

/// An orchestrator, as its clients reach it.
#[derive(Clone, Debug)]
pub struct AgentEndpoint {
    /// Base of its URLs, such as `http://127.0.0.1:5000`.
    pub url: String,
    /// Key of one of its clients (`orchestrator.clients`); `None` for an orchestrator on loopback that requires no key.
    pub key: Option<Secret>,
}

/// One value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue {
    /// Section and field, such as `egress-fetcher.enabled`.
    pub key: String,
    /// The value as JSON; `***` for a secret.
    pub value: String,
    /// The source of the value: `default`, a file, a variable or an option.
    pub source: String,
}
