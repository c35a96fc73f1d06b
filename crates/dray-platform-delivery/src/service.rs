//! The service: what it answers and what it consumes.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::Meter;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use dray_bus::{Permissions, WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::v1;
use dray_service::{Request, Router, Service, ServiceContext, StartError};
use dray_store::StoreAccess;
use dray_types::{Deadline, Fault};

use crate::accounts::AccountRegistry;
use crate::cache::GatheringNotes;
use crate::chat_order::ChatOrder;
use crate::config::Config;
use crate::deliver::{DeliveryService, WorkEnd};
use crate::error::DeliveryError;
use crate::gather;
use crate::inbound::{DurableInboundSink, listener};
use crate::index::DeliveryIndex;
use crate::lease::LeaseStore;
use crate::metrics::DeliveryMetrics;
use crate::platform_cache::PlatformCache;
use crate::queue::ChatQueues;
use crate::rate_limit::RateLimiter;
use crate::records::RecordStore;
use crate::report as told_report;

/// The running service.
#[derive(Debug)]
pub struct PlatformDelivery {
    pub(crate) desk: Arc<DeliveryService>,
}

impl DeliveryService {
    /// A desk over a host's bus and store.
    pub fn new(config: Config, accounts: AccountRegistry, cx: &ServiceContext) -> Self {
        let records = RecordStore::new(&cx.bus);
        let platform_cache = PlatformCache::new(&cx.bus, cx.clock.clone());
        let keys = platform_cache.keys().clone();
        let order_timeout = config.order_timeout.as_duration();
        let chat_order = ChatOrder::new(keys.clone(), cx.clock.clone(), order_timeout);
        Self {
            leases: LeaseStore::new(keys.clone(), cx.clock.clone(), cx.instance.clone()),
            gatherings: GatheringNotes::new(keys, cx.clock.clone()),
            index: DeliveryIndex::new(records.clone()),
            platform_cache,
            metrics: DeliveryMetrics::new(&cx.meter),
            bus: cx.bus.clone(),
            store: cx.store.clone(),
            clock: cx.clock.clone(),
            rate_limiter: RateLimiter::new(cx.clock.clone()),
            queue: ChatQueues::default(),
            chat_order,
            wake_keeper: Notify::new(),
            records,
            config,
            accounts,
            second: Duration::from_secs(1),
        }
    }
}

impl Service for PlatformDelivery {
    const NAME: &'static str = "platform-delivery";
    type Config = Config;

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        let accounts = config.accounts(&cx.clock)?;
        Self::with_accounts(config, accounts, cx).await
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        let router = router
            .answer(Self::send_file)
            .answer(Self::outcome)
            .answer(Self::receipts)
            .answer(Self::resend)
            .answer(Self::send_text)
            .answer(Self::prepare_upload)
            .answer(Self::finish_upload)
            .consume(Self::send)
            .consume_as("inbound", Self::receive);
        [
            "platform-delivery-telegram",
            "platform-delivery-discord",
            "platform-delivery-slack",
            "platform-delivery-whatsapp",
            "platform-delivery-matrix",
            "platform-delivery-email",
            "platform-delivery-webhook",
            "platform-delivery-cli",
        ]
        .into_iter()
        .fold(router, |router, durable| {
            router.consume_as(durable, Self::deliver)
        })
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Delivers files to people and takes in what they send.")
            .calls::<v1::ShowSessionRequest>()
            .calls::<v1::FindSessionRequest>()
            .calls::<v1::StatSandboxRequest>()
            .calls::<v1::GetSandboxFileRequest>()
            .calls::<v1::GetSandboxTreeRequest>()
            .publishes_work::<v1::SendFileRequested>()
            .publishes_work::<v1::DeliverFiles>()
            .publishes_work::<v1::ReceiveMessage>()
            .publishes_work::<v1::PlaceUpload>()
            .publishes_event::<v1::DeliveryDone>()
            .publishes_event::<v1::DeliveryProgressed>()
            .publishes_event::<v1::MessageReceived>()
            .publishes_audit::<v1::DeliveryAudit>()
            .lists_keys(crate::records::DELIVERY_BUCKET)
            .lists_keys(crate::platform_cache::PLATFORM_BUCKET)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes().evicts()
    }

    fn instruments(meter: &Meter) {
        DeliveryMetrics::new(meter);
    }
}

