//! The reports of a delivery: the tool's result, the notice to the user, and a report that fits into an event or a
//! response.

use dray_platform::{ErrorKind, Route};
use dray_presentation::name;
use dray_presentation::notice::{self, FailureReason, FileFailure};
use dray_proto::v1;
use dray_types::hex::hex_digits;
use prost::Message as _;
use serde::Serialize;

use crate::link;
use crate::record::{DeliveryRecord, FileFailureKind, FileRecord, FileState};

#[derive(Serialize)]
struct JsonReport<'a> {
    success: bool,
    delivery_id: &'a str,
    files: Vec<FileOutcome<'a>>,
}

#[derive(Serialize)]
struct FileOutcome<'a> {
    path: String,
    name: &'a str,
    size: u64,
    mime: &'a str,
    sha256: String,
    state: &'static str,
    route: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    platform_message_id: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    url_expires: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    content_warning: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FileError>,
}

#[derive(Serialize)]
struct FileError {
    kind: &'static str,
    message: String,
}

/// The result of the tool, as the agent sees it (platform-delivery 2.3).
pub fn result_json(record: &DeliveryRecord) -> String {
    let outcome = JsonReport {
        success: record.success,
        delivery_id: &record.delivery_id,
        files: record.files.iter().map(file_outcome).collect(),
    };
    serde_json::to_string(&outcome).unwrap_or_default()
}

fn file_outcome(file: &FileRecord) -> FileOutcome<'_> {
    FileOutcome {
        // Paths of a sandbox are bytes, but JSON is text; the record has the exact path.
        path: String::from_utf8_lossy(&file.path).into_owned(),
        name: &file.name,
        size: file.size,
        mime: &file.media_type,
        sha256: hex_digits(&file.sha256),
        state: file.state.name(),
        route: file.route.map_or("", Route::as_str),
        platform_message_id: &file.platform_message_id,
        url_expires: match file.url_expires_at_ms {
            0 => String::new(),
            unix_ms => link::rfc3339_time(unix_ms),
        },
        content_warning: file.content_warning(),
        error: file.error_kind.map(|kind| FileError {
            kind: kind.name(),
            message: named_message(file),
        }),
    }
}

/// The reason why a file did not arrive, with its name and without its directories.
fn named_message(file: &FileRecord) -> String {
    let message = file.error_message.as_str();
    match name::shown_name(&file.name) {
        // A refused request may name no file at all.
        name if name.is_empty() => message.to_owned(),
        name => format!("{name}: {message}"),
    }
}

/// Most bytes of a report in an event.
const MAX_EVENT_BYTES: usize = 100 * 1024;
/// Most bytes of a report in a response.
pub(crate) const MAX_RESPONSE_BYTES: usize = 112 * 1024;

/// The report in events, without the agent's text and the proofs of the copies.
pub fn for_event(record: &DeliveryRecord) -> v1::DeliveryReport {
    let mut report = v1::DeliveryReport::from(record);
    // Events reach every subscriber of the tenant, but the text is only for the chat.
    report.message.clear();
    for file in &mut report.files {
        file.transfer = None;
    }
    fit_report(report, MAX_EVENT_BYTES)
}

/// Shrinks a report to at most `max_bytes` when encoded. It loses the proofs of copies first, then claims, hosts of
/// files from the web, the result that repeats the files, and the text.
pub fn fit_report(mut report: v1::DeliveryReport, max_bytes: usize) -> v1::DeliveryReport {
    let shrinks: [fn(&mut v1::DeliveryReport); 5] = [
        |report| {
            for file in &mut report.files {
                file.transfer = None;
            }
        },
        |report| {
            for file in &mut report.files {
                file.claim = None;
            }
        },
        |report| {
            for file in &mut report.files {
                file.web_hosts.clear();
            }
        },
        |report| report.result_json.clear(),
        |report| report.message.clear(),
    ];
    for shrink in shrinks {
        // Fields are removed in an order that begins with those that readers need least; most reports are small enough
        // already.
        if report.encoded_len() <= max_bytes {
            break;
        }
        shrink(&mut report);
    }
    report
}

/// Failures for the user, in the order of the files.
pub fn user_failures(record: &DeliveryRecord) -> Vec<FileFailure> {
    // A file that still waits has not failed: it may arrive after the notice.
    let failed = |file: &&FileRecord| file.state.is_final() && !file.state.is_shown();
    record
        .files
        .iter()
        .filter(failed)
        .map(|file| FileFailure {
            name: file.name.clone(),
            reason: failure_reason(file),
        })
        .collect()
}

/// A key of a failure: equal for the same file name and reason.
pub fn failure_mark(failure: &FileFailure) -> String {
    format!(
        // A shown name contains no NUL, so different pairs never give the same key.
        "{}\0{}",
        name::shown_name(&failure.name),
        failure.reason.text()
    )
}

/// The notice to the user; empty for nothing.
pub fn failure_notice(failures: &[FileFailure]) -> String {
    notice::failure_notice(failures).unwrap_or_default()
}

