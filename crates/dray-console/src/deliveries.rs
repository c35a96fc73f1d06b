//! The page of deliveries: the outcome of each file, what is certain about that outcome, and resending failed files.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use dray_presentation::size::human_size;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, ConsoleAction, FileState, PreviewLinkState};
use dray_types::Fault;
use dray_types::hex::hex_digits;
use http::{StatusCode, Uri};
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::{PAGE_TIMEOUT, fault_notice, list_status};
use crate::form::{ActionForm, FormFields, operation_field};
use crate::page::{PageFrame, token_field};
use crate::pager::{ListPager, RECORD_PAGES};
use crate::respond::see_other;
use crate::sending::repeated_notice;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{self, operation_path, shown, time_element, url_part};

/// Deliveries on one page.
const MAX_DELIVERIES: u32 = 100;
/// Digits of a digest in the table; the page of the operation shows all digits.
const SHORT_DIGEST_DIGITS: usize = 16;

/// `GET /deliveries`: receipts, newest first, of one session or of all.
pub(crate) async fn list_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    // The service filters, so that the limit applies to the deliveries that are shown.
    let request = v1::ListReceiptsRequest {
        session: query.get("session").to_owned(),
        open_only: query.is_checked("open"),
        limit: MAX_DELIVERIES,
        after: query.get("after").to_owned(),
        ..v1::ListReceiptsRequest::default()
    };
    let reply = state.read(&request).await;
    let status = reply.as_ref().map_or_else(list_status, |_| StatusCode::OK);
    let content = html! {
        form.filters method="get" action="/deliveries" {
            label { "Session " input name="session" value=(request.session); }
            label { input type="checkbox" name="open" value="1" checked[request.open_only]; " Only what did not arrive" }
            button { "Show" }
        }
        @match &reply {
            Err(fault) => (fault_notice("Deliveries cannot be listed.", fault)),
            Ok(reply) => {
                (delivery_table(&session, reply))
                (ListPager::of_query(RECORD_PAGES, &query).links("/deliveries", &list_filter(&request), &reply.next))
                // A service of an earlier version names no next part.
                @if reply.truncated && reply.next.is_empty() {
                    p.muted { "Older deliveries are left out; filter by session to see them." }
                }
            },
        }
    };
    PageFrame {
        state: &state,
        session: &session,
        section: "/deliveries",
        title: "Deliveries",
    }
    .render_as(status, &content)
}

/// The query of a list without its position.
fn list_filter(request: &v1::ListReceiptsRequest) -> String {
    let open = if request.open_only { "&open=1" } else { "" };
    format!("session={}{open}", url_part(&request.session))
}

fn delivery_table(session: &ConsoleSession, reply: &v1::ListReceiptsReply) -> Markup {
    html! {
        @if reply.reports.is_empty() { p { "No deliveries." } }
        @else {
            table {
                caption { "Newest first" }
                thead { tr {
                    th scope="col" { "Began" } th scope="col" { "To" } th scope="col" { "Files, and what is certain" }
                    th scope="col" { "Delivery" }
                } }
                tbody { @for report in &reply.reports { (delivery_row(session, report)) } }
            }
        }
    }
}

fn delivery_row(session: &ConsoleSession, report: &v1::DeliveryReport) -> Markup {
    html! {
        tr {
            td data-label="Began" { (time_element(report.begun_at_ms)) }
            td data-label="To" { (target_text(report.target.as_ref())) }
            td data-label="Files" { ul.plain { @for file in &report.files { li { (file_summary(file)) } } } }
            td data-label="Delivery" {
                a href=(operation_path(&report.delivery_id)) { (shown(&report.delivery_id)) }
                @if let Some(reason) = report.waiting_reason() {
                    p.muted { "Waits: " (reason.name()) ", continues " (time_element(report.due_at_ms)) }
                }
                // The service reports what it would resend. A service of an earlier version reports nothing, and then
                // nothing is offered.
                @if let (true, Some(offer)) = (session.can_act(), report.resend) {
                    (resend_form(session, report, offer))
                }
            }
        }
    }
}

