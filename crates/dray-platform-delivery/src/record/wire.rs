//! Conversions of a delivery to and from messages: the stored record, the public report, and the work that begins a
//! delivery.
//!
//! The stored record has all fields; the report leaves out those that only this service needs.

use dray_platform::{ErrorKind, Route};
use dray_proto::codes::{DeliveryTask, UnknownCode};
use dray_proto::v1::{self, DeliveryErrorKind, DeliveryRoute, StepState};

use super::{DeliveryRecord, DeliveryStart, FileFailureKind, FileRecord, FileState, WaitingReason};
use crate::machine::{
    DeliveryStep, DoneStep, FailedStep, ReadyStep, SendingStep, StepConfirmation, StepData,
    StepPlan, UnknownStep,
};
use crate::resend::resend_offer;
use crate::web_files::WebFileVerdict;

/// Conversions between an enum of `dray-platform` and a code, in both directions.
macro_rules! same_values {
    ($own:ident as $code:ident via $to:ident, $from:ident { $($value:ident,)* } else { $($rest:ident,)* }) => {
        pub(crate) const fn $to(value: $own) -> $code {
            match value {
                $($own::$value => $code::$value,)*
            }
        }

        const fn $from(code: $code) -> Option<$own> {
            match code {
                $($code::$value => Some($own::$value),)*
                $($code::$rest => None,)*
            }
        }
    };
}

same_values!(Route as DeliveryRoute via route_code, route_of {
    Photo, Document, Animation, Video, Audio, Voice, Album, Attachment, File, Image, Link, Text, Notice, Copy,
} else {
    Unspecified,
});

same_values!(ErrorKind as DeliveryErrorKind via kind_code, kind_of {
    TooLong, BadFormat, Forbidden, NotFound, RateLimited, Transient, TooLarge, Empty, Auth, WindowClosed,
    UnsupportedKind, StaleFileId, NoThread, Source, Unknown,
} else {
    Unspecified, NoAccount, Ambiguous,
});

impl From<FileFailureKind> for DeliveryErrorKind {
    fn from(kind: FileFailureKind) -> Self {
        match kind {
            FileFailureKind::Platform(kind) => kind_code(kind),
            FileFailureKind::NoAccount => Self::NoAccount,
            FileFailureKind::Ambiguous => Self::Ambiguous,
        }
    }
}

fn failure_of(code: DeliveryErrorKind) -> Option<FileFailureKind> {
    match code {
        DeliveryErrorKind::NoAccount => Some(FileFailureKind::NoAccount),
        DeliveryErrorKind::Ambiguous => Some(FileFailureKind::Ambiguous),
        code => kind_of(code).map(FileFailureKind::Platform),
    }
}

impl From<&FileRecord> for v1::DeliveredFile {
    fn from(file: &FileRecord) -> Self {
        let FileRecord {
            path,
            name,
            size,
            media_type,
            sha256,
            state,
            route,
            platform_message_id,
            platform_file_id,
            url_expires_at_ms,
            error_kind,
            error_message,
            platform_code,
            lossy,
            claim,
            transfer,
            attempts,
            limit,
            preview,
            web,
        } = file.clone();
        let WebFileVerdict {
            hosts: web_hosts,
            refused_by,
            reported_by,
        } = web;
        let mut wire = Self {
            path,
            name,
            size,
            media_type,
            sha256,
            platform_message_id,
            platform_file_id,
            url_expires_at_ms,
            error_message,
            platform_code,
            lossy,
            claim,
            transfer,
            attempts,
            limit,
            preview,
            web_hosts,
            refused_by,
            reported_by,
            ..Self::default()
        };
        wire.set_file_state(state.into());
        wire.set_route_taken(route.map_or(DeliveryRoute::Unspecified, route_code));
        wire.set_failure(error_kind.map_or(DeliveryErrorKind::Unspecified, Into::into));
        wire
    }
}

