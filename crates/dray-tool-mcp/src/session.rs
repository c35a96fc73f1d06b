//! One session with a server, from the handshake to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    Implementation, JsonObject, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ResourceContents, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer,
    RoleClient, RunningService, ServiceError,
};
use rmcp::transport::IntoTransport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use thiserror::Error;
use tokio::task::JoinSet;

use crate::error::{CloseReason, WireError};
use crate::input::wanted_input;
use crate::legacy_servers::LegacyServers;
use crate::wire::{HttpSettings, ServerAddress, open_program, open_sse, open_streamable};

/// Most pages of a list (quickapps 27.2).
const MAX_LIST_PAGES: usize = 1000;

/// Code of a server's error that means a timeout (quickapps 21).
pub(crate) const REQUEST_TIMEOUT: i32 = 408;

/// A failure of a session or of one of its calls.
#[derive(Debug, Error)]
pub(crate) enum SessionError {
    /// The message or its answer was lost on the way.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The server answered with an error of JSON-RPC.
    #[error("{message}")]
    Refused {
        /// Code of JSON-RPC, or of the server's own.
        code: i32,
        /// Text of the server, for the caller.
        message: String,
    },
    /// The tool wants input that only a client with a person can give. The text names it, for the agent.
    #[error("{0}")]
    InputRequired(String),
    /// The server named its versions of MCP, and none of them is known here.
    #[error("the server speaks no version of MCP that is known here")]
    NoCommonVersion,
    /// The server answered, but not as MCP says.
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

    /// Whether a server that was asked for its versions may still work when a session begins with `initialize`.
    const fn permits_initialize(&self, target: &ServerAddress) -> bool {
        match self {
            Self::NoCommonVersion => true,
            // Some programs end when the first message is not `initialize`.
            Self::Wire(WireError::Broken(_)) => matches!(target, ServerAddress::Stdio { .. }),
            _ => false,
        }
    }

    /// Whether the server surely did nothing.
    pub(crate) const fn is_unsent(&self) -> bool {
        matches!(self, Self::Wire(error) if error.is_unsent())
    }

    fn of_service(error: ServiceError, close_reason: &CloseReason) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Refused {
                code: error.code.0,
                message: error.message.into_owned(),
            },
            ServiceError::TransportSend(error) => of_wire(error.error),
            ServiceError::Timeout { .. } => Self::Late,
            ServiceError::TransportClosed => close_reason.cause().into(),
            _ => Self::Odd("its answer is not one to this request"),
        }
    }

    fn of_start(error: ClientInitializeError, close_reason: &CloseReason) -> Self {
        match error {
            ClientInitializeError::TransportError { error, .. } => of_wire(error.error),
            ClientInitializeError::ConnectionClosed(_) => close_reason.cause().into(),
            // The first failure says only that the server does not know `server/discover`.
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::of_start(*fallback, close_reason)
            }
            ClientInitializeError::JsonRpcError(error) => Self::Refused {
                code: error.code.0,
                message: error.message.into_owned(),
            },
            ClientInitializeError::NoCompatibleProtocolVersion { .. } => Self::NoCommonVersion,
            _ => Self::Odd("the handshake failed"),
        }
    }
}

/// The failure of a transport, as it left the transport of ours or the client below the one of `rmcp`.
fn of_wire(error: Box<dyn std::error::Error + Send + Sync>) -> SessionError {
    let error = match error.downcast::<WireError>() {
        Ok(error) => return SessionError::Wire(*error),
        Err(other) => other,
    };
    match error.downcast::<StreamableHttpError<WireError>>() {
        Ok(error) => match *error {
            StreamableHttpError::Client(error) => SessionError::Wire(error),
            other => SessionError::Wire(WireError::Broken(Some(other.into()))),
        },
        Err(other) => SessionError::Wire(WireError::Broken(Some(other))),
    }
}

/// The tools of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerOffer {
    pub(crate) tools: Vec<Tool>,
    /// Whether the list went on without end.
    pub(crate) is_cut: bool,
}

/// What this client says of itself, and what it hears from the server.
#[derive(Clone, Debug, Default)]
struct SessionHandler {
    has_changed_tools: Arc<AtomicBool>,
}

impl SessionHandler {
    fn note_changed_tools(&self) {
        self.has_changed_tools.store(true, Ordering::Relaxed);
    }
}

impl ClientHandler for SessionHandler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("drayage", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note_changed_tools();
    }
}

/// A session. Dropping it closes the connection and ends everything behind it.
#[derive(Debug)]
pub(crate) struct McpSession {
    service: RunningService<RoleClient, SessionHandler>,
    close_reason: CloseReason,
    _listening: JoinSet<()>,
}

