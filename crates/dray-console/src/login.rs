//! Login with a link, and logout.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use dray_proto::v1::ConsoleAction;
use http::{Method, StatusCode, Uri, header};
use maud::{Markup, html};

use crate::form::FormFields;
use crate::page;
use crate::respond::{see_other, set_header};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;

/// Path of the page that login links lead to.
pub(crate) const LOGIN_PATH: &str = "/login";

/// `GET /login?token=…`: exchanges a link for a session.
pub(crate) async fn log_in(
    State(state): State<ConsoleState>,
    method: Method,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    let token = query.get("token");
    // A program that only looks whether a link works must not use it up.
    if token.is_empty() || method == Method::HEAD {
        return login_needed();
    }
    let now_ms = state.now_ms();
    let role = match state.links.take(token, now_ms) {
        Ok(role) => role,
        Err(error) => {
            tracing::info!(%error, "a login link was refused");
            return refused(&error.to_string());
        }
    };
    let (secret, session) = state.sessions.begin(role, now_ms);
    state
        .record_login(ConsoleAction::Login, role, &session.login)
        .await;
    // Not a redirect: a browser that followed the link from another site would not send a `SameSite=Strict` cookie along
    // with a redirect, but does with a navigation that begins on this page.
    let mut response = page::bare(
        StatusCode::OK,
        "Logged in",
        &html! {
            p { "You are logged in to " strong { (role) } "." }
            p { a href="/" { "Open the console" } }
        },
    );
    set_header(
        &mut response,
        header::SET_COOKIE,
        &state.cookie.set(&secret),
    );
    set_header(&mut response, header::REFRESH, "0;url=/");
    response
}

/// `POST /logout`: ends the session of the form.
pub(crate) async fn log_out(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    if let Err(refused) = FormFields::of_body(body, &session).await {
        return refused;
    }
    // The session of this very request: other logins of the same person stay.
    if let Some(secret) = state.cookie.read(&head.headers) {
        state.sessions.end(secret);
    }
    // The answers that the login requested must not spend more.
    state.conversations.end_login(&session.login);
    state
        .record_login(ConsoleAction::Logout, session.role, &session.login)
        .await;
    let mut response = see_other(LOGIN_PATH);
    set_header(&mut response, header::SET_COOKIE, &state.cookie.clear());
    response
}

/// What a request without a session gets.
pub(crate) fn login_needed() -> Response {
    refused("You are not logged in.")
}

fn refused(reason: &str) -> Response {
    page::bare(
        StatusCode::UNAUTHORIZED,
        "Log in",
        &html! {
            p.notice.problem role="alert" { (reason) }
            (advice())
        },
    )
}

fn advice() -> Markup {
    html! {
        p { "Open a new login link. " code { "dray up" } " prints one when it starts, and this command prints another:" }
        pre { code { "dray console link" } }
        p.muted { "A link works once, for 10 minutes." }
    }
}
