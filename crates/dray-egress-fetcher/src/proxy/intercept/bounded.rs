//! Requests of an intercepted tunnel whose whole body is known, so that another connection may carry them again.
//!
//! A target may close a connection while a request is on its way to it (RFC 9112, section 9.5). A request that it
//! cannot have processed, or whose method is idempotent, is repeated once, on a new connection, after it was judged and
//! recorded again.

use bytes::Bytes;
use dray_guard::Code;
use http::header::CONNECTION;
use tokio::io::{AsyncRead, AsyncWrite};

use super::super::head::ProxyRequest;
use super::super::meter::LimitReached;
use super::super::persistent::{PersistentOutcome, PersistentRequest};
use super::super::refusal::{ConnectionEnd, ProxyRefusal};
use super::super::response::ResponseRules;
use super::super::serve::{EndConditions, ForwardProxy};
use super::{InnerClient, InterceptedTunnel};
use crate::audit::{AuditedConnection, TunnelAuditor};
use crate::error::FetchPhase;

/// A request with its whole body, which can be sent again.
pub(super) struct BoundedRequest {
    /// The request as the client sent it, to be judged again.
    pub(super) request: ProxyRequest,
    /// The head for the target.
    pub(super) head: http::request::Parts,
    pub(super) body: Bytes,
}

/// The end of a request of a tunnel that has no successor.
pub(super) struct TunnelEnd {
    pub(super) end: ConnectionEnd,
    /// The last response for a client that got none.
    pub(super) refusal: Option<ProxyRefusal>,
    /// Whether a new connection to the target may carry the request again.
    pub(super) is_repeatable: bool,
}

impl ForwardProxy {
    /// Sends a request, and once more on a new connection where the one before ended without a response and the request
    /// may be repeated. `audited` is then the record of the repeated one.
    ///
    /// # Errors
    ///
    /// The refusal of the repeated request.
    pub(super) async fn run_bounded<S>(
        &self,
        client: &mut InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        request: &mut BoundedRequest,
        (audited, auditor): (&mut AuditedConnection, &TunnelAuditor),
    ) -> Result<Result<(), TunnelEnd>, ProxyRefusal>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ended = self.run_kept(client, tunnel, request, audited).await;
        if !ended.as_ref().is_err_and(|ended| ended.is_repeatable) {
            return Ok(ended);
        }
        // The next request is a separate operation: no connection is opened without an event before its first byte.
        let first = std::mem::replace(audited, self.begin_operation(auditor));
        first.close_early(ConnectionEnd::Broken);
        tunnel.close_target();
        let admitting = self.admit_request(&request.request, tunnel, audited, true);
        // The credential is the one that the event of this connection names, so the head is made again.
        let (head, _) = Box::pin(admitting).await?;
        request.head = kept_head(head, &request.request);
        self.begin_target(tunnel, audited).await?;
        // The connection is new, so a second failure is not repeatable.
        Ok(self.run_kept(client, tunnel, request, audited).await)
    }

    /// Sends a request that may have successors, and returns the response. An error ends the tunnel, with a last
    /// response for the client where it got none.
    async fn run_kept<S>(
        &self,
        client: &mut InnerClient<S>,
        tunnel: &mut InterceptedTunnel<'_>,
        request: &BoundedRequest,
        audited: &mut AuditedConnection,
    ) -> Result<(), TunnelEnd>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (Some(target), Some(opened)) = (tunnel.target.as_mut(), &tunnel.opened) else {
            return Err(TunnelEnd {
                end: ConnectionEnd::Broken,
                refusal: Some(ProxyRefusal::Response),
                is_repeatable: false,
            });
        };
        let ends = EndConditions {
            ends_at: opened.ends_at(tunnel.terms.ends_at),
            answer: opened.answer.as_ref(),
        };
        let request = PersistentRequest {
            head: request.head.clone(),
            body: request.body.clone(),
            rules: ResponseRules {
                decision: opened.decision.as_ref(),
                credential: opened.credential.as_deref(),
            },
        };
        let (mut status, mut outcome) = (None, PersistentOutcome::Broken);
        let exchanging = async {
            outcome = target.exchange(client, request, &mut status).await;
            outcome.end()
        };
        let watching = self.watch(exchanging, &audited.counts, ends);
        let end = Box::pin(watching).await;
        audited.record.hop().status = status;
        if let (
            ConnectionEnd::Closed,
            PersistentOutcome::Answered {
                keeps_client: true,
                keeps_target,
            },
        ) = (end, outcome)
        {
            if !(keeps_target && target.is_ready()) {
                tunnel.close_target();
            }
            return Ok(());
        }
        let is_repeatable = end == ConnectionEnd::Broken
            && matches!(
                outcome,
                PersistentOutcome::Unanswered {
                    is_repeatable: true
                }
            );
        let limit = audited.counts.limit_reached();
        Err(TunnelEnd {
            end,
            refusal: last_refusal(end, outcome, limit, status),
            is_repeatable,
        })
    }
}

/// The head of a request after which the connection can carry another one.
pub(super) fn kept_head(
    mut head: http::request::Parts,
    request: &ProxyRequest,
) -> http::request::Parts {
    if !request.has_body() {
        // Without this field, the connection may carry another request (RFC 9112, section 9.3). A target that does not
        // read a body would take the body for a request.
        head.headers.remove(CONNECTION);
    }
    head
}

/// The response for a client that got none when its request ended.
fn last_refusal(
    end: ConnectionEnd,
    outcome: PersistentOutcome,
    limit: Option<LimitReached>,
    status: Option<u16>,
) -> Option<ProxyRefusal> {
    match (outcome, limit) {
        (PersistentOutcome::Answered { .. }, _) => None,
        // A limit shows as a broken connection in the layers above.
        (
            PersistentOutcome::Refused(
                ProxyRefusal::Response | ProxyRefusal::Guard(Code::ConnectionClosed, _),
            )
            | PersistentOutcome::Unanswered { .. },
            Some(limit),
        ) => Some(ProxyRefusal::of_limit(limit)),
        (PersistentOutcome::Refused(refusal), _) => Some(refusal),
        (PersistentOutcome::Unanswered { .. }, None) => Some(ProxyRefusal::Guard(
            Code::ConnectionClosed,
            FetchPhase::Head,
        )),
        // The head of the response is on its way to the client.
        (PersistentOutcome::Broken, _) if status.is_some() => None,
        (PersistentOutcome::Broken, Some(limit)) => Some(ProxyRefusal::of_limit(limit)),
        (PersistentOutcome::Broken, None) => match end {
            ConnectionEnd::Idle | ConnectionEnd::Expired => {
                Some(ProxyRefusal::Guard(Code::Timeout, FetchPhase::Head))
            }
            // The client has left, or the process stops.
            _ => None,
        },
    }
}
