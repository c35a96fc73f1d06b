//! `POST /tickets`: makes tickets for the holder of the endpoint's key. `GET` lists them, see [`crate::manage`].

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use dray_store::{ArtifactLabel, DerivedKeys};
use dray_types::Sha256Digest;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::destination::TicketDestination;
use crate::endpoint::{EndpointState, with_common_headers};
use crate::fields;
use crate::issue::TicketRequest;
use crate::manage;
use crate::principal::Principal;
use crate::problem::TicketProblem;
use crate::record::{StoredContent, TicketDirection};
use crate::response::set;
use crate::{IssuedTicket, TicketService};

/// Largest request.
const MAX_REQUEST_BYTES: usize = 16 << 10;

/// The document that requests a ticket.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TicketOrder {
    /// Direction of the transfer.
    pub direction: TicketDirection,
    /// Owner of the content.
    pub tenant: String,
    /// Conversation for which quotas count.
    pub session: String,
    /// Most bytes of an upload; if absent, the limit of the service for one ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Exact size of an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Media type or pattern of an upload; label of a download.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Digest of an upload if known; for a download, the digest of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// File name for people.
    #[serde(default)]
    pub name: String,
    /// Destination of an upload after it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<TicketDestination>,
    /// File in the sandbox of the session that a download is for, instead of a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_path: Option<String>,
    /// Seconds until the ticket ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// The document about a new ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketReceipt {
    /// Identifies the ticket for its maker, without giving access; empty from an endpoint of the previous version.
    #[serde(default)]
    pub id: String,
    /// The URL: a secret, for the one who uses the ticket.
    pub url: String,
    /// Line for a shell that uses the ticket.
    pub curl: String,
    /// URL that begins an upload in parts to the store; absent if clients cannot reach the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts_url: Option<String>,
    /// Direction of the transfer.
    pub direction: TicketDirection,
    /// Unix milliseconds at which the ticket ends.
    pub expires_at_ms: u64,
    /// Most bytes of an upload; the size of a download.
    pub max_bytes: u64,
    /// File name; may be empty.
    pub name: String,
}

impl TicketReceipt {
    /// Describes a ticket below the base URL of its endpoint.
    pub fn new(ticket: &IssuedTicket, base_url: &str) -> Self {
        Self {
            id: ticket.id().to_owned(),
            url: ticket.url(base_url),
            curl: ticket.curl_line(base_url),
            parts_url: ticket.parts_url(base_url),
            direction: ticket.direction,
            expires_at_ms: ticket.expires_at_ms,
            max_bytes: ticket.max_bytes,
            name: ticket.name.clone(),
        }
    }
}

impl TicketService {
    /// Makes the ticket of an order. The content of a download must be stored already.
    ///
    /// # Errors
    ///
    /// Those of [`Self::issue`]; also if no content is stored under the digest of a download.
    pub async fn order(&self, order: TicketOrder) -> Result<IssuedTicket, TicketProblem> {
        let invalid = |_| TicketProblem::Invalid("the tenant or the session is not valid");
        let principal = Principal {
            tenant: order.tenant.parse().map_err(invalid)?,
            session: order.session.parse().map_err(invalid)?,
        };
        let sha256 = order.sha256.as_deref().map(str::parse::<Sha256Digest>);
        let sha256 = sha256.transpose();
        let sha256 = sha256.map_err(|_| TicketProblem::Invalid("the digest is not valid"))?;
        let lifetime = order.lifetime_s.map(Duration::from_secs);
        let with_lifetime = |request: TicketRequest| match lifetime {
            Some(lifetime) => request.lifetime(lifetime),
            None => request,
        };
        let request = match order.direction {
            TicketDirection::Upload => {
                let limit = order.size.unwrap_or(self.inner.limits.max_bytes);
                TicketRequest::upload(order.max_bytes.unwrap_or(limit))
                    .size(order.size)
                    .media_type(order.media_type)
                    .sha256(sha256)
                    .name(order.name)
                    .destination(order.destination)
            }
            TicketDirection::Download if order.sandbox_path.is_some() => {
                let path = order.sandbox_path.unwrap_or_default();
                let with_name = |request: TicketRequest| match order.name.as_str() {
                    "" => with_lifetime(request),
                    name => with_lifetime(request.name(name)),
                };
                return self
                    .issue_sandbox_download(&principal, &path, with_name)
                    .await;
            }
            TicketDirection::Download => {
                let missing = TicketProblem::Invalid("the digest is missing");
                let media_type = order.media_type.unwrap_or_default();
                let label = ArtifactLabel::new(media_type, order.name.as_str());
                let content = self
                    .stored_content(&principal, sha256.ok_or(missing)?, label)
                    .await?;
                TicketRequest::download(content).name(order.name)
            }
        };
        self.issue(&principal, with_lifetime(request)).await
    }

