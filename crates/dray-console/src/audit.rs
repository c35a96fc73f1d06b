//! Actions of people and their audit events: one before and one after each.

use std::time::Duration;

use dray_bus::Meta;
use dray_proto::v1::{ConsoleAction, ConsoleAudit, ConsoleStage};
use dray_types::{Fault, FaultCode, OperationId};

use crate::session::{ConsolePerson, ConsoleSession};
use crate::state::ConsoleState;
use crate::text;

/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// An action that a person requests, before it runs.
pub(crate) struct ActionRequest {
    pub(crate) action: ConsoleAction,
    /// The object of the action: a delivery, a dead letter, a sandbox with a path, or a host.
    pub(crate) target: String,
    /// Longest time for the action itself.
    pub(crate) time: Duration,
    /// The operation that the action belongs to; `None` starts a new operation.
    pub(crate) operation: Option<OperationId>,
}

/// An action whose beginning is recorded.
pub(crate) struct RecordedAction {
    state: ConsoleState,
    audit: ConsoleAudit,
    /// Envelope for the calls of the action.
    pub(crate) meta: Meta,
}

impl ConsoleState {
    /// Records that an action begins.
    ///
    /// # Errors
    /// The event was not stored. The action must not happen then.
    pub(crate) async fn begin_action(
        &self,
        session: &ConsoleSession,
        request: ActionRequest,
    ) -> Result<RecordedAction, Fault> {
        let mut meta = self.meta(request.time);
        // An action on existing work appears on the timeline of that work.
        if let Some(operation) = request.operation {
            meta = meta.with_operation(operation);
        }
        let audit = ConsoleAudit {
            target: text::shown(request.target),
            ..session_audit(session)
        };
        let mut recorded = RecordedAction {
            state: self.clone(),
            audit,
            meta,
        };
        recorded.audit.set_action(request.action);
        recorded.audit.set_stage(ConsoleStage::Begun);
        recorded.publish().await.map_err(|cause| {
            tracing::warn!(code = %cause.code, "an action was refused: its audit event was not stored");
            Fault::new(
                FaultCode::Unavailable,
                "Nothing was done: the audit event of the action could not be stored.",
            )
            .detail("audit_unavailable")
            .advice("Check that the bus works (set-up page), then repeat the action.")
        })?;
        Ok(recorded)
    }

    /// Records a login or a logout. Both take effect even when the event cannot be stored, because people need the
    /// console most when the bus is down.
    pub(crate) async fn record_login(&self, action: ConsoleAction, session: &ConsoleSession) {
        let mut audit = session_audit(session);
        audit.set_action(action);
        audit.set_stage(ConsoleStage::Done);
        let (login, role) = (&session.login, session.role);
        tracing::info!(login, %role, person = audit.person, ?action, "a person logged in or out of the console");
        self.publish_login(audit).await;
    }

    /// Records that the login of a person of the identity provider was refused.
    pub(crate) async fn record_refused_login(&self, person: &ConsolePerson, failure: &str) {
        let mut audit = ConsoleAudit {
            person: person.subject.clone(),
            person_name: person.name.clone(),
            failure: failure.to_owned(),
            ..ConsoleAudit::default()
        };
        audit.set_action(ConsoleAction::Login);
        audit.set_stage(ConsoleStage::Failed);
        tracing::warn!(person = audit.person, failure, "a login was refused");
        self.publish_login(audit).await;
    }

    async fn publish_login(&self, audit: ConsoleAudit) {
        let recorded = RecordedAction {
            state: self.clone(),
            audit,
            meta: self.meta(AUDIT_TIMEOUT),
        };
        if let Err(fault) = recorded.publish().await {
            let login = &recorded.audit.login;
            tracing::warn!(login, code = %fault.code, "the audit event of a login was not stored");
        }
    }
}

/// An event of this session without an action.
fn session_audit(session: &ConsoleSession) -> ConsoleAudit {
    let person = session.person.clone();
    let (subject, name) =
        person.map_or_else(Default::default, |person| (person.subject, person.name));
    ConsoleAudit {
        login: session.login.clone(),
        role: session.role.as_str().to_owned(),
        person: subject,
        person_name: name,
        ..ConsoleAudit::default()
    }
}

impl RecordedAction {
    /// Records how the action ended, and returns `outcome` unchanged.
    pub(crate) async fn finish<T>(mut self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        match &outcome {
            Ok(_) => self.audit.set_stage(ConsoleStage::Done),
            Err(fault) => {
                self.audit.set_stage(ConsoleStage::Failed);
                self.audit.failure = format!("{}/{}", fault.code, fault.detail);
            }
        }
        if let Err(fault) = self.publish().await {
            // The action happened; its beginning is recorded, and its service has the outcome.
            tracing::warn!(code = %fault.code, "the outcome of an action was not recorded");
        }
        outcome
    }

    async fn publish(&self) -> Result<(), Fault> {
        let deadline = self.state.meta(AUDIT_TIMEOUT).deadline;
        let meta = self.meta.clone().with_deadline(deadline);
        let published = self.state.bus.publish_audit(&meta, &self.audit).await;
        published.map(|_| ()).map_err(Fault::from)
    }
}
