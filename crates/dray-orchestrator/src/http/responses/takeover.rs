//! Finishes a response whose process has ended from its last checkpoint, when its client polls it at this replica, or
//! when no client polled it for the time of a lease. The turn uses the credentials of the poll, which is of the same
//! caller; no credentials are stored.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_types::{Clock, TraceContext};
use serde_json::{Map, Value};

use super::create::chat_request;
use super::driver::{Listener, ResponseDriver};
use super::recorder::EventRecorder;
use super::request::ResponseRequest;
use super::writer::ResponseWriter;
use crate::http::contract::{CheckedChatRequest, ManifestSource};
use crate::http::permit::ChatPermit;
use crate::http::response_headers::RequestId;
use crate::http::routes::HttpSurface;
use crate::http::run::AnswerRun;
use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;
use crate::responses::TakenResponse;

/// Members that a response has by itself; the others repeat its request.
const OWN_MEMBERS: [&str; 9] = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "error",
    "incomplete_details",
    "output",
    "usage",
];

/// The caller of a response, for whom it is finished.
#[derive(Clone, Debug)]
pub(super) struct ResponseCaller {
    pub(super) caller: Caller,
    pub(super) identity: CallerIdentity,
    /// Owner of the records of this caller.
    pub(super) principal: String,
}

/// What a replica can do about a response whose process may have ended.
pub(super) enum Abandonment {
    /// Nothing: its process runs, or the response has ended.
    None,
    /// Report it: it has no checkpoint, or was taken over too often.
    Lost,
    /// Finish it from its checkpoint.
    Finishable,
}

impl Abandonment {
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(super) async fn of(
        surface: &HttpSurface,
        principal: &str,
        id: &str,
    ) -> Result<Self, RequestFailure> {
        let state = &surface.state;
        Ok(match state.responses.is_abandoned(principal, id).await? {
            None => Self::None,
            Some(false) => Self::Lost,
            Some(true) => {
                let checkpoint = state.progress.checkpoint(principal, id).await?;
                checkpoint.map_or(Self::Lost, |_| Self::Finishable)
            }
        })
    }
}

/// Finishes a response whose process has ended, if it has a checkpoint. Returns whether it has to be reported instead.
///
/// # Errors
///
/// 503 while the store or the bus fails, or this replica has no room for another turn.
pub(super) async fn finish_abandoned(
    surface: &Arc<HttpSurface>,
    caller: ResponseCaller,
    id: &str,
) -> Result<bool, RequestFailure> {
    match Abandonment::of(surface, &caller.principal, id).await? {
        Abandonment::None => return Ok(false),
        Abandonment::Lost => return Ok(true),
        Abandonment::Finishable => {}
    }
    // The permit is acquired before the response is taken over: a replica that is busy leaves it to another one.
    let takeover = Takeover {
        permit: surface.chat_permit().await?,
        surface: Arc::clone(surface),
        caller,
        id: id.to_owned(),
    };
    // A separate task, because this future is dropped when the client leaves, and a takeover must not stop halfway.
    let begun = surface.running.spawn_task(takeover.begin());
    begun
        .await
        .unwrap_or_else(|_| Err(RequestFailure::unexpected()))
}

/// The takeover of a response by this process.
struct Takeover {
    surface: Arc<HttpSurface>,
    caller: ResponseCaller,
    id: String,
    /// One of the concurrent turns.
    permit: ChatPermit,
}

impl Takeover {
    /// Takes the response over, and finishes it in another task. Returns whether it has to be reported instead.
    async fn begin(self) -> Result<bool, RequestFailure> {
        let responses = &self.surface.state.responses;
        let mut taken = match responses.take_over(&self.caller.principal, &self.id).await {
            Ok(Some(taken)) => taken,
            // Another replica took it over first.
            Ok(None) => return Ok(false),
            Err(failure) if failure.status < 500 => {
                tracing::warn!(%failure, response = self.id, "a response cannot be taken over");
                return Ok(true);
            }
            Err(failure) => return Err(failure),
        };
        let Some(checkpoint) = taken.checkpoint.take() else {
            tracing::info!(
                response = self.id,
                "a response has lost its checkpoint, because its process began another call"
            );
            taken.release().await;
            return Ok(true);
        };
        tracing::info!(
            response = self.id,
            "a response of a process that is gone is finished here"
        );
        let surface = Arc::clone(&self.surface);
        surface.running.spawn_task(self.finish(taken, checkpoint));
        Ok(false)
    }

