//! A scripted platform that stores the messages its users see.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dray_media_type::kind::ContentKind;
use dray_platform::{
    ButtonPress, ChatLimits, ConfirmedFile, DeliveryTarget, DuplicateProtection, ErrorKind,
    FilesStep, InboundMessage, OutgoingDelivery, Platform, PlatformError, QuestionChannel,
    RateLimits, ReconcileResult, Route, SendOutcome, SendRequest as Request, SendStep,
    UploadProgress,
};
use futures_util::StreamExt as _;

mod inbox;
mod questions;

use self::inbox::PollEnd;
pub(crate) use self::inbox::UserAttachment;
pub(crate) use self::questions::SeenQuestion;

/// Behaviour of the platform for the message of one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FakeAction {
    /// Shows and confirms it.
    Show,
    /// Refuses it and shows nothing.
    Refuse(ErrorKind),
    /// Refuses it when the test permits it ([`FakePlatform::permit_refusal`]).
    RefuseWhenPermitted(ErrorKind),
    /// Refuses it for this time, as a rate limit does.
    Wait(Duration),
    /// Refuses it, because the chat has this id now.
    MoveTo(&'static str),
    /// Refuses it as larger than this many bytes.
    Limit(u64),
    /// Shows it, but the response is lost.
    LoseResponse,
    /// Loses the request: shows nothing and does not respond.
    LoseRequest,
    /// Responds, but neither shows nor confirms it.
    Unconfirmed,
    /// Shows it, and the process of the sender crashes before the response.
    CrashAfter,
    /// The process of the sender crashes before it is shown.
    CrashBefore,
    /// Shows only this many of its files.
    ShowSome(usize),
    /// Shows it, and confirms it provisionally.
    Accept,
}

/// A message as users see it in its chat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenMessage {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) chat: String,
    pub(crate) route: Route,
    pub(crate) text: String,
    pub(crate) files: Vec<String>,
    pub(crate) bytes: Vec<u8>,
    /// Whether its files were sent by their ids.
    pub(crate) by_id: bool,
}

#[derive(Debug)]
struct FakeState {
    script: VecDeque<FakeAction>,
    seen: Vec<SeenMessage>,
    requests: usize,
    repeated: usize,
    prepared: usize,
    limits: ChatLimits,
    limits_wait: Option<Duration>,
    fallback: Option<Route>,
    prepares: bool,
    ids_keep_names: bool,
    attached: HashMap<String, VecDeque<UserAttachment>>,
    fetches: usize,
    pub(crate) waiting: Vec<InboundMessage>,
    pub(crate) polls: usize,
    questions: Vec<SeenQuestion>,
    question_faults: VecDeque<ErrorKind>,
    hangs_after_question: bool,
    notices: Vec<String>,
    presses: VecDeque<ButtonPress>,
    max_webhook_bytes: usize,
    workspace: Option<String>,
}

/// A platform in memory whose outcomes a test chooses.
#[derive(Debug)]
pub(crate) struct FakePlatform {
    name: &'static str,
    ambiguity: DuplicateProtection,
    state: Mutex<FakeState>,
    crashed: tokio::sync::Notify,
    refusal_arrived: tokio::sync::Notify,
    refusal_permitted: tokio::sync::Notify,
    /// Permits for replies to presses.
    reply_gate: tokio::sync::Semaphore,
    /// The end of a poll that was stopped.
    poll_end: PollEnd,
}

impl FakePlatform {
    pub(crate) fn new() -> Arc<Self> {
        Self::with("fake", DuplicateProtection::Unknown)
    }

    pub(crate) fn with(name: &'static str, ambiguity: DuplicateProtection) -> Arc<Self> {
        Arc::new(Self {
            name,
            ambiguity,
            state: Mutex::new(FakeState {
                script: VecDeque::new(),
                seen: Vec::new(),
                requests: 0,
                repeated: 0,
                prepared: 0,
                limits: ChatLimits {
                    routes: vec![(Route::Photo, 1000)],
                    any: 10_000,
                    caption: 20,
                    text: 100,
                    per_message: 10,
                    request: None,
                    download: None,
                },
                limits_wait: None,
                fallback: None,
                prepares: false,
                ids_keep_names: false,
                attached: HashMap::new(),
                fetches: 0,
                waiting: Vec::new(),
                polls: 0,
                questions: Vec::new(),
                question_faults: VecDeque::new(),
                hangs_after_question: false,
                notices: Vec::new(),
                presses: VecDeque::new(),
                max_webhook_bytes: 1 << 20,
                workspace: None,
            }),
            crashed: tokio::sync::Notify::new(),
            refusal_arrived: tokio::sync::Notify::new(),
            refusal_permitted: tokio::sync::Notify::new(),
            reply_gate: tokio::sync::Semaphore::new(tokio::sync::Semaphore::MAX_PERMITS),
            poll_end: PollEnd::default(),
        })
    }

    /// Sets the effects of the next requests. Later ones are shown.
    pub(crate) fn script(&self, actions: impl IntoIterator<Item = FakeAction>) {
        self.lock().script.extend(actions);
    }

