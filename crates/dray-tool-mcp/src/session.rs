//! One session with a server, from the handshake to the farewell.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientCapabilities, ClientConfig, ClientRequest, Implementation, JsonObject,
    PaginatedRequestParams, RequestId, ServerResult, Tool,
};
use rmcp::service::{ClientInitializeError, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{RoleClient, ServiceExt as _};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{CloseReason, WireError};
use crate::wire::{HttpSettings, McpTransport, ServerAddress};

/// Most pages of a list (quickapps 27.2).
const MAX_LIST_PAGES: usize = 1000;

/// Code of a server's error that means a timeout (quickapps 21).
const REQUEST_TIMEOUT: i32 = 408;

/// What went wrong with a session.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// On the way.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server says no. Its own text is for the caller.
    #[error("{message}")]
    Refused {
        /// Its code.
        code: i32,
        /// Its text.
        message: String,
    },
    /// It speaks, but not as it should.
    #[error("the server does not answer as an MCP server: {0}")]
    Odd(&'static str),
    /// The operator's limit of running programs is reached, and none of them is idle.
    #[error("too many programs are running; another attempt later may work")]
    TooManyPrograms,
    /// Took longer than set-up may.
    #[error("the server did not answer in time")]
    Late,
}

impl SessionError {
    /// The HTTP status behind it.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Wire(WireError::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// Whether it is a timeout.
    pub(crate) const fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Late
                | Self::Wire(WireError::Idle | WireError::Status(408))
                | Self::Refused {
                    code: REQUEST_TIMEOUT,
                    ..
                }
        )
    }

    /// Whether the server surely did nothing.
    pub(crate) const fn is_unsent(&self) -> bool {
        matches!(self, Self::Wire(error) if error.is_unsent())
    }

    fn of_service(error: ServiceError, grave: &CloseReason) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Refused {
                code: error.code.0,
                message: error.message.into_owned(),
            },
            ServiceError::TransportSend(error) => of_wire(error.error),
            ServiceError::Timeout { .. } => Self::Late,
            ServiceError::TransportClosed => grave.cause().into(),
            _ => Self::Odd("its answer is not one to this request"),
        }
    }

    fn of_start(error: ClientInitializeError, grave: &CloseReason) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => of_wire(error.error),
            ClientInitializeError::ConnectionClosed(_) => grave.cause().into(),
            ClientInitializeError::JsonRpcError(error) => Self::Refused {
                code: error.code.0,
                message: error.message.into_owned(),
            },
            _ => Self::Odd("the handshake failed"),
        }
    }
}

fn of_wire(error: Box<dyn std::error::Error + Send + Sync>) -> SessionError {
    match error.downcast::<WireError>() {
        Ok(error) => SessionError::Wire(*error),
        Err(other) => SessionError::Wire(WireError::Broken(Some(other))),
    }
}

/// What a server offers.
#[derive(Clone, Debug)]
pub(crate) struct ServerOffer {
    pub(crate) tools: Vec<Tool>,
    /// Whether the list went on without end.
    pub(crate) is_cut: bool,
}

/// A session. Dropping it takes leave and ends everything behind it.
#[derive(Debug)]
pub(crate) struct McpSession {
    service: RunningService<RoleClient, ClientConfig>,
    grave: CloseReason,
    cancels: mpsc::UnboundedSender<RequestId>,
    _cancelling: JoinSet<()>,
}

impl McpSession {
    /// Makes the way and shakes hands.
    pub(crate) async fn start(
        target: &ServerAddress,
        manners: &HttpSettings,
    ) -> Result<Self, SessionError> {
        let grave = CloseReason::default();
        let wire = McpTransport::open(target, manners, &grave).await?;
        let info = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("drayage", env!("CARGO_PKG_VERSION")),
        );
        let service = Box::pin(info.serve(wire))
            .await
            .map_err(|error| SessionError::of_start(error, &grave))?;
        let (cancels, mut given_up) = mpsc::unbounded_channel();
        let peer = service.peer().clone();
        let mut cancelling = JoinSet::new();
        cancelling.spawn(async move {
            while let Some(id) = given_up.recv().await {
                let told = CancelledNotificationParam::new(Some(id), Some("dropped".to_owned()));
                if let Err(error) = peer.notify_cancelled(told).await {
                    tracing::debug!(%error, "a call could not be cancelled");
                }
            }
        });
        Ok(Self {
            service,
            grave,
            cancels,
            _cancelling: cancelling,
        })
    }

    /// Whether the connection is known to have ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// All tools, page by page. A cursor that comes again ends the list.
    pub(crate) async fn list(&self) -> Result<ServerOffer, SessionError> {
        let mut listed = ServerOffer {
            tools: Vec::new(),
            is_cut: false,
        };
        let mut seen = std::collections::HashSet::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_LIST_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let page = self
                .service
                .peer()
                .list_tools(Some(page))
                .await
                .map_err(|error| SessionError::of_service(error, &self.grave))?;
            listed.tools.extend(page.tools);
            match page.next_cursor.filter(|next| !next.is_empty()) {
                None => return Ok(listed),
                Some(next) if seen.insert(next.clone()) => cursor = Some(next),
                Some(_) => break,
            }
        }
        listed.is_cut = true;
        Ok(listed)
    }

    /// Calls a tool. Dropping the future sends a cancellation to the server.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResult, SessionError> {
        let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let asked = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
        let peer = self.service.peer();
        let handle = peer
            .send_cancellable_request(asked, PeerRequestOptions::no_options())
            .await
            .map_err(|error| SessionError::of_service(error, &self.grave))?;
        let mut waiting = PendingCall {
            id: Some(handle.id.clone()),
            cancels: self.cancels.clone(),
        };
        let answer = handle.await_response().await;
        waiting.id = None;
        match answer.map_err(|error| SessionError::of_service(error, &self.grave))? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(SessionError::Odd("its answer is no result of a tool")),
        }
    }
}

/// A call with a waiting caller.
struct PendingCall {
    id: Option<RequestId>,
    cancels: mpsc::UnboundedSender<RequestId>,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let _ = self.cancels.send(id);
        }
    }
}
