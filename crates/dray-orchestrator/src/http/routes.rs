//! The routes of the HTTP interface, and the state that their handlers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_agent::layer::LayerSet;
use dray_agent::starters;
use dray_agent::wire::ChunkWriter;
use dray_http_server::ByteLimit;
use dray_types::{ByteSize, Clock, Secret, TenantId};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::client_state::{BackgroundTasks, ClientState, client_state_routes};
use super::contract::{Agent, CheckedChatRequest, ManifestSource};
use super::credentials::VerifiedCredentials;
use super::current::CurrentSurface;
use super::permit::ChatPermit;
use super::reply::ReplyOptions;
use super::response_headers::{RequestId, add_plain_headers, add_request_id};
use super::responses::RunningResponses;
use super::run::AnswerRun;
use super::trace::{trace_of, trace_request};
use super::upload_places::{UploadPlace, UploadPlaces};
use super::{credentials, models, plain_request, reply, request, support};
use crate::config::permissions::Permissions;
use crate::manifests::ManifestDirectory;
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerIdentity;

/// The operator's settings of the HTTP surface.
#[derive(Clone, Debug)]
pub struct SurfaceOptions {
    /// Names of the deployment in paths.
    pub deployments: Vec<String>,
    /// Keys of clients, by name.
    pub clients: BTreeMap<String, Secret>,
    /// The permissions of callers.
    pub permissions: Permissions,
    /// Names of headers that tools get.
    pub forward_headers: Vec<String>,
    /// Names under which a listener without keys may be called, beside those of this machine.
    pub hosts: Vec<String>,
    /// The tenant of the service.
    pub tenant: TenantId,
    /// Whether the listener can be reached only from this machine.
    pub loopback: bool,
    /// Whether there is a DIAL Core, which checks keys itself.
    pub dial: bool,
    /// Header with the language of texts for the user, in lower case.
    pub language_header: String,
    /// Most bytes of a body.
    pub max_body: ByteSize,
    /// Longest time in which a body must arrive.
    pub body_timeout: Duration,
    /// Most bytes of the bodies of all requests together.
    pub max_body_total: ByteSize,
    /// Most chats that run concurrently.
    pub max_chats: usize,
    /// How long a chat beyond `max_chats`, or a body beyond `max_body_total`, waits for others to end.
    pub chat_wait: Duration,
    /// Names of prompts and the models they are for.
    pub prompt_mapping: BTreeMap<String, Vec<String>>,
    /// The schema of manifests for editors.
    pub schema: Value,
    /// The application type of DIAL, without the addresses of this service.
    pub application_type: Value,
    /// Origins whose pages may call the plain endpoints, such as `https://chat.example.org`.
    pub cors_origins: Vec<String>,
    /// How long a stream of the plain endpoint is silent before a comment keeps it open.
    pub heartbeat: Duration,
    /// Time between two reads of the events of a response by a resumed stream, in case notices of the bus are lost.
    pub poll_interval: Duration,
    /// Most bytes of one file of `/v1/files`.
    pub max_upload: ByteSize,
    /// How long responses may continue when the service ends.
    pub drain: Duration,
}

/// The parts of a surface that follow from the settings alone, and change with them.
pub struct SurfaceParts {
    /// The agent behind the surface.
    pub agent: Arc<dyn Agent>,
    /// Local manifests.
    pub manifests: Arc<ManifestDirectory>,
    /// Templates for editors.
    pub layers: Arc<LayerSet>,
    /// The operator's settings.
    pub options: SurfaceOptions,
}

impl std::fmt::Debug for SurfaceParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SurfaceParts")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The state that handlers share.
pub struct HttpSurface {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) state: ClientState,
    pub(super) running: RunningResponses,
    pub(super) stop: CancellationToken,
    pub(super) metrics: OrchestratorMetrics,
    pub(super) manifests: Arc<ManifestDirectory>,
    pub(super) layers: Arc<LayerSet>,
    pub(super) options: SurfaceOptions,
    pub(super) clock: Clock,
    /// Memory for the bodies of requests.
    pub(super) body_memory: ByteLimit,
    chats: Arc<Semaphore>,
    uploads: Arc<UploadPlaces>,
    resumed_streams: Arc<Semaphore>,
}

