//! `dray receipts`: one line for each file, with its outcome.

mod json;

use std::time::Duration;

use dray_platform::DeliveryTarget;
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, FileState};
use dray_types::hex::hex_digits;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::cli::{GlobalOptions, ReceiptsArgs};
use crate::commands::{sandbox, shown};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Longest wait for platform-delivery.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters of a delivery id that are encoded in an address: all but the unreserved ones of RFC 3986.
const URL_PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Prints receipts, newest delivery first.
pub(crate) async fn run(
    global: &GlobalOptions,
    receipts: &ReceiptsArgs,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let outcome = list_reports(&system, receipts).await;
    system.close().await;
    let (reports, truncated) = outcome?;
    for report in &reports {
        let page = receipts.console.as_deref();
        let page = page.map(|console| page_url(console, &report.delivery_id));
        if global.json {
            let mut report = json::report_json(report);
            if let (Some(members), Some(page)) = (report.as_object_mut(), page) {
                members.insert("page".to_owned(), page.into());
            }
            print_line(&report.to_string());
        } else {
            for line in report_lines(report) {
                print_line(&line);
            }
            if let Some(page) = page {
                print_line(&format!("  {page}"));
            }
        }
    }
    if truncated {
        print_note("There are more; raise --limit to see them.");
    }
    Ok(())
}

/// The address of a delivery's page in the console at this URL.
fn page_url(console: &str, delivery_id: &str) -> String {
    let id = utf8_percent_encode(delivery_id, URL_PART);
    format!("{}/operations/{id}", console.trim_end_matches('/'))
}

async fn list_reports(
    system: &SystemConnection,
    receipts: &ReceiptsArgs,
) -> Result<(Vec<v1::DeliveryReport>, bool), CommandFailure> {
    let meta = system.meta(CALL_TIMEOUT);
    if let Some(delivery_id) = &receipts.delivery {
        let request = v1::DeliveryOutcomeRequest {
            delivery_id: delivery_id.clone(),
            wait_ms: 0,
        };
        let report = system.call(&meta, &request).await?;
        return Ok((vec![report], false));
    }
    let mut request = v1::ListReceiptsRequest {
        session: receipts.session.clone(),
        open_only: receipts.open,
        limit: receipts.limit,
        ..v1::ListReceiptsRequest::default()
    };
    let mut reports = Vec::new();
    loop {
        let reply = system.call(&system.meta(CALL_TIMEOUT), &request).await?;
        reports.extend(reply.reports);
        let listed = u32::try_from(reports.len()).unwrap_or(u32::MAX);
        request.limit = receipts.limit.saturating_sub(listed);
        // A service of an earlier version names no next part.
        if request.limit == 0 || reply.next.is_empty() {
            return Ok((reports, reply.truncated));
        }
        request.after = reply.next;
    }
}

/// One line for each file: time, delivery, state, name, size, target, and the error. A delivery without files has one
/// line with its own state.
pub(crate) fn report_lines(report: &v1::DeliveryReport) -> Vec<String> {
    let time = shown::rfc3339_time(report.begun_at_ms);
    let delivery = &report.delivery_id;
    let target = report
        .target
        .clone()
        .map_or_else(|| "-".to_owned(), target_text);
    let line = |state: &str, file: &str, remarks: Vec<String>| {
        let first = format!("{time}  {delivery}  {state:<17}  {file}  -> {target}");
        std::iter::once(first)
            .chain(remarks)
            .collect::<Vec<_>>()
            .join("  ")
    };
    if report.files.is_empty() {
        let mut remarks: Vec<String> = wait_remark(report).into_iter().collect();
        if !report.notice.is_empty() {
            remarks.push(name::shown_text(&report.notice, 500));
        }
        return vec![line(delivery_state(report), "no files", remarks)];
    }
    let lines = report.files.iter().map(|file| {
        let sha256 = hex_digits(&file.sha256);
        // The size of a file that never arrived is unknown.
        let size = match file.size {
            0 if sha256.is_empty() => "-".to_owned(),
            size => human_size(size),
        };
        let content = format!(
            "{}  {size}  sha256:{}",
            name::shown_text(&file.name, 80),
            sha256.get(..16).unwrap_or("-"),
        );
        let mut remarks = file_remarks(file);
        if matches!(file.file_state(), FileState::Queued | FileState::Sending) {
            remarks.extend(wait_remark(report));
        }
        if report.cancelled {
            remarks.push("the delivery was cancelled".to_owned());
        }
        line(file.file_state().name(), &content, remarks)
    });
    lines.collect()
}

/// The state of a delivery as a whole.
fn delivery_state(report: &v1::DeliveryReport) -> &'static str {
    match (report.finished, report.cancelled) {
        (true, true) => "cancelled",
        (true, false) if report.success => "finished",
        (true, false) => "failed",
        (false, _) => "running",
    }
}

