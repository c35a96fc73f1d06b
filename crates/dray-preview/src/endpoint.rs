//! The HTTP server of previews.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use dray_http_server::ConnectionLimits;
use dray_sandbox::FileKind;
use dray_service::web::text_field;
use http::{HeaderMap, Method, StatusCode, header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::archive::serve_archive;
use crate::document::{self, serve_document};
use crate::error::PreviewError;
use crate::file::serve_file;
use crate::headers::{TEXT_POLICY, response, set, with_common_headers};
use crate::location::Location;
use crate::open_body::while_open;
use crate::service::PreviewService;
use crate::token::PreviewToken;
use crate::view::SandboxView;
use crate::viewer::{self, problem_page, serve_viewer};
use crate::visitor::PreviewVisitor;

/// Longest time for responses that are still being sent when the service stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The page of a directory that is shown for its own URL.
const INDEX_NAME: &[u8] = b"index.html";

/// A bound endpoint.
#[derive(Debug)]
pub struct PreviewEndpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// The failure that keeps the endpoint from starting.
#[derive(Debug, thiserror::Error)]
#[error("could not listen for previews on {address}")]
pub struct EndpointError {
    /// The configured address.
    address: SocketAddr,
    /// The cause.
    #[source]
    source: io::Error,
}

/// The first part of a path, which selects the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlArea {
    /// The files as they are: `p`.
    Content,
    /// The viewer pages: `v`.
    Viewer,
    /// Pages made from documents, which the viewer shows in a frame: `d`.
    Document,
    /// Archives: `z`.
    Archive,
}

/// A request that names a preview and a place in it.
struct PreviewRequest {
    area: UrlArea,
    token: PreviewToken,
    location: Location,
    /// Entries of a directory before the part that the viewer shows.
    after: usize,
}

