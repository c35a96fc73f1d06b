//! Stored files of the tenant by digest: what the store has, and which deliveries and events name each file.
//!
//! The store knows digests, sizes and times. Names and media types are labels of deliveries and of files that clients
//! of agents keep, so other files have none.

mod holders;

use std::collections::HashMap;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use dray_presentation::size::human_size;
use dray_proto::v1::{self, ConsoleAction};
use dray_store::{ArtifactLabel, ArtifactReader, ContentOrigins};
use dray_types::hex::hex_digits;
use dray_types::{Claim, Deadline, Fault, FaultCode, Sha256Digest};
use http::{StatusCode, Uri};
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::{fault_notice, fault_status, not_found_fault};
use crate::deliveries::{file_summary, target_text};
use crate::form::{ActionForm, FormFields};
use crate::index::IndexSlice;
use crate::live::event_table;
use crate::page::{PageFrame, token_field};
use crate::pager::{EVENT_PAGES, ListPager, RECORD_PAGES};
use crate::respond::see_other;
use crate::sandbox_files::download;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{duration_text, file_path, operation_path, shown, time_element};

/// Most files that one page shows.
const MAX_PAGE_FILES: u32 = 50;
/// Number of newest deliveries from which the list takes names and media types.
const MAX_LABEL_DELIVERIES: u32 = 100;
/// Deliveries and events of one file that are shown.
const MAX_HOLDERS: u32 = 50;
/// Path and name of the list, for the link back from the page of one file.
const BACK_TO_FILES: (&str, &str) = ("/files", "the files");
/// Longest time for reading where a file came from.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for one download.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(10);

/// `GET /files`: a page of the list, or the page of the digest that was looked up.
pub(crate) async fn list_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    let digest_text = query.get("digest");
    if let Some(digest) = parse_digest(digest_text) {
        return see_other(&file_path(digest));
    }
    let after_text = query.get("after");
    let after = parse_digest(after_text);
    let is_valid = digest_text.is_empty() && (after_text.is_empty() || after.is_some());
    let request = v1::ListArtifactsRequest {
        after: after.map_or_else(Vec::new, |digest| digest.as_bytes().to_vec()),
        limit: MAX_PAGE_FILES,
    };
    let newest = v1::ListReceiptsRequest {
        limit: MAX_LABEL_DELIVERIES,
        ..v1::ListReceiptsRequest::default()
    };
    let (listed, receipts) = tokio::join!(state.read(&request), state.read(&newest));
    let stored = listed.as_ref().map_or(&[][..], |reply| &reply.artifacts);
    let kept = holders::find_labels(&state, stored).await;
    let content = html! {
        form.filters method="get" action="/files" {
            label.wide { "SHA-256 " input name="digest" maxlength="80" value=(digest_text) spellcheck="false"; }
            button { "Look up" }
        }
        @if !is_valid {
            div.notice.problem role="alert" { p { "A SHA-256 has 64 hexadecimal digits." } }
        }
        @match &listed {
            Err(fault) => (fault_notice("Stored files cannot be listed.", fault)),
            Ok(reply) => {
                (file_table(&state, reply, &labels(kept.as_ref().ok(), receipts.as_ref().ok())))
                (ListPager::of_query(RECORD_PAGES, &query).links("/files", "", &next_position(reply)))
            },
        }
        @if let Err(fault) = &receipts { (fault_notice("Names and media types are not known.", fault)) }
        @if let Some(fault) = kept.as_ref().err().filter(|fault| !holders::is_without_agents(fault)) {
            (fault_notice("Names of files that clients of agents keep are not known.", fault))
        }
    };
    let status = if is_valid {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    frame(&state, &session, "Files").render_as(status, &content)
}

/// Accepts digits in either case, with or without `sha256:` before them, as other pages show them.
fn parse_digest(text: &str) -> Option<Sha256Digest> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    digits.to_ascii_lowercase().parse().ok()
}

fn frame<'a>(
    state: &'a ConsoleState,
    session: &'a ConsoleSession,
    title: &'static str,
) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/files",
        title,
    }
}

