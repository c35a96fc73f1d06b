//! Pages for people: the form that sends a file, its result, and problems. They work without script, load nothing, and
//! run only the one script and style whose digests their policy names.

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_http_server::escape_html;
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};

use crate::problem::TicketProblem;
use crate::record::TicketRecord;
use crate::response::set;

const DROP_SCRIPT: &str = include_str!("page/drop.js");
const PAGE_STYLE: &str = include_str!("page/drop.css");

/// Whether the client shows pages. Programs that take anything (`*/*`) get JSON.
pub(crate) fn prefers_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The form of an upload ticket.
pub(crate) fn drop_page(record: &TicketRecord, now_ms: u64) -> Response {
    let minutes = record.expires_at_ms.saturating_sub(now_ms) / 60_000;
    let media_type = record.media_type.as_deref().map(escape_html);
    let of_type = media_type
        .as_ref()
        .map_or(String::new(), |media_type| format!(" Type: {media_type}."));
    let destination_text = record
        .destination
        .as_ref()
        .map_or(String::new(), |destination| {
            format!(" It goes to the {}.", destination.kind())
        });
    let accept = media_type.map_or(String::new(), |accept| format!(" accept=\"{accept}\""));
    let main = format!(
        "<h1>Send a file</h1>\n<p id=\"limits\">At most {} bytes.{of_type}{destination_text} This page works once, for {minutes} more minutes.</p>\n\
         <form method=\"post\" enctype=\"multipart/form-data\" data-max-bytes=\"{}\">\n\
         <label for=\"file\">File</label>\n<input id=\"file\" name=\"file\" type=\"file\" required{accept}>\n\
         <button>Send</button>\n</form>\n<progress id=\"progress\" hidden></progress>\n\
         <p id=\"status\" role=\"status\"></p>\n",
        record.max_bytes, record.max_bytes,
    );
    page(StatusCode::OK, "Send a file", &main, Some(DROP_SCRIPT))
}

/// The page after an upload.
pub(crate) fn result_page(status: StatusCode, record: &TicketRecord) -> Response {
    let content = record.content.as_ref().map_or(String::new(), |content| {
        let name = match content.name.as_str() {
            "" => "The file",
            name => name,
        };
        format!(
            "<p id=\"status\" data-state=\"received\">{}: {} bytes, SHA-256 <code>{}</code>.</p>\n",
            escape_html(name),
            content.size,
            escape_html(&content.sha256),
        )
    });
    let receipt = match &record.receipt {
        None => String::new(),
        Some(receipt) => match receipt["path"].as_str() {
            Some(path) => format!("<p>It is at <code>{}</code>.</p>\n", escape_html(path)),
            None => "<p>It was handed to the chat.</p>\n".to_owned(),
        },
    };
    let main = format!("<h1>The file was received</h1>\n{content}{receipt}");
    page(status, "The file was received", &main, None)
}

/// A problem for people.
pub(crate) fn problem_page(problem: &TicketProblem) -> Response {
    let main = format!(
        "<h1>The file was not received</h1>\n<p id=\"status\" data-state=\"refused\">{}.</p>\n<p>{}</p>\n",
        escape_html(&problem.to_string()),
        escape_html(problem.advice()),
    );
    let mut response = page(problem.status(), "The file was not received", &main, None);
    problem.set_fields(response.headers_mut());
    response
}

fn page(status: StatusCode, title: &str, main: &str, script: Option<&str>) -> Response {
    let script_tag = script.map_or(String::new(), |script| {
        format!("<script>{script}</script>\n")
    });
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{PAGE_STYLE}</style>\n</head>\n<body>\n<main>\n{main}</main>\n{script_tag}</body>\n</html>\n"
    );
    let script_source = script.map_or("'none'".to_owned(), source_digest);
    let policy = format!(
        "default-src 'none'; script-src {script_source}; style-src {}; connect-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
        source_digest(PAGE_STYLE),
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    set(headers, "content-type", "text/html; charset=utf-8");
    set(headers, "content-security-policy", &policy);
    response
}

/// A script or a style as a policy allows it (CSP level 3, section 2.3.1).
fn source_digest(source: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(source)))
}
