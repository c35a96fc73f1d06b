//! Calls that concern previews, and the endpoint that serves their links.

use std::sync::Arc;
use std::time::Duration;

use dray_preview::{
    NewPreview, PreviewEndpoint, PreviewError, PreviewMetrics, PreviewService, PreviewSystem,
};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::{Request, ServiceContext, StartError};
use dray_types::Fault;

use super::{SandboxTransfer, report};
use crate::config::Config;
use crate::error::Error;

/// Name of the endpoint among the addresses on which services listen.
const PREVIEW_ADDRESS_NAME: &str = "preview";

/// Binds the address of previews, where one is configured.
pub(super) async fn bind_endpoint(config: &Config) -> Result<Option<PreviewEndpoint>, StartError> {
    let Some(address) = config.preview.listen else {
        return Ok(None);
    };
    let bound = PreviewEndpoint::bind(address).await;
    let bound = bound
        .map_err(|error| StartError::with_source("the endpoint of previews cannot start", error));
    bound.map(Some)
}

impl SandboxTransfer {
    /// Begins to serve the links of previews.
    pub(super) fn serve_previews(&mut self, endpoint: PreviewEndpoint, cx: &ServiceContext) {
        let (address, settings) = (endpoint.address(), self.settings.get());
        let config = &settings.config;
        let service = PreviewService::new(PreviewSystem {
            bus: cx.bus.clone(),
            store: cx.store.clone(),
            source: Arc::new(self.opener()),
            clock: cx.clock.clone(),
            metrics: PreviewMetrics::new(&cx.meter),
            config: config.preview.clone(),
            tree_limits: config.preview.archive_limits(config.tree(0)),
            address: Some(address),
        });
        cx.listen_addresses.open(PREVIEW_ADDRESS_NAME, address);
        let listeners = &cx.listeners;
        let serving = endpoint.serve(service.clone(), listeners.stop.clone());
        listeners.spawn(serving);
        tracing::info!(%address, "previews are served");
        self.previews = Some(service);
    }

    /// Makes a preview and its link.
    pub async fn create_preview(
        self: Arc<Self>,
        request: Request<v1::CreatePreviewRequest>,
    ) -> Result<v1::CreatedPreview, Fault> {
        let Request { meta, body } = request;
        let created = async {
            let new_preview = NewPreview {
                sandbox: require_sandbox(body.sandbox)?,
                path: body.path,
                lifetime: match body.lifetime_seconds {
                    0 => None,
                    seconds => Some(Duration::from_secs(seconds.into())),
                },
                only_file: body.only_file,
                delivery_id: body.delivery_id,
            };
            self.previews()?.create(&meta, new_preview).await
        };
        created.await.map_err(|error| report_preview(&meta, error))
    }

    /// Lists the open previews of a sandbox reference, or those of a delivery.
    pub async fn list_previews(
        self: Arc<Self>,
        request: Request<v1::ListPreviewsRequest>,
    ) -> Result<v1::ListPreviewsReply, Fault> {
        let Request { meta, body } = request;
        let listed = async {
            let sandbox = require_sandbox(body.sandbox)?;
            self.previews()?
                .list(&meta.tenant, &sandbox, &body.delivery_id)
                .await
        };
        match listed.await {
            Ok(previews) => Ok(v1::ListPreviewsReply { previews }),
            Err(error) => Err(report_preview(&meta, error)),
        }
    }

    /// Ends a preview.
    pub async fn revoke_preview(
        self: Arc<Self>,
        request: Request<v1::RevokePreviewRequest>,
    ) -> Result<v1::Preview, Fault> {
        let Request { meta, body } = request;
        let revoked = async {
            let sandbox = require_sandbox(body.sandbox)?;
            self.previews()?
                .revoke(&meta, &sandbox, &body.preview_id)
                .await
        };
        revoked.await.map_err(|error| report_preview(&meta, error))
    }

    fn previews(&self) -> Result<&PreviewService, PreviewError> {
        self.previews.as_ref().ok_or(PreviewError::NotConfigured)
    }
}

fn require_sandbox(sandbox: Option<v1::SandboxRef>) -> Result<v1::SandboxRef, PreviewError> {
    let missing = || PreviewError::Opening(Box::new(InvalidMessage::Missing("sandbox").into()));
    sandbox
        .filter(|sandbox| sandbox.sandbox.is_some())
        .ok_or_else(missing)
}

/// Logs the failure and returns the fault. A failure of a sandbox has the same fault as in every other call about that
/// sandbox.
fn report_preview(meta: &dray_bus::Meta, error: PreviewError) -> Fault {
    match error {
        PreviewError::Sandbox(error) => report(meta, Error::Sandbox(error)),
        error => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                operation = %meta.operation,
                "a request about a preview was not served"
            );
            error.into()
        }
    }
}