/// Name and media type by digest: those of a file that a client keeps, otherwise those of a delivery.
fn labels<'a>(
    kept: Option<&'a v1::ListFileHoldersReply>,
    receipts: Option<&'a v1::ListReceiptsReply>,
) -> HashMap<&'a [u8], (&'a str, &'a str)> {
    let reports = receipts.into_iter().flat_map(|reply| &reply.reports);
    let files = reports.flat_map(|report| &report.files);
    let delivered = files.filter(|file| !file.sha256.is_empty()).map(|file| {
        let label = (file.name.as_str(), file.media_type.as_str());
        (file.sha256.as_slice(), label)
    });
    let holders = kept.into_iter().flat_map(|reply| &reply.holders);
    let kept = holders.map(|holder| {
        let label = (holder.name.as_str(), holder.media_type.as_str());
        (holder.sha256.as_slice(), label)
    });
    delivered.chain(kept).collect()
}

fn file_table(
    state: &ConsoleState,
    reply: &v1::ListArtifactsReply,
    labels: &HashMap<&[u8], (&str, &str)>,
) -> Markup {
    html! {
        @if reply.artifacts.is_empty() { p { "No stored files." } }
        @else {
            table {
                caption { "Finished content in the store, by digest. Copies in transit are not listed" }
                thead { tr {
                    th scope="col" { "SHA-256" } th scope="col" { "Size" } th scope="col" { "Name and type" }
                    th scope="col" { "Age" } th scope="col" { "Expires" }
                } }
                tbody { @for artifact in &reply.artifacts { (file_row(state, artifact, labels)) } }
            }
        }
    }
}

/// Where the next page begins; empty for the last page.
fn next_position(reply: &v1::ListArtifactsReply) -> String {
    let last = reply.artifacts.last().filter(|_| reply.truncated);
    last.map_or_else(String::new, |last| hex_digits(&last.sha256))
}

fn file_row(
    state: &ConsoleState,
    artifact: &v1::StoredArtifact,
    labels: &HashMap<&[u8], (&str, &str)>,
) -> Markup {
    let digest = hex_digits(&artifact.sha256);
    let age = state.now_ms().saturating_sub(artifact.stored_at_ms);
    html! {
        tr {
            td data-label="SHA-256" { a href=(format!("/files/{digest}")) { code { (digest) } } }
            td data-label="Size" { (human_size(artifact.size)) }
            td data-label="Name and type" {
                @match labels.get(artifact.sha256.as_slice()) {
                    Some((name, media_type)) => { (shown(name)) " " span.muted { (shown(media_type)) } },
                    None => span.muted { "no recent delivery or client names it" },
                }
            }
            td data-label="Age" { (duration_text(age)) }
            td data-label="Expires" { (time_element(artifact.expires_at_ms)) }
        }
    }
}

/// `GET /files/{digest}`: one file, and the deliveries that contain it.
pub(crate) async fn file_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path(digest): Path<String>,
    uri: Uri,
) -> Response {
    let Some(digest) = parse_digest(&digest) else {
        let fault = Fault::new(FaultCode::NotFound, "A SHA-256 has 64 hexadecimal digits.");
        return frame(&state, &session, "File").render_failure(
            "This is not the digest of a file.",
            &fault,
            BACK_TO_FILES,
        );
    };
    let query = FormFields::of_query(&uri);
    let deliveries = v1::ListReceiptsRequest {
        sha256: digest.as_bytes().to_vec(),
        limit: MAX_HOLDERS,
        after: query.get("after").to_owned(),
        ..v1::ListReceiptsRequest::default()
    };
    let (stored, receipts, kept, origins) = tokio::join!(
        find_stored(&state, digest),
        state.read(&deliveries),
        holders::find_holders(&state, digest),
        find_origins(&state, digest)
    );
    let digits = digest.to_hex();
    let before = query.get("before").parse().unwrap_or(u64::MAX);
    let limit = usize::try_from(MAX_HOLDERS).unwrap_or(usize::MAX);
    let events = state.index.newest_before(before, limit, |row| {
        row.proofs.iter().any(|(_, value)| *value == digits)
    });
    let is_named = receipts
        .as_ref()
        .is_ok_and(|reply| !reply.reports.is_empty())
        || !events.rows.is_empty()
        || kept.as_ref().is_ok_and(|reply| !reply.holders.is_empty())
        || matches!(&origins, Some(Ok(origins)) if !origins.fetches.is_empty());
    let status = match &stored {
        // Content that left the store still has its history.
        _ if is_named => StatusCode::OK,
        Ok(Some(_)) => StatusCode::OK,
        Ok(None) => receipts
            .as_ref()
            .map_or_else(fault_status, |_| StatusCode::NOT_FOUND),
        Err(fault) => fault_status(fault),
    };
    let content = html! {
        p { code { "sha256:" (digest.to_hex()) } }
        (stored_state(&state, &session, digest, &stored))
        @if let Some(origins) = &origins { (fetch_list(origins)) }
        (delivery_holders(digest, &receipts, &ListPager::of_query(RECORD_PAGES, &query)))
        (holders::holder_list(&kept))
        (event_holders(&state, digest, &events, &ListPager::of_query(EVENT_PAGES, &query)))
        p { a href="/files" { "Back to the files" } }
    };
    frame(&state, &session, "File").render_as(status, &content)
}