impl McpSession {
    /// Opens the transport and performs the handshake: that of 2026-07-28, and `initialize` when the server does not
    /// know it.
    pub(crate) async fn start(
        target: &ServerAddress,
        settings: &HttpSettings,
        legacy: &LegacyServers,
    ) -> Result<Self, SessionError> {
        let address = target.address();
        let started = if legacy.contains(&address) {
            Self::open(target, settings, ClientLifecycleMode::Initialize).await
        } else {
            let negotiated = ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            };
            match Self::open(target, settings, negotiated).await {
                Err(error) if error.permits_initialize(target) => {
                    Self::open(target, settings, ClientLifecycleMode::Initialize).await
                }
                outcome => outcome,
            }
        };
        match &started {
            Ok(session) if session.has_initialize() => legacy.insert(address),
            // Another attempt asks again: the server may have been replaced.
            _ => legacy.remove(&address),
        }
        started
    }

    async fn open(
        target: &ServerAddress,
        settings: &HttpSettings,
        mode: ClientLifecycleMode,
    ) -> Result<Self, SessionError> {
        let close_reason = CloseReason::default();
        match target {
            ServerAddress::Streamable(url) => {
                Self::serve(open_streamable(url, settings), mode, close_reason).await
            }
            ServerAddress::Sse(url) => {
                let transport = open_sse(url, settings, &close_reason).await?;
                // This transport is older than `server/discover`.
                Self::serve(transport, ClientLifecycleMode::Initialize, close_reason).await
            }
            ServerAddress::Stdio { name, command } => {
                let transport = open_program(name, command, settings.limit, &close_reason)?;
                Self::serve(transport, mode, close_reason).await
            }
        }
    }

    async fn serve<T, E, A>(
        transport: T,
        mode: ClientLifecycleMode,
        close_reason: CloseReason,
    ) -> Result<Self, SessionError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let handler = SessionHandler::default();
        let service = Box::pin(handler.clone().serve_with_lifecycle(transport, mode))
            .await
            .map_err(|error| SessionError::of_start(error, &close_reason))?;
        let mut listening = JoinSet::new();
        let info = service.peer().peer_info();
        let changes = info.is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize()
                && tools.is_some_and(|tools| tools.list_changed == Some(true))
        });
        if changes {
            listening.spawn(listen_to_tools(service.peer().clone(), handler));
        }
        Ok(Self {
            service,
            close_reason,
            _listening: listening,
        })
    }

    /// Whether the session began with `initialize`, as those of before 2026-07-28 do.
    fn has_initialize(&self) -> bool {
        let info = self.service.peer().peer_info();
        info.is_some_and(|info| info.protocol_version.has_initialize())
    }

    /// Whether the connection is known to have ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Whether the server has reported other tools than those at its beginning.
    pub(crate) fn has_changed_tools(&self) -> bool {
        let changed = &self.service.service().has_changed_tools;
        changed.load(Ordering::Relaxed)
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
                .map_err(|error| SessionError::of_service(error, &self.close_reason))?;
            listed.tools.extend(page.tools);
            match page.next_cursor.filter(|next| !next.is_empty()) {
                None => return Ok(listed),
                Some(next) if seen.insert(next.clone()) => cursor = Some(next),
                // This cursor came before, so the list would never end.
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
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        // Without a limit of its own: a caller whose time is over drops the future, and that cancels the call.
        let called = self.service.peer().call_tool_once(params).await;
        match called.map_err(|error| SessionError::of_service(error, &self.close_reason))? {
            CallToolResponse::Complete(result) => Ok(result),
            CallToolResponse::InputRequired(wanted) => {
                Err(SessionError::InputRequired(wanted_input(&wanted)))
            }
            _ => Err(SessionError::Odd("its answer is no result of a tool")),
        }
    }

    /// Reads a resource of the server. Dropping the future sends a cancellation to the server.
    pub(crate) async fn read(&self, uri: &str) -> Result<Vec<ResourceContents>, SessionError> {
        let params = ReadResourceRequestParams::new(uri);
        let read = self.service.peer().read_resource_once(params).await;
        match read.map_err(|error| SessionError::of_service(error, &self.close_reason))? {
            ReadResourceResponse::Complete(result) => Ok(result.contents),
            ReadResourceResponse::InputRequired(wanted) => {
                Err(SessionError::InputRequired(wanted_input(&wanted)))
            }
            _ => Err(SessionError::Odd("its answer is no resource")),
        }
    }
}

/// Hears of changed tools from a server of 2026-07-28, which reports them only to who asks for it.
async fn listen_to_tools(peer: Peer<RoleClient>, handler: SessionHandler) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut changes = match peer.listen(filter).await {
        Ok(changes) => changes,
        Err(error) => {
            tracing::debug!(%error, "an MCP server does not report changes of its tools");
            return;
        }
    };
    while let Ok(Some(_)) = changes.next().await {
        handler.note_changed_tools();
    }
}
