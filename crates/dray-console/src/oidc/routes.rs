//! The pages of a login through the provider: the redirect to it, and the return from it.

use axum::extract::{Request, State};
use axum::response::Response;
use dray_proto::v1::ConsoleAction;
use dray_types::ErrorChain;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use maud::{Markup, html};

use super::error::OidcError;
use super::{CompletedLogin, OidcLogin, OwnPath};
use crate::form::FormFields;
use crate::login;
use crate::page;
use crate::respond::{plain_text, see_other, set_header};
use crate::state::ConsoleState;
use crate::text::url_part;

/// Path that leads to the provider.
pub(crate) const BEGIN_PATH: &str = "/login/provider";
/// Path to which the provider sends the browser back: the redirect URI.
pub(crate) const RETURN_PATH: &str = "/login/return";
/// Path to which the provider sends the browser after its logout: the post-logout redirect URI.
pub(crate) const LOGOUT_RETURN_PATH: &str = "/login/ended";
/// The failure, in audit events, of a login whose claim has none of the configured values.
const NO_ROLE: &str = "denied/no_role";

/// The link that begins a login, and afterwards opens the page `next`.
pub(crate) fn login_link(oidc: &OidcLogin, next: &OwnPath) -> Markup {
    let path = format!("{BEGIN_PATH}?next={}", url_part(next.as_str()));
    html! {
        p { a.button href=(path) rel="nofollow" { "Log in with " (oidc.provider_name()) } }
    }
}

/// `GET /login/provider`: sends the browser to the provider.
pub(crate) async fn begin_login(
    State(state): State<ConsoleState>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Some(oidc) = &state.oidc else {
        return no_provider();
    };
    let next = OwnPath::parse(FormFields::of_query(&uri).get("next"));
    // A program that only checks the link with `HEAD` begins no attempt.
    if method == Method::HEAD {
        return plain_text(StatusCode::OK, "A login begins here.");
    }
    if let Some(url) = canonical_url(&state, &headers, &next) {
        return see_other(&url);
    }
    match oidc.begin_attempt(next.clone()).await {
        Ok(redirect) => {
            let mut response = see_other(&redirect.url);
            set_header(&mut response, header::SET_COOKIE, &redirect.cookie);
            response
        }
        Err(error) => failure_page(oidc, &next, &error),
    }
}

/// The same page under the host of the redirect URI, for a browser at `localhost`: a cookie that is set there would not
/// come back with the response.
fn canonical_url(state: &ConsoleState, headers: &HeaderMap, next: &OwnPath) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    // Without a port where it is the default one.
    let name = host.split(':').next().unwrap_or_default();
    let is_alias = state.settings.public_url.is_none()
        && name.eq_ignore_ascii_case("localhost")
        && !state.base_url.contains("//localhost:");
    let base = &state.base_url;
    is_alias.then(|| format!("{base}{BEGIN_PATH}?next={}", url_part(next.as_str())))
}

/// `GET /login/return`: takes the response of the provider, and begins a session.
pub(crate) async fn complete_login(
    State(state): State<ConsoleState>,
    request: Request,
) -> Response {
    let Some(oidc) = &state.oidc else {
        return no_provider();
    };
    let (head, _) = request.into_parts();
    if head.method == Method::HEAD {
        return plain_text(StatusCode::OK, "A login ends here.");
    }
    let fields = FormFields::of_query(&head.uri);
    match oidc.complete_attempt(&head.headers, &fields).await {
        Ok(completed) => begin_session(&state, oidc, completed).await,
        Err(error) => failure_page(oidc, &OwnPath::parse("/"), &error),
    }
}

async fn begin_session(
    state: &ConsoleState,
    oidc: &OidcLogin,
    completed: CompletedLogin,
) -> Response {
    let CompletedLogin { identity, next } = completed;
    let Some(role) = identity.role else {
        state.record_refused_login(&identity.person, NO_ROLE).await;
        let person = &identity.person;
        let mut response = page::bare(
            StatusCode::FORBIDDEN,
            "No access",
            &html! {
                p.notice.problem role="alert" {
                    "You are logged in at the identity provider as " strong { (person.name) }
                    ", but that account has no role in this console."
                }
                p { "Ask the operator of the console. Your id is " code { (person.subject) } "." }
                (login_link(oidc, &next))
            },
        );
        set_header(&mut response, header::SET_COOKIE, &oidc.cookie.clear());
        return response;
    };
    // The console's own limit also applies to people whom the provider allows to act.
    let role = role.min(state.settings.highest_role);
    let now_ms = state.now_ms();
    let new_session = state.sessions.begin(role, Some(identity.person), now_ms);
    state
        .record_login(ConsoleAction::Login, &new_session.1)
        .await;
    let mut response = login::logged_in_page(state, &new_session, next.as_str());
    // The cookie is appended, because the response already sets the cookie of the session. The attempt ends, so its
    // cookie is removed.
    if let Ok(cleared) = oidc.cookie.clear().parse() {
        response.headers_mut().append(header::SET_COOKIE, cleared);
    }
    response
}

/// The page after a login that failed. The cookie of the attempt stays if another attempt may still be open.
fn failure_page(oidc: &OidcLogin, next: &OwnPath, error: &OidcError) -> Response {
    tracing::warn!(
        error = %ErrorChain(error),
        issuer = oidc.settings.issuer,
        "a login through the identity provider failed"
    );
    let mut response = page::bare(
        error.status(),
        "Not logged in",
        &html! {
            p.notice.problem role="alert" { (error) }
            (login_link(oidc, next))
        },
    );
    if !matches!(error, OidcError::NoAttempt) {
        set_header(&mut response, header::SET_COOKIE, &oidc.cookie.clear());
    }
    response
}

/// `GET /login/ended`: the page after the logout of the provider. It has no effect, because every site can lead here.
pub(crate) async fn logout_return_page(State(state): State<ConsoleState>) -> Response {
    let Some(oidc) = &state.oidc else {
        return no_provider();
    };
    page::bare(
        StatusCode::OK,
        "Logged out",
        &html! {
            p { "You are back from " strong { (oidc.provider_name()) } ". The session of the console ended before." }
            (login_link(oidc, &OwnPath::parse("/")))
        },
    )
}

fn no_provider() -> Response {
    page::refusal(
        StatusCode::NOT_FOUND,
        "No identity provider",
        "This console has no identity provider. Log in with a link: dray console link",
    )
}