/// Finds the stored object of a digest: if it exists, it is the first entry of the list after the digest's predecessor.
async fn find_stored(
    state: &ConsoleState,
    digest: Sha256Digest,
) -> Result<Option<v1::StoredArtifact>, Fault> {
    let request = v1::ListArtifactsRequest {
        after: predecessor(*digest.as_bytes()).map_or_else(Vec::new, |before| before.to_vec()),
        limit: 1,
    };
    let reply = state.read(&request).await?;
    let mut artifacts = reply.artifacts.into_iter();
    Ok(artifacts.find(|artifact| artifact.sha256 == digest.as_bytes()))
}

/// The digest minus one, read as a big-endian number; `None` for zero.
fn predecessor(mut digest: [u8; 32]) -> Option<[u8; 32]> {
    for byte in digest.iter_mut().rev() {
        let (value, borrows) = byte.overflowing_sub(1);
        *byte = value;
        if !borrows {
            return Some(digest);
        }
    }
    None
}

fn stored_state(
    state: &ConsoleState,
    session: &ConsoleSession,
    digest: Sha256Digest,
    stored: &Result<Option<v1::StoredArtifact>, Fault>,
) -> Markup {
    html! {
        @match stored {
            Err(fault) => (fault_notice("The store does not respond.", fault)),
            Ok(None) => p #stored { "It is not among the finished content of the store. A copy in transit may exist in the cache." },
            Ok(Some(artifact)) => {
                dl #stored {
                    dt { "Size" } dd { (artifact.size) " bytes" }
                    dt { "Stored" } dd { (time_element(artifact.stored_at_ms)) }
                    dt { "May be gone after" } dd { (time_element(artifact.expires_at_ms)) }
                }
                @if session.can_act() && state.store.is_some() {
                    form method="post" action=(format!("{}/content", file_path(digest))) {
                        (token_field(session)) button { "Download" }
                    }
                }
            },
        }
    }
}

/// Where the bytes were fetched from; `None` for a console that is attached to no store.
async fn find_origins(
    state: &ConsoleState,
    digest: Sha256Digest,
) -> Option<Result<ContentOrigins, Fault>> {
    let store = state.store.as_ref()?;
    let deadline = Deadline::after(state.now_ms(), ORIGIN_TIMEOUT);
    let found = store.origins(&state.tenant, digest, Some(deadline)).await;
    Some(found.map_err(Fault::from))
}

fn fetch_list(origins: &Result<ContentOrigins, Fault>) -> Markup {
    html! {
        h2 { "From the web" }
        @match origins {
            Err(fault) => (fault_notice("The store does not respond.", fault)),
            Ok(origins) => {
                @if origins.fetches.is_empty() && !origins.is_cut { p { "No fetch of these bytes is known." } }
                @else {
                    ul #origins {
                        @for fetch in &origins.fetches { li {
                            (time_element(fetch.fetched_at_ms)) ": " (shown(fetch.hosts.join(" → "))) ", "
                            span.muted { (shown(&fetch.media_type)) } " policy " code { (shown(&fetch.policy_digest)) }
                        } }
                    }
                }
                @if origins.is_cut { p.muted { "There are further records, which are not shown." } }
            },
        }
    }
}