impl PlatformDelivery {
    /// The service with these accounts instead of the configured ones.
    ///
    /// # Errors
    /// The address to listen on is taken.
    pub async fn with_accounts(
        config: Config,
        accounts: AccountRegistry,
        cx: &ServiceContext,
    ) -> Result<Self, StartError> {
        let listen = config.listen;
        let desk = Arc::new(DeliveryService::new(config, accounts, cx));
        if let Some(address) = listen {
            let listener = TcpListener::bind(address).await.map_err(|error| {
                StartError::with_source(format!("cannot listen on {address}"), error)
            })?;
            let served = listener::serve_until(Arc::clone(&desk), listener, cx.stop.clone());
            cx.tasks.spawn(served);
        }
        if desk.config.poll {
            for account in desk
                .accounts
                .iter()
                .filter(|account| account.inbox.is_some())
            {
                let door = DurableInboundSink {
                    desk: Arc::clone(&desk),
                    account: Arc::clone(account),
                };
                cx.tasks
                    .spawn(door.poll(cx.instance.clone(), cx.stop.clone()));
            }
        }
        cx.tasks.spawn(Arc::clone(&desk).keep(cx.stop.clone()));
        cx.tasks
            .spawn(Arc::clone(&desk).keep_cache(cx.stop.clone()));
        Ok(Self { desk })
    }

    /// Publishes the work of a delivery; the same operation is the same delivery.
    pub async fn send_file(
        self: Arc<Self>,
        request: Request<v1::SendFileRequested>,
    ) -> Result<v1::DeliveryAccepted, Fault> {
        let Request { meta, body } = request;
        gather::check_request(&body, self.desk.config.max_files)?;
        let accepted = self.desk.accept(&meta, &body).await.map_err(report_error)?;
        self.desk.note_turn(&meta, &body).await;
        Ok(accepted)
    }

    /// Returns the state of a delivery.
    pub async fn outcome(
        self: Arc<Self>,
        request: Request<v1::DeliveryOutcomeRequest>,
    ) -> Result<v1::DeliveryReport, Fault> {
        let Request { meta, body } = request;
        self.desk.outcome(&meta, &body).await.map_err(report_error)
    }

    /// Lists deliveries.
    pub async fn receipts(
        self: Arc<Self>,
        request: Request<v1::ListReceiptsRequest>,
    ) -> Result<v1::ListReceiptsReply, Fault> {
        let Request { meta, body } = request;
        self.desk.receipts(&meta, &body).await.map_err(report_error)
    }

    /// Delivers once more what did not arrive.
    pub async fn resend(
        self: Arc<Self>,
        request: Request<v1::ResendRequest>,
    ) -> Result<v1::DeliveryAccepted, Fault> {
        let Request { meta, body } = request;
        self.desk.resend(&meta, &body).await.map_err(report_error)
    }