fn failure_reason(file: &FileRecord) -> FailureReason {
    if file.state == FileState::Unknown {
        return FailureReason::Ambiguous;
    }
    let kind = match file.error_kind {
        Some(FileFailureKind::Platform(kind)) => kind,
        Some(FileFailureKind::NoAccount) => return FailureReason::NoAccount,
        Some(FileFailureKind::Ambiguous) | None => return FailureReason::TryLater,
    };
    match kind {
        ErrorKind::TooLarge if file.limit > 0 => FailureReason::TooLarge {
            size: file.size,
            limit: file.limit,
        },
        // The user can change neither; the log has the exact kind for the operator.
        ErrorKind::Forbidden | ErrorKind::Auth => FailureReason::NotAllowed,
        ErrorKind::Empty => FailureReason::Empty,
        // Without a claim, the file was never copied, so the file does not exist.
        ErrorKind::NotFound if file.claim.is_none() => FailureReason::NotFound,
        // The file was copied, so the chat does not exist.
        ErrorKind::NotFound => FailureReason::ChatMissing,
        ErrorKind::TooLarge
        | ErrorKind::UnsupportedKind
        | ErrorKind::BadFormat
        | ErrorKind::TooLong => FailureReason::Unsupported,
        ErrorKind::WindowClosed => FailureReason::WindowClosed,
        ErrorKind::RateLimited
        | ErrorKind::Transient
        | ErrorKind::StaleFileId
        | ErrorKind::NoThread
        | ErrorKind::Source
        | ErrorKind::Unknown => FailureReason::TryLater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, state: FileState, kind: Option<FileFailureKind>) -> FileRecord {
        FileRecord {
            path: format!("/w/{name}").into_bytes(),
            name: name.to_owned(),
            size: 3,
            media_type: "text/plain".to_owned(),
            sha256: vec![0xab; 32],
            route: Some(Route::Document),
            error_kind: kind,
            error_message: kind.map_or("", |_| "No.").to_owned(),
            ..FileRecord::in_state(state)
        }
    }

    #[test]
    fn the_result_has_the_shape_that_agents_know() {
        let mut linked = file("a.txt", FileState::DeliveredAsLink, None);
        linked.platform_message_id = "7".to_owned();
        linked.url_expires_at_ms = 1_795_000_000_000;
        let report = DeliveryRecord {
            delivery_id: "d".to_owned(),
            files: vec![
                linked,
                file(
                    "b.txt",
                    FileState::Rejected,
                    Some(ErrorKind::Forbidden.into()),
                ),
            ],
            ..DeliveryRecord::default()
        };
        let digest = "ab".repeat(32);
        assert_eq!(
            result_json(&report),
            format!(
                concat!(
                    r#"{{"success":false,"delivery_id":"d","files":["#,
                    r#"{{"path":"/w/a.txt","name":"a.txt","size":3,"mime":"text/plain","sha256":"{digest}","#,
                    r#""state":"delivered_as_link","route":"document","platform_message_id":"7","#,
                    r#""url_expires":"2026-11-18T11:06:40Z"}},"#,
                    r#"{{"path":"/w/b.txt","name":"b.txt","size":3,"mime":"text/plain","sha256":"{digest}","#,
                    r#""state":"rejected","route":"document","error":{{"kind":"forbidden","message":"b.txt: No."}}}}]}}"#,
                ),
                digest = digest
            )
        );
    }

    #[test]
    fn r_21_failures_are_reported_by_name_and_class_only() {
        let mut large = file(
            "big.bin",
            FileState::Rejected,
            Some(ErrorKind::TooLarge.into()),
        );
        (large.size, large.limit) = (62 << 20, 50 << 20);
        let report = DeliveryRecord {
            files: vec![
                file("ok.txt", FileState::Delivered, None),
                large,
                file(
                    "maybe.txt",
                    FileState::Unknown,
                    Some(ErrorKind::Transient.into()),
                ),
            ],
            ..DeliveryRecord::default()
        };
        assert_eq!(
            failure_notice(&user_failures(&report)),
            "⚠️ Couldn't deliver: big.bin. Reason: too large for this chat (62 MB of 50 MB).\n\
             ⚠️ May have been delivered: maybe.txt."
        );
        assert_eq!(failure_notice(&[]), "");
    }

    #[test]
    fn r_21_a_missing_chat_is_distinguished_from_a_missing_file() {
        let missing = file("a", FileState::Rejected, Some(ErrorKind::NotFound.into()));
        assert_eq!(failure_reason(&missing), FailureReason::NotFound);
        let mut stored = missing;
        stored.claim = Some(v1::Claim::default());
        assert_eq!(failure_reason(&stored), FailureReason::ChatMissing);
        let without_account = file("a", FileState::Rejected, Some(FileFailureKind::NoAccount));
        assert_eq!(failure_reason(&without_account), FailureReason::NoAccount);
    }

    #[test]
    fn a_report_of_many_files_still_fits_an_event() {
        let mut many = DeliveryRecord::default();
        for _ in 0..100 {
            let mut one = file(
                &"x".repeat(160),
                FileState::Failed,
                Some(ErrorKind::Transient.into()),
            );
            one.claim = Some(v1::Claim {
                artifact: Some(v1::Artifact {
                    name: "y".repeat(200),
                    ..v1::Artifact::default()
                }),
                ..v1::Claim::default()
            });
            many.files.push(one);
        }
        many.result_json = result_json(&many);
        assert!(v1::DeliveryReport::from(&many).encoded_len() > MAX_EVENT_BYTES);
        let event = for_event(&many);
        assert!(event.encoded_len() <= MAX_EVENT_BYTES);
        assert_eq!(event.files.len(), 100);
        let one = v1::DeliveryReport::from(&DeliveryRecord {
            files: vec![file("a", FileState::Delivered, None)],
            ..DeliveryRecord::default()
        });
        let fitted = fit_report(one.clone(), MAX_EVENT_BYTES);
        assert_eq!(fitted, one, "a report that fits is unchanged");
    }

    #[test]
    fn every_kind_of_failure_has_a_reason() {
        for kind in ErrorKind::ALL_KINDS {
            let failed = file("x", FileState::given_up(kind), Some(kind.into()));
            assert!(!failure_reason(&failed).text().is_empty(), "{kind}");
        }
    }
}
