//! One session with a server, from the handshake to its end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ContentBlock, ErrorCode, GetPromptRequestParams, GetPromptResponse, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ResourceContents, ResourceTemplate, SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, Peer, RoleClient, RunningService, ServiceError,
};
use rmcp::transport::IntoTransport;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::error::{CloseReason, SessionError, bounded_version};
use crate::handler::SessionHandler;
use crate::legacy_servers::LegacyServers;
use crate::wire::{
    HttpSettings, ProgramHandshake, ServerAddress, StandingStream, open_program, open_sse,
    open_streamable,
};

/// Most pages of a list (quickapps 27.2).
const MAX_LIST_PAGES: usize = 1000;

/// Most pages without tools, one after another, before a list counts as one without end.
const MAX_EMPTY_PAGES: usize = 32;

/// Most pages of templates of resources. They have no page of their own in the list for the model.
const MAX_TEMPLATE_PAGES: usize = 10;

/// Longest wait for the versions of a program that is known to name them; set-up as a whole takes less.
const MAX_DISCOVERY_TIME: Duration = Duration::from_hours(1);

/// The tools of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerOffer {
    pub(crate) tools: Vec<Tool>,
    /// Whether the list continued without end, or was too long.
    pub(crate) is_cut: bool,
    /// Whether the server offers resources.
    pub(crate) has_resources: bool,
    /// Whether the server offers prompts.
    pub(crate) has_prompts: bool,
}

/// A session. Dropping it closes the connection and ends everything behind it.
#[derive(Debug)]
pub(crate) struct McpSession {
    service: RunningService<RoleClient, SessionHandler>,
    close_reason: CloseReason,
    /// Tasks of the session, which end with it.
    background: Mutex<JoinSet<()>>,
}

