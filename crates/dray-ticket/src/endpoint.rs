//! The HTTP server of tickets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::any;
use dray_http_server::{ConnectionLimits, with_text_paths};
use dray_store::DerivedKeys;
use http::{HeaderValue, header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::manage;
use crate::problem::TicketProblem;
use crate::protocol::{TUS_VERSION, UploadProtocol};
use crate::record::TicketDirection;
use crate::upload::UploadCall;
use crate::{TicketService, api, direct, page};

/// Interval between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// Longest time for requests that still run when the endpoint stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound endpoint.
#[derive(Debug)]
pub struct TicketEndpoint {
    listener: TcpListener,
    base_url: String,
}

/// The endpoint cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("could not listen on {address}")]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Whether a text can be the base of ticket URLs: an http or https URL without user, query and fragment.
pub fn is_base_url(text: &str) -> bool {
    // The parser removes blanks and line breaks, which would be in the URLs of tickets.
    let is_blank = |letter: char| letter.is_whitespace() || letter.is_control();
    !text.contains(is_blank)
        && Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        })
}

/// The state that every request needs.
#[derive(Clone, Debug)]
pub(crate) struct EndpointState {
    pub(crate) service: TicketService,
    pub(crate) base_url: Arc<str>,
    /// Keys of [`crate::api`]; without them no tickets are made over HTTP.
    pub(crate) issue_keys: Option<DerivedKeys>,
}

impl TicketEndpoint {
    /// Binds the address. `public_url` is the base of ticket URLs where a proxy is in front of the endpoint. Without
    /// it, the bound address is the base.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Bind`].
    pub async fn bind(
        address: SocketAddr,
        public_url: Option<String>,
    ) -> Result<Self, EndpointError> {
        let failed = |source| EndpointError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            base_url: public_url.unwrap_or_else(|| format!("http://{bound}")),
        })
    }

    /// The base of ticket URLs, such as `http://127.0.0.1:7340`.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Serves until `stop` is cancelled; running requests then have ten seconds to end. What they transferred is
    /// recorded. `issue_keys` let their holders make tickets with `POST /tickets`.
    pub async fn serve(
        self,
        service: TicketService,
        issue_keys: Option<DerivedKeys>,
        stop: CancellationToken,
    ) {
        let tasks = service.inner.tasks.clone();
        let head_timeout = service.inner.limits.idle_timeout;
        let state = EndpointState {
            service: service.clone(),
            base_url: self.base_url.into(),
            issue_keys,
        };
        let router = Router::new()
            .route("/t/{secret}", any(serve_ticket))
            .route("/t/{secret}/parts", any(direct::serve_parts))
            .route("/t/{secret}/parts/complete", any(direct::serve_complete))
            .route("/tickets", any(api::serve_tickets))
            .route("/tickets/{id}", any(manage::serve_by_id))
            .with_state(state);
        let sweeping = sweep_until(service, stop.clone());
        let limits = ConnectionLimits {
            head_timeout,
            // Uploads have their own idle timeout and keep the bytes that were received before it.
            body_idle_timeout: None,
            half_close: true,
            // A slow transfer would otherwise delay the stop for its whole length.
            drain_timeout: Some(STOP_TIMEOUT),
            ..ConnectionLimits::default()
        };
        let serving = dray_http_server::serve(self.listener, with_text_paths(router), limits, stop);
        let (outcome, ()) = tokio::join!(serving, sweeping);
        tracing::debug!(?outcome, "the listener of tickets ended");
        // The tasks record the bytes of requests that were cut off.
        tasks.close();
        tasks.wait().await;
        tasks.reopen();
    }
}

async fn sweep_until(service: TicketService, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL))
        .await
        .is_some()
    {
        if let Err(problem) = service.sweep().await {
            tracing::warn!(%problem, "could not sweep tickets");
        }
    }
}

/// Handles any request on the URL of a ticket.
async fn serve_ticket(
    State(state): State<EndpointState>,
    Path(secret): Path<String>,
    request: Request,
) -> Response {
    let is_tus = UploadProtocol::of(request.headers()) == UploadProtocol::Tus;
    // A browser that opens the page or sends its form; scripts and programs ask for JSON or for anything.
    let is_page = page::prefers_page(request.headers());
    let response = match serve_found(&state, &secret, request).await {
        Ok(response) => response,
        Err(problem) if is_page => page::problem_page(&problem),
        Err(problem) => problem.into_response(),
    };
    with_common_headers(response, is_tus)
}

async fn serve_found(
    state: &EndpointState,
    secret: &str,
    request: Request,
) -> Result<Response, TicketProblem> {
    let ticket = state.service.find(secret).await?;
    let (head, body) = request.into_parts();
    match ticket.record.direction {
        TicketDirection::Download => {
            state
                .service
                .download(ticket, &head.method, &head.headers)
                .await
        }
        TicketDirection::Upload => {
            let call = UploadCall {
                service: &state.service,
                secret,
                url: format!("{}/t/{secret}", state.base_url.trim_end_matches('/')),
            };
            call.run(&head.method, &head.headers, body).await
        }
    }
}

/// Sets the header fields of every response: nothing is cached, sniffed, executed or disclosed to other sites.
pub(crate) fn with_common_headers(mut response: Response, is_tus: bool) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Pages for people have a separate policy.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(
            "default-src 'none'; frame-ancestors 'none'; sandbox",
        ));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    if is_tus {
        headers.insert("tus-resumable", HeaderValue::from_static(TUS_VERSION));
    }
    response
}

#[cfg(test)]
mod tests {
    use dray_service::config::Section as _;

    use super::*;
    use crate::TicketConfig;

    #[test]
    fn the_base_of_ticket_urls_can_be_extended_by_a_path() {
        for base in [
            "http://127.0.0.1:7340",
            "https://files.example.org/",
            "https://files.example.org/drayage",
        ] {
            assert!(is_base_url(base), "{base}");
        }
        for other in [
            "",
            "files.example.org",
            "ftp://files.example.org",
            "https://",
            "https://files.example.org/?a=b",
            "https://files.example.org/#a",
            "https://me:pw@files.example.org",
            " https://files.example.org",
            "https://files.example.org\n",
        ] {
            assert!(!is_base_url(other), "{other}");
        }
        let config = |url: &str| TicketConfig {
            url: url.to_owned(),
            ..TicketConfig::default()
        };
        assert!(config("https://files.example.org").validate().is_empty());
        assert_eq!(config("https://files.example.org/?a=b").validate().len(), 1);
    }
}