impl PreviewEndpoint {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub async fn bind(address: SocketAddr) -> Result<Self, EndpointError> {
        let failed = |source| EndpointError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// The bound address, with the port that the system chose for port 0.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled; responses that are being sent then have five seconds to end.
    pub async fn serve(self, service: PreviewService, stop: CancellationToken) {
        let router = Router::new().fallback(serve_request).with_state(service);
        let limits = ConnectionLimits {
            // A video that is being watched would otherwise delay the stop for its whole length.
            drain_timeout: Some(STOP_TIMEOUT),
            ..ConnectionLimits::default()
        };
        let outcome = dray_http_server::serve(self.listener, router, limits, stop).await;
        tracing::debug!(?outcome, "the listener of previews ended");
    }
}

/// Handles every request. The path is read as it arrived, because a router would decode it first.
async fn serve_request(State(service): State<PreviewService>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let path = head.uri.path();
    let metrics = service.inner.system.metrics.clone();
    if let Some(asset) = asset(path) {
        return with_common_headers(asset);
    }
    let parsed = PreviewRequest::parse(path, head.uri.query());
    let is_page = parsed
        .as_ref()
        .is_none_or(|parsed| parsed.area == UrlArea::Viewer);
    let served = match parsed {
        Some(parsed) => serve_preview(&service, parsed, &head.method, &head.headers).await,
        None => Err(PreviewError::Unknown),
    };
    let response = match served {
        Ok(response) => {
            metrics.responded("ok");
            response
        }
        Err(error) => {
            metrics.responded(error.outcome());
            // The path of the request is never logged, because it contains the secret.
            tracing::debug!(%error, outcome = error.outcome(), "a preview was not served");
            let mut response = if is_page {
                problem_page(&error)
            } else {
                problem_text(&error)
            };
            set_problem_fields(response.headers_mut(), &error);
            response
        }
    };
    with_common_headers(response)
}

async fn serve_preview(
    service: &PreviewService,
    request: PreviewRequest,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, PreviewError> {
    let PreviewRequest {
        area,
        token,
        location,
        after,
    } = request;
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(PreviewError::MethodNotAllowed);
    }
    let host = text_field(headers, header::HOST.as_str());
    let found = service.find(&token, host).await?;
    // The same response as for an unknown preview, which does not show whether other files exist.
    if !found.admits(&location) || (found.preview.only_file && area == UrlArea::Archive) {
        return Err(PreviewError::Unknown);
    }
    let permit = Arc::clone(&service.inner.responses).try_acquire_owned();
    let permit = permit.map_err(|_| PreviewError::Busy)?;
    let view = SandboxView::open(service, &token, &found, location).await?;
    // Only a GET counts: a program that checks whether the link works sends HEAD. Only the viewer page counts, and not
    // the resources that it loads, unless no page was viewed before them.
    let is_view = area == UrlArea::Viewer || found.is_unopened() || found.has_unreported;
    if *method == Method::GET && is_view {
        service
            .record_view(&found, PreviewVisitor::of(headers))
            .await?;
    }
    let response = match area {
        UrlArea::Viewer => serve_viewer(&view, after).await,
        UrlArea::Document if view.kind() == FileKind::File => serve_document(&view, method).await,
        UrlArea::Document => Err(PreviewError::NotDocument),
        UrlArea::Archive => serve_archive(&view, method, permit).await,
        UrlArea::Content if view.kind() != FileKind::Directory => {
            serve_file(&view, method, headers, permit).await
        }
        UrlArea::Content if !view.location.is_directory => Ok(with_slash(&view)),
        UrlArea::Content => {
            let index = view.at(view.location.join(INDEX_NAME, false)).await?;
            serve_file(&index, method, headers, permit).await
        }
    };
    let mut response = response?;
    if *method == Method::GET && matches!(area, UrlArea::Content | UrlArea::Archive) {
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = while_open(body, service, &token, host);
    }
    Ok(response)
}

/// Redirects to the URL with a slash at its end, which the relative links of a directory's page need.
fn with_slash(view: &SandboxView) -> Response {
    let mut location = view.location.clone();
    location.is_directory = true;
    let mut response = response(
        StatusCode::PERMANENT_REDIRECT,
        "text/plain",
        TEXT_POLICY,
        Body::empty(),
    );
    set(
        response.headers_mut(),
        header::LOCATION,
        &view.url_path("p", &location),
    );
    response
}

fn problem_text(error: &PreviewError) -> Response {
    let body = Body::from(format!("{}\n", error.sentence()));
    response(
        error.status(),
        "text/plain; charset=utf-8",
        TEXT_POLICY,
        body,
    )
}

/// Sets the header fields that RFC 9110 requires with a status, both for pages and for texts.
fn set_problem_fields(headers: &mut HeaderMap, error: &PreviewError) {
    match error {
        PreviewError::Range(beyond) => {
            set(
                headers,
                header::CONTENT_RANGE,
                &format!("bytes */{}", beyond.size),
            );
        }
        PreviewError::MethodNotAllowed => set(headers, header::ALLOW, "GET, HEAD"),
        error if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
            set(headers, header::RETRY_AFTER, "1");
        }
        _ => {}
    }
}

fn asset(path: &str) -> Option<Response> {
    // Browsers request the icon on their own, even for a file that is shown unchanged.
    if path == "/favicon.ico" {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Some(response);
    }
    let (media_type, content) = match path {
        viewer::STYLE_PATH => ("text/css; charset=utf-8", viewer::STYLE),
        document::STYLE_PATH => ("text/css; charset=utf-8", document::STYLE),
        viewer::SCRIPT_PATH => ("text/javascript; charset=utf-8", viewer::VIEWER_SCRIPT),
        _ => return None,
    };
    Some(response(
        StatusCode::OK,
        media_type,
        TEXT_POLICY,
        Body::from(content),
    ))
}

impl PreviewRequest {
    fn parse(path: &str, query: Option<&str>) -> Option<Self> {
        let (area, rest) = path.strip_prefix('/')?.split_once('/')?;
        let area = match area {
            "p" => UrlArea::Content,
            "v" => UrlArea::Viewer,
            "d" => UrlArea::Document,
            "z" => UrlArea::Archive,
            _ => return None,
        };
        let (token, rest) = match rest.split_once('/') {
            Some((token, rest)) => (token, Some(rest)),
            None => (rest, None),
        };
        let mut location = Location::parse(rest.unwrap_or_default())?;
        // Without the slash, browsers would resolve relative addresses without the token.
        location.is_directory &= rest.is_some();
        Some(Self {
            area,
            token: PreviewToken::parse(token)?,
            location,
            after: viewer::list_position(query),
        })
    }
}
