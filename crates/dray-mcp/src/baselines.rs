//! The first read of the resources of a subscription of MCP 2026-07-28, before the subscription is acknowledged.
//!
//! A client may change a resource right after the acknowledgement, and `rmcp` calls the handler only after that. So the
//! request is read before it reaches `rmcp`: over HTTP by a middleware, on the standard streams by a wrapper of the
//! server.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use dray_types::Fault;
use futures_util::{StreamExt as _, stream};
use http::request::Parts;
use rmcp::model::{
    ClientNotification, ClientRequest, ProtocolVersion, ServerConfig, ServerResult,
    SubscriptionFilter, SubscriptionsListenRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, Service};
use serde::Deserialize;

use crate::auth::Caller;
use crate::content::ContentAccess;
use crate::http::{MAX_REQUEST_BYTES, unread_body};
use crate::message_check::as_sentence;
use crate::subscriptions::{self, ResourceWatch};
use crate::{McpServer, failure};

/// Header with the method of a request (MCP 2026-07-28).
const METHOD_HEADER: &str = "mcp-method";
/// Method of the request that opens a stream of notifications.
const LISTEN_METHOD: &str = "subscriptions/listen";
/// Most resources of one subscription that are read concurrently.
const MAX_CONCURRENT_READS: usize = 8;

/// The watched resources of one subscription, or why none of those that it names can be watched.
type ReadOutcome = Result<Vec<ResourceWatch>, Fault>;

/// The watched resources of one subscription, read before its acknowledgement. The first caller of [`Self::take`] gets
/// them, and clones share them.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionBaselines(Arc<Mutex<Option<ReadOutcome>>>);

impl SubscriptionBaselines {
    /// Reads all resources. A resource that cannot be read does not end the subscription to the others.
    pub(crate) async fn read(
        server: &McpServer,
        access: &ContentAccess,
        filter: &SubscriptionFilter,
    ) -> Self {
        let uris = subscriptions::accepted_uris(filter);
        let reads = uris.into_iter().map(|uri| async move {
            let watches = server.watches();
            watches.watch(access, &uri).await
        });
        let reads = stream::iter(reads).buffered(MAX_CONCURRENT_READS);
        let reads: Vec<_> = reads.collect().await;
        let (mut begun, mut refused) = (Vec::new(), None);
        for read in reads {
            match read {
                Ok(watch) => begun.push(watch),
                Err(fault) => refused = Some(fault),
            }
        }
        let outcome = match refused {
            Some(fault) if begun.is_empty() => Err(fault),
            _ => Ok(begun),
        };
        Self(Arc::new(Mutex::new(Some(outcome))))
    }

    /// The baselines that were read for this request; `None` if it came without them.
    pub(crate) fn of_request(context: &RequestContext<RoleServer>) -> Option<Self> {
        let parts = context.extensions.get::<Parts>();
        let over_http = parts.and_then(|parts| parts.extensions.get::<Self>());
        over_http
            .or_else(|| context.extensions.get::<Self>())
            .cloned()
    }

    /// The watched resources.
    ///
    /// # Errors
    ///
    /// None of the requested resources can be watched.
    pub(crate) fn take(&self) -> Result<Vec<ResourceWatch>, ErrorData> {
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watches = outcome.take().unwrap_or_else(|| Ok(Vec::new()));
        watches.map_err(|fault| failure::protocol_error(&fault))
    }
}

/// The part of a `subscriptions/listen` message that names resources.
#[derive(Deserialize)]
struct ListenMessage {
    params: SubscriptionsListenRequestParams,
}

/// Reads the resources of a subscription over HTTP before the request reaches the protocol.
pub(crate) async fn read_http_baselines(
    State(server): State<McpServer>,
    request: Request,
    next: Next,
) -> Response {
    // The protocol refuses a request whose header differs from its message.
    let method = request.headers().get(METHOD_HEADER);
    if method.is_none_or(|method| method.as_bytes() != LISTEN_METHOD.as_bytes()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let body = match to_bytes(body, MAX_REQUEST_BYTES).await {
        Ok(body) => body,
        Err(error) => return unread_body(&error),
    };
    if let Ok(message) = serde_json::from_slice::<ListenMessage>(&body) {
        let filter = message.params.notifications;
        let caller = parts.extensions.get::<Arc<Caller>>().cloned();
        if let Some(access) = server.readable_by(caller.as_deref()).await {
            let baselines = SubscriptionBaselines::read(&server, &access, &filter).await;
            parts.extensions.insert(baselines);
        }
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// The server on the standard streams.
#[derive(Debug)]
pub(crate) struct StdioServer(pub(crate) McpServer);

impl Service<RoleServer> for StdioServer {
    async fn handle_request(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if let ClientRequest::SubscriptionsListenRequest(listen) = &request
            && let Some(access) = self.0.readable_by(None).await
        {
            let filter = &listen.params.notifications;
            let reading = SubscriptionBaselines::read(&self.0, &access, filter);
            tokio::select! {
                baselines = reading => { context.extensions.insert(baselines); }
                () = context.ct.cancelled() => {}
            }
        }
        let handled = self.0.handle_request(request, context).await;
        handled.map_err(as_sentence)
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}
