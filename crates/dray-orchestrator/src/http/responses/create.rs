//! `POST /v1/responses`.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::driver::{Listener, ResponseDriver};
use super::items::read_items;
use super::recorder::EventRecorder;
use super::references::resolve_references;
use super::request::{ResponseRequest, at_place, read_response_request};
use super::writer::ResponseWriter;
use crate::http::contract::{ApprovalForm, ChatRequest, CheckedChatRequest, ManifestSource};
use crate::http::permit::ChatPermit;
use crate::http::response_headers::RequestId;
use crate::http::routes::HttpSurface;
use crate::http::run::AnswerRun;
use crate::http::trace::trace_of;
use crate::http::{credentials, models, plain_request, reply};
use crate::permissions::CallerIdentity;
use crate::progress::{ConnectedRun, ResponseRun};
use crate::records::random_id;
use crate::responses::{
    BackgroundRun, History, NewResponse, ResponseDocument, RunningResponse, StoredRequest,
};
use crate::turn::checkpoint_messages;

/// Number of writes that may wait for a slow client.
const MAX_WAITING_WRITES: usize = 16;
/// Type of the items that list the tools of an MCP server.
const LIST_ITEM: &str = "mcp_list_tools";

/// Answers a request.
pub(in crate::http) async fn create_response(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
) -> Response {
    let response = Box::pin(create(surface, request)).await;
    response.unwrap_or_else(|failure| reply::failure_response(&failure))
}

/// A request whose caller is known and whose body was read.
pub(super) struct AcceptedRequest {
    pub(super) caller: Caller,
    pub(super) identity: CallerIdentity,
    /// The agent that the headers name, if they name one.
    pub(super) named: Option<ManifestSource>,
    /// Owner of the records of this caller.
    pub(super) principal: String,
    pub(super) request: ResponseRequest,
    /// One of the concurrent turns with the memory of its request, held until it is dropped.
    pub(super) permit: ChatPermit,
}

/// Checks and reads in the order of chat completions: key, permit, body.
pub(super) async fn accept_request(
    surface: &HttpSurface,
    headers: &HeaderMap,
    body: Body,
) -> Result<AcceptedRequest, RequestFailure> {
    let options = &surface.options;
    let (caller, identity) = options.plain_caller(headers)?;
    let named = credentials::manifest_source(headers)?;
    let mut permit = surface.chat_permit().await?;
    let (mut body, memory) = surface.read_json(headers, body, options.max_body).await?;
    permit.hold_body(memory);
    let principal = identity.key();
    let responses = &surface.state.responses;
    resolve_references(
        responses,
        &principal,
        &mut body,
        options.max_body,
        &mut permit,
    )
    .await?;
    Ok(AcceptedRequest {
        caller,
        identity,
        named,
        principal,
        request: read_response_request(body)?,
        permit,
    })
}

async fn create(surface: Arc<HttpSurface>, request: Request) -> Result<Response, RequestFailure> {
    let (mut head, body) = request.into_parts();
    let request_id = head.extensions.remove::<RequestId>();
    let RequestId(request_id) = request_id.unwrap_or_else(RequestId::random);
    let AcceptedRequest {
        caller,
        identity,
        named,
        principal,
        mut request,
        permit,
    } = accept_request(&surface, &head.headers, body).await?;
    let manifest = match named {
        Some(manifest) => manifest,
        None if !surface.offers(&identity, &request.model) => {
            return Err(models::unknown_model_failure(&request.model));
        }
        None => ManifestSource::Named(request.model.clone()),
    };
    let history = history(&surface, &principal, &request).await?;
    let id = random_id("resp_");
    let is_named = matches!(&manifest, ManifestSource::Named(_));
    let run = surface.options.background_run(&caller, &identity);
    let takeover_data = TakeoverData::new(&request, run, is_named);
    let (mut chat, places) = chat_request(&mut request, &history, None, surface.options.dial)?;
    chat.background = takeover_data.stored.is_some().then(|| ResponseRun {
        id: id.clone(),
        takeovers: 0,
        connected: takeover_data.connected.clone(),
    });
    let checked_request = CheckedChatRequest {
        request: chat,
        caller,
        identity,
        manifest,
        deployment: request.model.clone(),
        is_dial: false,
        request_id,
        trace: trace_of(&head.headers),
    };
    let begin = BeginningResponse {
        id,
        principal,
        takeover_data,
        history,
        places,
        request,
    };
    // The permit is held until the response ends, even where its client does not wait for it.
    let run = AnswerRun::begin(Arc::clone(&surface.agent), checked_request, permit);
    begin.run(surface, run).await
}