impl From<v1::DeliveredFile> for FileRecord {
    fn from(wire: v1::DeliveredFile) -> Self {
        Self {
            // A newer worker may write a state that this version does not know. A file in the state `Queued` is checked
            // again before a send.
            state: FileState::of_code(wire.file_state()).unwrap_or(FileState::Queued),
            route: wire.route_taken().and_then(route_of),
            error_kind: wire.failure().and_then(failure_of),
            path: wire.path,
            name: wire.name,
            size: wire.size,
            media_type: wire.media_type,
            sha256: wire.sha256,
            platform_message_id: wire.platform_message_id,
            platform_file_id: wire.platform_file_id,
            url_expires_at_ms: wire.url_expires_at_ms,
            error_message: wire.error_message,
            platform_code: wire.platform_code,
            lossy: wire.lossy,
            claim: wire.claim,
            transfer: wire.transfer,
            attempts: wire.attempts,
            limit: wire.limit,
            preview: wire.preview,
            web: WebFileVerdict {
                hosts: wire.web_hosts,
                refused_by: wire.refused_by,
                reported_by: wire.reported_by,
            },
        }
    }
}

fn wire_confirmation(confirmation: &StepConfirmation) -> v1::StepConfirmation {
    let StepConfirmation {
        file,
        message_id,
        file_id,
        size,
        route,
        provisional,
    } = confirmation.clone();
    let mut wire = v1::StepConfirmation {
        file,
        message_id,
        file_id,
        size,
        provisional,
        ..v1::StepConfirmation::default()
    };
    wire.set_route_taken(route.map_or(DeliveryRoute::Unspecified, route_code));
    wire
}

fn confirmation_of(wire: v1::StepConfirmation) -> StepConfirmation {
    StepConfirmation {
        route: wire.route_taken().and_then(route_of),
        file: wire.file,
        message_id: wire.message_id,
        file_id: wire.file_id,
        size: wire.size,
        provisional: wire.provisional,
    }
}

fn wire_step(step: &DeliveryStep) -> v1::DeliveryStep {
    let (state, since_ms, confirmed) = match step {
        DeliveryStep::Ready(_) => (StepState::Ready, 0, Vec::new()),
        DeliveryStep::Sending(step) => (StepState::Sending, step.since_ms(), Vec::new()),
        DeliveryStep::Done(step) => {
            let confirmed = step.confirmed().iter().map(wire_confirmation).collect();
            (StepState::Done, 0, confirmed)
        }
        DeliveryStep::Unknown(_) => (StepState::Unknown, 0, Vec::new()),
        DeliveryStep::Failed(_) => (StepState::Failed, 0, Vec::new()),
    };
    let StepData {
        plan:
            StepPlan {
                route,
                files,
                text,
                lossy,
            },
        fingerprint,
        prepared,
        attempts,
        lost,
        error_kind,
        platform_code,
    } = (**step).clone();
    let mut wire = v1::DeliveryStep {
        files,
        text,
        lossy,
        prepared,
        sending_since_ms: since_ms,
        fingerprint,
        attempts,
        confirmed,
        platform_code,
        lost,
        ..v1::DeliveryStep::default()
    };
    let kind = error_kind.map_or(DeliveryErrorKind::Unspecified, kind_code);
    wire.set_codes(state, route_code(route), kind);
    wire
}

fn step_of(wire: v1::DeliveryStep) -> Result<DeliveryStep, UnknownCode> {
    let state = wire.step_state();
    let error_kind = wire.failure().map(|code| {
        // A step fails only with an error kind of a platform.
        kind_of(code).unwrap_or(ErrorKind::Unknown)
    });
    // No worker writes a step without a route. Such a step counts as a text, so it shows no file.
    let route = wire.planned_route()?.and_then(route_of);
    let data = StepData {
        plan: StepPlan {
            route: route.unwrap_or(Route::Text),
            files: wire.files,
            text: wire.text,
            lossy: wire.lossy,
        },
        fingerprint: wire.fingerprint,
        prepared: wire.prepared,
        attempts: wire.attempts,
        lost: wire.lost,
        error_kind,
        platform_code: wire.platform_code,
    };
    Ok(match state {
        StepState::Unspecified | StepState::Ready => ReadyStep::restored(data).into(),
        StepState::Sending => SendingStep::restored(data, wire.sending_since_ms).into(),
        StepState::Done => {
            let confirmed = wire.confirmed.into_iter().map(confirmation_of).collect();
            DoneStep::restored(data, confirmed).into()
        }
        StepState::Unknown => UnknownStep::restored(data).into(),
        StepState::Failed => FailedStep::restored(data).into(),
    })
}

fn waiting_code(waiting: Option<WaitingReason>) -> v1::WaitingReason {
    waiting.map_or(v1::WaitingReason::Unspecified, Into::into)
}

