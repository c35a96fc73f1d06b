//! Sandboxes of sessions: sessions of recent events, what is bound to a session, and the directories of its sandbox.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use dray_presentation::size::human_size;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, SandboxEntryKind};
use dray_types::{Fault, FaultCode};
use http::{StatusCode, Uri};
use maud::{Markup, html};
use percent_encoding::percent_decode_str;

use crate::calls::{fault_notice, list_status};
use crate::deliveries::target_text;
use crate::form::FormFields;
use crate::index::RowFilter;
use crate::page::{PageFrame, token_field};
use crate::pager::ListPager;
use crate::previews::{PREVIEW_PATH, open_previews, preview_button};
use crate::sending::send_link;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{self, offset_text, position_text, shown, time_element};

/// Path of the page.
const BROWSE_PATH: &str = "/sandboxes";
/// Entries of a directory on one page.
const PAGE_ENTRIES: usize = 500;
/// Sessions on one page.
const PAGE_SESSIONS: usize = 50;
/// Field of forms with a percent-encoded path. Browsers change line breaks in plain fields, and names of files may have
/// some.
const ENCODED_PATH_FIELD: &str = "at";
/// Longest session id, address or path of a form, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// A path in a sandbox, as forms and links name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SandboxLocation {
    /// Session whose sandbox it is; empty where `address` names one.
    pub(crate) session: String,
    /// A sandbox as a person writes it, `docker:web`.
    pub(crate) address: String,
    /// Absolute, `~/…`, or relative to the working directory.
    pub(crate) path: String,
}

impl SandboxLocation {
    /// The location that fields name; `None` if they name no sandbox, or a text that is too long or has a NUL.
    pub(crate) fn of_fields(fields: &FormFields) -> Option<Self> {
        let [session, address] = ["session", "sandbox"].map(|name| fields.get(name));
        let path = named_path(fields)?;
        let is_usable = |text: &str| text.len() <= MAX_PATH_BYTES && !text.contains('\0');
        let is_named = !session.is_empty() || !address.is_empty();
        (is_named && [session, address, &path].into_iter().all(is_usable)).then(|| Self {
            session: session.to_owned(),
            address: address.to_owned(),
            path: if path.is_empty() {
                ".".to_owned()
            } else {
                path
            },
        })
    }

    pub(crate) fn reference(&self) -> v1::SandboxRef {
        use v1::sandbox_ref::Sandbox;
        let sandbox = if self.session.is_empty() {
            Sandbox::Address(self.address.clone())
        } else {
            Sandbox::Session(self.session.clone())
        };
        v1::SandboxRef {
            sandbox: Some(sandbox),
        }
    }

    /// The URL path of the page that shows this location.
    pub(crate) fn page_path(&self) -> String {
        self.path_to(&self.path)
    }

    fn path_to(&self, path: &str) -> String {
        let (name, value) = self.sandbox_field();
        let value = text::url_part(value);
        format!("{BROWSE_PATH}?{name}={value}&path={}", text::url_part(path))
    }

    /// Path and query of the page that shows this location.
    fn page_query(&self) -> (&'static str, String) {
        let path = self.page_path();
        let query = path.split_once('?').map(|(_, query)| query.to_owned());
        (BROWSE_PATH, query.unwrap_or_default())
    }

    fn sandbox_field(&self) -> (&'static str, &str) {
        if self.session.is_empty() {
            ("sandbox", &self.address)
        } else {
            ("session", &self.session)
        }
    }

    /// The location for people and audit events, such as `session chat-1: notes/a.txt`.
    pub(crate) fn sentence(&self) -> String {
        let (name, value) = self.sandbox_field();
        shown(format!("{name} {value}: {}", self.path))
    }

    /// Hidden fields that name this sandbox, and a path in it.
    pub(crate) fn hidden_fields(&self, path: &str) -> Markup {
        html! {
            (self.hidden_sandbox())
            input type="hidden" name=(ENCODED_PATH_FIELD) value=(text::url_part(path));
        }
    }

    /// The hidden field that names this sandbox.
    fn hidden_sandbox(&self) -> Markup {
        let (name, value) = self.sandbox_field();
        html! { input type="hidden" name=(name) value=(value); }
    }