pub(super) async fn history(
    surface: &HttpSurface,
    principal: &str,
    request: &ResponseRequest,
) -> Result<History, RequestFailure> {
    let responses = &surface.state.responses;
    match (&request.previous, &request.conversation) {
        (Some(previous), _) => responses.history_after(principal, previous).await,
        (None, Some(conversation)) => {
            let history = responses.conversation_history(principal, conversation);
            history.await.map_err(|mut failure| {
                failure.param = Some("conversation".into());
                failure
            })
        }
        (None, None) => Ok(History::default()),
    }
}

/// The request of chat completions, and the input item of each of its messages.
pub(super) fn chat_request(
    request: &mut ResponseRequest,
    history: &History,
    checkpoint: Option<&str>,
    has_dial: bool,
) -> Result<(ChatRequest, Vec<Option<usize>>), RequestFailure> {
    request.input.leave_out_known_items(history)?;
    let (mut messages, mut places) = (Vec::new(), Vec::new());
    let items = request.input.items.iter();
    let was_listed = items
        .filter_map(|item| item.get("type"))
        .any(|kind| kind == LIST_ITEM);
    let begins = history.documents.is_empty() && checkpoint.is_none() && !was_listed;
    if let Some(instructions) = &request.instructions {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    for document in &history.documents {
        let earlier = read_items(document.input.clone())?;
        messages.extend(earlier.messages.into_iter().map(|input| input.message));
        messages.extend(document.answer.clone());
    }
    places.resize(messages.len(), None);
    for one in std::mem::take(&mut request.input.messages) {
        messages.push(one.message);
        places.push(Some(one.item));
    }
    if let Some(token) = checkpoint {
        messages.extend(checkpoint_messages(token));
        places.extend([None, None]);
    }
    let mut body = std::mem::take(&mut request.chat);
    body.insert("model".to_owned(), json!(request.model));
    body.insert("messages".to_owned(), Value::Array(messages));
    let read = plain_request::read_plain_request(Value::Object(body), has_dial);
    let mut chat = read.map_err(|failure| at_place(failure, &places))?;
    // A response always reports its tokens.
    chat.include_usage = true;
    chat.stream = request.streams;
    chat.cites_files = true;
    chat.shows_mcp_calls = true;
    chat.lists_mcp_tools = begins;
    chat.approval_form = ApprovalForm::Items;
    Ok((chat, places))
}

/// What another replica needs to finish a response.
#[derive(Default)]
struct TakeoverData {
    /// The request.
    stored: Option<StoredRequest>,
    /// The record by which another replica finds a response in the background.
    background: Option<BackgroundRun>,
    /// The same for a response whose client is connected, which is recorded when it asks a chat.
    connected: Option<Arc<ConnectedRun>>,
}

impl TakeoverData {
    /// The data that a takeover of this request needs. `is_named` is whether the agent is a local manifest; a
    /// manifest from headers is not stored.
    ///
    /// Of responses in the foreground, only streams that are stored can be finished by another replica. Their clients
    /// know the id before any tool is called, and no package repeats a request whose stream has begun. The client of
    /// another request cannot ask for the result, and its package sends the request again when the connection breaks.
    fn new(request: &ResponseRequest, mut run: BackgroundRun, is_named: bool) -> Self {
        let is_connected = request.streams && request.is_stored && is_named;
        if !request.runs_in_background && !is_connected {
            return Self::default();
        }
        run.needs_client |= !is_named;
        let stored = is_named.then(|| StoredRequest {
            chat: request.chat.clone(),
            instructions: request.instructions.clone(),
            model: request.model.clone(),
        });
        let (background, connected) = if request.runs_in_background {
            (Some(run), None)
        } else {
            (None, Some(Arc::new(ConnectedRun::new(run))))
        };
        Self {
            stored,
            background,
            connected,
        }
    }
}

/// A response whose turn has begun.
struct BeginningResponse {
    id: String,
    principal: String,
    takeover_data: TakeoverData,
    history: History,
    places: Vec<Option<usize>>,
    request: ResponseRequest,
}

impl BeginningResponse {
    async fn run(
        mut self,
        surface: Arc<HttpSurface>,
        mut run: AnswerRun,
    ) -> Result<Response, RequestFailure> {
        let created = surface.now_seconds();
        let echo = std::mem::take(&mut self.request.echo);
        let mut writer = ResponseWriter::new(&self.id, created, echo, surface.clock.clone());
        let input = std::mem::take(&mut self.request.input.items);
        writer.note_input(&input);
        let document = ResponseDocument {
            response: Some(writer.response("in_progress")),
            input: input.clone(),
            answer: None,
            request: self.takeover_data.stored.take(),
        };
        let (streams, in_background) = (self.request.streams, self.request.runs_in_background);
        let keep = self.keep(&surface, &document);
        let (head, running) = if in_background {
            // The client of a background response does not wait for the first event.
            (Ok(Vec::new()), keep.await)
        } else {
            // Storing the response must not delay the first token.
            tokio::join!(run.head(), keep)
        };
        let recorder = if streams && in_background && running.is_ok() {
            Some(self.begin_events(&surface).await?)
        } else {
            None
        };
        writer.start(in_background);
        let mut driver = ResponseDriver {
            id: self.id,
            run,
            writer,
            running: running?,
            recorder,
            unrecorded: None,
            input,
            places: self.places,
            drain: surface.options.drain,
            stop: surface.stop.clone(),
        };
        match head {
            Ok(events) => driver.take_head(events),
            Err(failure) => {
                driver.abandon(&failure).await;
                return Err(at_place(failure, &driver.places));
            }
        }
        spawn_driver(&surface, driver, streams, in_background).await
    }

    /// Keeps the response, unless its client does not want that.
    async fn keep(
        &mut self,
        surface: &HttpSurface,
        document: &ResponseDocument,
    ) -> Result<Option<RunningResponse>, RequestFailure> {
        let request = &self.request;
        if !request.is_stored {
            return Ok(None);
        }
        let new = NewResponse {
            principal: &self.principal,
            id: &self.id,
            in_background: request.runs_in_background,
            connected: self.takeover_data.connected.take(),
            has_events: request.runs_in_background && request.streams,
            conversation: request.conversation.clone(),
            history: std::mem::take(&mut self.history),
        };
        let responses = &surface.state.responses;
        let begun = responses.begin(new, document).await?;
        if let Some(run) = &self.takeover_data.background {
            // The run is noted after the response is stored, because a run without a response is forgotten.
            responses.note_run(&self.id, run).await?;
        }
        Ok(Some(begun))
    }

    /// Begins the log of its events, so that its stream can be resumed.
    async fn begin_events(&self, surface: &HttpSurface) -> Result<EventRecorder, RequestFailure> {
        let responses = &surface.state.responses;
        let log = responses.begin_events(&self.principal, &self.id).await?;
        Ok(surface.running.recorder(log))
    }
}

/// Runs the response on a separate task, and responds in the way that the client wants.
async fn spawn_driver(
    surface: &HttpSurface,
    driver: ResponseDriver,
    streams: bool,
    in_background: bool,
) -> Result<Response, RequestFailure> {
    if streams {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_WRITES);
        let listener = Listener::Stream {
            sender,
            heartbeat: surface.options.heartbeat,
            may_leave: in_background,
        };
        surface.running.spawn(driver, listener);
        return Ok(stream_response(receiver));
    }
    if in_background {
        let queued = driver.writer.response("queued");
        surface.running.spawn(driver, Listener::Detached);
        return Ok(reply::json_response(StatusCode::OK, &queued));
    }
    let (sender, mut receiver) = mpsc::channel(1);
    surface.running.spawn(driver, Listener::Whole(sender));
    // The channel closes without a value only when the service ends. It is not known then what the response has done.
    let ended = receiver.recv().await;
    let response = ended.ok_or_else(|| RequestFailure::unexpected().without_retry())??;
    Ok(reply::json_response(StatusCode::OK, &response))
}

fn stream_response(receiver: mpsc::Receiver<Bytes>) -> Response {
    let events = stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(bytes), receiver))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
