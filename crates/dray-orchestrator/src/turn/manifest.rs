//! Loads the manifest of a request (quickapps 2.2) with the permissions of its source.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_agent::manifest::{InvalidManifest, Manifest, ManifestReader};
use dray_dial::DialClient;
use serde_json::Value;

use crate::http::ManifestSource;
use crate::manifests::ManifestDirectory;
use crate::permissions::{CallerGrants, CallerIdentity, ManifestGrant};

/// A manifest and the permissions that apply to it.
#[derive(Clone, Debug)]
pub(super) struct LoadedManifest {
    pub(super) manifest: Arc<Manifest>,
    /// The permissions of the manifest; `None` for one of the operator, which may name everything.
    pub(super) grant: Option<Arc<ManifestGrant>>,
}

/// Loads manifests from requests, from DIAL and from the operator's directory.
pub(crate) struct ManifestLoader {
    pub(crate) reader: Arc<ManifestReader>,
    pub(crate) manifests: Arc<ManifestDirectory>,
    /// The permissions of manifests that did not come from the operator.
    pub(crate) grants: CallerGrants,
    /// Client for the applications of DIAL; `None` without DIAL.
    pub(crate) core: Option<DialClient>,
    /// The local manifest of requests that name none.
    pub(crate) default_manifest: Option<String>,
}

impl ManifestLoader {
    /// The manifest that a request names, read and checked. Loading uses none of its addresses and programs.
    pub(super) async fn load(
        &self,
        caller: &Caller,
        identity: &CallerIdentity,
        source: &ManifestSource,
    ) -> Result<LoadedManifest, RequestFailure> {
        match source {
            ManifestSource::Given(document) => {
                let grant = self.grants.of_header(identity)?;
                self.read_granted(document.clone(), grant)
            }
            ManifestSource::Application(id) => {
                // The permission is checked first: no manifest is fetched for a caller that may not use the
                // application.
                self.grants.check_agent(identity, id)?;
                let grant = self.grants.of_application()?;
                let document = self.fetch_application(caller, id).await?;
                self.read_granted(document, grant)
            }
            ManifestSource::Named(name) => self.load_local(identity, name),
            ManifestSource::Default => match &self.default_manifest {
                Some(name) => self.load_local(identity, name),
                None => Err(RequestFailure::new(
                    400,
                    "The request names no manifest: send X-DIAL-APPLICATION-ID or \
                     X-DIAL-APPLICATION-PROPERTIES, or name a local manifest as model.",
                )),
            },
        }
    }

    fn load_local(
        &self,
        identity: &CallerIdentity,
        name: &str,
    ) -> Result<LoadedManifest, RequestFailure> {
        self.grants.check_agent(identity, name)?;
        let manifest = self.manifests.get(name)?.ok_or_else(|| {
            RequestFailure::new(404, format!("The manifest '{name}' does not exist."))
        })?;
        Ok(LoadedManifest {
            manifest,
            grant: None,
        })
    }

    fn read_granted(
        &self,
        document: Value,
        grant: &Arc<ManifestGrant>,
    ) -> Result<LoadedManifest, RequestFailure> {
        let reading = self
            .reader
            .manifest(document)
            .map_err(|invalid| refused_manifest_failure(&invalid))?;
        for warning in &reading.warnings {
            tracing::warn!("manifest: {warning}");
        }
        let mut manifest = reading.value;
        // The manifest is restricted before it is returned: until then no name in it is resolved, no address connected
        // to and no program started.
        grant.restrict(&mut manifest)?;
        Ok(LoadedManifest {
            manifest: Arc::new(manifest),
            grant: Some(Arc::clone(grant)),
        })
    }

    async fn fetch_application(&self, caller: &Caller, id: &str) -> Result<Value, RequestFailure> {
        let failed = |reason: &str| {
            let message = format!("Error while fetching application {id}: {reason}");
            RequestFailure::new(500, message).kind("internal_server_error")
        };
        // The application was not fetched, so this is not the failure of quickapps 2.2, and another attempt fails too.
        let Some(core) = &self.core else {
            return Err(RequestFailure::new(
                400,
                "X-DIAL-APPLICATION-ID names an application of DIAL, and `dial_url` of this service is not set. Name a \
                 local manifest as model, or send X-DIAL-APPLICATION-PROPERTIES.",
            ));
        };
        let application = core.application(caller, id).await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not fetch an application"
            );
            match error.status {
                // The message has only the status, because the body is text of another service.
                Some(status) => failed(&format!("status {status}")),
                None => failed("DIAL Core does not respond"),
            }
        })?;
        application
            .get("application_properties")
            .filter(|properties| !properties.is_null())
            .cloned()
            .ok_or_else(|| failed("it has no application_properties"))
    }
}

/// A refused manifest: every problem with its path (quickapps 46).
fn refused_manifest_failure(invalid: &InvalidManifest) -> RequestFailure {
    let message = format!("The manifest is not valid:\n{invalid}");
    RequestFailure::new(400, message.clone()).display(message)
}
