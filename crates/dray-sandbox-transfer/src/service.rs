//! The service: the calls that it answers and the work that it consumes.

mod backend_checks;
mod command_audit;
mod command_output;
mod command_stream;
mod commands;
mod files;
mod opener;
mod placement;
mod previews;
mod program_end;
mod session;
pub(crate) mod trees;

use std::error::Error as StdError;
use std::sync::Arc;

use dray_bus::{Meta, Permissions};
use dray_preview::{PreviewMetrics, PreviewService};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_sandbox::{Backend, Handle, SandboxPath};
use dray_service::{ReplaceableValue, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::{Store, StoreAccess};
use dray_transfer_engine::policy::{Policy, expand};
use dray_transfer_engine::{Engine, TransferFailure};
use dray_types::{Clock, Fault, TenantId};
use opentelemetry::metrics::Meter;
use tokio_util::task::TaskTracker;

use crate::commands::CommandLedger;
use crate::config::Config;
use crate::error::Error;
use crate::keyed_locks::KeyedLocks;
use crate::reload::{SettingsReload, reload_metrics};
use crate::sessions::Sessions;
use crate::settings::TransferSettings;
use crate::uploads::Uploads;
use crate::wire;
use command_audit::CommandAuditor;
use opener::SandboxOpener;

/// The running service with its records and open sandboxes.
#[derive(Debug)]
pub struct SandboxTransfer {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) settings: ReplaceableValue<TransferSettings>,
    pub(crate) sessions: Sessions,
    pub(crate) uploads: Uploads,
    pub(crate) placement_locks: KeyedLocks,
    pub(crate) commands: CommandLedger,
    auditor: CommandAuditor,
    /// Waits for the ends of programs whose calls were dropped.
    ending_programs: TaskTracker,
    /// Absent where no address is configured for them.
    pub(crate) previews: Option<PreviewService>,
}

impl Service for SandboxTransfer {
    const NAME: &'static str = "sandbox-transfer";
    type Config = Config;

    fn plan() -> ServicePlan {
        // The call is written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        let backends = config
            .backends(&cx.clock)
            .map_err(|error| StartError::with_source("a sandbox backend cannot be used", error))?;
        let endpoint = previews::bind_endpoint(&config).await?;
        let mut service = Self::with_backends(config, cx, backends);
        if let Some(endpoint) = endpoint {
            service.serve_previews(endpoint, cx);
        }
        let reload = SettingsReload::follow(service.settings.clone(), cx);
        cx.tasks.spawn(reload.run(cx.stop.clone()));
        Ok(service)
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::probe)
            .answer(Self::stat)
            .answer(Self::list)
            .answer(Self::get)
            .answer(Self::put)
            .answer(Self::make_directory)
            .answer(Self::remove)
            .answer(Self::get_tree)
            .answer(Self::put_tree)
            .answer(Self::bind)
            .answer(Self::show)
            .answer(Self::unbind)
            .answer(Self::find)
            .answer(Self::settle)
            .answer(Self::check_backends)
            .answer(Self::exec)
            .answer_streaming(Self::exec_stream)
            .answer(Self::create_preview)
            .answer(Self::list_previews)
            .answer(Self::revoke_preview)
            .consume(Self::place)
    }

    /// Waits until the programs of dropped calls have ended: their children may have left their process group, and are
    /// found only by a command that this process runs.
    async fn stop(&self) {
        self.ending_programs.close();
        self.ending_programs.wait().await;
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Moves files into and out of sandboxes, and knows which sandbox belongs to a session.")
            .calls::<v1::ReadAttachmentRequest>()
            .publishes_event::<v1::UploadPlaced>()
            .publishes_audit::<v1::PreviewAudit>()
            .publishes_audit::<v1::SandboxCommandAudit>()
            .uses_keys(crate::sessions::SESSION_BUCKET)
            .uses_keys(crate::uploads::UPLOAD_BUCKET)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes().caches()
    }

    fn instruments(meter: &Meter) {
        PreviewMetrics::new(meter);
        reload_metrics(meter);
    }
}