impl std::fmt::Debug for HttpSurface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSurface")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The API of a chat request.
enum ApiStyle {
    /// DIAL's and Azure's: the deployment is in the path.
    Dial(String),
    /// `OpenAI`'s: the model is in the body.
    Plain,
}

impl HttpSurface {
    /// A surface with these settings and state.
    pub fn new(
        parts: SurfaceParts,
        state: ClientState,
        background: BackgroundTasks,
        clock: Clock,
    ) -> Self {
        let max_chats = parts.options.max_chats;
        Self {
            body_memory: ByteLimit::new(parts.options.max_body_total.as_u64()),
            resumed_streams: Arc::new(Semaphore::new(max_chats)),
            uploads: Arc::default(),
            chats: Arc::new(Semaphore::new(max_chats)),
            agent: parts.agent,
            state,
            running: RunningResponses::new(background.tasks),
            stop: background.stop,
            metrics: background.metrics,
            manifests: parts.manifests,
            layers: parts.layers,
            options: parts.options,
            clock,
        }
    }

    /// A surface with other settings, and the same state, running responses and limits of concurrent requests.
    pub(super) fn changed(&self, parts: SurfaceParts) -> Self {
        Self {
            body_memory: self.body_memory.clone(),
            resumed_streams: Arc::clone(&self.resumed_streams),
            uploads: Arc::clone(&self.uploads),
            chats: Arc::clone(&self.chats),
            agent: parts.agent,
            state: self.state.clone(),
            running: self.running.clone(),
            stop: self.stop.clone(),
            metrics: self.metrics.clone(),
            manifests: parts.manifests,
            layers: parts.layers,
            options: parts.options,
            clock: self.clock.clone(),
        }
    }

    async fn chat(&self, style: ApiStyle, request: Request) -> Result<Response, RequestFailure> {
        let (mut head, body) = request.into_parts();
        let request_id = head.extensions.remove::<RequestId>();
        let RequestId(request_id) = request_id.unwrap_or_else(RequestId::random);
        let headers = head.headers;
        // Keys are checked before the body is read, so that callers without one cost no memory.
        let credentials = self.credentials(&style, &headers)?;
        let header_manifest = credentials::manifest_source(&headers)?;
        let mut permit = self.chat_permit().await?;
        // The credentials are checked after the permit was taken, so that the number of concurrent checks at DIAL Core
        // is limited as well.
        let (caller, identity) = self.verified(credentials).await?;
        let options = &self.options;
        let (body, memory) = self.read_json(&headers, body, options.max_body).await?;
        permit.hold_body(memory);
        let (deployment, model) = match style {
            ApiStyle::Dial(name) => (name, None),
            ApiStyle::Plain => {
                let model = body
                    .get("model")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                (model.to_owned(), Some(model.to_owned()))
            }
        };
        let request = match &model {
            Some(_) => plain_request::read_plain_request(body, options.dial)?,
            None => request::read_request(&deployment, body)?,
        };
        let manifest = match (header_manifest, &model) {
            (Some(manifest), _) => manifest,
            (None, Some(model)) if !self.offers(&identity, model) => {
                return Err(models::unknown_model_failure(model));
            }
            // `local_manifest_source` is not called, because it would look for the file a second time, which costs a
            // system call.
            (None, Some(model)) => ManifestSource::Named(model.clone()),
            (None, None) => self.local_manifest_source(&deployment),
        };
        let streams = request.stream;
        let is_plain = model.is_some();
        let reply_options = ReplyOptions {
            is_plain,
            usage_in_own_chunk: is_plain && request.include_usage,
            heartbeat: is_plain.then_some(self.options.heartbeat),
        };
        let checked = CheckedChatRequest {
            request,
            caller,
            identity,
            manifest,
            deployment,
            is_dial: model.is_none(),
            request_id,
            trace: trace_of(&headers),
        };
        // The permit is held until the whole answer is streamed.
        let run = AnswerRun::begin(Arc::clone(&self.agent), checked, permit);
        let writer = self.chunk_writer(model);
        if streams {
            reply::streamed_response(run, writer, reply_options).await
        } else {
            reply::whole_response(run, writer, reply_options).await
        }
    }

