//! Passes work to handlers. The bus runs the ledger, attempts and acknowledgements (messaging-reliability 6);
//! this module adds the typed handler, its span, and pulling only while the process is ready.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use dray_bus::{
    Bus, Permissions, WorkCompleted, WorkDelivery, WorkError, WorkFailure, WorkHandler,
    WorkSettings,
};
use dray_proto::contract::Work;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Pending, span};
use crate::health::ProcessHealth;

/// One kind of work that a service consumes, with its message type erased.
pub(crate) trait WorkRoute<S>: Send + Sync {
    /// Binds the route to its service; `name` is the durable consumer unless the route has its own.
    fn bind(self: Arc<Self>, service: Arc<S>, name: &'static str) -> Box<dyn WorkPuller>;

    /// Adds the permissions that are needed to consume the work.
    fn permit(&self, permissions: Permissions) -> Permissions;
}

/// Work that is bound to its service, ready to be pulled.
pub(crate) trait WorkPuller: Send + Sync {
    /// The durable consumer that it pulls from.
    fn durable(&self) -> &str;

    /// Pulls until `stop`, then waits for the handlers under way.
    fn pull(
        &self,
        bus: Bus,
        settings: WorkSettings,
        stop: CancellationToken,
    ) -> Pending<Result<(), WorkError>>;
}

pub(super) struct TypedWorkRoute<W, H> {
    /// The route's own durable consumer; `None` for the service's.
    durable: Option<String>,
    handler: Arc<H>,
    // This is a function type: the route owns no message, so it stays `Send` and `Sync` for every `W`.
    work: PhantomData<fn() -> W>,
}

impl<W, H> TypedWorkRoute<W, H> {
    pub(super) fn new(durable: Option<String>, handler: H) -> Self {
        Self {
            durable,
            handler: Arc::new(handler),
            work: PhantomData,
        }
    }
}

impl<S, W, H, F> WorkRoute<S> for TypedWorkRoute<W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, WorkDelivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<WorkCompleted, WorkFailure>> + Send + 'static,
{
    fn bind(self: Arc<Self>, service: Arc<S>, name: &'static str) -> Box<dyn WorkPuller> {
        Box::new(BoundWorkRoute {
            service,
            durable: Arc::from(self.durable.as_deref().unwrap_or(name)),
            handler: Arc::clone(&self.handler),
            work: PhantomData,
        })
    }

    fn permit(&self, permissions: Permissions) -> Permissions {
        let own = self.durable.clone();
        let durable = own.unwrap_or_else(|| permissions.user().to_owned());
        permissions.consumes::<W>(&durable)
    }
}

struct BoundWorkRoute<S, W, H> {
    service: Arc<S>,
    durable: Arc<str>,
    handler: Arc<H>,
    work: PhantomData<fn() -> W>,
}

impl<S, W, H> Clone for BoundWorkRoute<S, W, H> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            durable: Arc::clone(&self.durable),
            handler: Arc::clone(&self.handler),
            work: PhantomData,
        }
    }
}

impl<S, W, H, F> WorkPuller for BoundWorkRoute<S, W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, WorkDelivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<WorkCompleted, WorkFailure>> + Send + 'static,
{
    fn durable(&self) -> &str {
        &self.durable
    }

    fn pull(
        &self,
        bus: Bus,
        settings: WorkSettings,
        stop: CancellationToken,
    ) -> Pending<Result<(), WorkError>> {
        let this = self.clone();
        Box::pin(async move {
            bus.work::<W, _>(&this.durable, settings, this.clone(), stop)
                .await
        })
    }
}

impl<S, W, H, F> WorkHandler<W> for BoundWorkRoute<S, W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, WorkDelivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<WorkCompleted, WorkFailure>> + Send + 'static,
{
    async fn handle(&self, mut delivery: WorkDelivery<W>) -> Result<WorkCompleted, WorkFailure> {
        // The subject is the template of section 17, without the tenant: span names must come from a small set.
        let subject = format!("dray.work.{}.v1.{}", delivery.work.area(), W::VERB);
        // A later epoch or a redrive starts a new trace that is linked to the first one (section 17). The number of
        // deliveries is not used: a message that was returned before it started has several, but its first attempt
        // belongs to the publisher's trace.
        let is_repeated = delivery.epoch > 1 || delivery.redrives > 0;
        let span = span::for_work(&self.durable, &subject, &delivery, is_repeated);
        span::propagate_context(&span, &mut delivery.meta);
        (self.handler)(Arc::clone(&self.service), delivery)
            .instrument(span)
            .await
    }
}

/// Pulls while the process is ready, until `stop`. A consumer that does not exist, or a bus that is unavailable, is
/// tried again each time the process becomes ready, and after a pause.
pub(crate) async fn pull_while_ready(
    pulling: Box<dyn WorkPuller>,
    bus: Bus,
    settings: WorkSettings,
    health: ProcessHealth,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = health.wait_ready() => {}
        }
        // The token is for one round: an unready process stops pulling, but not permanently.
        let round = stop.child_token();
        let pulled = {
            let pull = pulling.pull(bus.clone(), settings.clone(), round.clone());
            tokio::pin!(pull);
            tokio::select! {
                pulled = &mut pull => pulled,
                () = health.wait_unready() => {
                    round.cancel();
                    // The pull is awaited and not dropped: deliveries under way are finished and acknowledged.
                    pull.await
                }
            }
        };
        // The failure is only logged: the consumer may be provisioned later, and readiness shows a bus that is
        // unavailable.
        if let Err(error) = pulled {
            tracing::error!(error = %crate::host::ErrorChain(&error), "could not pull work");
        }
        if stop.is_cancelled() {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PULL_RETRY_DELAY) => {}
        }
    }
}

/// Time between two attempts to pull.
const PULL_RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(1);