    async fn stored_content(
        &self,
        principal: &Principal,
        sha256: Sha256Digest,
        label: ArtifactLabel,
    ) -> Result<StoredContent, TicketProblem> {
        let store = &self.inner.store;
        let claim = store.claim(&principal.tenant, sha256, label).await;
        let claim = claim.map_err(|error| {
            tracing::warn!(%error, %sha256, "could not look up the content of a ticket");
            TicketProblem::Unavailable
        })?;
        let artifact = claim.ok_or(TicketProblem::ContentGone)?.artifact;
        Ok(StoredContent {
            sha256: artifact.sha256.to_hex(),
            size: artifact.size,
            media_type: artifact.media_type,
            name: artifact.name,
        })
    }
}

/// Handles `POST` and `GET` on `/tickets`.
pub(crate) async fn serve_tickets(
    State(state): State<EndpointState>,
    request: Request,
) -> Response {
    let response = match check_key(&state, request.headers()) {
        Err(problem) => Err(problem),
        Ok(()) if request.method() == Method::GET => manage::list(&state, request.uri()).await,
        Ok(()) => issue(&state, request).await,
    };
    let response = response.unwrap_or_else(TicketProblem::into_response);
    with_common_headers(response, false)
}

/// Checks that the request has the key of the endpoint.
///
/// # Errors
///
/// [`TicketProblem::Unauthorized`].
pub(crate) fn check_key(state: &EndpointState, headers: &HeaderMap) -> Result<(), TicketProblem> {
    let sent = fields::field(headers, header::AUTHORIZATION.as_str());
    let credentials = sent.and_then(|sent| sent.split_once(' '));
    // The case of a scheme does not count (RFC 9110 section 11.1).
    let key = credentials.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    // Digests are compared, so that the time of a comparison reveals nothing about the key.
    let sent = key.map(|(_, key)| Sha256::digest(key.trim()));
    let accepted = state.issue_keys.iter().flat_map(DerivedKeys::accepted);
    let mut accepted = accepted.map(|key| Sha256::digest(key_text(key)));
    let is_key = sent.is_some_and(|sent| accepted.any(|expected| expected == sent));
    if is_key {
        Ok(())
    } else {
        Err(TicketProblem::Unauthorized)
    }
}

async fn issue(state: &EndpointState, request: Request) -> Result<Response, TicketProblem> {
    if request.method() != Method::POST {
        return Err(TicketProblem::MethodNotAllowed {
            allowed: "GET, POST",
        });
    }
    let body = read_body(&state.service, request, MAX_REQUEST_BYTES).await?;
    let invalid = |_| TicketProblem::Invalid("the document is not an order for a ticket");
    let order: TicketOrder = serde_json::from_slice(&body).map_err(invalid)?;
    let ticket = state.service.order(order).await?;
    let receipt = TicketReceipt::new(&ticket, &state.base_url);
    let document = serde_json::to_string(&receipt).map_err(|_| TicketProblem::Unavailable)?;
    let mut response = Response::new(Body::from(document));
    *response.status_mut() = StatusCode::CREATED;
    set(response.headers_mut(), "content-type", "application/json");
    Ok(response)
}

/// Reads the body of a request that is a document. Connections of this endpoint have no timeout for bodies, because
/// uploads have their own; this one is for the whole document.
pub(crate) async fn read_body(
    service: &TicketService,
    request: Request,
    max_bytes: usize,
) -> Result<Bytes, TicketProblem> {
    let body = Limited::new(request.into_body(), max_bytes).collect();
    let read = tokio::time::timeout(service.inner.limits.idle_timeout, body).await;
    let read = read.map_err(|_| TicketProblem::Invalid("the document did not arrive in time"))?;
    let unreadable = |_| TicketProblem::Invalid("the document is too large or was cut off");
    Ok(read.map_err(unreadable)?.to_bytes())
}

/// The key as it is in `Authorization: Bearer`.
pub fn key_text(key: &[u8; 32]) -> String {
    Sha256Digest::from_bytes(*key).to_hex()
}