    /// The parent directory; `None` for the root and for the directory where relative paths begin.
    fn parent(&self) -> Option<String> {
        match self.path.trim_end_matches('/') {
            "" | "." | "~" => None,
            path => match path.rsplit_once('/') {
                Some(("", _)) => Some("/".to_owned()),
                Some((parent, _)) => Some(parent.to_owned()),
                None => Some(".".to_owned()),
            },
        }
    }
}

/// The path that fields name, exactly as it is in the sandbox. Empty if they name none, `None` for a path that is not
/// UTF-8.
pub(crate) fn named_path(fields: &FormFields) -> Option<String> {
    let encoded = fields.get(ENCODED_PATH_FIELD);
    if encoded.is_empty() {
        // The path keeps its blanks: names of files may begin or end with one.
        return Some(fields.get_exact("path").to_owned());
    }
    let path = percent_decode_str(encoded).decode_utf8().ok()?;
    Some(path.into_owned())
}

/// `GET /sandboxes`: sessions of recent events, or a directory of the named sandbox.
pub(crate) async fn browse_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    let location = SandboxLocation::of_fields(&query);
    let after = query.parse_value("after").map(Option::unwrap_or_default);
    let status = after.as_ref().map_or_else(list_status, |_| StatusCode::OK);
    let list = match (after, &location) {
        (Err(fault), _) => fault_notice("The list cannot be shown.", &fault),
        (Ok(after), None) => session_list(&state, after),
        (Ok(after), Some(location)) => {
            // The calls run concurrently, so that an unavailable service costs the page its timeout once.
            let (bound, listed) = tokio::join!(
                bindings(&state, &location.session),
                directory(&state, &session, location, after)
            );
            html! { (bound) (listed) }
        }
    };
    let content = html! { (open_form(&query)) (list) };
    frame(&state, &session).render_as(status, &content)
}

/// The frame of pages about sandboxes.
pub(crate) fn frame<'a>(state: &'a ConsoleState, session: &'a ConsoleSession) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/sandboxes",
        title: "Sandboxes",
    }
}

fn open_form(query: &FormFields) -> Markup {
    html! {
        form.filters method="get" action="/sandboxes" {
            label { "Session " input name="session" value=(query.get("session")); }
            label { "or sandbox " input name="sandbox" placeholder="docker:web" value=(query.get("sandbox")); }
            label { "Path " input name="path" value=(query.get("path")); }
            button { "Open" }
        }
    }
}

/// Sessions that events name. The services have no call that lists all sessions, so the page shows only these.
fn session_list(state: &ConsoleState, after: u32) -> Markup {
    let newest = state.index.newest(&RowFilter::default(), usize::MAX);
    let mut sessions: BTreeMap<&str, u64> = BTreeMap::new();
    for row in newest.rows.iter().filter(|row| !row.session.is_empty()) {
        let last_ms = sessions.entry(&row.session).or_default();
        *last_ms = row.time_ms.max(*last_ms);
    }
    let mut sessions: Vec<_> = sessions.into_iter().collect();
    sessions.sort_by_key(|(id, last_ms)| (std::cmp::Reverse(*last_ms), *id));
    let begin = usize::try_from(after)
        .unwrap_or(usize::MAX)
        .min(sessions.len());
    let end = sessions.len().min(begin + PAGE_SESSIONS);
    let page = sessions.get(begin..end).unwrap_or_default();
    html! {
        h2 { "Sessions of recent events" }
        @if sessions.is_empty() { p { "No event in the index names a session. Open one by its id." } }
        @else {
            p.muted { (position_text(begin, page.len())) " of " (sessions.len()) }
            ul {
                @for (id, last_ms) in page {
                    li { a href={ "/sandboxes?session=" (text::url_part(id)) } { (id) } " last event " (time_element(*last_ms)) }
                }
            }
        }
        (ListPager::of_offset(begin, PAGE_SESSIONS).links(BROWSE_PATH, "", &offset_text(if end < sessions.len() { end } else { 0 })))
    }
}

/// Lists the bindings of a session; a sandbox by address has none.
async fn bindings(state: &ConsoleState, session: &str) -> Markup {
    if session.is_empty() {
        return html! {};
    }
    let request = v1::ShowSessionRequest {
        session: session.to_owned(),
    };
    match state.read(&request).await {
        Err(fault) => fault_notice("The session cannot be shown.", &fault),
        Ok(bound) => html! {
            dl {
                dt { "Session" } dd { (shown(&bound.session)) ", changed " (time_element(bound.changed_at_ms)) }
                dt { "Sandbox" }
                dd {
                    @match &bound.sandbox {
                        Some(handle) => { (shown(&handle.backend)) ":" (shown(&handle.name)) },
                        None => "none",
                    }
                }
                dt { "Chat" } dd { (target_text(bound.chat.as_ref())) }
                dt { "Working directory" } dd { code { (shown(&bound.working_directory)) } }
            }
        },
    }
}

