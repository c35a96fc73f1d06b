//! The report of a delivery: the tool's result, the notice to the user, and the record without its inner parts.

use dray_content::name;
use dray_content::notice::{self, FailureReason, FileFailure};
use dray_platform::ErrorKind;
use dray_proto::v1;
use prost::Message as _;
use serde::Serialize;

use crate::link;

/// What happened to one file, as records spell it (platform-delivery 1).
pub mod state {
    /// Nothing happened yet.
    pub const STATE_QUEUED: &str = "queued";
    /// On its way.
    pub const STATE_SENDING: &str = "sending";
    /// The platform confirmed it.
    pub const STATE_DELIVERED: &str = "delivered";
    /// The platform confirmed a message with a link to it.
    pub const STATE_LINKED: &str = "delivered_as_link";
    /// It lies in a folder of this machine.
    pub const STATE_COPIED: &str = "copied";
    /// It will never work as asked.
    pub const STATE_REJECTED: &str = "rejected";
    /// It was tried and given up.
    pub const STATE_FAILED: &str = "failed";
    /// It may have arrived.
    pub const STATE_UNKNOWN: &str = "unknown";
}

/// Whether the user has the file.
pub fn is_shown(state: &str) -> bool {
    matches!(
        state,
        state::STATE_DELIVERED | state::STATE_LINKED | state::STATE_COPIED
    )
}

/// Whether nothing will happen to the file any more.
pub fn is_final(state: &str) -> bool {
    is_shown(state)
        || matches!(
            state,
            state::STATE_REJECTED | state::STATE_FAILED | state::STATE_UNKNOWN
        )
}

/// The state of a file that is given up for this reason: refused for good, or tried without success.
pub const fn given_up(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::TooLong
        | ErrorKind::BadFormat
        | ErrorKind::Forbidden
        | ErrorKind::NotFound
        | ErrorKind::TooLarge
        | ErrorKind::Empty
        | ErrorKind::WindowClosed
        | ErrorKind::UnsupportedKind
        | ErrorKind::NoThread => state::STATE_REJECTED,
        ErrorKind::RateLimited
        | ErrorKind::Transient
        | ErrorKind::Auth
        | ErrorKind::StaleFileId
        | ErrorKind::Source
        | ErrorKind::Unknown => state::STATE_FAILED,
    }
}

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
    state: &'a str,
    route: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    platform_message_id: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    url_expires: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FileError<'a>>,
}

#[derive(Serialize)]
struct FileError<'a> {
    kind: &'a str,
    message: String,
}

/// The result of the tool, as the agent sees it (platform-delivery 2.3).
pub fn result_json(report: &v1::DeliveryReport) -> String {
    let outcome = JsonReport {
        success: report.success,
        delivery_id: &report.delivery_id,
        files: report.files.iter().map(file_outcome).collect(),
    };
    serde_json::to_string(&outcome).unwrap_or_default()
}

fn file_outcome(file: &v1::DeliveredFile) -> FileOutcome<'_> {
    FileOutcome {
        path: String::from_utf8_lossy(&file.path).into_owned(),
        name: &file.name,
        size: file.size,
        mime: &file.media_type,
        sha256: hex_digits(&file.sha256),
        state: &file.state,
        route: &file.route,
        platform_message_id: &file.platform_message_id,
        url_expires: match file.url_expires_at_ms {
            0 => String::new(),
            at => link::rfc3339_time(at),
        },
        error: (!file.error_kind.is_empty()).then_some(FileError {
            kind: &file.error_kind,
            message: named_message(file),
        }),
    }
}

/// Why a file did not arrive, with its name and without its directories.
fn named_message(file: &v1::DeliveredFile) -> String {
    let message = file.error_message.as_str();
    match name::shown_name(&file.name) {
        name if name.is_empty() => message.to_owned(),
        name => format!("{name}: {message}"),
    }
}

fn hex_digits(bytes: &[u8]) -> String {
    dray_types::Sha256Digest::try_from(bytes)
        .map_or_else(|_| String::new(), dray_types::Sha256Digest::to_hex)
}

/// The record as callers see it: no steps, no tenant, nothing about its waiting.
pub fn public_report(report: &v1::DeliveryReport) -> v1::DeliveryReport {
    v1::DeliveryReport {
        steps: Vec::new(),
        tenant: String::new(),
        traceparent: String::new(),
        writer: 0,
        ..report.clone()
    }
}

/// Most bytes of a report in an event, and in an answer.
const EVENT_MOST: usize = 100 * 1024;
pub(crate) const ANSWER_MOST: usize = 112 * 1024;

/// The record as events carry it: also without what the agent said and the proofs of the copies.
pub fn for_event(report: &v1::DeliveryReport) -> v1::DeliveryReport {
    let mut report = public_report(report);
    report.message.clear();
    for file in &mut report.files {
        file.transfer = None;
    }
    fit_report(report, EVENT_MOST)
}

/// The same in at most so many bytes, encoded: proofs of copies go first, then what only the store needs, then the
/// result that repeats the files.
pub fn fit_report(mut report: v1::DeliveryReport, most: usize) -> v1::DeliveryReport {
    let shrinks: [fn(&mut v1::DeliveryReport); 4] = [
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
        |report| report.result_json.clear(),
        |report| report.message.clear(),
    ];
    for shrink in shrinks {
        if report.encoded_len() <= most {
            break;
        }
        shrink(&mut report);
    }
    report
}

