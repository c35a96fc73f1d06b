//! Checks every request before a page handles it, and adds the security headers to every response.
//!
//! `Host` is compared first: a page of another site whose name was made to resolve to this address (DNS rebinding)
//! sends its own name. Requests that change something also need the `Origin` of this console, and their form the token
//! of its session.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use maud::html;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::compression;
use crate::login;
use crate::oidc;
use crate::page;
use crate::session::RequestOrigin;
use crate::state::ConsoleState;

/// Content Security Policy: the browser loads and runs only files of this console, and no script or style inside a
/// page. The script may write HTML into the page only through one named policy (Trusted Types).
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types console-fragment";

/// The names under which browsers reach this console.
#[derive(Clone, Debug)]
pub(crate) struct OwnOrigins {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl OwnOrigins {
    /// The bound address, `localhost` with its port where it is on loopback, and the public URL.
    pub(crate) fn new(address: SocketAddr, public_url: Option<&Url>) -> Self {
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() {
            hosts.push(format!("localhost:{}", address.port()));
        }
        // Browsers leave out the default port of a scheme, in `Host` and in `Origin` (RFC 9110, section 4.2.3).
        let names = hosts.iter().filter_map(|host| host.strip_suffix(":80"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        hosts.extend(names);
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        if let Some(url) = public_url {
            let origin = url.origin().ascii_serialization();
            let authority = origin.split_once("://").map_or("", |(_, host)| host);
            hosts.push(authority.to_owned());
            origins.push(origin);
        }
        Self { hosts, origins }
    }

    /// Whether a request names this console: in its one `Host`, and in its target where that is a whole URL, which
    /// counts in place of `Host` (RFC 9112, section 3.2.2). Several `Host` fields are read differently by different
    /// programs.
    fn has_host(&self, target: &Uri, headers: &HeaderMap) -> bool {
        let is_own = |host: &str| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        let authority = target.authority();
        host.to_str().is_ok_and(is_own) && authority.is_none_or(|host| is_own(host.as_str()))
    }

    /// Browsers send `Origin` with every request that is not `GET` or `HEAD` (Fetch, "append a request Origin header").
    fn has_origin(&self, headers: &HeaderMap) -> bool {
        let origin = headers.get(header::ORIGIN);
        let origin = origin.and_then(|origin| origin.to_str().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|own| own == origin))
    }
}

/// Checks a request before its page handles it, adds the security headers to the response, and compresses it.
pub(crate) async fn check_request(
    State(state): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    answer_checked(state, RequestOrigin::Person, request, next).await
}

/// Like [`check_request`], for an address that the script of an open page requests by itself.
pub(crate) async fn check_page_request(
    State(state): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    answer_checked(state, RequestOrigin::OpenPage, request, next).await
}

async fn answer_checked(
    state: ConsoleState,
    origin: RequestOrigin,
    request: Request,
    next: Next,
) -> Response {
    let accepts_gzip = compression::accepts_gzip(request.headers());
    let response = with_headers(admit_request(state, origin, request, next).await);
    compression::compress(response, accepts_gzip).await
}

/// Refuses requests under other host names and from other origins, finds the session, and passes the request on.
async fn admit_request(
    state: ConsoleState,
    origin: RequestOrigin,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !state.origins.has_host(request.uri(), headers) {
        // The page has no link, because every page under this host name is this refusal.
        return page::bare(
            StatusCode::MISDIRECTED_REQUEST,
            "Another address",
            &html! { p.notice.problem role="alert" { "This console has another name. Open the URL that it printed." } },
        );
    }
    let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_reading && !state.origins.has_origin(headers) {
        return page::refusal(
            StatusCode::FORBIDDEN,
            "Not accepted",
            "The request does not come from a page of this console.",
        );
    }
    let path = request.uri().path();
    let public_paths = [
        login::LOGIN_PATH,
        oidc::BEGIN_PATH,
        oidc::RETURN_PATH,
        oidc::LOGOUT_RETURN_PATH,
    ];
    let is_public = public_paths.contains(&path) || path.starts_with("/assets/");
    if !is_public {
        let secret = state.cookie.read(headers);
        let session = secret.and_then(|secret| state.sessions.find(secret, origin, state.now_ms()));
        let Some(session) = session else {
            // Only a `GET` can be repeated after the login; a form's path has no page.
            let return_path = request.uri().path_and_query().filter(|_| is_reading);
            let return_path = return_path.map_or("/", |return_path| return_path.as_str());
            return login::login_needed(&state, return_path);
        };
        request.extensions_mut().insert(session);
    }
    // No id or page of this console has such bytes, and the extractors of paths would respond with their own text.
    if percent_decode_str(request.uri().path())
        .decode_utf8()
        .is_err()
    {
        return page::missing_page(State(state), request).await;
    }
    if is_reading {
        return next.run(request).await;
    }
    run_to_end(&state, request, next).await
}

/// Handles a request that may change something in a task of its own. The server drops a request whose browser has left,
/// for example after a second click on a button, and an action that is dropped has no audit event of its end.
async fn run_to_end(state: &ConsoleState, request: Request, next: Next) -> Response {
    let handling = state.turns.spawn(next.run(request));
    handling.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the handler of a form ended without a response");
        page::refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "No response",
            "The console failed while it handled the form. The live page shows what happened.",
        )
    })
}

