//! The playground: a chat with an agent through the orchestrator's public API, with the role `act`, because it spends
//! tokens of the model.
//!
//! A turn runs in the console and not in the browser, so a page that is closed or reloaded loses nothing. A turn ends
//! with its answer, when a person cancels it, with the login, or after 30 minutes.

pub(crate) mod agent;
pub(crate) mod conversation;
mod curl;
mod run;
pub(crate) mod stream;
mod view;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use dray_dial::inline_bytes;
use dray_proto::v1::ConsoleAction;
use dray_types::{Fault, FaultCode, OperationId};
use http::{StatusCode, Uri};
use maud::{Markup, html};
use multer::Field;

use self::agent::{AgentClient, ChosenFile};
use self::conversation::{BegunConversation, BegunTurn, Conversation};
use self::curl::BODY_NAME;
use self::run::{TURN_TIMEOUT, TurnRun};
use crate::audit::ActionRequest;
use crate::calls::{fault_notice, not_found_fault};
use crate::form::{self, ActionForm, FormFields};
use crate::page::PageFrame;
use crate::respond::{as_download, see_other, with_type};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;
use crate::upload::{ActionUpload, UploadForm, invalid_fault, next_part};

/// Largest field before the files, in bytes.
const MAX_FIELD_BYTES: usize = 64 * 1024;
/// Files of one message.
const MAX_FILES: usize = 4;
/// All files of one message together, in bytes.
const MAX_FILE_BYTES: usize = 8 << 20;
/// Longest name of an agent, in bytes.
const MAX_AGENT_BYTES: usize = 256;

/// `GET /playground`: the agents, and the conversations of this login.
pub(crate) async fn playground_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
) -> Response {
    let content = if session.can_act() {
        first_page(&state, &session).await
    } else {
        html! {
            p.notice { "A chat spends tokens of the model, and an agent may use its tools: it needs a login that may act. "
                "Log in with a link of " code { "dray console link --role act" } "." }
        }
    };
    frame(&state, &session).render(&content)
}

async fn first_page(state: &ConsoleState, session: &ConsoleSession) -> Markup {
    let agents = match agents_of(state) {
        Ok(agents) => agents.agents(&state.tenant).await,
        Err(fault) => Err(fault),
    };
    let conversations = state.conversations.of_login(&session.login);
    html! {
        @match &agents {
            Err(fault) => (fault_notice("Agents cannot be listed.", fault)),
            Ok(agents) => {
                @if agents.is_empty() { p { "The orchestrator has no local manifest. Name a directory with " code { "--manifests" } "." } }
                @else { (view::message_form(session, "/playground", Some(agents))) }
            },
        }
        @if !conversations.is_empty() {
            h2 { "Open conversations" }
            ul {
                @for conversation in &conversations {
                    li { a href=(view::conversation_path(&conversation.id)) {
                        (shown(&conversation.agent)) ", " (conversation.read(|content| content.turns.len())) " messages"
                    } }
                }
            }
        }
    }
}

