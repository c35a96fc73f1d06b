//! `GET /tickets`, `GET /tickets/ID` and `DELETE /tickets/ID`: lists, shows and revokes tickets for the holder of the
//! endpoint's key, who may name any tenant. No document has a URL, because records contain no secret.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use dray_proto::{NamedCode as _, v1};
use dray_types::{Sha256Digest, TenantId};
use http::{Method, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::form_urlencoded;

use crate::api::check_key;
use crate::destination::TicketDestination;
use crate::endpoint::{EndpointState, with_common_headers};
use crate::problem::TicketProblem;
use crate::response::json_response;
use crate::{Principal, TicketDirection};

/// The document about a ticket that exists. It has no URL and no secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TicketStatus {
    /// Identifies the ticket without giving access: 64 hexadecimal digits.
    pub id: String,
    /// Session of the ticket.
    pub session: String,
    /// Direction of the transfer.
    pub direction: TicketDirection,
    /// State: `open`, `active`, `stored`, `complete`, `failed`, `revoked` or `expired`.
    pub state: String,
    /// Most bytes of an upload; the size of a download.
    pub max_bytes: u64,
    /// Bytes that were received, or that were sent without a gap from the start.
    pub moved_bytes: u64,
    /// Media type or pattern; empty allows any.
    pub media_type: String,
    /// File name; may be empty.
    pub name: String,
    /// Unix milliseconds at which it was made.
    pub created_at_ms: u64,
    /// Unix milliseconds at which it ends.
    pub expires_at_ms: u64,
    /// Destination of an upload after it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<TicketDestination>,
    /// SHA-256 of the stored content, 64 hexadecimal digits; absent while no content is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Bytes of the stored content; 0 while no content is stored.
    pub size: u64,
    /// The confirmation of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Value>,
}

/// The tickets of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TicketListDocument {
    /// Newest first.
    pub tickets: Vec<TicketStatus>,
    /// Whether the limit omitted some tickets.
    pub truncated: bool,
}

impl From<v1::Ticket> for TicketStatus {
    fn from(ticket: v1::Ticket) -> Self {
        let sha256 = Sha256Digest::try_from(ticket.sha256.as_slice()).ok();
        Self {
            direction: match ticket.direction() {
                v1::TicketDirection::Download => TicketDirection::Download,
                _ => TicketDirection::Upload,
            },
            state: ticket.state().name().to_owned(),
            id: ticket.ticket_id,
            session: ticket.session,
            max_bytes: ticket.max_bytes,
            moved_bytes: ticket.moved_bytes,
            media_type: ticket.media_type,
            name: ticket.name,
            created_at_ms: ticket.created_at_ms,
            expires_at_ms: ticket.expires_at_ms,
            destination: ticket
                .destination
                .and_then(|destination| destination.try_into().ok()),
            sha256: sha256.map(Sha256Digest::to_hex),
            size: ticket.size,
            receipt: serde_json::from_str(&ticket.receipt).ok(),
        }
    }
}

/// The query of a request about existing tickets.
#[derive(Clone, Debug, Default)]
struct TicketQuery {
    tenant: String,
    session: String,
    limit: u32,
}

impl TicketQuery {
    fn of(uri: &Uri) -> Result<Self, TicketProblem> {
        let mut query = Self::default();
        let text = uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "tenant" => query.tenant = value.into_owned(),
                "session" => query.session = value.into_owned(),
                "limit" => {
                    let limit = value.parse();
                    query.limit =
                        limit.map_err(|_| TicketProblem::Invalid("the limit is not a number"))?;
                }
                _ => return Err(TicketProblem::Invalid("the query has an unknown member")),
            }
        }
        Ok(query)
    }

    fn tenant(&self) -> Result<TenantId, TicketProblem> {
        let tenant = self.tenant.parse();
        tenant.map_err(|_| TicketProblem::Invalid("the tenant is not valid"))
    }

    fn principal(&self) -> Result<Principal, TicketProblem> {
        let session = self.session.parse();
        Ok(Principal {
            tenant: self.tenant()?,
            session: session.map_err(|_| TicketProblem::Invalid("the session is not valid"))?,
        })
    }
}

/// Handles `GET /tickets?tenant=…&session=…`, whose key was checked.
pub(crate) async fn list(state: &EndpointState, uri: &Uri) -> Result<Response, TicketProblem> {
    let query = TicketQuery::of(uri)?;
    let listed = state.service.list(&query.principal()?, query.limit).await?;
    json_document(&TicketListDocument {
        tickets: listed.tickets.into_iter().map(Into::into).collect(),
        truncated: listed.truncated,
    })
}

/// Handles `GET` and `DELETE` on `/tickets/ID?tenant=…`.
pub(crate) async fn serve_by_id(
    State(state): State<EndpointState>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let response = match check_key(&state, request.headers()) {
        Ok(()) => by_id(&state, &id, request.method(), request.uri()).await,
        Err(problem) => Err(problem),
    };
    let response = response.unwrap_or_else(TicketProblem::into_response);
    with_common_headers(response, false)
}

async fn by_id(
    state: &EndpointState,
    id: &str,
    method: &Method,
    uri: &Uri,
) -> Result<Response, TicketProblem> {
    let tenant = TicketQuery::of(uri)?.tenant()?;
    let ticket = match *method {
        Method::GET => state.service.inspect(&tenant, id).await?,
        Method::DELETE => state.service.revoke_by_id(&tenant, id).await?,
        _ => {
            return Err(TicketProblem::MethodNotAllowed {
                allowed: "GET, DELETE",
            });
        }
    };
    json_document(&TicketStatus::from(ticket))
}

fn json_document(document: &impl Serialize) -> Result<Response, TicketProblem> {
    let value = serde_json::to_value(document).map_err(|_| TicketProblem::Unavailable)?;
    Ok(json_response(StatusCode::OK, &value))
}
