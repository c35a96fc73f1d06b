//! The viewer pages around a preview: they contain the frame, reload it after changes, and list directories.

use axum::body::Body;
use axum::response::Response;
use dray_presentation::name::shown_text;
use dray_presentation::size::human_size;
use dray_sandbox::metadata::Entry;
use dray_sandbox::{Error, ErrorKind, FileKind};
use dray_transfer_engine::{ListOptions, PermittedListing};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use crate::document::has_document;
use crate::error::PreviewError;
use crate::file::{etag_of, media_type_of};
use crate::headers::{VIEWER_POLICY, response};
use crate::location::{Location, MAX_SHOWN_CHARACTERS};
use crate::view::SandboxView;

/// Entries of a directory on one page.
const PAGE_ENTRIES: usize = 1000;
/// Entries of a directory that all pages list together.
const MAX_LISTED_ENTRIES: usize = 10_000;
/// Query parameter with the number of entries before those of a page.
const AFTER_QUERY: &str = "after=";
/// Longest text that is shown, in bytes; the rest is left out.
const MAX_SHOWN_TEXT_BYTES: u64 = 1 << 20;
/// Path of the stylesheet of the viewer, relative to the origin of previews.
pub(crate) const STYLE_PATH: &str = "/assets/viewer.css";
/// Path of the viewer's script, relative to the origin of previews.
pub(crate) const SCRIPT_PATH: &str = "/assets/viewer.js";
/// Content of the viewer's stylesheet, part of the executable.
pub(crate) const STYLE: &str = include_str!("../assets/viewer.css");
/// Content of the viewer's script, part of the executable.
pub(crate) const VIEWER_SCRIPT: &str = include_str!("../assets/viewer.js");

/// The viewer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewerKind {
    /// A page or a PDF, shown in a frame.
    Frame,
    /// Markdown, a table or a notebook, shown as a page in a frame.
    Document,
    Picture,
    Video,
    Audio,
    Text,
    /// A file that browsers do not show.
    Download,
}

impl ViewerKind {
    fn of(media_type: &str) -> Self {
        match media_type {
            "text/html" | "application/xhtml+xml" | "application/pdf" => Self::Frame,
            _ if has_document(media_type) => Self::Document,
            _ if media_type.starts_with("image/") => Self::Picture,
            _ if media_type.starts_with("video/") => Self::Video,
            _ if media_type.starts_with("audio/") => Self::Audio,
            "application/json"
            | "application/javascript"
            | "application/xml"
            | "application/toml"
            | "application/yaml"
            | "application/x-yaml"
            | "application/x-sh" => Self::Text,
            _ if media_type.starts_with("text/") => Self::Text,
            _ => Self::Download,
        }
    }
}

/// The number of entries before the page of a directory that a query names; 0 without such a query.
pub(crate) fn list_position(query: Option<&str>) -> usize {
    let after = query.and_then(|query| query.strip_prefix(AFTER_QUERY));
    after.and_then(|after| after.parse().ok()).unwrap_or(0)
}

/// Serves the viewer page of a path. For a directory, the page lists the entries after the first `after`.
pub(crate) async fn serve_viewer(
    view: &SandboxView,
    after: usize,
) -> Result<Response, PreviewError> {
    let content = match view.kind() {
        FileKind::Directory => directory(view, after).await?,
        FileKind::File => file(view).await?,
        kind => return Err(Error::new(ErrorKind::NotRegular, kind.as_str()).into()),
    };
    Ok(page(StatusCode::OK, &view.shown_name(), &content))
}

/// The page that says why a request is refused.
pub(crate) fn problem_page(error: &PreviewError) -> Response {
    let content = html! { p role="alert" { (error.sentence()) } };
    page(error.status(), "Preview", &content)
}

fn page(status: StatusCode, title: &str, content: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (title) }
                link rel="stylesheet" href=(STYLE_PATH);
                script src=(SCRIPT_PATH) defer {}
            }
            body {
                main { h1 { (title) } (content) }
                p #status role="status" hidden {}
            }
        }
    };
    let body = Body::from(page.into_string());
    response(status, "text/html; charset=utf-8", VIEWER_POLICY, body)
}

/// Links to the parent directory and to the file itself.
fn links(view: &SandboxView) -> Markup {
    let raw = view.url_path("p", &view.location);
    html! {
        nav aria-label="File" {
            @if let Some(parent) = view.location.parent().filter(|_| !view.found.preview.only_file) {
                a href=(view.url_path("v", &parent)) { "Directory" }
                " "
            }
            a href=(raw) { "File as it is" }
            " "
            a href=(raw) download=(view.name()) { "Download" }
            " " (human_size(view.pinned.metadata.size))
        }
    }
}

