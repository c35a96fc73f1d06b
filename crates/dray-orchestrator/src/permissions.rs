//! Who asks, and what they may use: enforced before anything is dialled, started, read or spent.
//!
//! - [`Identity`]: who a request is from, after its key was checked.
//! - [`Grants`]: what manifests may name that did not come from the operator, for each identity.
//! - [`Destinations`]: where the HTTP client for such manifests may connect.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::failure::Failure;
use dray_agent::manifest::Manifest;
use dray_http::{Client, Limits};

use crate::config::Config;
use crate::config::permissions::{CallerPermissions, ManifestPermissions, Permissions};

mod destinations;
mod manifest;
#[cfg(test)]
mod tests;

pub use destinations::Destinations;

/// Who a request is from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A local user; no key is asked for.
    Local,
    /// One of the operator's clients, by name.
    Client(String),
    /// A key that DIAL Core knows, by the bucket of its user.
    Dial(String),
}

impl Identity {
    /// A text that no other identity has.
    pub fn key(&self) -> String {
        match self {
            Self::Local => "local".to_owned(),
            Self::Client(name) => format!("client:{name}"),
            Self::Dial(bucket) => format!("dial:{bucket}"),
        }
    }
}

impl Permissions {
    /// The permissions of a caller.
    pub fn of(&self, identity: &Identity) -> CallerPermissions {
        match identity {
            Identity::Local => self.local.clone(),
            Identity::Client(name) => self.clients.get(name).cloned().unwrap_or_default(),
            Identity::Dial(_) => self.dial.clone(),
        }
    }
}

/// What manifests that did not come from the operator may name and connect to.
#[derive(Clone, Debug)]
pub(crate) struct ManifestGrant {
    permissions: ManifestPermissions,
    destinations: Arc<Destinations>,
    default_model: Option<String>,
    max_iterations: u32,
    max_file_bytes: u64,
    /// Connects only where the permissions allow it.
    pub(crate) client: Client,
}

impl ManifestGrant {
    fn new(permissions: &ManifestPermissions, config: &Config) -> Result<Arc<Self>, String> {
        let destinations = Arc::new(Destinations::new(permissions)?);
        let limits = Limits {
            connect: config.connect_timeout.as_duration(),
            ..Limits::default()
        };
        let guard = Arc::<Destinations>::clone(&destinations);
        let client = Client::guarded(limits, guard).map_err(|error| error.to_string())?;
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
    /// [`Failure`] with status 403 and every place that is refused.
    pub(crate) fn restrict(&self, manifest: &mut Manifest) -> Result<(), Failure> {
        let model = self.default_model.as_deref();
        let problems = manifest::problems(manifest, &self.permissions, &self.destinations, model);
        if !problems.is_empty() {
            let message = format!(
                "The manifest names what this caller may not use:\n{}",
                problems.join("\n")
            );
            return Err(forbidden(message));
        }
        let most = &mut manifest.orchestrator.max_iterations;
        *most = most.map(|most| most.min(self.max_iterations));
        let limit = &mut manifest.features.file_loading.size_limit;
        *limit = limit.map(|limit| limit.min(self.max_file_bytes));
        Ok(())
    }
}

/// The grants of all callers, made once.
#[derive(Debug)]
pub(crate) struct Grants {
    permissions: Permissions,
    clients: BTreeMap<String, Arc<ManifestGrant>>,
    dial: Option<Arc<ManifestGrant>>,
    local: Option<Arc<ManifestGrant>>,
    applications: Option<Arc<ManifestGrant>>,
}

impl Grants {
    /// The grants of a configuration.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
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

    /// What a manifest in the header of this caller may name.
    ///
    /// # Errors
    ///
    /// [`Failure`] with status 403 for a caller that may send none.
    pub(crate) fn of_header(&self, identity: &Identity) -> Result<&Arc<ManifestGrant>, Failure> {
        let grant = match identity {
            Identity::Local => self.local.as_ref(),
            Identity::Client(name) => self.clients.get(name),
            Identity::Dial(_) => self.dial.as_ref(),
        };
        grant.ok_or_else(|| {
            forbidden(
                "Manifests in X-DIAL-APPLICATION-PROPERTIES are not accepted from this caller. \
                 The operator can allow them under `orchestrator.permissions`.",
            )
        })
    }

    /// What the manifest of an application in DIAL Core may name.
    ///
    /// # Errors
    ///
    /// [`Failure`] with status 403 where applications are not accepted.
    pub(crate) fn of_application(&self) -> Result<&Arc<ManifestGrant>, Failure> {
        self.applications
            .as_ref()
            .ok_or_else(|| forbidden("Applications of DIAL Core are not accepted here."))
    }

    /// Checks that a caller may use the agent of this name or id.
    ///
    /// # Errors
    ///
    /// [`Failure`] with status 403.
    pub(crate) fn check_agent(&self, identity: &Identity, name: &str) -> Result<(), Failure> {
        if self.permissions.of(identity).allows_agent(name) {
            return Ok(());
        }
        Err(forbidden(format!(
            "The agent '{name}' is not for this caller."
        )))
    }
}

fn forbidden(message: impl Into<String>) -> Failure {
    let message = message.into();
    Failure::new(403, message.clone()).display(message)
}
