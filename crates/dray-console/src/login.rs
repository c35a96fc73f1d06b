//! Login with a link, and logout.

use axum::extract::State;
use axum::response::Response;
use dray_proto::v1::ConsoleAction;
use dray_types::Secret;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use maud::{Markup, html};

use crate::form::{CheckedForm, FormFields};
use crate::oidc::{OidcLogin, OwnPath, login_link};
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
    // A program that only checks a link with `HEAD` must not use it up.
    if token.is_empty() || method == Method::HEAD {
        return login_needed(&state, "/");
    }
    let now_ms = state.now_ms();
    let role = match state.links.redeem(token, now_ms) {
        Ok(role) => role,
        Err(error) => {
            tracing::info!(%error, "a login link was refused");
            return refusal_page(&state, &error.to_string(), "/");
        }
    };
    let new_session = state.sessions.begin(role, None, now_ms);
    state
        .record_login(ConsoleAction::Login, &new_session.1)
        .await;
    logged_in_page(&state, &new_session, "/")
}

/// The page that begins a session with this secret and leads to the page `next` of this console.
pub(crate) fn logged_in_page(
    state: &ConsoleState,
    (secret, session): &(String, ConsoleSession),
    next: &str,
) -> Response {
    // The response is a page and not a redirect: a browser that followed the link from another site would not send a
    // `SameSite=Strict` cookie along with a redirect, but does with a navigation that begins on this page.
    let mut response = page::bare(
        StatusCode::OK,
        "Logged in",
        &html! {
            p {
                "You are logged in "
                @if let Some(person) = &session.person { "as " strong { (person.name) } " " }
                "to " strong { (session.role) } "."
            }
            p { a href=(next) { "Open the console" } }
        },
    );
    set_header(&mut response, header::SET_COOKIE, &state.cookie.set(secret));
    set_header(&mut response, header::REFRESH, &format!("0;url={next}"));
    response
}

/// `POST /logout`: ends the session of the form.
pub(crate) async fn log_out(
    State(state): State<ConsoleState>,
    headers: HeaderMap,
    CheckedForm { session, .. }: CheckedForm,
) -> Response {
    // Only the session of this request ends: other logins of the same person stay.
    if let Some(secret) = state.cookie.read(&headers) {
        state.sessions.end(secret);
    }
    // Agents that still answer this login must not spend more tokens.
    state.conversations.end_login(&session.login);
    state.record_login(ConsoleAction::Logout, &session).await;
    let logout_url = session.person.and_then(|person| person.logout_url);
    let mut response = match (&state.oidc, logout_url) {
        (Some(oidc), Some(url)) => left_page(oidc, &url),
        _ => see_other(LOGIN_PATH),
    };
    set_header(&mut response, header::SET_COOKIE, &state.cookie.clear());
    response
}

/// The page after a logout of a person whose session at the provider continues. A link and not a redirect: the policy
/// of the page keeps a form from leading to another site, and the person may use the provider for other applications.
fn left_page(oidc: &OidcLogin, logout_url: &Secret) -> Response {
    let provider = oidc.provider_name();
    page::bare(
        StatusCode::OK,
        "Logged out",
        &html! {
            p { "Your session of the console has ended. You may still be logged in at " strong { (provider) }
                ", which then lets this browser in again without a password." }
            p { a.button href=(logout_url.expose()) rel="noreferrer" { "Log out at " (provider) ", too" } }
            p { a href=(LOGIN_PATH) { "Log in again" } }
        },
    )
}

/// The response to a request without a session. `next` is the page to open after the login.
pub(crate) fn login_needed(state: &ConsoleState, next: &str) -> Response {
    refusal_page(state, "You are not logged in.", next)
}

fn refusal_page(state: &ConsoleState, reason: &str, next: &str) -> Response {
    page::bare(
        StatusCode::UNAUTHORIZED,
        "Log in",
        &html! {
            p.notice.problem role="alert" { (reason) }
            @if let Some(oidc) = &state.oidc { (login_link(oidc, &OwnPath::parse(next))) }
            (advice(state.oidc.is_some()))
        },
    )
}

fn advice(has_provider: bool) -> Markup {
    html! {
        p {
            @if has_provider { "Or open" } @else { "Open" }
            " a new login link. " code { "dray up" } " prints one when it starts, and this command prints another:"
        }
        pre { code { "dray console link" } }
        p.muted { "A link works once, for 10 minutes." }
    }
}