/// `POST /playground`: a new conversation with its first message.
pub(crate) async fn begin_conversation(
    State(state): State<ConsoleState>,
    ActionUpload { session, form }: ActionUpload<MAX_FIELD_BYTES>,
) -> Response {
    let begun = async {
        let message = ChatMessage::read(form?).await?;
        let agents = agents_of(&state)?;
        if message.agent.is_empty() || message.agent.len() > MAX_AGENT_BYTES {
            return Err(invalid_fault("The form names no agent."));
        }
        let is_open = |login: &str| state.sessions.is_open(login, state.now_ms());
        let begun = state.conversations.begin(
            &session.login,
            &message.agent,
            &message.operation,
            state.now_ms(),
            is_open,
        )?;
        let conversation = match begun {
            BegunConversation::New(conversation) => conversation,
            BegunConversation::Repeated(conversation) => return Ok(conversation),
        };
        let sent = send(&state, &session, agents, &conversation, message).await;
        // A conversation without a turn would count against the limits of the login.
        if sent.is_err() {
            state.conversations.end(&conversation.id, &session.login);
        }
        sent.map(|()| conversation)
    };
    match begun.await {
        Ok(conversation) => see_other(&view::conversation_path(&conversation.id)),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// `POST /playground/{id}`: the next message.
pub(crate) async fn send_message(
    State(state): State<ConsoleState>,
    Path(id): Path<String>,
    ActionUpload { session, form }: ActionUpload<MAX_FIELD_BYTES>,
) -> Response {
    let sent = async {
        let message = ChatMessage::read(form?).await?;
        let agents = agents_of(&state)?;
        let conversation = find_conversation(&state, &session, &id)?;
        send(&state, &session, agents, &conversation, message).await
    };
    match sent.await {
        Ok(()) => see_other(&view::conversation_path(&id)),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// Records that the turn begins, then starts it in the background.
async fn send(
    state: &ConsoleState,
    session: &ConsoleSession,
    agents: Arc<AgentClient>,
    conversation: &Arc<Conversation>,
    message: ChatMessage,
) -> Result<(), Fault> {
    // The list is requested before each turn: the orchestrator at this address may be another one than that of the
    // page.
    agents.agents(&state.tenant).await?;
    let ChatMessage {
        operation,
        text,
        files,
        ..
    } = message;
    let sizes = files
        .iter()
        .map(|file| (file.name.clone(), file.content.len()));
    let cancel = state.stop.child_token();
    let begun =
        conversation.begin_turn(&operation, text.clone(), sizes.collect(), cancel.clone())?;
    if begun == BegunTurn::Repeated {
        return Ok(());
    }
    let action = ActionRequest {
        action: ConsoleAction::PlaygroundTurn,
        target: format!("agent {}", conversation.agent),
        time: TURN_TIMEOUT,
        operation: Some(operation),
    };
    let action = match state.begin_action(session, action).await {
        Ok(action) => action,
        Err(fault) => {
            // No request was sent, so the page must not show a turn.
            conversation.drop_turn();
            return Err(fault);
        }
    };
    let run = TurnRun {
        state: state.clone(),
        agents,
        session: session.clone(),
        conversation: Arc::clone(conversation),
        action,
        cancel,
        text,
        files,
    };
    state.turns.spawn(run.run());
    Ok(())
}

/// `GET /playground/{id}`: a conversation.
pub(crate) async fn conversation_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path(id): Path<String>,
) -> Response {
    if !session.can_act() {
        return form::acting_refused();
    }
    match find_conversation(&state, &session, &id) {
        Ok(conversation) => {
            let body = conversation
                .read(|content| view::conversation_body(&session, &conversation, content));
            frame(&state, &session).render(&body)
        }
        Err(fault) => missing_part(&state, &session, &fault),
    }
}

/// `GET /playground/{id}/requests/{turn}`: the request of a turn as `curl`; with `body=1` its body alone, with
/// `fragment=1` only the part of the page that the script inserts.
pub(crate) async fn request_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path((id, turn)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    let turn = position_of(&turn);
    if !session.can_act() {
        return form::acting_refused();
    }
    let (agents, body) = match find_request(&state, &session, &id, turn) {
        Ok(found) => found,
        Err(fault) => return missing_part(&state, &session, &fault),
    };
    let query = FormFields::of_query(&uri);
    if query.is_checked("body") {
        let mut response = with_type(StatusCode::OK, "application/octet-stream", Body::from(body));
        as_download(&mut response, BODY_NAME);
        return response;
    }
    let path = format!("{}/requests/{turn}", view::conversation_path(&id));
    let fragment = view::curl_fragment(&agents, &path, &body);
    if query.is_checked("fragment") {
        let fragment = Body::from(fragment.into_string());
        return with_type(StatusCode::OK, "text/html; charset=utf-8", fragment);
    }
    frame(&state, &session).render(&html! {
        (fragment)
        p { a href=(view::conversation_path(&id)) { "Back to the conversation" } }
    })
}

/// A position in a path. Any other text gives a position that does not exist, so that the page says what is missing.
fn position_of(text: &str) -> usize {
    text.parse().unwrap_or(usize::MAX)
}

fn find_request(
    state: &ConsoleState,
    session: &ConsoleSession,
    id: &str,
    turn: usize,
) -> Result<(Arc<AgentClient>, String), Fault> {
    let agents = agents_of(state)?;
    let conversation = find_conversation(state, session, id)?;
    let request = conversation.request(turn);
    let request = request.ok_or_else(|| {
        not_found_fault("The conversation", "request")
            .advice("Its files may still be on their way. Try again when the answer has begun.")
    })?;
    Ok((agents, request.to_string()))
}

/// `GET /playground/{id}/files/{turn}/{number}`: a file whose content is part of an answer, always as a download.
pub(crate) async fn answer_file(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path((id, turn, number)): Path<(String, String, String)>,
) -> Response {
    let (turn, number) = (position_of(&turn), position_of(&number));
    if !session.can_act() {
        return form::acting_refused();
    }
    let found = find_conversation(&state, &session, &id).and_then(|conversation| {
        let found = conversation.read(|content| {
            let file = content.turns.get(turn)?.attachments.get(number)?;
            let name = file.title.clone().unwrap_or_else(|| "file".to_owned());
            Some((name, inline_bytes(file)?))
        });
        found.ok_or_else(|| not_found_fault("The conversation", "file"))
    });
    let (name, bytes) = match found {
        Ok(found) => found,
        Err(fault) => return missing_part(&state, &session, &fault),
    };
    let mut response = with_type(
        StatusCode::OK,
        "application/octet-stream",
        Body::from(bytes),
    );
    as_download(&mut response, &shown(name));
    response
}

/// `POST /playground/{id}/cancel`: cancels the running answer.
pub(crate) async fn cancel_turn(
    State(state): State<ConsoleState>,
    Path(id): Path<String>,
    ActionForm { session, .. }: ActionForm,
) -> Response {
    match find_conversation(&state, &session, &id) {
        Ok(conversation) => {
            conversation.cancel();
            see_other(&view::conversation_path(&id))
        }
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// `POST /playground/{id}/end`: forgets a conversation.
pub(crate) async fn end_conversation(
    State(state): State<ConsoleState>,
    Path(id): Path<String>,
    ActionForm { session, .. }: ActionForm,
) -> Response {
    state.conversations.end(&id, &session.login);
    see_other("/playground")
}

/// A message as its form contains it.
struct ChatMessage {
    /// Operation id of the form, so that a form that is sent twice begins one turn.
    operation: OperationId,
    /// Empty for a conversation that exists.
    agent: String,
    text: String,
    files: Vec<ChosenFile>,
}

impl ChatMessage {
    async fn read(mut form: UploadForm) -> Result<Self, Fault> {
        let operation = form.fields.operation()?;
        let text = form.fields.get("message").to_owned();
        if text.is_empty() {
            return Err(invalid_fault(
                "The message is empty. Files need a text, too.",
            ));
        }
        let agent = form.fields.get("agent").to_owned();
        let mut files: Vec<ChosenFile> = Vec::new();
        while let Some(part) = form.next_file().await? {
            let used_bytes: usize = files.iter().map(|file| file.content.len()).sum();
            let file = read_file(part, MAX_FILE_BYTES - used_bytes).await?;
            // A form without a chosen file has one part without a name.
            if !file.name.is_empty() {
                files.push(file);
            }
            if files.len() > MAX_FILES {
                return Err(files_too_large());
            }
        }
        Ok(Self {
            operation,
            agent,
            text,
            files,
        })
    }
}

async fn read_file(mut part: Field<'static>, max_bytes: usize) -> Result<ChosenFile, Fault> {
    let name = part.file_name().unwrap_or_default().to_owned();
    let mut content = Vec::new();
    while let Some(bytes) = next_part(part.chunk()).await? {
        // The size is counted while it arrives: the length that a browser announces is not trusted.
        if content.len() + bytes.len() > max_bytes {
            return Err(files_too_large());
        }
        content.extend_from_slice(&bytes);
    }
    Ok(ChosenFile {
        name,
        content: Bytes::from(content),
    })
}

fn files_too_large() -> Fault {
    Fault::new(
        FaultCode::TooLarge,
        "A message takes up to 4 files with 8 MiB together.",
    )
    .detail("upload_too_large")
    .advice("Put larger files into the sandbox of a session, and name them.")
}

fn agents_of(state: &ConsoleState) -> Result<Arc<AgentClient>, Fault> {
    state.agents.clone().ok_or_else(|| {
        Fault::new(
            FaultCode::Unsupported,
            "This console knows no orchestrator.",
        )
        .detail("no_orchestrator")
        .advice("Start it with --agents URL.")
    })
}

/// The conversation with this id, if this login began it and it has not ended.
fn find_conversation(
    state: &ConsoleState,
    session: &ConsoleSession,
    id: &str,
) -> Result<Arc<Conversation>, Fault> {
    let conversation = state.conversations.find(id, &session.login);
    conversation.ok_or_else(|| {
        not_found_fault("This login", "conversation")
            .advice("It has ended, or another login began it.")
    })
}

fn frame<'a>(state: &'a ConsoleState, session: &'a ConsoleSession) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/playground",
        title: "Playground",
    }
}

/// The page in place of a conversation or a part of one.
fn missing_part(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/playground", "the playground");
    frame(state, session).render_failure(
        "This part of the playground cannot be shown.",
        fault,
        back,
    )
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/playground", "the playground");
    frame(state, session).render_failure("The message was not sent.", fault, back)
}