impl McpSession {
    /// Opens the transport and performs the handshake: first that of 2026-07-28, then `initialize` if the server does
    /// not know it.
    pub(crate) async fn start(
        target: &ServerAddress,
        settings: &HttpSettings,
        legacy: &LegacyServers,
    ) -> Result<Self, SessionError> {
        let address = target.address();
        let handshake = target.handshake();
        // The address is remembered, so that a server of an earlier version needs one handshake and not two at each
        // start.
        let started = if legacy.contains(&address) {
            let mode = ClientLifecycleMode::Initialize;
            Self::open(target, settings, mode, &handshake).await
        } else {
            let negotiated = ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::LATEST],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            };
            match Self::open(target, settings, negotiated, &handshake).await {
                // The program answered `server/discover` after the wait was over, so it knows that request.
                Err(_) if handshake.has_late_discovery() => {
                    let discover = ClientLifecycleMode::Discover {
                        preferred_versions: vec![ProtocolVersion::LATEST],
                    };
                    // The time for set-up ends this wait.
                    let long_handshake = ProgramHandshake::new(MAX_DISCOVERY_TIME);
                    Self::open(target, settings, discover, &long_handshake).await
                }
                Err(error) if error.permits_initialize(target) => {
                    let mode = ClientLifecycleMode::Initialize;
                    Self::open(target, settings, mode, &handshake).await
                }
                outcome => outcome,
            }
        };
        match &started {
            Ok(session) if session.has_initialize() && !handshake.has_late_discovery() => {
                legacy.insert(address);
            }
            // The next attempt asks again, because the server may have been replaced.
            _ => legacy.remove(&address),
        }
        started
    }

    async fn open(
        target: &ServerAddress,
        settings: &HttpSettings,
        mode: ClientLifecycleMode,
        handshake: &ProgramHandshake,
    ) -> Result<Self, SessionError> {
        let close_reason = CloseReason::default();
        match target {
            ServerAddress::Streamable(url) => {
                let standing_stream = StandingStream::default();
                let transport = open_streamable(url, settings, &standing_stream);
                let session = Self::serve(transport, mode, close_reason).await?;
                if session.has_initialize() {
                    // Otherwise a message that the server sends right after the handshake could be lost.
                    standing_stream.settled().await;
                }
                Ok(session)
            }
            ServerAddress::Sse(url) => {
                let transport = open_sse(url, settings, &close_reason).await?;
                // This transport is older than `server/discover`.
                Self::serve(transport, ClientLifecycleMode::Initialize, close_reason).await
            }
            ServerAddress::Stdio { name, command, .. } => {
                let limit = settings.limit;
                let transport = open_program(name, command, limit, handshake, &close_reason)?;
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
        if let Some(version) = info.as_ref().map(|info| &info.protocol_version)
            && !ProtocolVersion::KNOWN_VERSIONS.contains(version)
        {
            // The version of the response counts for the session (MCP, lifecycle), so an unknown one ends it.
            return Err(SessionError::UnknownVersion(bounded_version(
                version.as_str(),
            )));
        }
        // Servers of earlier versions send such a notification without a subscription.
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
            background: Mutex::new(listening),
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

    /// Whether the server has reported a changed list of tools.
    pub(crate) fn has_changed_tools(&self) -> bool {
        self.handler().has_changed_tools()
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(crate) fn handler(&self) -> &SessionHandler {
        self.service.service()
    }

    /// The failure of a request, together with the known state of the connection.
    pub(crate) fn failure(&self, error: ServiceError) -> SessionError {
        SessionError::of_service(error, &self.close_reason)
    }

    /// Runs a task that ends with the session at the latest. Without a runtime, the task is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let mut background = self
                .background
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            background.spawn_on(task, &runtime);
        }
    }

    /// All tools, page by page. A repeated cursor ends the list, and so do tools and cursors of more than `max_bytes`
    /// of JSON: the limit of a response alone would permit a thousand times as much.
    pub(crate) async fn list(&self, max_bytes: usize) -> Result<ServerOffer, SessionError> {
        let info = self.peer().peer_info();
        let capabilities = info.as_ref().map(|info| &info.capabilities);
        let mut offer = ServerOffer {
            tools: Vec::new(),
            is_cut: false,
            has_resources: capabilities.is_some_and(|has| has.resources.is_some()),
            has_prompts: capabilities.is_some_and(|has| has.prompts.is_some()),
        };
        // Cursors are opaque, so only a repetition shows that a list does not end.
        let mut seen = std::collections::HashSet::new();
        let mut bytes_left = max_bytes;
        let mut cursor: Option<String> = None;
        let mut empty_pages = 0;
        for _ in 0..MAX_LIST_PAGES {
            let Some(page) = self.tool_page(cursor.clone()).await? else {
                return Ok(offer);
            };
            empty_pages = if page.tools.is_empty() {
                empty_pages + 1
            } else {
                0
            };
            if empty_pages > MAX_EMPTY_PAGES {
                break;
            }
            for tool in page.tools {
                let bytes = json!(tool).to_string().len();
                let Some(rest) = bytes_left.checked_sub(bytes) else {
                    offer.is_cut = true;
                    return Ok(offer);
                };
                bytes_left = rest;
                offer.tools.push(tool);
            }
            match page.next_cursor.filter(|next| !next.is_empty()) {
                None => return Ok(offer),
                Some(next) => {
                    // Cursors are kept, and the server decides on their length.
                    let rest = bytes_left.checked_sub(next.len());
                    let (Some(rest), true) = (rest, seen.insert(next.clone())) else {
                        // The list is too long, or the cursor came before: the list would never end.
                        break;
                    };
                    bytes_left = rest;
                    cursor = Some(next);
                }
            }
        }
        offer.is_cut = true;
        Ok(offer)
    }

    /// One page of tools; `None` from a server that has other features and no tools.
    async fn tool_page(
        &self,
        cursor: Option<String>,
    ) -> Result<Option<ListToolsResult>, SessionError> {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let listed = self.peer().list_tools(Some(page)).await;
        match listed.map_err(|error| self.failure(error)) {
            Ok(page) => Ok(Some(page)),
            // A server that does not declare tools need not know the request (MCP, tools).
            Err(SessionError::Refused { code, .. })
                if code == ErrorCode::METHOD_NOT_FOUND.0 && self.has_only_other_features() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the server declares resources or prompts, and no tools.
    fn has_only_other_features(&self) -> bool {
        let info = self.peer().peer_info();
        info.is_some_and(|info| {
            let declared = &info.capabilities;
            let has_others = declared.resources.is_some() || declared.prompts.is_some();
            declared.tools.is_none() && has_others
        })
    }

    /// Reads a resource of the server. Dropping the future sends a cancellation to the server.
    pub(crate) async fn read(&self, uri: &str) -> Result<Vec<ResourceContents>, SessionError> {
        let params = ReadResourceRequestParams::new(uri);
        let read = self.service.peer().read_resource_once(params).await;
        match read.map_err(|error| self.failure(error))? {
            ReadResourceResponse::Complete(result) => Ok(result.contents),
            // The server requests input. The resource belongs to a result that exists already, so no user is asked.
            _ => Err(SessionError::Malformed("its response is not a resource")),
        }
    }

    /// One page of resources, with the templates on the first.
    pub(crate) async fn resources(&self, cursor: Option<String>) -> Result<Value, SessionError> {
        let is_first = cursor.is_none();
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let listed = self.peer().list_resources(Some(page)).await;
        let listed = listed.map_err(|error| self.failure(error))?;
        let templates = if is_first {
            self.templates().await
        } else {
            None
        };
        let mut page_json =
            json!({"resources": listed.resources, "next_cursor": listed.next_cursor});
        if let (Some(templates), Some(members)) = (templates, page_json.as_object_mut()) {
            members.insert("templates".to_owned(), json!(templates));
        }
        Ok(page_json)
    }

    /// The templates of resources, of at most [`MAX_TEMPLATE_PAGES`] pages; `None` without any.
    async fn templates(&self) -> Option<Vec<ResourceTemplate>> {
        let mut templates = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_TEMPLATE_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            // Servers may have none, and report that with an error.
            let Ok(listed) = self.peer().list_resource_templates(Some(page)).await else {
                break;
            };
            templates.extend(listed.resource_templates);
            cursor = listed.next_cursor.filter(|next| !next.is_empty());
            if cursor.is_none() {
                break;
            }
        }
        (!templates.is_empty()).then_some(templates)
    }

    /// One page of prompts.
    pub(crate) async fn prompts(&self, cursor: Option<String>) -> Result<Value, SessionError> {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let listed = self.peer().list_prompts(Some(page)).await;
        let listed = listed.map_err(|error| self.failure(error))?;
        Ok(json!({"prompts": listed.prompts, "next_cursor": listed.next_cursor}))
    }

    /// The messages of a prompt, each with its role before it.
    pub(crate) async fn prompt(
        &self,
        name: &str,
        arguments: JsonObject,
    ) -> Result<Vec<ContentBlock>, SessionError> {
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = Some(arguments);
        let prompt = self.peer().get_prompt_once(params).await;
        let GetPromptResponse::Complete(prompt) = prompt.map_err(|error| self.failure(error))?
        else {
            return Err(SessionError::Malformed(
                "it requests input before it returns a prompt",
            ));
        };
        let messages = prompt.messages.into_iter().flat_map(|message| {
            // A tool result has no roles, and without them the model cannot distinguish question and answer.
            let role = format!("{}:", json!(message.role).as_str().unwrap_or_default());
            [ContentBlock::text(role), message.content]
        });
        Ok(messages.collect())
    }
}

/// Subscribes to changes of tools at a server of 2026-07-28, which reports them only to subscribers.
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