/// Why the delivery waits, and until when; `None` if it does not wait.
fn wait_remark(report: &v1::DeliveryReport) -> Option<String> {
    let reason = report.waiting_reason().filter(|_| !report.finished)?;
    let until = match report.due_at_ms {
        0 => String::new(),
        due_at_ms => format!(" until {}", shown::rfc3339_time(due_at_ms)),
    };
    Some(format!("waits: {}{until}", reason.name()))
}

/// Further facts about a file: route, message, expiry, transfer and error.
fn file_remarks(file: &v1::DeliveredFile) -> Vec<String> {
    let mut parts = Vec::new();
    let route = file.route_name();
    if !route.is_empty() {
        parts.push(format!("as {route}"));
    }
    if !file.platform_message_id.is_empty() {
        parts.push(format!(
            "message {}",
            name::shown_text(&file.platform_message_id, 120)
        ));
    }
    if file.url_expires_at_ms > 0 {
        parts.push(format!(
            "until {}",
            shown::rfc3339_time(file.url_expires_at_ms)
        ));
    }
    if let Some(preview) = &file.preview {
        parts.push(preview_remark(preview));
    }
    if file.lossy {
        parts.push("recompressed by the platform".to_owned());
    }
    if let Some(transfer) = &file.transfer {
        parts.push(format!(
            "via {} ({})",
            transfer.transport, transfer.integrity
        ));
        parts.extend(sandbox::content_remark(transfer));
    }
    if !file.web_hosts.is_empty() {
        let hosts = file.web_hosts.join(", ");
        parts.push(format!("from the web ({})", name::shown_text(&hosts, 200)));
    }
    if !file.reported_by.is_empty() {
        let rule = name::shown_text(&file.reported_by, 64);
        parts.push(format!("the rule `{rule}` would refuse it"));
    }
    if let Some(kind) = file.failure() {
        let code = if file.platform_code.is_empty() {
            String::new()
        } else {
            format!(" [{}]", name::shown_text(&file.platform_code, 60))
        };
        parts.push(format!("{}{code}: {}", kind.name(), file.error_message));
    }
    parts
}