/// Sets the headers of every response. A header that the handler set keeps its value.
fn with_headers(mut response: Response) -> Response {
    let common = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // This header is for browsers that do not know `frame-ancestors`.
        (header::X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer` a browser sends `Origin: null` with forms, and no form would pass the check of the origin.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in common {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_the_names_of_this_console_are_hosts() {
        let own = OwnOrigins::new("127.0.0.1:7300".parse().unwrap(), None);
        let page = Uri::from_static("/deliveries");
        for host in ["127.0.0.1:7300", "localhost:7300", "LOCALHOST:7300"] {
            let headers = headers(&[(header::HOST, host)]);
            assert!(own.has_host(&page, &headers), "{host}");
        }
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:7300",
            "127.0.0.1:7300.evil.example",
            "",
        ] {
            let headers = headers(&[(header::HOST, host)]);
            assert!(!own.has_host(&page, &headers), "{host}");
        }
        assert!(!own.has_host(&page, &HeaderMap::new()));
    }

    #[test]
    fn the_default_port_is_left_out_of_the_names_of_a_console() {
        let page = Uri::from_static("/deliveries");
        for (address, host) in [
            ("127.0.0.1:80", "127.0.0.1"),
            ("127.0.0.1:80", "localhost"),
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]"),
        ] {
            let own = OwnOrigins::new(address.parse().unwrap(), None);
            assert!(
                own.has_host(&page, &headers(&[(header::HOST, host)])),
                "{host}"
            );
            let origin = format!("http://{host}");
            assert!(
                own.has_origin(&headers(&[(header::ORIGIN, origin.as_str())])),
                "{origin}"
            );
        }
        let other = OwnOrigins::new("127.0.0.1:8080".parse().unwrap(), None);
        assert!(!other.has_host(&page, &headers(&[(header::HOST, "127.0.0.1")])));
    }

    #[test]
    fn only_pages_of_this_console_are_origins() {
        let url = Url::parse("https://console.example.org/").unwrap();
        let own = OwnOrigins::new("0.0.0.0:7300".parse().unwrap(), Some(&url));
        let origin = |text: &str| headers(&[(header::ORIGIN, text)]);
        assert!(own.has_origin(&origin("https://console.example.org")));
        for text in [
            "null",
            "http://console.example.org",
            "https://console.example.org:8443",
            "http://127.0.0.1:7341",
        ] {
            assert!(!own.has_origin(&origin(text)), "{text}");
        }
        assert!(!own.has_origin(&HeaderMap::new()));
        let host = headers(&[(header::HOST, "console.example.org")]);
        assert!(own.has_host(&Uri::from_static("/"), &host));
    }
}
