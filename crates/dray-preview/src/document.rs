//! Markdown, tables and notebooks as pages without scripts, for the frame of the viewer.

use axum::body::Body;
use axum::response::Response;
use dray_media_type::names;
use dray_presentation::size::human_size;
use dray_sandbox::ErrorKind;
use http::{Method, StatusCode};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::conversion::{Conversion, convert};
use crate::error::PreviewError;
use crate::file::{MAX_PIN_ATTEMPTS, media_type_of};
use crate::headers::{DOCUMENT_POLICY, response};
use crate::links::PreviewLinks;
use crate::markdown::{RenderedMarkdown, render};
use crate::view::SandboxView;

/// Most bytes of Markdown on a page, from the file or from the reader. The rest is left out.
const MAX_SHOWN_MARKDOWN_BYTES: usize = 512 << 10;
/// Path of the stylesheet of documents, relative to the origin of previews.
pub(crate) const STYLE_PATH: &str = "/assets/document.css";
/// Content of the stylesheet of documents, part of the executable.
pub(crate) const STYLE: &str = include_str!("../assets/document.css");

/// How a file is made into a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentFormat {
    /// The file is Markdown already.
    Markdown,
    /// The reader converts the file to Markdown.
    Converted,
}

impl DocumentFormat {
    fn of(media_type: &str) -> Option<Self> {
        match media_type {
            names::MARKDOWN => Some(Self::Markdown),
            names::CSV | names::TSV | names::NOTEBOOK | names::ODS | names::FODS => {
                Some(Self::Converted)
            }
            names::XLS | names::XLSX | names::XLSM | names::XLSB => Some(Self::Converted),
            _ => None,
        }
    }
}

/// Returns whether files of this type have a page.
pub(crate) fn has_document(media_type: &str) -> bool {
    DocumentFormat::of(media_type).is_some()
}

/// Markdown, and the remarks that the page shows above it.
struct ShownMarkdown {
    text: String,
    notes: Vec<String>,
}

/// Serves the page of a file.
pub(crate) async fn serve_document(
    view: &SandboxView,
    method: &Method,
) -> Result<Response, PreviewError> {
    let Some(format) = DocumentFormat::of(media_type_of(&view.name())) else {
        return Err(PreviewError::NotDocument);
    };
    if *method == Method::HEAD {
        return Ok(page(view, StatusCode::OK, &html! {}));
    }
    let renderings = &view.service.inner.renderings;
    let _permit = renderings.acquire().await.map_err(|_| PreviewError::Busy)?;
    let read = match format {
        DocumentFormat::Markdown => Ok(read_unchanged(view, read_markdown).await?),
        DocumentFormat::Converted => read_unchanged(view, convert_shown).await?,
    };
    match read {
        Ok(shown) => render_page(view, shown).await,
        Err((status, sentence)) => Ok(page(view, status, &problem(view, &sentence))),
    }
}

/// Repeats the read until the file does not change during it. No byte was sent before, so the page may show a newer
/// state of the file.
async fn read_unchanged<T>(
    view: &SandboxView,
    read: impl AsyncFn(&SandboxView) -> Result<T, PreviewError>,
) -> Result<T, PreviewError> {
    let mut view = view.clone();
    for attempt in 1.. {
        match read(&view).await {
            Err(PreviewError::Sandbox(error))
                if error.kind() == ErrorKind::ChangedDuringTransfer
                    && attempt < MAX_PIN_ATTEMPTS =>
            {
                view.pinned = view.pin_again().await?;
            }
            read => return read,
        }
    }
    Err(PreviewError::Busy)
}

async fn read_markdown(view: &SandboxView) -> Result<ShownMarkdown, PreviewError> {
    let size = view.pinned.metadata.size;
    let end = size.min(MAX_SHOWN_MARKDOWN_BYTES as u64);
    let engine = &view.opened.engine;
    let body = engine
        .read_pinned(&view.opened.policy, &view.pinned, 0..end)
        .await?;
    let bytes = body.read_all(MAX_SHOWN_MARKDOWN_BYTES).await?;
    let notes = (end < size).then(|| cut_note(end));
    Ok(ShownMarkdown {
        text: String::from_utf8_lossy(&bytes).into_owned(),
        notes: notes.into_iter().collect(),
    })
}

/// The text of the reader, or the status and the sentence for its absence.
type Shown = Result<ShownMarkdown, (StatusCode, String)>;

async fn convert_shown(view: &SandboxView) -> Result<Shown, PreviewError> {
    Ok(match convert(view).await? {
        Conversion::Markdown { mut text, warnings } => {
            let mut notes = warnings;
            if text.len() > MAX_SHOWN_MARKDOWN_BYTES {
                // The text ends after a complete row of a table.
                let shown = text.floor_char_boundary(MAX_SHOWN_MARKDOWN_BYTES);
                let line = text.get(..shown).and_then(|shown| shown.rfind('\n'));
                text.truncate(line.unwrap_or(shown));
                notes.push(cut_note(text.len() as u64));
            }
            Ok(ShownMarkdown { text, notes })
        }
        Conversion::Refused(sentence) => Err((StatusCode::OK, sentence)),
        Conversion::ReaderUnavailable => Err((
            StatusCode::SERVICE_UNAVAILABLE,
            "The reader of tables and notebooks does not respond right now. Try again in a moment."
                .to_owned(),
        )),
    })
}

fn cut_note(bytes: u64) -> String {
    format!("Only the first {} are shown.", human_size(bytes))
}

async fn render_page(view: &SandboxView, shown: ShownMarkdown) -> Result<Response, PreviewError> {
    let links = PreviewLinks::of(view);
    let ShownMarkdown { text, mut notes } = shown;
    // Rendering half a megabyte takes a while, and an attacker can write a document that takes longer.
    let rendering = tokio::task::spawn_blocking(move || render(&text, &links));
    let RenderedMarkdown { html, is_cut } = rendering.await.map_err(|_| PreviewError::Busy)?;
    if is_cut {
        notes.push("The end is not shown: the page would be too large.".to_owned());
    }
    let content = html! {
        @for note in &notes { p.note { (note) } }
        article { (PreEscaped(html)) }
    };
    Ok(page(view, StatusCode::OK, &content))
}

/// The reason why the file has no page, and a link to the file.
fn problem(view: &SandboxView, sentence: &str) -> Markup {
    html! {
        p.note role="alert" { (sentence) }
        p { a href=(view.url_path("p", &view.location)) target="_top" { "Open the file as it is" } }
    }
}

fn page(view: &SandboxView, status: StatusCode, content: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (view.shown_name()) }
                link rel="stylesheet" href=(STYLE_PATH);
            }
            body { main { (content) } }
        }
    };
    let body = Body::from(page.into_string());
    response(status, "text/html; charset=utf-8", DOCUMENT_POLICY, body)
}