/// A remark on whether the link of a preview was opened. Programs that call themselves browsers count as people.
fn preview_remark(preview: &v1::PreviewReceipt) -> String {
    let opened = match (preview.counts_known, preview.opened_count) {
        (false, _) => "openings not known".to_owned(),
        (true, 0) => "not opened".to_owned(),
        (true, count) => format!(
            "opened {count} times, first {}",
            shown::rfc3339_time(preview.first_opened_at_ms)
        ),
    };
    let scanned = (preview.scanned_count > 0).then(|| {
        format!(
            "scanned {} times by programs that say so",
            preview.scanned_count
        )
    });
    let state = preview.state().name();
    let state = (!state.is_empty()).then(|| format!("link {state}"));
    let parts = [Some(opened), scanned, state];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// A chat in the form in which it is typed.
pub(crate) fn target_text(target: v1::ChatTarget) -> String {
    let v1::ChatTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    } = target;
    let target = DeliveryTarget {
        platform,
        account,
        chat,
        thread,
        reply_to,
    };
    name::shown_text(target.to_string(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(change: impl FnOnce(&mut v1::DeliveredFile)) -> v1::DeliveryReport {
        let mut file = v1::DeliveredFile {
            name: "report.pdf".to_owned(),
            size: 43_008,
            sha256: vec![0xab; 32],
            state_code: FileState::Delivered.into(),
            route_code: v1::DeliveryRoute::Document.into(),
            platform_message_id: "77".to_owned(),
            ..v1::DeliveredFile::default()
        };
        change(&mut file);
        v1::DeliveryReport {
            delivery_id: "d1".to_owned(),
            target: Some(v1::ChatTarget {
                platform: "telegram".to_owned(),
                chat: "42".to_owned(),
                ..v1::ChatTarget::default()
            }),
            files: vec![file],
            begun_at_ms: 1_700_000_000_000,
            ..v1::DeliveryReport::default()
        }
    }

    #[test]
    fn one_line_reports_what_happened() {
        assert_eq!(
            report_lines(&report(|_| {})),
            [
                "2023-11-14T22:13:20.000Z  d1  delivered          report.pdf  42 KB  sha256:abababababababab  -> telegram:42  \
              as document  message 77"
            ]
        );
    }

    #[test]
    fn a_delivery_has_an_address_in_the_console() {
        for console in ["http://127.0.0.1:7300", "http://127.0.0.1:7300/"] {
            let page = page_url(console, "walk-1/../x");
            assert_eq!(page, "http://127.0.0.1:7300/operations/walk-1%2F..%2Fx");
        }
    }

    #[test]
    fn a_file_that_never_arrived_has_neither_size_nor_digest() {
        let missing = report(|file| {
            file.set_file_state(FileState::Rejected);
            file.size = 0;
            file.sha256 = Vec::new();
        });
        let line = report_lines(&missing).concat();
        assert!(line.contains("  report.pdf  -  sha256:-  "), "{line}");
        let empty = report_lines(&report(|file| file.size = 0)).concat();
        assert!(empty.contains("  report.pdf  0 B  sha256:ab"), "{empty}");
    }

    #[test]
    fn a_failure_names_its_kind_and_the_code_of_the_platform() {
        let failed = report(|file| {
            file.set_file_state(FileState::Rejected);
            file.name = "a\u{1b}[31m.pdf".to_owned();
            file.platform_message_id = String::new();
            file.set_failure(v1::DeliveryErrorKind::TooLarge);
            file.error_message = "The file is too large for this chat.".to_owned();
            file.platform_code = "40005".to_owned();
        });
        let line = report_lines(&failed).concat();
        assert!(line.contains("rejected"), "{line}");
        assert!(
            line.ends_with("too_large [40005]: The file is too large for this chat."),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'), "{line}");
    }

    #[test]
    fn a_file_with_a_token_is_marked() {
        let marked = report(|file| {
            file.transfer = Some(v1::TransferReceipt {
                transport: "exec_raw".to_owned(),
                integrity: "sha256".to_owned(),
                content_warning: "token:GitHub".to_owned(),
                ..v1::TransferReceipt::default()
            });
        });
        let line = report_lines(&marked).concat();
        let remark = "  via exec_raw (sha256)  contains a secret (token:GitHub)";
        assert!(line.ends_with(remark), "{line}");
        let json = json::report_json(&marked);
        let transfer = &json["files"][0]["transfer"];
        assert_eq!(transfer["content_warning"], "token:GitHub");
    }

    #[test]
    fn a_path_whose_text_is_not_exact_has_its_bytes() {
        let odd = report(|file| file.path = b"a\xff".to_vec());
        assert_eq!(json::report_json(&odd)["files"][0]["path_base64"], "Yf8=");
        let plain = report(|file| file.path = b"a".to_vec());
        let json = json::report_json(&plain);
        assert_eq!(json["files"][0]["path_base64"], serde_json::Value::Null);
    }

    #[test]
    fn a_waiting_delivery_shows_its_reason() {
        let mut waiting = report(|file| file.set_file_state(FileState::Queued));
        waiting.set_waiting_reason(v1::WaitingReason::RateLimited);
        waiting.due_at_ms = 1_700_000_060_000;
        let line = report_lines(&waiting).concat();
        let remark = "  waits: rate_limited until 2023-11-14T22:14:20.000Z";
        assert!(line.ends_with(remark), "{line}");
        let json = json::report_json(&waiting);
        assert_eq!(json["waiting"], "rate_limited");
        assert_eq!(json["due_at_ms"], 1_700_000_060_000_u64);
        // What is shown already does not wait.
        waiting.files[0].set_file_state(FileState::Delivered);
        let line = report_lines(&waiting).concat();
        assert!(!line.contains("waits"), "{line}");
    }

    #[test]
    fn a_cancelled_delivery_without_files_has_a_line() {
        let mut cancelled = report(|_| {});
        (cancelled.finished, cancelled.cancelled) = (true, true);
        let line = report_lines(&cancelled).concat();
        assert!(line.ends_with("  the delivery was cancelled"), "{line}");
        cancelled.files.clear();
        assert_eq!(
            report_lines(&cancelled),
            ["2023-11-14T22:13:20.000Z  d1  cancelled          no files  -> telegram:42"]
        );
        assert_eq!(json::report_json(&cancelled)["cancelled"], true);
    }

    #[test]
    fn a_delivery_whose_files_are_being_copied_has_a_line() {
        let mut running = report(|_| {});
        running.files.clear();
        running.set_waiting_reason(v1::WaitingReason::Queue);
        let line = report_lines(&running).concat();
        assert!(
            line.ends_with("  running            no files  -> telegram:42  waits: queue"),
            "{line}"
        );
    }

    #[test]
    fn the_media_type_has_its_name_and_the_former_one() {
        let mut text = report(|file| "text/csv".clone_into(&mut file.media_type));
        text.resend = Some(v1::ResendOffer {
            all: true,
            may_repeat: false,
        });
        let json = json::report_json(&text);
        let file = &json["files"][0];
        assert_eq!(
            (&file["media_type"], &file["mime"]),
            (&"text/csv".into(), &"text/csv".into())
        );
        assert_eq!(json["resend"]["all"], true);
    }
}
