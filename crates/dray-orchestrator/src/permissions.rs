//! Callers and their permissions, which are enforced before anything is dialled, started, read or spent.
//!
//! - [`CallerIdentity`]: who a request is from, after its key was checked.
//! - `CallerGrants`: for each identity, the names and destinations that are allowed in manifests of callers.
//! - [`DestinationPolicy`]: the destinations to which the HTTP client for such manifests may connect.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use dray_agent::failure::RequestFailure;
use dray_agent::manifest::Manifest;
use dray_http::{HttpClient, HttpTimeouts};

use crate::config::Config;
use crate::config::permissions::{CallerPermissions, ManifestPermissions, Permissions};

mod destinations;
mod manifest;
#[cfg(test)]
mod tests;

pub use destinations::DestinationPolicy;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CallerIdentity {
    /// A local user, who needs no key.
    Local,
    /// One of the operator's clients, by name.
    Client(String),
    /// A key that DIAL Core knows, by the bucket of its user.
    Dial(String),
}

impl CallerIdentity {
    /// A text that is different for every caller.
    pub fn key(&self) -> String {
        match self {
            // The prefixes keep a client that is named `local` apart from a local user.
            Self::Local => "local".to_owned(),
            Self::Client(name) => format!("client:{name}"),
            Self::Dial(bucket) => format!("dial:{bucket}"),
        }
    }
}

impl CallerIdentity {
    /// The caller of plain endpoints with this key; `None` for users of DIAL, whose keys are not known.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        if key == "local" {
            return Some(Self::Local);
        }
        let name = key.strip_prefix("client:")?;
        Some(Self::Client(name.to_owned()))
    }
}

impl Permissions {
    /// The permissions of a caller.
    pub fn of(&self, identity: &CallerIdentity) -> &CallerPermissions {
        /// A client without an entry may use every agent and send no manifest.
        static WITHOUT_ENTRY: LazyLock<CallerPermissions> =
            LazyLock::new(CallerPermissions::default);
        match identity {
            CallerIdentity::Local => &self.local,
            CallerIdentity::Client(name) => self.clients.get(name).unwrap_or(&WITHOUT_ENTRY),
            CallerIdentity::Dial(_) => &self.dial,
        }
    }
}

/// The permissions of manifests that did not come from the operator: names and destinations.
#[derive(Clone, Debug)]
pub(crate) struct ManifestGrant {
    permissions: ManifestPermissions,
    destinations: Arc<DestinationPolicy>,
    default_model: Option<String>,
    max_iterations: u32,
    max_file_bytes: u64,
    /// Connects only where the permissions allow it.
    pub(crate) client: HttpClient,
}

impl ManifestGrant {
    fn new(permissions: &ManifestPermissions, config: &Config) -> Result<Arc<Self>, String> {
        let destinations = Arc::new(DestinationPolicy::new(permissions)?);
        let limits = HttpTimeouts {
            connect: config.connect_timeout.as_duration(),
            ..HttpTimeouts::default()
        };
        let guard = Arc::<DestinationPolicy>::clone(&destinations);
        // The text of a manifest does not show where a name resolves to; the guard checks that for each connection.
        let client = HttpClient::guarded(limits, guard).map_err(|error| error.to_string())?;
        Ok(Arc::new(Self {
            permissions: permissions.clone(),
            destinations,
            default_model: config.default_orchestrator_deployment.clone(),
            max_iterations: config.max_iterations,
            max_file_bytes: config.files.size_limit.as_u64(),
            client,
        }))
    }

    /// Checks everything that a manifest names, and lowers its limits to those of the service.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 403 and every place that is refused.
    pub(crate) fn restrict(&self, manifest: &mut Manifest) -> Result<(), RequestFailure> {
        let model = self.default_model.as_deref();
        let problems =
            manifest::manifest_problems(manifest, &self.permissions, &self.destinations, model);
        if !problems.is_empty() {
            let message = format!(
                "The manifest names what this caller may not use:\n{}",
                problems.join("\n")
            );
            return Err(forbidden_failure(message));
        }
        let max_iterations = &mut manifest.orchestrator.max_iterations;
        // `None` stays, because it means the limit of the service.
        *max_iterations =
            max_iterations.map(|max_iterations| max_iterations.min(self.max_iterations));
        let limit = &mut manifest.features.file_loading.size_limit;
        *limit = limit.map(|limit| limit.min(self.max_file_bytes));
        Ok(())
    }
}

/// The grants of all callers, made once.
#[derive(Debug)]
pub(crate) struct CallerGrants {
    permissions: Permissions,
    clients: BTreeMap<String, Arc<ManifestGrant>>,
    dial: Option<Arc<ManifestGrant>>,
    local: Option<Arc<ManifestGrant>>,
    applications: Option<Arc<ManifestGrant>>,
}

impl CallerGrants {
    /// The grants of a configuration.
    ///
    /// # Errors
    ///
    /// The problem of the configuration, for the operator.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let permissions = config.permissions.clone();
        let grant = |manifests: &ManifestPermissions| {
            manifests
                .enabled
                .then(|| ManifestGrant::new(manifests, config))
                .transpose()
        };
        let mut clients = BTreeMap::new();
        for (name, caller) in &permissions.clients {
            if let Some(grant) = grant(&caller.manifest_header)? {
                clients.insert(name.clone(), grant);
            }
        }
        Ok(Self {
            clients,
            dial: grant(&permissions.dial.manifest_header)?,
            local: grant(&permissions.local.manifest_header)?,
            applications: grant(&permissions.applications)?,
            permissions,
        })
    }

    /// The permissions of a manifest in the header of this caller.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 403 for a caller that may send none.
    pub(crate) fn of_header(
        &self,
        identity: &CallerIdentity,
    ) -> Result<&Arc<ManifestGrant>, RequestFailure> {
        let grant = match identity {
            CallerIdentity::Local => self.local.as_ref(),
            CallerIdentity::Client(name) => self.clients.get(name),
            CallerIdentity::Dial(_) => self.dial.as_ref(),
        };
        grant.ok_or_else(|| {
            forbidden_failure(
                "Manifests in X-DIAL-APPLICATION-PROPERTIES are not accepted from this caller. \
                 The operator can allow them under `orchestrator.permissions`.",
            )
        })
    }

    /// The permissions of the manifest of an application in DIAL Core.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 403 where applications are not accepted.
    pub(crate) fn of_application(&self) -> Result<&Arc<ManifestGrant>, RequestFailure> {
        self.applications
            .as_ref()
            .ok_or_else(|| forbidden_failure("Applications of DIAL Core are not accepted here."))
    }

    /// Checks that a caller may use the agent of this name or id.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 403.
    pub(crate) fn check_agent(
        &self,
        identity: &CallerIdentity,
        name: &str,
    ) -> Result<(), RequestFailure> {
        if self.permissions.of(identity).allows_agent(name) {
            return Ok(());
        }
        Err(forbidden_failure(format!(
            "This caller may not use the agent '{name}'."
        )))
    }
}

fn forbidden_failure(message: impl Into<String>) -> RequestFailure {
    let message = message.into();
    RequestFailure::new(403, message.clone()).display(message)
}