async fn directory(
    state: &ConsoleState,
    session: &ConsoleSession,
    location: &SandboxLocation,
    offset: u32,
) -> Markup {
    let request = v1::ListSandboxRequest {
        sandbox: Some(location.reference()),
        path: location.path.clone().into_bytes(),
        // Only one level is listed, so that a directory with a million files below it opens as fast as an empty one.
        depth: 1,
        limit: u32::try_from(PAGE_ENTRIES).unwrap_or(u32::MAX),
        offset,
    };
    let read = |request| async move { state.read(&request).await };
    let listing = request.list_from_offset(read).await;
    html! {
        h2 { "Directory " code { (shown(&location.path)) } }
        @if let Some(parent) = location.parent() { p { a href=(location.path_to(&parent)) { "Up" } } }
        @match &listing {
            Err(fault) => (fault_notice("The directory cannot be listed.", &explain(fault))),
            Ok(listing) => {
                @if session.can_act() {
                    (preview_button(session, &location.hidden_fields(&location.path), "Preview this directory"))
                }
                (entry_table(session, location, listing, offset))
                @if session.can_act() {
                    (open_previews(state, session, location, &location.hidden_fields(&location.path)).await)
                }
                @if session.can_act() && state.store.is_some() { (upload_form(session, location)) }
            }
        }
    }
}

/// Adds advice for operators, which the service leaves out of faults for agents.
fn explain(fault: &Fault) -> Fault {
    match (fault.code, fault.detail.as_str()) {
        // A refusal of the bus has its own advice.
        (FaultCode::Denied, detail) if detail != "bus_permission" => fault.clone().advice(
            "`sandbox-transfer.policy.roots` and, for sandboxes by address, `sandbox-transfer.address_tenants` decide.",
        ),
        (_, "no_backend") => fault
            .clone()
            .advice("The set-up page has the kinds of sandboxes that are configured, in `sandbox-transfer.kinds`."),
        _ => fault.clone(),
    }
}

fn entry_table(
    session: &ConsoleSession,
    location: &SandboxLocation,
    listing: &v1::ListSandboxReply,
    offset: u32,
) -> Markup {
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    let next = begin.saturating_add(listing.entries.len());
    // A part without an entry has no next one: the service lists no more of this directory.
    let has_next = listing.truncated && next > begin;
    let next = offset_text(if has_next { next } else { 0 });
    let (path, filter) = location.page_query();
    html! {
        @if listing.entries.is_empty() && offset > 0 { p { "The directory has no entries here." } }
        @else if listing.entries.is_empty() && listing.denied == 0 { p { "The directory is empty." } }
        @else if !listing.entries.is_empty() && session.can_act() {
            // One form for all rows: a form in each row doubles the elements of a page with hundreds of them.
            form method="post" action="/sandboxes/file" {
                (token_field(session)) (location.hidden_sandbox())
                (rows_of(session, location, listing, begin))
            }
        }
        @else if !listing.entries.is_empty() { (rows_of(session, location, listing, begin)) }
        @if listing.denied > 0 {
            p.muted { "Left out, because the policy of transfers refuses them: " (listing.denied) "." }
        }
        (ListPager::of_offset(begin, PAGE_ENTRIES).links(path, &filter, &next))
        @if listing.truncated && !has_next {
            p.muted { "The directory has more entries, which are not listed: a listing ends after 10,000." }
        }
    }
}

/// The table of the entries of one page, which begins after `begin` of them.
fn rows_of(
    session: &ConsoleSession,
    location: &SandboxLocation,
    listing: &v1::ListSandboxReply,
    begin: usize,
) -> Markup {
    html! {
        table {
            caption { (position_text(begin, listing.entries.len())) ", by name; links are not followed" }
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "Kind" } th scope="col" { "Size" } th scope="col" { "Changed" }
            } }
            tbody { @for entry in &listing.entries { (entry_row(session, location, entry)) } }
        }
    }
}