async fn file(view: &SandboxView) -> Result<Markup, PreviewError> {
    let raw = view.url_path("p", &view.location);
    let name = view.shown_name();
    let shown = match ViewerKind::of(media_type_of(&view.name())) {
        // The response already has the `sandbox` policy; the same attribute on the frame would disable the PDF viewer.
        ViewerKind::Frame => html! { iframe #content src=(raw) title=(name) {} },
        ViewerKind::Document => {
            html! { iframe #content src=(view.url_path("d", &view.location)) title=(name) {} }
        }
        ViewerKind::Picture => html! { img #content src=(raw) alt=(name); },
        ViewerKind::Video => html! { video #content src=(raw) controls preload="metadata" {} },
        ViewerKind::Audio => html! { audio #content src=(raw) controls preload="metadata" {} },
        ViewerKind::Text => text(view).await?,
        ViewerKind::Download => html! { p { "A browser cannot show this file. Download it." } },
    };
    Ok(html! {
        (links(view))
        div #watched data-url=(raw) data-etag=(etag_of(view, &view.pinned)) { (shown) }
    })
}

/// The beginning of a text.
async fn text(view: &SandboxView) -> Result<Markup, PreviewError> {
    let size = view.pinned.metadata.size;
    let end = size.min(MAX_SHOWN_TEXT_BYTES);
    let engine = &view.opened.engine;
    let body = engine
        .read_pinned(&view.opened.policy, &view.pinned, 0..end)
        .await?;
    let limit = usize::try_from(MAX_SHOWN_TEXT_BYTES).unwrap_or(usize::MAX);
    let bytes = body.read_all(limit).await?;
    Ok(html! {
        pre #content tabindex="0" { (String::from_utf8_lossy(&bytes)) }
        @if end < size { p { "Only the first " (human_size(end)) " are shown." } }
    })
}

async fn directory(view: &SandboxView, after: usize) -> Result<Markup, PreviewError> {
    let options = ListOptions {
        policy: &view.opened.policy,
        depth: 1,
        // Entries that policy refuses count towards the limit, so a smaller one could leave a page without any.
        limit: MAX_LISTED_ENTRIES,
    };
    let listing = view.opened.engine.list(&view.path, &options).await?;
    let mut here = view.location.clone();
    here.is_directory = true;
    // A position after the end, for example from before files were removed, shows the first page.
    let begin = if after < listing.entries.len() {
        after
    } else {
        0
    };
    Ok(html! {
        nav aria-label="Directory" {
            @if let Some(parent) = view.location.parent() {
                a href=(view.url_path("v", &parent)) { "Up" }
                " "
            }
            a href=(view.url_path("z", &here)) { "Download as ZIP" }
        }
        @if !view.location.display_path().is_empty() { p { code { (view.location.display_path()) } } }
        (entry_table(view, &here, &listing, begin))
        (part_links(&view.url_path("v", &here), begin, listing.entries.len()))
    })
}

fn entry_table(
    view: &SandboxView,
    here: &Location,
    listing: &PermittedListing,
    begin: usize,
) -> Markup {
    let entries = listing.entries.iter().skip(begin).take(PAGE_ENTRIES);
    html! {
        @if listing.entries.is_empty() && listing.denied == 0 { p { "The directory is empty." } }
        @else if !listing.entries.is_empty() {
            table {
                thead { tr { th scope="col" { "Name" } th scope="col" { "Size" } } }
                tbody { @for entry in entries { (entry_row(view, here, entry)) } }
            }
        }
        @if listing.denied > 0 { p { "Left out, because policy refuses them: " (listing.denied) "." } }
        @if listing.truncated { p { "There are more than the " (MAX_LISTED_ENTRIES) " entries that are listed." } }
    }
}

/// Links to the other parts of a directory with more entries than a page has.
fn part_links(path: &str, begin: usize, entries: usize) -> Markup {
    let next = begin + PAGE_ENTRIES;
    html! {
        @if begin > 0 || next < entries {
            nav aria-label="Parts of the directory" {
                "Entries " (begin + 1) " to " (next.min(entries)) " of " (entries) " "
                @if begin > 0 { a href=(path) rel="prev" { "First page" } " " }
                @if next < entries { a href={ (path) "?" (AFTER_QUERY) (next) } rel="next" { "Next page" } }
            }
        }
    }
}

fn entry_row(view: &SandboxView, here: &Location, entry: &Entry) -> Markup {
    let name = entry.path.name();
    let shown = shown_text(name, MAX_SHOWN_CHARACTERS);
    let is_directory = entry.kind == FileKind::Directory;
    // A link is followed when it is opened, and shown only if its target is inside.
    let can_open = matches!(
        entry.kind,
        FileKind::Directory | FileKind::File | FileKind::Symlink
    );
    html! {
        tr {
            td {
                @if can_open {
                    a href=(view.url_path("v", &here.join(name, is_directory))) {
                        (shown) @if is_directory { "/" }
                    }
                } @else { (shown) }
            }
            td { @if entry.kind == FileKind::File { (human_size(entry.size)) } @else { (entry.kind.as_str()) } }
        }
    }
}
