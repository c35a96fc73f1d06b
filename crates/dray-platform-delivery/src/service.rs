//! The service: its calls, its work queues, its permissions and its tasks.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::Meter;
use tokio::net::TcpListener;

use dray_bus::{Permissions, WorkCompleted, WorkDelivery, WorkFailure};
use dray_proto::queue::{INBOUND_QUEUE, platform_queue};
use dray_proto::v1::{self, DeliveryStage};
use dray_service::{Request, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::StoreAccess;
use dray_types::{Fault, PlatformKind};

use crate::accounts::AccountRegistry;
use crate::config::Config;
use crate::deliver::WorkEnd;
use crate::delivery_service::DeliveryService;
use crate::error::DeliveryError;
use crate::gather;
use crate::inbound::listener;
use crate::inbound::pollers::PollTasks;
use crate::metrics::DeliveryMetrics;
use crate::record::{DeliveryRecord, FileRecord, FileState, WaitingReason};
use crate::reload::{AccountReload, reload_metrics};
use crate::report as delivery_report;

/// The running service.
#[derive(Debug)]
pub struct PlatformDelivery {
    pub(crate) deliveries: Arc<DeliveryService>,
}

impl Service for PlatformDelivery {
    const NAME: &'static str = "platform-delivery";
    type Config = Config;

    fn plan() -> ServicePlan {
        // The call is written out, so that the router is compiled in this crate and not again in each crate that uses
        // it.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        let accounts = config.accounts(&cx.clock)?;
        let (service, pollers) = Self::open(config.clone(), accounts, cx).await?;
        let reload = AccountReload::follow(config, &service.deliveries, pollers, cx);
        cx.tasks.spawn(reload.run(cx.stop.clone()));
        Ok(service)
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        let router = router
            .answer(Self::send_file)
            .answer(Self::outcome)
            .answer(Self::receipts)
            .answer(Self::resend)
            .answer(Self::cancel)
            .answer(Self::send_text)
            .answer(Self::prepare_upload)
            .answer(Self::finish_upload)
            .answer(Self::check_accounts)
            .answer(Self::ask_in_chat)
            .consume(Self::send)
            .consume_as(INBOUND_QUEUE, Self::receive);
        // One queue for each platform, so that an outage of one does not fill the others. Every process consumes all of
        // them: work for a platform without an account is refused with a reason instead of waiting forever.
        PlatformKind::ALL.iter().fold(router, |router, platform| {
            router.consume_as(platform_queue(*platform), Self::deliver)
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
            .calls::<v1::FetchRequest>()
            .calls::<v1::DecideInChatRequest>()
            .calls::<v1::ListEgressQuestionsRequest>()
            .calls::<v1::AnswerEgressQuestionRequest>()
            .calls::<v1::CreatePreviewRequest>()
            .calls::<v1::ListPreviewsRequest>()
            .calls::<v1::RevokePreviewRequest>()
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
        reload_metrics(meter);
    }
}

impl PlatformDelivery {
    async fn open(
        config: Config,
        accounts: AccountRegistry,
        cx: &ServiceContext,
    ) -> Result<(Self, PollTasks), StartError> {
        let listen = config.listen;
        let deliveries = Arc::new(DeliveryService::new(config, accounts, cx));
        let inbound = &deliveries.inbound;
        inbound.receiver.metrics.start_at_zero(&inbound.accounts);
        if let Some(address) = listen {
            // The listener is bound before any task is spawned, so that a port in use fails the start.
            let listener = TcpListener::bind(address).await.map_err(|error| {
                StartError::with_source(format!("cannot listen on {address}"), error)
            })?;
            let bound = listener.local_addr();
            let bound = bound.map_err(|error| StartError::with_source("no address", error))?;
            cx.listen_addresses.open("platforms", bound);
            let (inbound, stop) = (Arc::clone(&deliveries.inbound), &cx.listeners.stop);
            let served = listener::serve_until(inbound, listener, stop.clone());
            cx.listeners.spawn(served);
        }
        let mut pollers = PollTasks::new(Arc::clone(&deliveries.inbound), cx);
        pollers.follow_accounts();
        let (inbound, stop) = (Arc::clone(&deliveries.inbound), cx.stop.clone());
        cx.tasks
            .spawn(async move { inbound.questions.keep_current(stop).await });
        cx.tasks
            .spawn(Arc::clone(&deliveries.reconciler).run(cx.stop.clone()));
        cx.tasks
            .spawn(Arc::clone(&deliveries.sweeper).run_sweeps(cx.stop.clone()));
        Ok((Self { deliveries }, pollers))
    }

    /// Publishes the work of a delivery; the same operation is the same delivery.
    pub async fn send_file(
        self: Arc<Self>,
        request: Request<v1::SendFileRequested>,
    ) -> Result<v1::DeliveryAccepted, Fault> {
        let Request { meta, body } = request;
        // The request is checked here too, not only in the work, so that the caller of an invalid request gets the
        // error immediately.
        gather::check_request(&body, self.deliveries.inbound.config.get().max_files)?;
        let is_noted = self.deliveries.texts.note_turn(&meta, &body).await;
        let accepted = self.deliveries.intake.accept(&meta, &body).await;
        if accepted.is_err() && is_noted {
            self.deliveries.texts.forget_request(&meta, &body).await;
        }
        accepted.map_err(report_error)
    }

    /// Returns the state of a delivery.
    pub async fn outcome(
        self: Arc<Self>,
        request: Request<v1::DeliveryOutcomeRequest>,
    ) -> Result<v1::DeliveryReport, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .receipts
            .outcome(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Lists deliveries.
    pub async fn receipts(
        self: Arc<Self>,
        request: Request<v1::ListReceiptsRequest>,
    ) -> Result<v1::ListReceiptsReply, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .receipts
            .receipts(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Resends files that did not arrive.
    pub async fn resend(
        self: Arc<Self>,
        request: Request<v1::ResendRequest>,
    ) -> Result<v1::DeliveryAccepted, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .receipts
            .resend(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Cancels an unfinished delivery.
    pub async fn cancel(
        self: Arc<Self>,
        request: Request<v1::CancelDeliveryRequest>,
    ) -> Result<v1::DeliveryReport, Fault> {
        let Request { meta, body } = request;
        let context = &self.deliveries.intake.context;
        self.deliveries
            .reconciler
            .cancel(context, &meta, &body)
            .await
            .map_err(report_error)
    }

    /// Sends the files that a text names.
    pub async fn send_text(
        self: Arc<Self>,
        request: Request<v1::SendTextRequested>,
    ) -> Result<v1::SendTextReply, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .texts
            .send_text(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Prepares an upload, and returns a presigned URL for it.
    pub async fn prepare_upload(
        self: Arc<Self>,
        request: Request<v1::PrepareUploadRequest>,
    ) -> Result<v1::PrepareUploadReply, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .inbound
            .uploads
            .prepare_upload(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Confirms an upload, and places it in the sandbox of its session.
    pub async fn finish_upload(
        self: Arc<Self>,
        request: Request<v1::FinishUploadRequest>,
    ) -> Result<v1::FinishUploadReply, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .inbound
            .uploads
            .finish_upload(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Checks accounts with their platforms.
    pub async fn check_accounts(
        self: Arc<Self>,
        request: Request<v1::CheckAccountsRequest>,
    ) -> Result<v1::CheckAccountsReply, Fault> {
        let Request { meta, body } = request;
        self.deliveries
            .checker
            .check(&meta, &body)
            .await
            .map_err(report_error)
    }

    /// Shows a question in a chat of the configuration.
    pub async fn ask_in_chat(
        self: Arc<Self>,
        request: Request<v1::AskInChatRequest>,
    ) -> Result<v1::AskInChatReply, Fault> {
        let Request { meta, body } = request;
        let questions = &self.deliveries.inbound.questions;
        questions.ask(&meta, &body).await
    }

    /// Handles a message of a user.
    pub async fn receive(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::ReceiveMessage>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta,
            work,
            epoch,
            cancel,
            ..
        } = delivery;
        self.deliveries
            .inbound
            .receiver
            .receive(&meta, &work, epoch, &cancel)
            .await
    }

    /// Gathers the files of a delivery, and publishes work for the platform's queue.
    pub async fn send(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::SendFileRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta,
            work,
            epoch,
            is_last_attempt,
            cancel,
            ..
        } = delivery;
        self.deliveries
            .gatherer
            .send(&meta, &work, epoch, is_last_attempt, &cancel)
            .await
    }

    /// Handles one message of a platform's queue.
    pub async fn deliver(
        self: Arc<Self>,
        delivery: WorkDelivery<v1::DeliverFiles>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let WorkDelivery {
            meta, work, cancel, ..
        } = delivery;
        // The future is boxed, because it is large and the router has one for every queue.
        let ended = Box::pin(self.deliveries.sender.deliver(&meta, &work, &cancel)).await;
        work_result(&work, ended)
    }
}

/// Logs the whole chain for the operator and returns the fault to the caller.
fn report_error(error: DeliveryError) -> Fault {
    error.log("a request about deliveries failed");
    error.into()
}

/// Converts the end of a delivery's work to the result for the bus.
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
                report: Some(delivery_report::for_event(&report)),
            };
            Err(WorkFailure::with_event(fault, &rejected))
        }
        Ok(WorkEnd::Finished(report)) => Ok(WorkCompleted::event(&v1::DeliveryDone {
            report: Some(delivery_report::for_event(&report)),
        })),
        Ok(WorkEnd::Waiting(record)) => {
            let reason = record.waiting;
            let mut progress = v1::DeliveryProgressed {
                delivery_id: work.delivery_id.clone(),
                session: work.session.clone(),
                name: reason.map_or("", WaitingReason::name).to_owned(),
                waiting_code: reason
                    .map_or(v1::WaitingReason::Unspecified, Into::into)
                    .into(),
                ..v1::DeliveryProgressed::default()
            };
            progress.set_delivery_stage(DeliveryStage::Waiting);
            Ok(WorkCompleted::event(&progress))
        }
        Err(error) => {
            error.log("a delivery is left for later");
            let fault = Fault::from(error);
            // The record decides whether a delivery ended, not this error.
            let fault = if fault.is_retryable() {
                fault
            } else {
                // A fault without a retry would end the work while a step may still be open.
                fault.retry_after(Duration::from_secs(5))
            };
            Err(fault.into())
        }
    }
}

/// Whether a delivery ended without any file that was or may have been shown.
fn is_refused(delivery: &DeliveryRecord) -> bool {
    // An unknown file may be on the user's screen, so the delivery does not count as refused.
    let may_be_visible =
        |file: &FileRecord| file.state.is_shown() || file.state == FileState::Unknown;
    !delivery.files.is_empty() && !delivery.files.iter().any(may_be_visible)
}
