//! Where a request's manifest comes from (quickapps 2.2).

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::failure::Failure;
use dray_agent::manifest::{Invalid, Manifest};
use serde_json::Value;

use super::Parts;
use crate::http::ManifestSource;

impl Parts {
    /// The manifest that a request names, read and checked.
    pub(super) async fn manifest(
        &self,
        caller: &Caller,
        source: &ManifestSource,
    ) -> Result<Arc<Manifest>, Failure> {
        match source {
            ManifestSource::Given(document) => self.read(document.clone()),
            ManifestSource::Application(id) => {
                let document = self.fetch(caller, id).await?;
                self.read(document)
            }
            ManifestSource::Named(name) => self.local(name),
            ManifestSource::Default => match &self.config.default_manifest {
                Some(name) => self.local(name),
                None => Err(Failure::new(
                    400,
                    "The request names no manifest: send X-DIAL-APPLICATION-ID or \
                     X-DIAL-APPLICATION-PROPERTIES, or name a local manifest as model.",
                )),
            },
        }
    }

    fn local(&self, name: &str) -> Result<Arc<Manifest>, Failure> {
        self.manifests
            .get(name)?
            .ok_or_else(|| Failure::new(404, format!("There is no manifest '{name}'.")))
    }

    fn read(&self, document: Value) -> Result<Arc<Manifest>, Failure> {
        let reading = self
            .reader
            .manifest(document)
            .map_err(|invalid| refused(&invalid))?;
        for warning in &reading.warnings {
            tracing::warn!("manifest: {warning}");
        }
        Ok(Arc::new(reading.value))
    }

    async fn fetch(&self, caller: &Caller, id: &str) -> Result<Value, Failure> {
        let failed = |reason: &str| {
            let message = format!("Error while fetching application {id}: {reason}");
            Failure::new(500, message).kind("internal_server_error")
        };
        let Some(core) = &self.core else {
            return Err(failed("this service has no DIAL_URL"));
        };
        let told = core.application(caller, id).await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an application was not told"
            );
            match error.status {
                Some(status) => failed(&format!("status {status}")),
                None => failed("DIAL Core does not answer"),
            }
        })?;
        told.get("application_properties")
            .filter(|properties| !properties.is_null())
            .cloned()
            .ok_or_else(|| failed("it has no application_properties"))
    }
}

/// A refused manifest: every problem with its path (quickapps 46).
fn refused(invalid: &Invalid) -> Failure {
    let message = format!("The manifest is not valid:\n{invalid}");
    Failure::new(400, message.clone()).display(message)
}