fn entry_row(
    session: &ConsoleSession,
    location: &SandboxLocation,
    entry: &v1::SandboxEntry,
) -> Markup {
    let kind = entry.entry_kind();
    let name = entry
        .path
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    let name = shown(name);
    let changed_ms = entry
        .mtime_ns
        .and_then(|mtime_ns| u64::try_from(mtime_ns / 1_000_000).ok());
    // URLs of pages are text, so a path that is not UTF-8 cannot be opened here.
    let path = std::str::from_utf8(&entry.path).ok();
    html! {
        tr {
            td data-label="Name" {
                @match (kind, path) {
                    (SandboxEntryKind::Directory, Some(path)) => { a href=(location.path_to(path)) { (name) "/" } },
                    (SandboxEntryKind::File, Some(path)) if session.can_act() => {
                        @let encoded = text::url_part(path);
                        button.link name=(ENCODED_PATH_FIELD) value=(encoded) { (name) }
                        " "
                        button name=(ENCODED_PATH_FIELD) value=(encoded) formaction=(PREVIEW_PATH) aria-label={ "Preview " (name) } { "Preview" }
                        " " (send_link(location, path, &name))
                    },
                    _ => (name),
                }
                @if let Some(target) = &entry.link_target { " → " (shown(target)) }
            }
            td data-label="Kind" { (kind.name()) }
            td data-label="Size" { @if kind == SandboxEntryKind::File { (human_size(entry.size)) } @else { "–" } }
            td data-label="Changed" { (time_element(changed_ms.unwrap_or(0))) }
        }
    }
}

/// A form with a button for a file. With the script, a file can also be dropped anywhere on the form.
fn upload_form(session: &ConsoleSession, location: &SandboxLocation) -> Markup {
    html! {
        form.drop method="post" action="/sandboxes/put" enctype="multipart/form-data" data-drop {
            (token_field(session)) (location.hidden_fields(&location.path))
            label { "Put a file here. An existing file is not replaced."
                input type="file" name="file" required; }
            button { "Put" }
            p role="status" data-drop-status {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(query: &str) -> Option<SandboxLocation> {
        let uri: Uri = format!("/sandboxes?{query}").parse().unwrap();
        SandboxLocation::of_fields(&FormFields::of_query(&uri))
    }

    #[test]
    fn a_location_survives_its_link() {
        let location = location("session=chat%261&path=a%2Fb+c").unwrap();
        assert_eq!(location.path, "a/b c");
        let uri: Uri = location.page_path().parse().unwrap();
        let repeated = SandboxLocation::of_fields(&FormFields::of_query(&uri));
        assert_eq!(repeated, Some(location));
    }

    #[test]
    fn names_with_blanks_and_line_breaks_stay_as_they_are() {
        let named = location("session=s&path=+a+").unwrap();
        assert_eq!(named.path, " a ");
        for path in [
            "/box/ends with a blank ",
            "/box/line\nbreak",
            "/box/100%25 \u{e4}",
        ] {
            let place = SandboxLocation {
                session: "s".to_owned(),
                path: path.to_owned(),
                ..SandboxLocation::default()
            };
            // A browser encodes the value of a field once more when it sends the form.
            let value = text::url_part(path);
            let fields = format!("session=s&at={}", text::url_part(&value));
            assert_eq!(location(&fields), Some(place), "{path:?}");
        }
        assert_eq!(location("session=s&at=%25ff"), None);
    }

    #[test]
    fn a_location_needs_a_sandbox_and_a_usable_path() {
        assert_eq!(location("path=a"), None);
        assert_eq!(location("session=s&path=a%00b"), None);
        assert_eq!(
            location(&format!("session=s&path={}", "a".repeat(5000))),
            None
        );
        assert_eq!(location("sandbox=docker:web").unwrap().path, ".");
    }

    #[test]
    fn up_leads_to_the_parent_directory_but_not_above_the_root() {
        for (path, parent) in [
            (".", None),
            ("/", None),
            ("a", Some(".")),
            ("a/b", Some("a")),
            ("/a", Some("/")),
            ("/a/b/", Some("/a")),
        ] {
            let location = SandboxLocation {
                path: path.to_owned(),
                ..SandboxLocation::default()
            };
            assert_eq!(location.parent().as_deref(), parent, "{path}");
        }
    }
}