    pub(crate) fn visible_messages(&self) -> Vec<SeenMessage> {
        self.lock().seen.clone()
    }

    /// The visible messages, as `route:files|text`.
    pub(crate) fn visible_texts(&self) -> Vec<String> {
        let line =
            |seen: SeenMessage| format!("{}:{}|{}", seen.route, seen.files.join(","), seen.text);
        self.visible_messages().into_iter().map(line).collect()
    }

    pub(crate) fn requests(&self) -> usize {
        self.lock().requests
    }

    /// Requests that were marked as repetitions of a lost one.
    pub(crate) fn repeated_requests(&self) -> usize {
        self.lock().repeated
    }

    pub(crate) fn uploads(&self) -> usize {
        self.lock().prepared
    }

    pub(crate) fn limit(&self, any: u64) {
        self.lock().limits.any = any;
    }

    /// Refuses the next request for the limits for this time.
    pub(crate) fn delay_limits(&self, wait: Duration) {
        self.lock().limits_wait = Some(wait);
    }

    pub(crate) fn fall_back_to(&self, route: Route) {
        self.lock().fallback = Some(route);
    }

    pub(crate) fn prepares(&self) {
        self.lock().prepares = true;
    }

    pub(crate) fn keep_names(&self) {
        self.lock().ids_keep_names = true;
    }

    /// Waits until a request simulates a crash.
    pub(crate) async fn crashed(&self) {
        self.crashed.notified().await;
    }

    /// Waits until the request of a [`FakeAction::RefuseWhenPermitted`] is here.
    pub(crate) async fn refusal_arrived(&self) {
        self.refusal_arrived.notified().await;
    }

    /// Responds to the request of a [`FakeAction::RefuseWhenPermitted`].
    pub(crate) fn permit_refusal(&self) {
        self.refusal_permitted.notify_one();
    }

