//! The input and the result of a work handler.

use bytes::Bytes;
use dray_proto::contract::{event_step, event_subject, schema_name};
use dray_proto::{Event, v1};
use dray_types::Fault;
use tokio_util::sync::CancellationToken;

use crate::ids;
use crate::meta::Meta;

/// Does the work of one message.
pub trait WorkHandler<W>: Send + Sync + 'static {
    /// Handles one delivery. May be called again for the same operation, with a higher epoch, after a crash, a lost
    /// lease or a failure that may pass; effects must include the epoch or be idempotent (messaging-reliability 7.3).
    /// When [`WorkDelivery::cancel`] fires the handler has 2 s to return.
    fn handle(
        &self,
        delivery: WorkDelivery<W>,
    ) -> impl Future<Output = Result<WorkCompleted, WorkFailure>> + Send;
}

/// One message, decoded, with its claim.
#[derive(Clone, Debug)]
pub struct WorkDelivery<W> {
    /// The envelope. Its tenant is the tenant of the subject.
    pub meta: Meta,
    /// The decoded message.
    pub work: W,
    /// The dispatch epoch, a fencing token: rises with every take-over; part of staging keys. Above 1, and after a
    /// redrive, the trace in `meta` is linked, not continued (messaging-reliability 17).
    pub epoch: u64,
    /// Real attempts so far, this one included.
    pub attempt: u32,
    /// Whether a failure of this attempt that counts gives the work up ([`super::WorkSettings::attempts`]). A failure
    /// that parks the work does not count, so a last attempt can be followed by another one.
    pub is_last_attempt: bool,
    /// Deliberate restarts by an operator.
    pub redrives: u32,
    /// How often the server delivered this message; 1 at first. It includes deliveries that were returned without a
    /// start, in favour of other tenants.
    pub delivered: u64,
    /// Fires at the deadline, when the lease is lost, and at the end of a drain.
    pub cancel: CancellationToken,
}

/// Completed work, with the event that reports it.
#[derive(Clone, Debug)]
pub struct WorkCompleted {
    pub(crate) event: RecordedEvent,
}

impl WorkCompleted {
    /// Work that is done and that `event` reports. An event above [`super::MAX_RESULT_BYTES`] turns the work into a
    /// failure: large results are passed by claim.
    pub fn event<E: Event>(event: &E) -> Self {
        Self {
            event: RecordedEvent::new(event),
        }
    }
}

/// A failed attempt. The retry advice of the fault decides whether another attempt follows.
#[derive(Clone, Debug)]
pub struct WorkFailure {
    pub(crate) fault: Fault,
    pub(crate) event: Option<RecordedEvent>,
}

impl WorkFailure {
    /// A failure whose rejection event is `event` instead of the usual one, if it turns out to be final.
    pub fn with_event<E: Event>(fault: Fault, event: &E) -> Self {
        Self {
            fault,
            event: Some(RecordedEvent::new(event)),
        }
    }

    /// The fault, as it goes into the ledger and the rejection event.
    pub const fn fault(&self) -> &Fault {
        &self.fault
    }
}

impl From<Fault> for WorkFailure {
    fn from(fault: Fault) -> Self {
        Self { fault, event: None }
    }
}

/// An encoded event without its subject and its message id.
#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent {
    subject: fn(&dray_types::TenantId) -> String,
    step: String,
    schema: String,
    payload: Bytes,
}

impl RecordedEvent {
    pub(crate) fn new<E: Event>(event: &E) -> Self {
        Self {
            subject: event_subject::<E>,
            step: event_step::<E>(),
            schema: schema_name::<E>(),
            payload: event.encode_to_vec().into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Adds the subject and the message id that the event has for this operation.
    pub(crate) fn addressed(self, meta: &Meta, redrives: u32) -> v1::RecordedEvent {
        let tenant = meta.tenant.token();
        v1::RecordedEvent {
            // The subject is set here, because the handler only creates the event, and the envelope has tenant and
            // restart count.
            subject: (self.subject)(&meta.tenant),
            schema: self.schema,
            message_id: ids::message_id(&tenant, &meta.operation, &self.step, redrives),
            payload: self.payload.into(),
        }
    }
}