/// The state of a file, with sentences about what is certain.
pub(crate) fn file_summary(file: &v1::DeliveredFile) -> Markup {
    let state = file.file_state();
    let digest: String = hex_digits(&file.sha256)
        .chars()
        .take(SHORT_DIGEST_DIGITS)
        .collect();
    html! {
        span.state data-state=(state.name()) { (state.name()) } " "
        strong { (shown(&file.name)) }
        // Without a digest the file never arrived at the service, so its size is not known.
        @if !digest.is_empty() { " " (human_size(file.size)) " " code { "sha256:" (digest) } }
        @for sentence in certainty(file) { " " span { (sentence) } }
    }
}

/// Sentences about what is certain about a file and what is not, derived only from its record.
pub(crate) fn certainty(file: &v1::DeliveredFile) -> Vec<String> {
    let message = shown(&file.platform_message_id);
    let confirmed = if message.is_empty() {
        "The platform confirmed it.".to_owned()
    } else {
        format!("The platform confirmed message {message}.")
    };
    let mut sentences = match file.file_state() {
        FileState::Delivered => vec![confirmed],
        FileState::DeliveredAsLink => vec![
            confirmed,
            "The message holds a link; whether it was opened is not known.".to_owned(),
        ],
        FileState::DeliveredAsPreview => {
            let mut sentences = vec![confirmed];
            sentences.extend(file.preview.iter().flat_map(preview_sentences));
            sentences
        }
        FileState::Copied => vec!["It is in a directory on the service's machine.".to_owned()],
        FileState::Rejected | FileState::Failed => vec!["It was not shown.".to_owned()],
        FileState::Unknown => vec![
            "It may have arrived: the platform's response was lost. Sending it again may show it twice.".to_owned(),
        ],
        FileState::Queued => vec!["Nothing was sent yet.".to_owned()],
        FileState::Sending => vec!["It is on its way; nothing is confirmed yet.".to_owned()],
        FileState::Unspecified => vec!["Its state is not known.".to_owned()],
    };
    if file.url_expires_at_ms > 0 {
        let end = text::rfc3339(file.url_expires_at_ms);
        sentences.push(format!("The link ends at {end}."));
    }
    if file.lossy {
        sentences
            .push("The platform recompresses this file, so users may get other bytes.".to_owned());
    }
    if let Some(kind) = file.failure() {
        let code = shown(&file.platform_code);
        let code = if code.is_empty() {
            code
        } else {
            format!(" [{code}]")
        };
        sentences.push(format!(
            "{}{code}: {}",
            kind.name(),
            shown(&file.error_message)
        ));
    }
    sentences
}

/// Whether the link of a preview was opened, as far as it is known.
fn preview_sentences(receipt: &v1::PreviewReceipt) -> Vec<String> {
    let opened = match (receipt.counts_known, receipt.opened_count) {
        (false, _) => {
            "The message holds the link of a preview; whether it was opened is not known now."
                .to_owned()
        }
        (true, 0) => "The link of its preview was not opened.".to_owned(),
        (true, count) => format!(
            "The link of its preview was opened {count} times, first at {}.",
            text::rfc3339(receipt.first_opened_at_ms)
        ),
    };
    let mut sentences = vec![opened];
    if receipt.scanned_count > 0 {
        let first = text::rfc3339(receipt.first_scanned_at_ms);
        sentences.push(format!(
            "Programs that name themselves, such as link previews of chat platforms, looked {} times, first at {first}. \
             Others call themselves browsers and count as openings.",
            receipt.scanned_count
        ));
    }
    match receipt.state() {
        PreviewLinkState::Revoked => {
            let end = text::rfc3339(receipt.revoked_at_ms);
            sentences.push(format!("It was revoked at {end}."));
        }
        PreviewLinkState::Expired => sentences.push("It has expired.".to_owned()),
        PreviewLinkState::Open | PreviewLinkState::Unspecified => {}
    }
    sentences
}

