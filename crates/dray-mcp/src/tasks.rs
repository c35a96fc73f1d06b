//! Tasks (`io.modelcontextprotocol/tasks`, SEP-2663): deliveries that take longer than a call.
//!
//! The id of a task is the id of its delivery, and its state comes from the delivery's record. This process stores
//! nothing, so a task survives the end of the server, and every server of the same system can access it. Calls that
//! move a file are tasks as well, see [`crate::transfer_tasks`].

use std::time::Duration;

use dray_proto::v1;
use dray_types::{Fault, FaultCode};
use jiff::Timestamp;
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus};
use serde_json::Value;

use crate::client::{SHORT_TIMEOUT, ServiceClient};
use crate::failure;
use crate::tools;

/// How long a call waits for the end of a delivery or a transfer before it becomes a task.
pub(crate) const TASK_AFTER: Duration = Duration::from_secs(2);
/// Poll interval for clients, in milliseconds.
pub(crate) const POLL_INTERVAL_MS: u64 = 2_000;

/// The task of a delivery that is not over.
pub(crate) fn created_task(report: &v1::DeliveryReport) -> CreateTaskResult {
    CreateTaskResult::new(task(report))
}

/// The state of a task.
///
/// # Errors
///
/// The delivery does not exist in this session.
pub(crate) async fn state(client: &ServiceClient, task_id: &str) -> Result<GetTaskResult, Fault> {
    // The client polls, so the call does not wait for an end as well.
    let report = tools::outcome(client, task_id, Duration::ZERO).await?;
    let payload = if !report.finished {
        TaskPayload::Working
    // This check comes before the result: a cancelled delivery has a result, too, but the protocol does not allow a
    // payload for it.
    } else if report.cancelled {
        TaskPayload::Cancelled
    } else {
        // This includes a failed delivery: the tool ran, and its result reports the failure.
        let result = serde_json::to_value(tools::report_result(&report));
        match result.map_err(|_| Fault::internal())? {
            Value::Object(result) => TaskPayload::Completed { result },
            _ => return Err(Fault::internal()),
        }
    };
    Ok(GetTaskResult::new(DetailedTask::new(
        task(&report),
        payload,
    )))
}

/// Cancels a delivery: no further file is sent. A completed delivery does not change.
///
/// # Errors
///
/// The delivery does not exist in this session.
pub(crate) async fn cancel(client: &ServiceClient, task_id: &str) -> Result<(), Fault> {
    let request = v1::CancelDeliveryRequest {
        delivery_id: task_id.to_owned(),
        session: client.session.as_str().to_owned(),
    };
    client.call(SHORT_TIMEOUT, &request).await?;
    Ok(())
}

/// The error of a request about a task.
pub(crate) fn task_error(fault: &Fault) -> ErrorData {
    match fault.code {
        FaultCode::NotFound | FaultCode::InvalidArgument => {
            ErrorData::invalid_params("The task does not exist.", Some(failure::fault_json(fault)))
        }
        _ => failure::protocol_error(fault),
    }
}

fn task(report: &v1::DeliveryReport) -> Task {
    let shown = report.files.iter().filter(|file| {
        let state = file.file_state();
        matches!(
            state,
            v1::FileState::Delivered
                | v1::FileState::DeliveredAsLink
                | v1::FileState::DeliveredAsPreview
                | v1::FileState::Copied
        )
    });
    let message = format!(
        "{} of {} files delivered",
        shown.count(),
        report.files.len()
    );
    // `ended_at_ms` is 0 until the end.
    let changed_ms = report.ended_at_ms.max(report.begun_at_ms);
    Task::new(
        &report.delivery_id,
        // The payload decides the state; this one is replaced by `DetailedTask`.
        TaskStatus::Working,
        iso_time(report.begun_at_ms),
        iso_time(changed_ms),
    )
    .with_status_message(message)
    .with_poll_interval_ms(POLL_INTERVAL_MS)
}

/// A time as ISO 8601.
pub(crate) fn iso_time(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok();
    let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_the_id_and_the_times_of_its_delivery() {
        let file = |state| {
            let mut file = v1::DeliveredFile::default();
            file.set_file_state(state);
            file
        };
        let report = v1::DeliveryReport {
            delivery_id: "d1".to_owned(),
            begun_at_ms: 1_795_132_800_000,
            files: vec![
                file(v1::FileState::Delivered),
                file(v1::FileState::Unknown),
                file(v1::FileState::Queued),
            ],
            ..v1::DeliveryReport::default()
        };
        let shown = serde_json::to_value(created_task(&report)).unwrap();
        assert_eq!(shown["taskId"], "d1");
        assert_eq!(shown["status"], "working");
        assert_eq!(shown["resultType"], "task");
        assert_eq!(shown["createdAt"], "2026-11-20T00:00:00Z");
        assert_eq!(shown["statusMessage"], "1 of 3 files delivered");
    }
}
