//! Whether links to files from the web are made. A link can leave the system as text, to which no rule about files
//! applies.

use dray_types::{Claim, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::PresignError;
use crate::origin::ContentOrigins;
use crate::store::Store;

/// Decision about a link to content that came from the web.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebLinkOutcome {
    /// The link is made like any other.
    #[default]
    Allow,
    /// As `Allow`; a line of the log names the host.
    Report,
    /// The link is not made.
    Deny,
}

impl Store {
    /// Refuses a link to content that came from the web, where the options say so.
    ///
    /// # Errors
    /// [`PresignError::FromWeb`]; [`PresignError::Origin`] when the store cannot say where the content came from.
    pub(crate) async fn check_web_link(
        &self,
        tenant: &TenantId,
        claim: &Claim,
    ) -> Result<(), PresignError> {
        let outcome = self.inner.options.web_links;
        // `allow` needs no origins, so every link is spared the request.
        if outcome == WebLinkOutcome::Allow {
            return Ok(());
        }
        let sha256 = claim.artifact.sha256;
        let found = self.origins(tenant, sha256, None).await;
        let Some(host) = web_host(&found.map_err(PresignError::Origin)?) else {
            return Ok(());
        };
        tracing::info!(%sha256, host, ?outcome, "the rule about links to files from the web applies");
        match outcome {
            WebLinkOutcome::Deny => Err(PresignError::FromWeb { host }),
            WebLinkOutcome::Allow | WebLinkOutcome::Report => Ok(()),
        }
    }
}

/// A host from which content was fetched; `None` where no fetch is known.
fn web_host(origins: &ContentOrigins) -> Option<String> {
    let unknown = || "an unknown host".to_owned();
    match origins.fetches.first() {
        Some(fetch) => Some(fetch.hosts.last().cloned().unwrap_or_else(unknown)),
        None => origins.is_cut.then(unknown),
    }
}