/// A message with the fields that the stored record and the report share, and with the given further fields.
macro_rules! delivery_message {
    ($record:expr, { $($field:ident: $value:expr,)* }) => {{
        let record: &DeliveryRecord = $record;
        let mut message = Self {
            delivery_id: record.delivery_id.clone(),
            session: record.session.clone(),
            target: record.target.clone(),
            files: record.files.iter().map(Into::into).collect(),
            success: record.success,
            finished: record.finished,
            begun_at_ms: record.begun_at_ms,
            ended_at_ms: record.ended_at_ms,
            result_json: record.result_json.clone(),
            notice: record.notice.clone(),
            turn: record.turn.clone(),
            message: record.message.clone(),
            flags: record.flags,
            due_at_ms: record.due_at_ms,
            rounds: record.rounds,
            deadline_ms: record.deadline_ms,
            cancelled: record.cancelled,
            $($field: $value,)*
            ..Self::default()
        };
        message.set_waiting_reason(waiting_code(record.waiting));
        message
    }};
}

impl From<&DeliveryRecord> for v1::DeliveryRecord {
    fn from(record: &DeliveryRecord) -> Self {
        delivery_message!(record, {
            steps: record.steps.iter().map(wire_step).collect(),
            tenant: record.tenant.clone(),
            traceparent: record.traceparent.clone(),
            writer: record.writer,
        })
    }
}

impl TryFrom<v1::DeliveryRecord> for DeliveryRecord {
    type Error = UnknownCode;

    fn try_from(wire: v1::DeliveryRecord) -> Result<Self, UnknownCode> {
        let waiting = wire.waiting_reason().and_then(WaitingReason::of_code);
        Ok(Self {
            delivery_id: wire.delivery_id,
            session: wire.session,
            target: wire.target,
            files: wire.files.into_iter().map(Into::into).collect(),
            success: wire.success,
            finished: wire.finished,
            begun_at_ms: wire.begun_at_ms,
            ended_at_ms: wire.ended_at_ms,
            result_json: wire.result_json,
            notice: wire.notice,
            steps: wire
                .steps
                .into_iter()
                .map(step_of)
                .collect::<Result<_, _>>()?,
            turn: wire.turn,
            message: wire.message,
            flags: wire.flags,
            tenant: wire.tenant,
            due_at_ms: wire.due_at_ms,
            waiting,
            rounds: wire.rounds,
            deadline_ms: wire.deadline_ms,
            cancelled: wire.cancelled,
            traceparent: wire.traceparent,
            writer: wire.writer,
        })
    }
}

impl From<&DeliveryRecord> for v1::DeliveryReport {
    /// The record as callers see it: no steps, no tenant, no trace, no writer.
    fn from(record: &DeliveryRecord) -> Self {
        delivery_message!(record, { resend: resend_offer(record), })
    }
}

impl DeliveryStart {
    /// The start of a delivery from work of a platform's queue; without files and text for work that continues a
    /// record.
    pub fn of_work(work: &v1::DeliverFiles) -> Self {
        let start = Self {
            delivery_id: work.delivery_id.clone(),
            session: work.session.clone(),
            target: work.target.clone(),
            ..Self::default()
        };
        match work.delivery_task() {
            DeliveryTask::Continue => start,
            DeliveryTask::Notice(text) => Self {
                message: text,
                ..start
            },
            DeliveryTask::New(new) => Self {
                message: new.message,
                flags: new.flags,
                files: new.files.into_iter().map(Into::into).collect(),
                turn: new.turn,
                ..start
            },
        }
    }
}

/// The audit event of one delivered file.
pub(crate) fn audit_line(
    record: &DeliveryRecord,
    file: &FileRecord,
    platform: &str,
) -> v1::DeliveryAudit {
    let wire = v1::DeliveredFile::from(file);
    v1::DeliveryAudit {
        delivery_id: record.delivery_id.clone(),
        direction: "out".to_owned(),
        platform: platform.to_owned(),
        session: record.session.clone(),
        name: dray_presentation::name::shown_name(&file.name),
        size: file.size,
        sha256: file.sha256.clone(),
        route: wire.route_name().to_owned(),
        state: file.state.name().to_owned(),
        error_kind: file.error_kind.map_or("", FileFailureKind::name).to_owned(),
        platform_message_id: file.platform_message_id.clone(),
        state_code: wire.state_code,
        route_code: wire.route_code,
        error_code: wire.error_code,
        web_hosts: wire.web_hosts,
        refused_by: wire.refused_by,
        reported_by: wire.reported_by,
        content_warning: file.content_warning().to_owned(),
    }
}
