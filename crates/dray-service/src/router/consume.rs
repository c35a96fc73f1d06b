//! Work on its way to a handler. The bus runs the ledger, attempts and acknowledgements (messaging-reliability 6);
//! what is added here is the typed handler, its span, and pulling only while the process is ready.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use dray_bus::{
    Bus, Completed, Delivery, Failure, Permissions, WorkError, WorkHandler, WorkSettings,
};
use dray_proto::contract::Work;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Pending, span};
use crate::health::Health;

/// One kind of work that a service consumes, with its message type erased.
pub(crate) trait Consuming<S>: Send + Sync {
    /// Ties it to the service that runs it.
    fn bind(self: Arc<Self>, service: Arc<S>, name: &'static str) -> Box<dyn Pulling>;

    /// Adds what consuming it needs.
    fn permit(&self, permissions: Permissions) -> Permissions;
}

/// Bound work, ready to be pulled.
pub(crate) trait Pulling: Send + Sync {
    /// The consumer that it pulls from.
    fn durable(&self) -> &'static str;

    /// Pulls until `stop`, then drains.
    fn pull(
        &self,
        bus: Bus,
        settings: WorkSettings,
        stop: CancellationToken,
    ) -> Pending<Result<(), WorkError>>;
}

pub(super) struct Consumer<W, H> {
    /// Its own consumer; that of the service when there is none.
    durable: Option<&'static str>,
    handler: Arc<H>,
    work: PhantomData<fn() -> W>,
}

impl<W, H> Consumer<W, H> {
    pub(super) fn new(durable: Option<&'static str>, handler: H) -> Self {
        Self {
            durable,
            handler: Arc::new(handler),
            work: PhantomData,
        }
    }
}

impl<S, W, H, F> Consuming<S> for Consumer<W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, Delivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Completed, Failure>> + Send + 'static,
{
    fn bind(self: Arc<Self>, service: Arc<S>, name: &'static str) -> Box<dyn Pulling> {
        Box::new(Bound {
            service,
            name: self.durable.unwrap_or(name),
            handler: Arc::clone(&self.handler),
            work: PhantomData,
        })
    }

    fn permit(&self, permissions: Permissions) -> Permissions {
        let durable = self.durable.unwrap_or(permissions.user()).to_owned();
        permissions.consumes::<W>(&durable)
    }
}

struct Bound<S, W, H> {
    service: Arc<S>,
    name: &'static str,
    handler: Arc<H>,
    work: PhantomData<fn() -> W>,
}

impl<S, W, H> Clone for Bound<S, W, H> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            name: self.name,
            handler: Arc::clone(&self.handler),
            work: PhantomData,
        }
    }
}

impl<S, W, H, F> Pulling for Bound<S, W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, Delivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Completed, Failure>> + Send + 'static,
{
    fn durable(&self) -> &'static str {
        self.name
    }

    fn pull(
        &self,
        bus: Bus,
        settings: WorkSettings,
        stop: CancellationToken,
    ) -> Pending<Result<(), WorkError>> {
        let this = self.clone();
        Box::pin(async move {
            bus.work::<W, _>(this.name, settings, this.clone(), stop)
                .await
        })
    }
}

impl<S, W, H, F> WorkHandler<W> for Bound<S, W, H>
where
    S: Send + Sync + 'static,
    W: Work,
    H: Fn(Arc<S>, Delivery<W>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Completed, Failure>> + Send + 'static,
{
    async fn handle(&self, mut delivery: Delivery<W>) -> Result<Completed, Failure> {
        // Without the tenant, which would make a span name per tenant.
        let subject = format!("dray.work.{}.v1.{}", delivery.work.area(), W::VERB);
        let again = delivery.delivered > 1 || delivery.redrives > 0;
        let span = span::for_work(self.name, &subject, &delivery, again);
        span::pass_on(&span, &mut delivery.meta);
        (self.handler)(Arc::clone(&self.service), delivery)
            .instrument(span)
            .await
    }
}

/// Pulls while the process is ready, until `stop`. A consumer that is not there, or a bus that is away, is tried
/// again each time the process becomes ready, and after a pause.
pub(crate) async fn pull_while_ready(
    pulling: Box<dyn Pulling>,
    bus: Bus,
    settings: WorkSettings,
    health: Health,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = health.wait_ready() => {}
        }
        let round = stop.child_token();
        let pulled = {
            let pull = pulling.pull(bus.clone(), settings.clone(), round.clone());
            tokio::pin!(pull);
            tokio::select! {
                pulled = &mut pull => pulled,
                () = health.wait_unready() => {
                    round.cancel();
                    pull.await
                }
            }
        };
        if let Err(error) = pulled {
            tracing::error!(error = %crate::host::Chain(&error), "work cannot be pulled");
        }
        if stop.is_cancelled() {
            return;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Between two tries to pull.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