    /// Sends what the tags of a text name.
    pub async fn send_text(
        self: Arc<Self>,
        request: Request<v1::SendTextRequested>,
    ) -> Result<v1::SendTextReply, Fault> {
        let Request { meta, body } = request;
        self.desk
            .send_text(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Makes room for an upload.
    pub async fn prepare_upload(
        self: Arc<Self>,
        request: Request<v1::PrepareUploadRequest>,
    ) -> Result<v1::PrepareUploadReply, Fault> {
        let Request { meta, body } = request;
        self.desk
            .prepare_upload(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Takes an upload.
    pub async fn finish_upload(
        self: Arc<Self>,
        request: Request<v1::FinishUploadRequest>,
    ) -> Result<v1::FinishUploadReply, Fault> {
        let Request { meta, body } = request;
        self.desk
            .finish_upload(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Does the work on a message of a user.
    pub async fn receive(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::ReceiveMessage>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta,
            work,
            epoch,
            attempt,
            cancel,
            ..
        } = delivery;
        self.desk
            .receive(&meta, &work, (epoch, attempt), &cancel)
            .await
    }

    /// Does the work of a delivery up to the platform's queue.
    pub async fn send(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::SendFileRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta,
            work,
            epoch,
            attempt,
            cancel,
            ..
        } = delivery;
        self.desk.send(&meta, &work, epoch, attempt, &cancel).await
    }

    /// Does the work of a platform's queue.
    pub async fn deliver(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::DeliverFiles>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta, work, cancel, ..
        } = delivery;
        let ended = Box::pin(self.desk.deliver(&meta, &work, &cancel)).await;
        work_result(&work, ended)
    }
}

/// Logs the whole chain for the operator and returns the fault to the caller.
fn report_error(error: DeliveryError) -> Fault {
    error.log("a request about deliveries failed");
    error.into()
}

/// How a piece of work is reported.
#[expect(
    clippy::result_large_err,
    reason = "it is what the bus takes from a handler"
)]
fn work_result(
    work: &v1::DeliverFiles,
    ended: Result<WorkEnd, DeliveryError>,
) -> Result<WorkCompleted, WorkFailure> {
    match ended {
        Ok(WorkEnd::Finished(report)) if is_refused(&report) => {
            let fault = Fault::new(
                dray_types::FaultCode::Unavailable,
                "None of the files could be delivered.",
            )
            .detail("not_delivered");
            let rejected = v1::DeliveryRejected {
                operation_id: report.delivery_id.clone(),
                session: report.session.clone(),
                state: v1::TerminalState::Failed.into(),
                fault: Some(fault.clone().into()),
                report: Some(told_report::for_event(&report)),
            };
            Err(WorkFailure::with_event(fault, &rejected))
        }
        Ok(WorkEnd::Finished(report)) => Ok(WorkCompleted::event(&v1::DeliveryDone {
            report: Some(told_report::for_event(&report)),
        })),
        Ok(WorkEnd::Waiting(report)) => Ok(WorkCompleted::event(&v1::DeliveryProgressed {
            delivery_id: work.delivery_id.clone(),
            session: work.session.clone(),
            stage: "waiting".to_owned(),
            name: report.waiting,
            ..v1::DeliveryProgressed::default()
        })),
        Err(error) => {
            error.log("a delivery is left for later");
            let fault = Fault::from(error);
            // The record says how far it is; nothing is final before the record says so.
            let fault = if fault.is_retryable() {
                fault
            } else {
                fault.retry_after(Duration::from_secs(5))
            };
            Err(fault.into())
        }
    }
}

/// Whether a delivery ended without anything that was or may have been shown.
fn is_refused(delivery: &v1::DeliveryReport) -> bool {
    let seen = |file: &v1::DeliveredFile| {
        told_report::is_shown(&file.state) || file.state == told_report::state::STATE_UNKNOWN
    };
    !delivery.files.is_empty() && !delivery.files.iter().any(seen)
}

impl DeliveryService {
    /// Publishes a request as work.
    pub(crate) async fn accept(
        &self,
        meta: &dray_bus::Meta,
        work: &v1::SendFileRequested,
    ) -> Result<v1::DeliveryAccepted, DeliveryError> {
        let patience = self.config.patience.as_duration();
        let deadline = Deadline::after(self.clock.now_ms(), patience).max(meta.deadline);
        let envelope = meta.clone().with_deadline(deadline);
        let work = self.with_kept_claims(meta, work).await?;
        // Before the publication: the next request of the same caller gets a later place.
        let place = self.take_place(meta, &work).await?;
        let published = self.bus.publish_work(&envelope, &work).await;
        let is_repeated = published
            .as_ref()
            .is_ok_and(|published| published.duplicate);
        if let Some(place) = place
            && place.is_new
            && (is_repeated || published.is_err())
        {
            self.release_place(&place.chat, &place.delivery).await;
        }
        let published = published?;
        Ok(v1::DeliveryAccepted {
            delivery_id: meta.operation.to_string(),
            duplicate: published.duplicate,
        })
    }
}