fn delivery_holders(
    digest: Sha256Digest,
    receipts: &Result<v1::ListReceiptsReply, Fault>,
    pager: &ListPager,
) -> Markup {
    html! {
        h2 { "Deliveries" }
        @match receipts {
            Err(fault) => (fault_notice("Deliveries cannot be searched.", fault)),
            Ok(reply) => {
                @if reply.reports.is_empty() {
                    p { @if pager.is_first() && !reply.truncated { "No delivery on record has this file." } @else { "No delivery of this part has this file." } }
                }
                @else {
                    ul #deliveries {
                        @for report in &reply.reports { li {
                            a href=(operation_path(&report.delivery_id)) { (shown(&report.delivery_id)) }
                            " to " (target_text(report.target.as_ref())) ", " (time_element(report.begun_at_ms)) ": "
                            @for file in report.files.iter().filter(|file| file.sha256 == digest.as_bytes()) {
                                (file_summary(file)) " "
                            }
                        } }
                    }
                }
                (pager.links(&file_path(digest), "", &reply.next))
                @if reply.truncated { p.muted { "Older deliveries were not searched." } }
            },
        }
    }
}

/// Sandbox receipts, tool calls and messages that name the digest, from the index of events.
fn event_holders(
    state: &ConsoleState,
    digest: Sha256Digest,
    events: &IndexSlice,
    pager: &ListPager,
) -> Markup {
    let limit = usize::try_from(MAX_HOLDERS).unwrap_or(usize::MAX);
    // A page that is not full is the last one.
    let next = events.rows.last().filter(|_| events.rows.len() == limit);
    let next = next.map_or_else(String::new, |row| row.id.to_string());
    html! {
        h2 { "Receipts and other events" }
        @if events.rows.is_empty() { p { "No event in the index names this file." } }
        @else { (event_table(events.rows.iter().map(AsRef::as_ref), "Newest first")) }
        (pager.links(&file_path(digest), "", &next))
        @if events.left_out > 0 {
            p.muted { "The index keeps the newest " (state.settings.max_events) " events; " (events.left_out) " older ones left it." }
        }
    }
}

/// `POST /files/{digest}/content`: the file, always as a download.
pub(crate) async fn get_content(
    State(state): State<ConsoleState>,
    Path(digest): Path<String>,
    ActionForm { session, .. }: ActionForm,
) -> Response {
    let opened = match parse_digest(&digest) {
        Some(digest) => open_content(&state, &session, digest).await,
        None => Err(not_stored()),
    };
    match opened {
        Ok((claim, reader)) => download(&claim, reader),
        Err(fault) => {
            let what = "The file cannot be downloaded.";
            frame(&state, &session, "File").render_failure(what, &fault, BACK_TO_FILES)
        }
    }
}

async fn open_content(
    state: &ConsoleState,
    session: &ConsoleSession,
    digest: Sha256Digest,
) -> Result<(Claim, ArtifactReader), Fault> {
    let Some(store) = &state.store else {
        return Err(Fault::new(
            FaultCode::Unsupported,
            "This console is attached to no store.",
        ));
    };
    let action = ActionRequest {
        action: ConsoleAction::FileGet,
        target: format!("sha256:{}", digest.to_hex()),
        time: DOWNLOAD_TIMEOUT,
        operation: None,
    };
    let action = state.begin_action(session, action).await?;
    let opened = async {
        // A digest is a name that no platform and no file system refuses.
        let label = ArtifactLabel::new("application/octet-stream", digest.to_hex());
        let claim = store.claim(&state.tenant, digest, label).await?;
        let claim = claim.ok_or_else(not_stored)?;
        let deadline = Deadline::after(state.now_ms(), DOWNLOAD_TIMEOUT);
        let reader = store.read(&state.tenant, &claim, deadline).await?;
        Ok((claim, reader))
    };
    let opened = opened.await;
    action.finish(opened).await
}

fn not_stored() -> Fault {
    not_found_fault("The store", "file").detail("not_stored")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_pages_show_them() {
        let digest = Sha256Digest::of(b"abc");
        let hex = digest.to_hex();
        for text in [
            hex.clone(),
            format!("sha256:{hex}"),
            hex.to_ascii_uppercase(),
        ] {
            assert_eq!(parse_digest(&text), Some(digest), "{text}");
        }
        for invalid in [
            "",
            "sha256:",
            "abc",
            &hex[1..],
            &format!("{hex}0"),
            "../etc",
        ] {
            assert_eq!(parse_digest(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_number_before_a_digest_borrows_from_the_left() {
        let mut digest = [0; 32];
        assert_eq!(predecessor(digest), None);
        digest[0] = 1;
        let mut before = [0xff; 32];
        before[0] = 0;
        assert_eq!(predecessor(digest), Some(before));
        digest[31] = 7;
        assert_eq!(predecessor(digest).map(|before| before[31]), Some(6));
    }
}