    /// Reads the events of the response, which may take long, and continues its turn.
    async fn finish(self, mut taken: TakenResponse, checkpoint: String) {
        let Self {
            surface,
            caller,
            id,
            permit,
        } = self;
        let mut writer = resumed_writer(&id, &taken, surface.clock.clone());
        let principal = caller.principal.clone();
        let resumed = resumed_recorder(&surface, &principal, &id, &mut writer);
        let Ok(recorder) = Box::pin(taken.running.renew_during(resumed)).await else {
            tracing::info!(
                response = id,
                "a response was ended while it was taken over"
            );
            return;
        };
        match asked_again(&surface, caller, &id, &mut taken, &checkpoint) {
            Ok((asked, places)) => {
                let driver = ResponseDriver {
                    id,
                    run: AnswerRun::begin(Arc::clone(&surface.agent), asked, permit),
                    writer,
                    running: Some(taken.running),
                    recorder,
                    unrecorded: None,
                    input: taken.document.input,
                    places,
                    drain: surface.options.drain,
                    stop: surface.stop.clone(),
                };
                surface.running.spawn(driver, Listener::Detached);
            }
            Err(failure) => {
                tracing::warn!(%failure, response = id, "a response cannot be finished here");
                // The response stays in progress until its lease ends, and is then reported.
            }
        }
    }
}

/// Continues the events of a response that was taken over, if it has any.
async fn resumed_recorder(
    surface: &HttpSurface,
    principal: &str,
    id: &str,
    writer: &mut ResponseWriter,
) -> Option<EventRecorder> {
    match surface.state.responses.resume_events(principal, id).await {
        Ok(resumed) => {
            let (log, events) = resumed?;
            writer.resume(&events, log.next());
            Some(surface.running.recorder(log))
        }
        Err(failure) => {
            // The stream of the response ends with its last event.
            tracing::warn!(%failure, response = id, "events of a response cannot be continued");
            None
        }
    }
}

fn resumed_writer(id: &str, taken: &TakenResponse, clock: Clock) -> ResponseWriter {
    let mut echo = match &taken.document.response {
        Some(Value::Object(members)) => members.clone(),
        _ => Map::new(),
    };
    echo.retain(|name, _| !OWN_MEMBERS.contains(&name.as_str()));
    let mut writer = ResponseWriter::new(id, taken.created, echo, clock);
    writer.note_input(&taken.document.input);
    writer
}

/// The request of the response, with its checkpoint at the end.
fn asked_again(
    surface: &HttpSurface,
    caller: ResponseCaller,
    id: &str,
    taken: &mut TakenResponse,
    checkpoint: &str,
) -> Result<(CheckedChatRequest, Vec<Option<usize>>), RequestFailure> {
    let ResponseCaller {
        caller, identity, ..
    } = caller;
    let stored = taken.document.request.take().unwrap_or_default();
    let model = stored.model.clone();
    // The caller may have lost the right to use the agent.
    if !surface.offers(&identity, &model) {
        return Err(crate::http::models::unknown_model_failure(&model));
    }
    let mut request = ResponseRequest::resumed(stored, taken.document.input.clone())?;
    let has_dial = surface.options.dial;
    let (mut chat, places) =
        chat_request(&mut request, &taken.history, Some(checkpoint), has_dial)?;
    chat.background = Some(ResponseRun {
        id: id.to_owned(),
        takeovers: taken.takeovers,
        connected: None,
    });
    let RequestId(request_id) = RequestId::random();
    let checked_request = CheckedChatRequest {
        request: chat,
        caller,
        identity,
        manifest: ManifestSource::Named(model.clone()),
        deployment: model,
        is_dial: false,
        request_id,
        trace: TraceContext::default(),
    };
    Ok((checked_request, places))
}