    fn credentials(
        &self,
        style: &ApiStyle,
        headers: &HeaderMap,
    ) -> Result<VerifiedCredentials, RequestFailure> {
        match style {
            ApiStyle::Dial(name) => {
                self.check_deployment(name)?;
                self.options.dial_caller(headers)
            }
            ApiStyle::Plain => {
                let (caller, identity) = self.options.plain_caller(headers)?;
                let identity = Some(identity);
                Ok(VerifiedCredentials { caller, identity })
            }
        }
    }

    /// Now, in Unix seconds.
    pub(super) fn now_seconds(&self) -> u64 {
        self.clock.now_ms() / 1000
    }

    /// The writer of the chunks of one answer. `model` is the model of a plain request.
    fn chunk_writer(&self, model: Option<String>) -> ChunkWriter {
        let created = self.now_seconds();
        match model {
            Some(model) => {
                let id = format!("chatcmpl-{}", Uuid::new_v4().simple());
                ChunkWriter::new(id, created, Some(model)).plain()
            }
            None => ChunkWriter::new(Uuid::new_v4().to_string(), created, None),
        }
    }

    /// Identifies the caller. A key of DIAL is verified before anything is read or done for its caller.
    async fn verified(
        &self,
        credentials: VerifiedCredentials,
    ) -> Result<(Caller, CallerIdentity), RequestFailure> {
        let VerifiedCredentials { caller, identity } = credentials;
        let identity = match identity {
            Some(identity) => identity,
            None => self.agent.verify(&caller).await?,
        };
        Ok((caller, identity))
    }

    /// Whether there is a local manifest of this name for this caller.
    pub(super) fn offers(&self, identity: &CallerIdentity, name: &str) -> bool {
        self.options.permissions.of(identity).allows_agent(name) && self.manifests.has(name)
    }

    /// Waits for a permit to run a chat. Bodies are read after it, so a waiting request holds only its connection.
    pub(super) async fn chat_permit(&self) -> Result<ChatPermit, RequestFailure> {
        let chat_permit = Arc::clone(&self.chats).acquire_owned();
        match tokio::time::timeout(self.options.chat_wait, chat_permit).await {
            Ok(Ok(permit)) => Ok(ChatPermit::new(permit)),
            // The semaphore is never closed, so only the timeout leads here.
            _ => Err(RequestFailure::new(503, "Too many concurrent chats")
                .display("The service is busy. Please try again later.")),
        }
    }

    /// A permit for one resumed stream of a response. There are as many as chats.
    pub(super) fn stream_permit(&self) -> Result<OwnedSemaphorePermit, RequestFailure> {
        let permit = Arc::clone(&self.resumed_streams).try_acquire_owned();
        permit.map_err(|_| RequestFailure::new(503, "Too many concurrent streams of responses"))
    }

    /// Waits until another upload of this caller may begin.
    pub(super) async fn upload_place(&self, caller: &str) -> Result<UploadPlace, RequestFailure> {
        let place = self.uploads.acquire(caller);
        match tokio::time::timeout(self.options.chat_wait, place).await {
            Ok(Some(place)) => Ok(place),
            _ => Err(RequestFailure::new(503, "Too many concurrent uploads")
                .display("The service is busy. Please try again later.")),
        }
    }

    /// The caller of a plain request, as records of clients name it.
    pub(super) fn principal(&self, headers: &HeaderMap) -> Result<String, RequestFailure> {
        let (_, identity) = self.options.plain_caller(headers)?;
        Ok(identity.key())
    }

