//! One service inside a host, before and after its start, with the service's type erased.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dray_bus::Permissions;
use dray_store::StoreAccess;
use opentelemetry::metrics::Meter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{HostError, SharedResources};
use crate::config::SectionSpec;
use crate::health::ReadinessProbe;
use crate::router::{BoundCall, CallHandling, WorkPuller};
use crate::{Router, Service, ServiceContext, StartError};

pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A service that has not started yet, with its name, permissions and routes.
pub(crate) trait PlannedStart: Send {
    fn name(&self) -> &'static str;
    fn section(&self) -> SectionSpec;
    fn instruments(&self) -> fn(&Meter);
    /// All permissions of the service on the bus, including its routes.
    fn permissions(&self) -> Permissions;
    fn store_access(&self) -> StoreAccess;
    /// Starts the service and ties its routes to it. No request is accepted yet.
    fn start(self: Box<Self>, common: SharedResources)
    -> Pending<Result<HostedService, HostError>>;
}

impl fmt::Debug for dyn PlannedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&self.name()).finish()
    }
}

/// A service that has started, with everything that the host serves for it.
pub(crate) struct HostedService {
    pub(crate) name: &'static str,
    pub(crate) shared: Arc<CallHandling>,
    pub(crate) calls: Vec<Arc<BoundCall>>,
    pub(crate) work: Vec<Box<dyn WorkPuller>>,
    pub(crate) probes: Vec<ReadinessProbe>,
    stop: Box<dyn FnOnce() -> Pending<()> + Send + Sync>,
    tasks: TaskTracker,
    token: CancellationToken,
}

impl HostedService {
    /// Runs [`Service::stop`], then ends the service's background tasks and waits for them.
    pub(crate) async fn stop(self) {
        // This is called while the background tasks still run, because the service may need them to close its
        // resources.
        (self.stop)().await;
        self.token.cancel();
        // A tracker that is not closed would let `wait` run forever.
        self.tasks.close();
        if tokio::time::timeout(TASK_STOP_TIMEOUT, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                service = self.name,
                tasks = self.tasks.len(),
                "background tasks did not end"
            );
        }
    }
}

/// Longest time that background tasks may take to end after their token was cancelled.
const TASK_STOP_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

impl fmt::Debug for HostedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedService")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

type StartFuture<S> = Box<
    dyn FnOnce(<S as Service>::Config, ServiceContext) -> Pending<Result<S, StartError>> + Send,
>;

struct PlannedService<S: Service> {
    start: StartFuture<S>,
}

/// A service with its type erased, for [`Host::with_plan`](crate::Host::with_plan).
///
/// The code of a service is compiled in the crate that creates its plan: see [`Service::plan`].
#[derive(Debug)]
pub struct ServicePlan(pub(super) Box<dyn PlannedStart>);

impl ServicePlan {
    /// A service that starts with its own [`Service::start`].
    pub fn of<S: Service>() -> Self {
        Self::with_start::<S, _, _>(|config, cx| async move { S::start(config, &cx).await })
    }

    /// A service that is started by `start` instead of [`Service::start`]: tests and the demo inject fakes in this way.
    /// All else is the same.
    pub fn with_start<S, F, Fut>(start: F) -> Self
    where
        S: Service,
        F: FnOnce(S::Config, ServiceContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<S, StartError>> + Send + 'static,
    {
        Self(Box::new(PlannedService::<S> {
            start: Box::new(move |config, cx| Box::pin(start(config, cx))),
        }))
    }
}

impl<S: Service> PlannedStart for PlannedService<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn section(&self) -> SectionSpec {
        SectionSpec::of::<S::Config>(S::NAME)
    }

    fn instruments(&self) -> fn(&Meter) {
        S::instruments
    }

    fn permissions(&self) -> Permissions {
        let routes = S::routes(Router::new());
        S::permissions(routes.permit(Permissions::service(S::NAME)))
    }

    fn store_access(&self) -> StoreAccess {
        S::store_access()
    }

    fn start(
        self: Box<Self>,
        common: SharedResources,
    ) -> Pending<Result<HostedService, HostError>> {
        Box::pin(async move {
            // The section is read again with its type; the loader has checked it already.
            let config: S::Config = common.loaded.section(S::NAME)?;
            let router = S::routes(Router::new());
            // A separate token and tracker, so that the tasks of a service end with this service and not with others.
            let cx = ServiceContext {
                tasks: TaskTracker::new(),
                stop: common.cx.stop.child_token(),
                origins: common.loaded.origins(S::NAME),
                section: common.loaded.reader(S::NAME),
                ..common.cx.clone()
            };
            // Ends the tasks that the failed start may have spawned.
            let service = (self.start)(config, cx.clone()).await.map_err(|source| {
                cx.stop.cancel();
                cx.listeners.stop.cancel();
                cx.listeners.kill.cancel();
                HostError::Service {
                    service: S::NAME,
                    source,
                }
            })?;
            Ok(host_service(Arc::new(service), router, &common, cx))
        })
    }
}

fn host_service<S: Service>(
    service: Arc<S>,
    router: Router<S>,
    common: &SharedResources,
    cx: ServiceContext,
) -> HostedService {
    let shared = CallHandling::new(
        S::NAME,
        cx.clock.clone(),
        &common.limits,
        common.metrics.clone(),
    );
    let calls = router
        .answers
        .iter()
        .map(|answer| Arc::new(BoundCall::new(answer, &service, &shared)))
        .collect();
    let work = router
        .consumers
        .into_iter()
        .map(|consumer| consumer.bind(Arc::clone(&service), S::NAME))
        .collect();
    let probes = router
        .checks
        .into_iter()
        .map(|check| {
            let service = Arc::clone(&service);
            ReadinessProbe::new(format!("{}.{}", S::NAME, check.name), move || {
                (check.run)(Arc::clone(&service))
            })
        })
        .collect();
    HostedService {
        name: S::NAME,
        shared,
        calls,
        work,
        probes,
        stop: Box::new(move || Box::pin(async move { service.stop().await })),
        tasks: cx.tasks,
        token: cx.stop,
    }
}
