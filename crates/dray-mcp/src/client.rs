//! Calls of the services on behalf of one tenant and one session.

use std::time::Duration;

use dray_bus::{Bus, Meta, Permissions};
use dray_proto::Call;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::Store;
use dray_ticket::TICKET_BUCKET;
use dray_types::{ByteSize, Clock, Deadline, Fault, OperationId, RetryAdvice, SessionId, TenantId};
use tokio::time::{Instant, sleep};

/// Timeout of calls that move no content.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of calls that move or convert content.
pub(crate) const TRANSFER_TIMEOUT: Duration = Duration::from_mins(10);

/// Shortest time between two attempts at a service that is busy.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Longest wait for a service that is busy.
const MAX_BUSY_WAIT: Duration = Duration::from_secs(20);

/// The bus and the store of a running system, for one tenant and one session. No argument of a tool changes either.
#[derive(Clone, Debug)]
pub struct ServiceClient {
    /// The bus to which calls are sent.
    pub bus: Bus,
    /// The store that contains the content of files.
    pub store: Store,
    /// The clock of deadlines.
    pub clock: Clock,
    /// The tenant whose data the tools see.
    pub tenant: TenantId,
    /// The session whose sandbox and chat the tools use.
    pub session: SessionId,
}

/// Adds every call that tools, resources and completions make, and the records of tasks. Add each new call here.
///
/// The identity of the server in a deployment is created from it, so a missing call would be refused there.
#[must_use]
pub fn declare_calls(identity: Permissions) -> Permissions {
    identity
        .calls::<v1::FetchRequest>()
        .calls::<v1::ExplainRequest>()
        .calls::<v1::ResolveRequest>()
        .calls::<v1::ReadAttachmentRequest>()
        .calls::<v1::ListSandboxRequest>()
        .calls::<v1::StatSandboxRequest>()
        .calls::<v1::GetSandboxFileRequest>()
        .calls::<v1::PutSandboxFileRequest>()
        .calls::<v1::SendFileRequested>()
        .calls::<v1::DeliveryOutcomeRequest>()
        .calls::<v1::ListReceiptsRequest>()
        .calls::<v1::CancelDeliveryRequest>()
        .calls::<v1::ShowSessionRequest>()
        .calls::<v1::BindSessionRequest>()
        .uses_keys(TICKET_BUCKET)
}

/// Adds the calls of `--approve-hosts`. An identity with these permissions may answer the questions of every tenant, so
/// it must differ from that of [`declare_calls`] alone.
#[must_use]
pub fn declare_approvals(identity: Permissions) -> Permissions {
    identity
        .calls::<v1::ListEgressQuestionsRequest>()
        .calls::<v1::AnswerEgressQuestionRequest>()
}

impl ServiceClient {
    pub(crate) fn deadline(&self, timeout: Duration) -> Deadline {
        Deadline::after(self.clock.now_ms(), timeout)
    }

    pub(crate) fn meta(&self, timeout: Duration) -> Meta {
        Meta::new(self.tenant.clone(), self.deadline(timeout)).with_session(self.session.clone())
    }

    /// Calls a service. When the returned future is dropped, the service is asked to stop.
    pub(crate) async fn call<C: Call>(
        &self,
        timeout: Duration,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        Ok(self.bus.call(&self.meta(timeout), request).await?)
    }

    /// Like [`Self::call`], without repeating a call on which the service decided.
    pub(crate) async fn call_once<C: Call>(
        &self,
        timeout: Duration,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        Ok(self.bus.call_once(&self.meta(timeout), request).await?)
    }

    /// Like [`Self::call_once`], and repeats the call while the service is busy: a busy service has not begun the call.
    /// The time between two attempts is the one that the service names.
    ///
    /// Agents make many calls concurrently, and a model would not try again.
    pub(crate) async fn call_when_ready<C: Call>(
        &self,
        timeout: Duration,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        let end = Instant::now() + MAX_BUSY_WAIT;
        loop {
            let fault = match self.call_once(timeout, request).await {
                Err(fault) if fault.detail == "overloaded" => fault,
                outcome => return outcome,
            };
            let delay = match fault.retry {
                RetryAdvice::After(delay) => delay.max(BUSY_RETRY_INTERVAL),
                RetryAdvice::Never => BUSY_RETRY_INTERVAL,
            };
            // The service stays busy for longer than the call may wait.
            if delay > end.saturating_duration_since(Instant::now()) {
                return Err(fault);
            }
            sleep(delay).await;
        }
    }

    /// Like [`Self::call_once`], under an operation id of the caller's choice.
    pub(crate) async fn call_once_as<C: Call>(
        &self,
        operation: OperationId,
        timeout: Duration,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        let meta = self.meta(timeout).with_operation(operation);
        Ok(self.bus.call_once(&meta, request).await?)
    }

    /// Like [`Self::call`], under an operation id of the caller's choice.
    pub(crate) async fn call_as<C: Call>(
        &self,
        operation: OperationId,
        timeout: Duration,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        let meta = self.meta(timeout).with_operation(operation);
        Ok(self.bus.call(&meta, request).await?)
    }

    /// The sandbox of the session.
    pub(crate) fn sandbox(&self) -> v1::SandboxRef {
        v1::SandboxRef {
            sandbox: Some(v1::sandbox_ref::Sandbox::Session(
                self.session.as_str().to_owned(),
            )),
        }
    }

    /// The text of a reply, which is stored when it is large.
    pub(crate) async fn text(
        &self,
        content: Option<v1::Content>,
        limit: ByteSize,
    ) -> Result<String, Fault> {
        let content = content.ok_or_else(Fault::internal)?;
        let bytes = match ContentSource::try_from(content).map_err(|_| Fault::internal())? {
            ContentSource::Inline(bytes) => bytes,
            ContentSource::Claim(claim) => {
                let deadline = self.deadline(TRANSFER_TIMEOUT);
                let reader = self.store.read(&self.tenant, &claim, deadline).await?;
                reader.read_all(limit).await?
            }
        };
        String::from_utf8(bytes.into()).map_err(|_| Fault::internal())
    }
}