    /// Fails with 404 for a name that is neither a deployment nor a local manifest.
    fn check_deployment(&self, name: &str) -> Result<(), RequestFailure> {
        let deployments = &self.options.deployments;
        if deployments.iter().any(|known| known == name) || self.manifests.has(name) {
            return Ok(());
        }
        let mut failure =
            RequestFailure::new(404, "The API deployment for this resource does not exist");
        failure.code = Some("DeploymentNotFound".to_owned());
        Err(failure)
    }

    /// The manifest of a request whose headers name none.
    fn local_manifest_source(&self, name: &str) -> ManifestSource {
        if self.manifests.has(name) {
            ManifestSource::Named(name.to_owned())
        } else {
            ManifestSource::Default
        }
    }

    async fn starters(&self, name: &str, headers: &HeaderMap) -> Result<Value, RequestFailure> {
        self.check_deployment(name)?;
        let credentials = self.options.dial_caller(headers)?;
        let (caller, identity) = self.verified(credentials).await?;
        let source = credentials::manifest_source(headers)?
            .unwrap_or_else(|| self.local_manifest_source(name));
        let manifest = self.agent.manifest(&caller, &identity, &source).await?;
        Ok(starters::starters_configuration(&manifest))
    }
}

impl CurrentSurface {
    /// Routes of DIAL, of `OpenAI` and of editors. Limits of bodies are those of [`SurfaceOptions`].
    pub fn router(&self) -> Router {
        let deployment = Router::new()
            .route("/chat/completions", post(deployment_chat))
            .route("/configuration", get(get_configuration))
            .route("/rate", post(post_rate));
        let headers = middleware::from_fn_with_state(self.clone(), add_plain_headers);
        let plain = Router::new()
            .route("/v1/chat/completions", post(plain_chat))
            .route("/v1/models", get(models::list_models))
            .route("/v1/models/{name}", get(models::get_model))
            .merge(client_state_routes())
            // Pages of listed origins can read that a path does not exist: the fallback below has no headers of CORS.
            .route("/v1/{*rest}", any(not_found))
            // The fallback is set before the layer, so that the layer handles preflights, which would otherwise get
            // 405.
            .method_not_allowed_fallback(method_not_allowed)
            .layer(headers);
        Router::new()
            .nest("/openai/deployments/{deployment}", deployment)
            .nest("/v1/configuration-support", support::support_routes(self))
            .route("/health", get(get_health))
            .merge(plain)
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            // `read_json` counts the bytes itself.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn(trace_request))
            .layer(middleware::from_fn(add_request_id))
            .with_state(self.clone())
    }
}

async fn deployment_chat(
    State(surface): State<Arc<HttpSurface>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let answer = surface.chat(ApiStyle::Dial(name), request).await;
    answer.unwrap_or_else(|failure| reply::failure_response(&failure))
}

async fn plain_chat(State(surface): State<Arc<HttpSurface>>, request: Request) -> Response {
    let answer = surface.chat(ApiStyle::Plain, request).await;
    answer.unwrap_or_else(|failure| reply::failure_response(&failure))
}

async fn get_configuration(
    State(surface): State<Arc<HttpSurface>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match surface.starters(&name, &headers).await {
        Ok(schema) => reply::json_response(StatusCode::OK, &schema),
        Err(failure) => reply::failure_response(&failure),
    }
}

async fn post_rate(State(surface): State<Arc<HttpSurface>>, Path(name): Path<String>) -> Response {
    match surface.check_deployment(&name) {
        // DIAL sends ratings to every deployment (quickapps 2). This service does not store them.
        Ok(()) => StatusCode::OK.into_response(),
        Err(failure) => reply::failure_response(&failure),
    }
}

async fn get_health() -> Response {
    reply::json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn not_found() -> Response {
    reply::failure_response(&RequestFailure::new(404, "This path does not exist"))
}

async fn method_not_allowed() -> Response {
    reply::failure_response(&RequestFailure::new(
        405,
        "The method is not allowed at this path",
    ))
}
