//! `GET /v1/sign-in/callback`: where authorization servers send browsers back to. Anyone may call it: it only has an
//! effect with a page that is open and a code that its user sends in the conversation.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use dray_agent::failure::RequestFailure;
use dray_http_server::escape_html;

use super::reply;
use super::routes::HttpSurface;
use crate::sign_ins::CallbackPage;

/// Most bytes of the query: a code, a state and an issuer.
const MAX_QUERY_BYTES: usize = 8 << 10;

/// Handles the browser that comes back.
pub(super) async fn get_callback(
    State(surface): State<Arc<HttpSurface>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    match page(&surface, &headers, &uri).await {
        Ok(page) => page_response(&page),
        Err(failure) => reply::failure_response(&failure),
    }
}

async fn page(
    surface: &HttpSurface,
    headers: &HeaderMap,
    uri: &Uri,
) -> Result<CallbackPage, RequestFailure> {
    surface.options.refuse_foreign_pages(headers)?;
    let Some(sign_ins) = &surface.state.sign_ins else {
        return Ok(CallbackPage::Unknown);
    };
    match uri.query() {
        Some(query) if query.len() <= MAX_QUERY_BYTES => sign_ins.receive_callback(query).await,
        _ => Ok(CallbackPage::Unknown),
    }
}

fn page_response(page: &CallbackPage) -> Response {
    let (status, title, text) = match page {
        CallbackPage::Code { code, toolset } => (
            StatusCode::OK,
            "You are signed in",
            format!(
                "<p>Send this code in the chat in which {} asked you to sign in. It works once, for 10 minutes.</p>\
                 <p><strong>{code}</strong></p>\
                 <p>Did you get the link from another person? Then close this page, and give the code to no one: it \
                 would let them act with your account.</p>",
                escape_html(toolset)
            ),
        ),
        CallbackPage::Unknown => (
            StatusCode::NOT_FOUND,
            "This sign-in is not open",
            "<p>It was finished, is older than 15 minutes, or was replaced by a newer one. Write in the chat again to get \
             a new link.</p>"
                .to_owned(),
        ),
        CallbackPage::WrongIssuer => (
            StatusCode::BAD_REQUEST,
            "Another server answered",
            "<p>The answer does not come from the server at which you began to sign in. Nothing was sent to it.</p>"
                .to_owned(),
        ),
        CallbackPage::Denied => (
            StatusCode::OK,
            "You are not signed in",
            "<p>The sign-in was refused. Write in the chat again to get a new link.</p>".to_owned(),
        ),
    };
    let body = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><h1>{title}</h1>{text}</html>"
    );
    let mut response = (status, body).into_response();
    // The address contains an authorization code, and the page contains a secret of its user.
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'; sandbox",
        ),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