impl SandboxTransfer {
    /// Makes the service with these backends instead of the configured ones; for tests and the demo. It does not follow
    /// changes of the configuration.
    pub fn with_backends(
        config: Config,
        cx: &ServiceContext,
        backends: Vec<Arc<dyn Backend>>,
    ) -> Self {
        let settings = TransferSettings::new(config, backends);
        tracing::info!(backends = ?settings.backends.names(), "sandboxes of these kinds can be reached");
        Self {
            store: cx.store.clone(),
            clock: cx.clock.clone(),
            settings: ReplaceableValue::new(settings),
            sessions: Sessions::new(&cx.bus, cx.clock.clone()),
            uploads: Uploads::new(&cx.bus),
            placement_locks: KeyedLocks::default(),
            commands: CommandLedger::new(&cx.bus),
            auditor: CommandAuditor::new(cx.bus.clone(), cx.clock.clone()),
            ending_programs: TaskTracker::new(),
            previews: None,
        }
    }

    /// Opens the sandbox that a request names, with the policy that applies to it.
    pub(crate) async fn open(
        &self,
        meta: &Meta,
        sandbox: Option<v1::SandboxRef>,
    ) -> Result<OpenedSandbox, Error> {
        let sandbox = sandbox.ok_or(InvalidMessage::Missing("sandbox"))?;
        self.opener().open_reference(&meta.tenant, sandbox).await
    }

    /// Opens the sandbox that is bound to a session.
    pub(crate) async fn open_session(&self, session: v1::Session) -> Result<OpenedSandbox, Error> {
        self.opener().open_session(session).await
    }

    /// Finds the incarnation that an address means now, for a tenant that may use addresses.
    pub(crate) async fn resolve(&self, tenant: &TenantId, address: &str) -> Result<Handle, Error> {
        self.settings.get().resolve(tenant, address).await
    }

    /// Opens sandboxes without the rest of the service, for previews.
    fn opener(&self) -> SandboxOpener {
        SandboxOpener {
            settings: self.settings.clone(),
            sessions: self.sessions.clone(),
        }
    }
}

/// An open sandbox, with the policy and the places that apply to the caller.
#[derive(Debug)]
pub(crate) struct OpenedSandbox {
    /// The settings with which it was opened.
    pub(crate) settings: Arc<TransferSettings>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) policy: Policy,
    pub(crate) places: dray_transfer_engine::policy::Places,
    pub(crate) uploads: SandboxPath,
}

impl OpenedSandbox {
    /// Opens the incarnation of a handle with the settings of a session.
    pub(crate) async fn open(
        settings: Arc<TransferSettings>,
        handle: &Handle,
        session: v1::Session,
    ) -> Result<Self, Error> {
        let engine = settings.backends.engine(handle).await?;
        let working_directory = match session.working_directory.as_slice() {
            [] => None,
            path => Some(wire::path("session.working_directory", path)?),
        };
        let places = engine.places(working_directory.clone()).await?;
        let mut options = settings.config.policy.clone();
        for root in &session.roots {
            // Roots of a session are absolute. Those that are not UTF-8 cannot be written into a policy.
            options.roots.extend(String::from_utf8(root.clone()));
        }
        let uploads = match session.uploads_directory.as_slice() {
            [] => places.working_directory.join("uploads")?,
            path => {
                // The directory of uploads counts as a root: the caller who bound the session chose it.
                options.roots.extend(String::from_utf8(path.to_vec()));
                wire::path("session.uploads_directory", path)?
            }
        };
        let policy = engine.policy(&options, working_directory).await?;
        Ok(Self {
            settings,
            engine,
            policy,
            places,
            uploads,
        })
    }

    /// The error of a failed transfer; files that are left behind are reported to the operator. After a failure that
    /// means that the sandbox is gone, it is opened again for the next request.
    pub(crate) fn transfer_failed(&self, failed: TransferFailure) -> Error {
        let (backends, kind) = (&self.settings.backends, failed.error.kind());
        backends.failed(self.engine.handle(), kind);
        for path in &failed.left {
            tracing::warn!(sandbox = %self.engine.handle(), %path, "a partial file could not be removed");
        }
        Error::Sandbox(failed.error)
    }

    /// The absolute path that the caller means.
    pub(crate) fn path(&self, raw: &[u8]) -> Result<SandboxPath, Error> {
        Ok(expand(raw, &self.places)?)
    }
}

/// Logs the whole chain of errors for the operator and returns the fault for the caller.
pub(crate) fn report(meta: &Meta, error: Error) -> Fault {
    tracing::warn!(
        error = &error as &dyn StdError,
        operation = %meta.operation,
        "a request about a sandbox was not served"
    );
    error.into()
}
