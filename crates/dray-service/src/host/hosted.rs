//! One service inside a host, before and after its start, with its type erased.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dray_bus::Permissions;
use dray_store::StoreAccess;
use opentelemetry::metrics::Meter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Common, HostError};
use crate::config::SectionSpec;
use crate::health::Probe;
use crate::router::{Answering, Pulling, Shared};
use crate::{Context, Router, Service, StartError};

pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A service that is going to start.
pub(crate) trait Plan: Send {
    fn name(&self) -> &'static str;
    fn section(&self) -> SectionSpec;
    fn instruments(&self) -> fn(&Meter);
    /// What it may do on the bus.
    fn permissions(&self) -> Permissions;
    fn store_access(&self) -> StoreAccess;
    /// Lets it start and ties its routes to it. Nothing is accepted yet.
    fn start(self: Box<Self>, common: Common) -> Pending<Result<Hosting, HostError>>;
}

impl fmt::Debug for dyn Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plan").field(&self.name()).finish()
    }
}

/// A service that has started.
pub(crate) struct Hosting {
    pub(crate) name: &'static str,
    pub(crate) shared: Arc<Shared>,
    pub(crate) calls: Vec<Arc<Answering>>,
    pub(crate) work: Vec<Box<dyn Pulling>>,
    pub(crate) probes: Vec<Probe>,
    stop: Box<dyn FnOnce() -> Pending<()> + Send + Sync>,
    tasks: TaskTracker,
    token: CancellationToken,
}

impl Hosting {
    /// Lets the service say goodbye, and waits for its background tasks.
    pub(crate) async fn stop(self) {
        (self.stop)().await;
        self.token.cancel();
        self.tasks.close();
        if tokio::time::timeout(TASKS, self.tasks.wait())
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

/// How long background tasks may take to end after their token was cancelled.
const TASKS: std::time::Duration = std::time::Duration::from_secs(3);

impl fmt::Debug for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosting")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

type Start<S> =
    Box<dyn FnOnce(<S as Service>::Config, Context) -> Pending<Result<S, StartError>> + Send>;

struct Planned<S: Service> {
    start: Start<S>,
}

pub(super) fn plan<S, F, Fut>(start: F) -> Box<dyn Plan>
where
    S: Service,
    F: FnOnce(S::Config, Context) -> Fut + Send + 'static,
    Fut: Future<Output = Result<S, StartError>> + Send + 'static,
{
    Box::new(Planned::<S> {
        start: Box::new(move |config, cx| Box::pin(start(config, cx))),
    })
}

impl<S: Service> Plan for Planned<S> {
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

    fn start(self: Box<Self>, common: Common) -> Pending<Result<Hosting, HostError>> {
        Box::pin(async move {
            let config: S::Config = common.loaded.section(S::NAME)?;
            let router = S::routes(Router::new());
            // A token and a tracker of its own: a service's tasks end with it, not with its neighbours.
            let cx = Context {
                tasks: TaskTracker::new(),
                stop: common.cx.stop.child_token(),
                ..common.cx.clone()
            };
            let service = (self.start)(config, cx.clone()).await.map_err(|source| {
                cx.stop.cancel();
                HostError::Service {
                    service: S::NAME,
                    source,
                }
            })?;
            Ok(host(Arc::new(service), router, &common, cx))
        })
    }
}

fn host<S: Service>(service: Arc<S>, router: Router<S>, common: &Common, cx: Context) -> Hosting {
    let shared = Shared::new(
        S::NAME,
        cx.clock.clone(),
        &common.limits,
        common.metrics.clone(),
    );
    let calls = router
        .answers
        .iter()
        .map(|answer| Arc::new(Answering::new(answer, &service, &shared)))
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
            Probe::new(format!("{}.{}", S::NAME, check.name), move || {
                (check.run)(Arc::clone(&service))
            })
        })
        .collect();
    Hosting {
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