/// Failures for the user, in the order of the files.
pub fn user_failures(report: &v1::DeliveryReport) -> Vec<FileFailure> {
    let failed = |file: &&v1::DeliveredFile| is_final(&file.state) && !is_shown(&file.state);
    report
        .files
        .iter()
        .filter(failed)
        .map(|file| FileFailure {
            name: file.name.clone(),
            reason: failure_reason(file),
        })
        .collect()
}

/// One failure as a text that is unique within the turn.
pub fn failure_mark(failure: &FileFailure) -> String {
    format!(
        "{}\0{}",
        name::shown_name(&failure.name),
        failure.reason.text()
    )
}

/// The notice to the user; empty for nothing.
pub fn failure_notice(failures: &[FileFailure]) -> String {
    notice::failure_notice(failures).unwrap_or_default()
}

fn failure_reason(file: &v1::DeliveredFile) -> FailureReason {
    if file.state == state::STATE_UNKNOWN {
        return FailureReason::Ambiguous;
    }
    match file.error_kind.as_str() {
        "too_large" if file.limit > 0 => FailureReason::TooLarge {
            size: file.size,
            limit: file.limit,
        },
        "forbidden" | "auth" => FailureReason::NotAllowed,
        "empty" => FailureReason::Empty,
        "not_found" if file.claim.is_none() => FailureReason::NotFound,
        // The file was there: it is the chat that is not.
        "not_found" => FailureReason::ChatMissing,
        "no_account" => FailureReason::NoAccount,
        "too_large" | "unsupported_kind" | "bad_format" | "too_long" => FailureReason::Unsupported,
        "window_closed" => FailureReason::WindowClosed,
        _ => FailureReason::TryLater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, state: &str, kind: &str) -> v1::DeliveredFile {
        v1::DeliveredFile {
            path: format!("/w/{name}").into_bytes(),
            name: name.to_owned(),
            size: 3,
            media_type: "text/plain".to_owned(),
            sha256: vec![0xab; 32],
            state: state.to_owned(),
            route: "document".to_owned(),
            error_kind: kind.to_owned(),
            error_message: if kind.is_empty() { "" } else { "No." }.to_owned(),
            ..v1::DeliveredFile::default()
        }
    }

    #[test]
    fn the_result_has_the_shape_that_agents_know() {
        let mut shown = file("a.txt", state::STATE_LINKED, "");
        shown.platform_message_id = "7".to_owned();
        shown.url_expires_at_ms = 1_795_000_000_000;
        let report = v1::DeliveryReport {
            delivery_id: "d".to_owned(),
            files: vec![shown, file("b.txt", state::STATE_REJECTED, "forbidden")],
            ..v1::DeliveryReport::default()
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
    fn r_21_failures_are_told_by_name_and_class_only() {
        let mut large = file("big.bin", state::STATE_REJECTED, "too_large");
        (large.size, large.limit) = (62 << 20, 50 << 20);
        let report = v1::DeliveryReport {
            files: vec![
                file("ok.txt", state::STATE_DELIVERED, ""),
                large,
                file("maybe.txt", state::STATE_UNKNOWN, "transient"),
            ],
            ..v1::DeliveryReport::default()
        };
        assert_eq!(
            failure_notice(&user_failures(&report)),
            "⚠️ Couldn't deliver: big.bin. Reason: too large for this chat (62 MB of 50 MB).\n\
             ⚠️ May have been delivered: maybe.txt."
        );
        assert_eq!(failure_notice(&[]), "");
    }

    #[test]
    fn r_21_a_missing_chat_is_told_apart_from_a_missing_file() {
        let missing = file("a", state::STATE_REJECTED, "not_found");
        assert_eq!(failure_reason(&missing), FailureReason::NotFound);
        let mut stored = missing;
        stored.claim = Some(v1::Claim::default());
        assert_eq!(failure_reason(&stored), FailureReason::ChatMissing);
        let unset = file("a", state::STATE_REJECTED, "no_account");
        assert_eq!(failure_reason(&unset), FailureReason::NoAccount);
    }

    #[test]
    fn a_report_of_many_files_still_fits_an_event() {
        let mut many = v1::DeliveryReport::default();
        for _ in 0..100 {
            let mut one = file(&"x".repeat(160), state::STATE_FAILED, "transient");
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
        assert!(many.encoded_len() > EVENT_MOST);
        let told = for_event(&many);
        assert!(told.encoded_len() <= EVENT_MOST);
        assert_eq!(told.files.len(), 100);
        assert_eq!(
            fit_report(file_report(), EVENT_MOST),
            file_report(),
            "what fits is whole"
        );
    }

    fn file_report() -> v1::DeliveryReport {
        v1::DeliveryReport {
            files: vec![file("a", state::STATE_DELIVERED, "")],
            ..v1::DeliveryReport::default()
        }
    }

    #[test]
    fn every_kind_of_failure_has_a_state_and_a_reason() {
        for kind in ErrorKind::ALL_KINDS {
            let state = given_up(kind);
            assert!(is_final(state) && !is_shown(state), "{kind}");
            let failed = file("x", state, kind.as_str());
            assert!(!failure_reason(&failed).text().is_empty());
        }
        assert!(!is_final(state::STATE_QUEUED) && !is_final(state::STATE_SENDING));
    }
}
