//! The rule about files from the web: whether a download ticket may hand them out.
//!
//! Files leave the system through tickets as well as through chats, whose rules are `platform-delivery.web_files`. The
//! origin of a file is read from the records that egress-fetcher keeps in the store under the digest of the bytes.

use std::time::Duration;

use dray_guard::HostPattern;
use dray_service::config::ConfigProblem;
use dray_store::{ContentOrigins, RequestError};
use dray_types::{Deadline, Sha256Digest, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TicketService;
use crate::problem::TicketProblem;
use crate::record::StoredContent;

/// Longest time for reading the origins of one file.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Which files from the web a download ticket hands out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebFilePolicy {
    /// Decision about download tickets for files from the web: `allow`, `report` (the log says what `deny` would
    /// refuse) or `deny`. Default `allow`.
    pub outcome: WebFileOutcome,
    /// Hosts whose files are always handed out, as `example.org` or `*.example.org`. A file that was fetched over
    /// redirects has several hosts, and each must be in the list. Default none.
    pub allowed_hosts: Vec<String>,
    /// Whether the rule also applies to files of sandboxes without a known fetch: a program may have fetched or changed
    /// them. Default false.
    pub sandbox_files: bool,
}

/// Decision about a ticket for a file from the web.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebFileOutcome {
    /// The ticket is made and used like any other.
    #[default]
    Allow,
    /// As `Allow`; a line of the log names the host.
    Report,
    /// The ticket is not created, and an existing ticket is not used.
    Deny,
}

impl WebFilePolicy {
    /// Checks that each allowed host is a pattern.
    pub(crate) fn problems(&self) -> Vec<ConfigProblem> {
        let is_pattern = |host: &&String| HostPattern::parse(host).is_ok();
        if self.allowed_hosts.iter().all(|host| is_pattern(&host)) {
            return Vec::new();
        }
        vec![ConfigProblem::new(
            "web_files.allowed_hosts",
            "must be written like example.org or *.example.org",
        )]
    }

    /// Returns why the rule applies to content with these origins: a host, or a text that says what is unknown. `None`
    /// if the rule does not apply.
    fn objection(&self, origins: &ContentOrigins, is_sandbox_file: bool) -> Option<String> {
        for fetch in &origins.fetches {
            match fetch.hosts.iter().find(|host| !self.allows(host)) {
                Some(host) => return Some(format!("`{host}`")),
                None if fetch.hosts.is_empty() => return Some("an unknown host".to_owned()),
                None => {}
            }
        }
        // Records that were not read may name any host.
        if origins.is_cut {
            return Some("hosts whose records were not all read".to_owned());
        }
        let is_unknown = origins.fetches.is_empty() && is_sandbox_file && self.sandbox_files;
        is_unknown.then(|| "a sandbox, and no fetch of it is known".to_owned())
    }

    fn allows(&self, host: &str) -> bool {
        self.allowed_hosts
            .iter()
            .any(|text| HostPattern::parse(text).is_ok_and(|pattern| pattern.matches(host)))
    }
}

impl TicketService {
    /// Refuses content that the rule keeps from download tickets.
    ///
    /// # Errors
    ///
    /// The rule applies to the content, or its origins cannot be read from the store.
    pub(crate) async fn check_origin(
        &self,
        tenant: &TenantId,
        content: &StoredContent,
        is_sandbox_file: bool,
    ) -> Result<(), TicketProblem> {
        let policy = &self.inner.web_files;
        // `allow` needs no origins, so every download is spared the request to the store.
        if policy.outcome == WebFileOutcome::Allow {
            return Ok(());
        }
        let sha256: Sha256Digest = content
            .sha256
            .parse()
            .map_err(|_| TicketProblem::Unavailable)?;
        let deadline = Deadline::after(self.inner.clock.now_ms(), ORIGIN_TIMEOUT);
        let reading = self.inner.store.origins(tenant, sha256, Some(deadline));
        let origins = reading.await.map_err(|error| unreadable_origins(&error))?;
        let Some(origin) = policy.objection(&origins, is_sandbox_file) else {
            return Ok(());
        };
        tracing::info!(
            %sha256,
            origin,
            outcome = ?policy.outcome,
            "the rule about files from the web applies to a ticket"
        );
        match policy.outcome {
            WebFileOutcome::Deny => Err(TicketProblem::FileFromWeb { origin }),
            WebFileOutcome::Allow | WebFileOutcome::Report => Ok(()),
        }
    }
}

/// A file whose origins cannot be read is not handed out: an operator can repair the store, and the holder can try
/// again.
fn unreadable_origins(error: &RequestError) -> TicketProblem {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the origin of a file of a ticket cannot be read"
    );
    TicketProblem::Unavailable
}
