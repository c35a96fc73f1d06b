//! The service: it listens for chats and calls the other services over the bus.

mod parts;
mod reload;

use std::net::SocketAddr;
use std::sync::Arc;

use dray_bus::Permissions;
use dray_proto::v1;
use dray_service::{Request, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::StoreAccess;
use dray_types::{Fault, FaultCode};
use opentelemetry::metrics::Meter;
use tokio::net::TcpListener;

use self::parts::{LastingParts, approvals, client_files};
use self::reload::{SurfaceReload, reload_metrics};
use crate::approvals::ApprovalStore;
use crate::client_files::ClientFiles;
use crate::config::Config;
use crate::http::{self, CurrentSurface};
use crate::metrics::OrchestratorMetrics;
use crate::records::RecordKind;

/// The running service.
#[derive(Debug)]
pub struct Orchestrator {
    address: SocketAddr,
    approvals: ApprovalStore,
    client_files: ClientFiles,
}

impl Service for Orchestrator {
    const NAME: &'static str = "orchestrator";
    type Config = Config;

    fn plan() -> ServicePlan {
        // The call is written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        // The listener is bound first, so that a port in use stops the start before anything else is opened.
        let listener = TcpListener::bind(config.listen).await.map_err(|error| {
            StartError::with_source(format!("cannot listen on {}", config.listen), error)
        })?;
        let address = listener.local_addr().map_err(|error| {
            StartError::with_source("cannot read the address of the listener", error)
        })?;
        let drain = config.drain.as_duration();
        let tenant = config.tenant();
        let approvals = approvals(&config, cx, &tenant);
        let client_files = client_files(&config, cx, &tenant);
        let lasting = LastingParts::new(&config, address, cx);
        let (surface, parts) = lasting.build(config, None)?;
        let surface = CurrentSurface::new(lasting.surface(surface));
        let sweeping = http::sweep_runs(surface.clone());
        cx.listeners.tasks.spawn(sweeping);
        let stop = cx.listeners.stop.clone();
        let served = http::serve_until(surface.router(), listener, stop, drain);
        cx.listeners.spawn(served);
        let reload = SurfaceReload::follow(lasting, surface, parts);
        cx.tasks.spawn(reload.run(cx.stop.clone()));
        cx.listen_addresses.open("chat", address);
        tracing::info!(%address, "listening for chats");
        Ok(Self {
            address,
            approvals,
            client_files,
        })
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::decide_in_chat)
            .answer(Self::list_file_holders)
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Talks to models and tools, and calls the other services for files.")
            .calls::<v1::FetchRequest>()
            .calls::<v1::ResolveRequest>()
            .calls::<v1::ReadAttachmentRequest>()
            .calls::<v1::ReadFilesRequest>()
            .calls::<v1::BuildContextRequest>()
            .calls::<v1::SubstituteIdsRequest>()
            .calls::<v1::FetchUserFileRequest>()
            .calls::<v1::ShowSessionRequest>()
            .calls::<v1::BindSessionRequest>()
            .calls::<v1::ProbeSandboxRequest>()
            .calls::<v1::StatSandboxRequest>()
            .calls::<v1::ListSandboxRequest>()
            .calls::<v1::GetSandboxFileRequest>()
            .calls::<v1::GetSandboxTreeRequest>()
            .calls::<v1::PutSandboxFileRequest>()
            .calls::<v1::SettleUploadsRequest>()
            .calls::<v1::SendFileRequested>()
            .calls::<v1::DeliveryOutcomeRequest>()
            .calls::<v1::IssueTicketRequest>()
            .calls::<v1::AskInChatRequest>()
            .publishes_work::<v1::PlaceUpload>()
            .publishes_event::<v1::TurnBegun>()
            .publishes_event::<v1::TurnEnded>()
            .publishes_event::<v1::TurnCallBegun>()
            .publishes_event::<v1::TurnCallEnded>()
            .publishes_audit::<v1::ApprovalAudit>()
            .lists_keys(crate::records::RECORD_BUCKET)
            .watches_keys(
                crate::records::RECORD_BUCKET,
                RecordKind::ResponseEvents.as_str(),
            )
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes()
    }

    fn instruments(meter: &Meter) {
        OrchestratorMetrics::new(meter);
        reload_metrics(meter);
    }
}

impl Orchestrator {
    /// The address on which the service listens for chats.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records what a person of a chat decided about a call of an agent of the caller's tenant. Orchestrators of all
    /// tenants on a bus share the subject and the bucket of records, so any of them may get the request. The caller
    /// vouches for tenant, person and chat; the permissions of the bus let `platform-delivery` alone call.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a request without a choice, `Unavailable` while the bus fails. After an error nothing is
    /// recorded.
    pub async fn decide_in_chat(
        self: Arc<Self>,
        request: Request<v1::DecideInChatRequest>,
    ) -> Result<v1::DecideInChatReply, Fault> {
        // The tenant of the request is used and not that of this process: the bus may give this process a request about
        // agents of another orchestrator.
        let approvals = self.approvals.for_tenant(request.meta.tenant.clone());
        let decided = approvals.decide_in_chat(&request.body).await;
        decided.map_err(|failure| {
            let code = match failure.status {
                400..=499 => FaultCode::InvalidArgument,
                _ => FaultCode::Unavailable,
            };
            Fault::new(code, failure.message)
        })
    }

    /// Lists the files with these contents that clients of the caller's tenant keep. Records of all tenants are in one
    /// bucket, so the reply does not depend on the tenant whose agents this process serves.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a request without a usable digest, `Unavailable` while the bus fails.
    pub async fn list_file_holders(
        self: Arc<Self>,
        request: Request<v1::ListFileHoldersRequest>,
    ) -> Result<v1::ListFileHoldersReply, Fault> {
        let files = self.client_files.for_tenant(request.meta.tenant.clone());
        files.list_holders(&request.body).await
    }
}

#[cfg(test)]
mod tests;