    async fn wait_for_permission(&self, action: &FakeAction) {
        if matches!(action, FakeAction::RefuseWhenPermitted(_)) {
            self.refusal_arrived.notify_one();
            self.refusal_permitted.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a message. With protection against duplicates, a repeated key returns the first message.
    fn show(&self, request: &Request<'_>, bytes: Vec<u8>, limit: usize) -> (String, Vec<String>) {
        let mut state = self.lock();
        let is_known = matches!(
            self.ambiguity,
            DuplicateProtection::Resend(_) | DuplicateProtection::ResendAlways
        );
        if is_known && let Some(first) = state.seen.iter().find(|seen| seen.key == request.key) {
            return (first.id.clone(), first.files.clone());
        }
        let files = &request.delivery.files;
        let names: Vec<String> = request
            .step
            .files()
            .iter()
            .take(limit)
            .map(|file| files[*file].name.clone())
            .collect();
        let id = format!("m{}", state.seen.len() + 1);
        state.seen.push(SeenMessage {
            id: id.clone(),
            key: request.key.to_owned(),
            chat: request.delivery.target.chat.clone(),
            route: request.step.route(),
            text: request.step.text().to_owned(),
            files: names.clone(),
            bytes,
            by_id: request
                .step
                .files()
                .iter()
                .any(|file| files[*file].file_id.is_some()),
        });
        (id, names)
    }

    fn confirmed(
        request: &Request<'_>,
        id: &str,
        limit: usize,
        provisional: bool,
    ) -> Vec<ConfirmedFile> {
        let one = |file: Option<usize>| ConfirmedFile {
            file,
            message_id: id.to_owned(),
            file_id: file.map_or_else(String::new, |file| format!("{id}-{file}")),
            size: None,
            route: request.step.route(),
            provisional,
        };
        if request.step.files().is_empty() {
            return vec![one(None)];
        }
        let files = request.step.files().iter().take(limit);
        files.map(|file| one(Some(*file))).collect()
    }
}

/// Reads the files of a request that are not sent by their ids.
async fn read_files(
    request: &Request<'_>,
    progress: &dyn UploadProgress,
) -> Result<Vec<u8>, PlatformError> {
    let mut all = Vec::new();
    for file in request.step.files() {
        let file = &request.delivery.files[*file];
        if file.file_id.is_some() {
            continue;
        }
        let mut stream = file.source.open().await?;
        while let Some(bytes) = stream.next().await {
            let bytes = bytes?;
            progress.sent(bytes.len() as u64);
            all.extend_from_slice(&bytes);
        }
    }
    Ok(all)
}

impl FakePlatform {
    /// Counts a request, and returns what happens to it.
    fn begin_request(&self, request: &Request<'_>) -> FakeAction {
        let mut state = self.lock();
        state.requests += 1;
        state.repeated += usize::from(request.repeated);
        if state.prepares && !request.step.files().is_empty() {
            assert!(!request.prepared.is_empty(), "sent without its upload");
        }
        state.script.pop_front().unwrap_or(FakeAction::Show)
    }
}

#[async_trait]
impl Platform for FakePlatform {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ambiguity(&self) -> DuplicateProtection {
        self.ambiguity
    }

    fn questions(&self) -> Option<&dyn QuestionChannel> {
        Some(self)
    }

    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60_000,
            chat_per_minute: 60_000,
        }
    }

    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        let mut state = self.lock();
        match state.limits_wait.take() {
            Some(wait) => {
                Err(PlatformError::new(ErrorKind::RateLimited, "slower").with_retry_after(wait))
            }
            None => Ok(state.limits.clone()),
        }
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        let mut steps = Vec::new();
        let fits = |file: &usize, route: Route| delivery.files[*file].size <= limits.of(route);
        let is_photo = |file: &usize| {
            matches!(delivery.files[*file].detected.kind, ContentKind::Image(_))
                && !delivery.flags.as_document
                && fits(file, Route::Photo)
        };
        let all: Vec<usize> = (0..delivery.files.len()).collect();
        let photos: Vec<usize> = all.iter().copied().filter(is_photo).collect();
        let others = all
            .iter()
            .copied()
            .filter(|file| !is_photo(file) && fits(file, Route::Document));
        let step = |route: Route, files: Vec<usize>| {
            SendStep::Files(FilesStep {
                route,
                lossy: route == Route::Photo,
                files,
                text: String::new(),
            })
        };
        for batch in photos.chunks(limits.per_message) {
            steps.push(step(Route::Photo, batch.to_vec()));
        }
        steps.extend(others.map(|file| step(Route::Document, vec![file])));
        let message = delivery.message.trim();
        if message.is_empty() {
            return steps;
        }
        match steps.first_mut() {
            Some(first) if message.chars().count() <= limits.caption => {
                first.set_text(message.to_owned());
            }
            _ => steps.insert(0, SendStep::Text(message.to_owned())),
        }
        steps
    }

    async fn prepare(
        &self,
        request: Request<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        if !self.lock().prepares || request.step.files().is_empty() {
            return Ok(String::new());
        }
        read_files(&request, progress).await?;
        let mut state = self.lock();
        state.prepared += 1;
        Ok(format!("upload-{}", state.prepared))
    }

    async fn send(
        &self,
        request: Request<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let action = self.begin_request(&request);
        self.wait_for_permission(&action).await;
        let refusal = |kind| PlatformError::new(kind, "refused by the script");
        let is_shown = matches!(
            action,
            FakeAction::Show
                | FakeAction::LoseResponse
                | FakeAction::CrashAfter
                | FakeAction::ShowSome(_)
                | FakeAction::Accept
        );
        let bytes = if is_shown {
            read_files(&request, progress).await?
        } else {
            Vec::new()
        };
        match action {
            FakeAction::Show => {
                let (id, names) = self.show(&request, bytes, usize::MAX);
                Ok(Self::confirmed(&request, &id, names.len(), false))
            }
            FakeAction::Accept => {
                let (id, _) = self.show(&request, bytes, usize::MAX);
                Ok(Self::confirmed(&request, &id, usize::MAX, true))
            }
            FakeAction::ShowSome(limit) => {
                let (id, names) = self.show(&request, bytes, limit);
                Ok(Self::confirmed(&request, &id, names.len(), false))
            }
            FakeAction::Refuse(kind) | FakeAction::RefuseWhenPermitted(kind) => {
                Err(refusal(kind).code("7"))
            }
            FakeAction::MoveTo(chat) => Err(refusal(ErrorKind::NotFound).with_moved_to(chat)),
            FakeAction::Wait(delay) => Err(refusal(ErrorKind::RateLimited).with_retry_after(delay)),
            FakeAction::Limit(limit) => {
                Err(refusal(ErrorKind::TooLarge).with_numbers(limit + 1, limit))
            }
            FakeAction::LoseResponse => {
                self.show(&request, bytes, usize::MAX);
                Err(refusal(ErrorKind::Transient).ambiguous())
            }
            FakeAction::LoseRequest => {
                Err(refusal(ErrorKind::Transient).with_outcome(SendOutcome::Ambiguous))
            }
            FakeAction::Unconfirmed => Err(refusal(ErrorKind::Unknown).ambiguous()),
            FakeAction::CrashAfter | FakeAction::CrashBefore => {
                if action == FakeAction::CrashAfter {
                    self.show(&request, bytes, usize::MAX);
                }
                self.crashed.notify_one();
                std::future::pending().await
            }
        }
    }

    async fn reconcile(&self, request: Request<'_>) -> Result<ReconcileResult, PlatformError> {
        if self.ambiguity != DuplicateProtection::Reconcile {
            return Ok(ReconcileResult::Unknown);
        }
        let found = self
            .visible_messages()
            .into_iter()
            .find(|seen| seen.key == request.key);
        Ok(found.map_or(ReconcileResult::NotSent, |seen| {
            ReconcileResult::Sent(Self::confirmed(&request, &seen.id, seen.files.len(), false))
        }))
    }

    fn fallback(
        &self,
        _delivery: &OutgoingDelivery,
        step: &SendStep,
        _error: &PlatformError,
    ) -> Option<SendStep> {
        let route = self
            .lock()
            .fallback
            .filter(|route| *route != step.route())?;
        step.with_route(route)
    }

    fn ids_keep_names(&self, _route: Route) -> bool {
        self.lock().ids_keep_names
    }
}