fn resend_form(
    session: &ConsoleSession,
    report: &v1::DeliveryReport,
    offer: v1::ResendOffer,
) -> Markup {
    let label = if offer.all {
        "Send all files again"
    } else {
        "Resend what did not arrive"
    };
    html! {
        form method="post" action="/deliveries/resend" {
            (token_field(session)) (operation_field())
            input type="hidden" name="delivery" value=(report.delivery_id);
            @if offer.all { input type="hidden" name="all" value="1"; }
            // The checkbox is required, so that a file is not sent twice by mistake.
            @if offer.may_repeat {
                label { input type="checkbox" name="accept" value="1" required; " A file may be shown twice" }
            }
            button aria-label={ (label) " of " (shown(&report.delivery_id)) } { (label) }
        }
    }
}

/// The address of a chat as the command line accepts it.
pub(crate) fn target_text(target: Option<&v1::ChatTarget>) -> String {
    let Some(target) = target else {
        return "–".to_owned();
    };
    let v1::ChatTarget {
        platform,
        account,
        chat,
        thread,
        ..
    } = target;
    let account = if account.is_empty() {
        String::new()
    } else {
        format!("/{account}")
    };
    let thread = if thread.is_empty() {
        String::new()
    } else {
        format!("#{thread}")
    };
    shown(format!("{platform}{account}:{chat}{thread}"))
}

/// `POST /deliveries/resend`: redirects to the page of the new delivery.
pub(crate) async fn resend_delivery(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let frame = PageFrame {
        state: &state,
        session: &session,
        section: "/deliveries",
        title: "Resend",
    };
    match start_resend(&state, &session, &fields).await {
        Ok(accepted) if accepted.duplicate => {
            let advice = ", or open the deliveries again to send it once more.";
            frame.render(&repeated_notice(&accepted, advice))
        }
        Ok(accepted) => see_other(&operation_path(&accepted.delivery_id)),
        Err(fault) => frame.render_failure(
            "The delivery was not sent again.",
            &fault,
            ("/deliveries", "the deliveries"),
        ),
    }
}

/// Starts the new delivery.
async fn start_resend(
    state: &ConsoleState,
    session: &ConsoleSession,
    fields: &FormFields,
) -> Result<v1::DeliveryAccepted, Fault> {
    let request = v1::ResendRequest {
        delivery_id: fields.get("delivery").to_owned(),
        all: fields.is_checked("all"),
    };
    let action = ActionRequest {
        action: ConsoleAction::Resend,
        target: request.delivery_id.clone(),
        time: PAGE_TIMEOUT,
        // The action and the new delivery have the same operation, so one timeline shows both.
        operation: Some(fields.operation()?),
    };
    let action = state.begin_action(session, action).await?;
    let outcome = state.call_once(&action.meta, &request).await;
    action.finish(outcome).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(state: FileState) -> v1::DeliveredFile {
        let mut file = v1::DeliveredFile {
            platform_message_id: "77".to_owned(),
            ..v1::DeliveredFile::default()
        };
        file.set_file_state(state);
        file
    }

    #[test]
    fn only_confirmed_files_are_shown_as_confirmed() {
        for state in [
            FileState::Queued,
            FileState::Sending,
            FileState::Rejected,
            FileState::Failed,
            FileState::Unknown,
        ] {
            let sentences = certainty(&file(state)).join(" ");
            assert!(!sentences.contains("confirmed message"), "{sentences}");
        }
        let delivered = certainty(&file(FileState::Delivered));
        assert_eq!(delivered, ["The platform confirmed message 77."]);
        let unknown = certainty(&file(FileState::Unknown)).join(" ");
        assert!(unknown.contains("may have arrived") && unknown.contains("twice"));
        let newer = v1::DeliveredFile {
            state_code: 99,
            ..v1::DeliveredFile::default()
        };
        assert!(certainty(&newer).join(" ").contains("may have arrived"));
    }
}
