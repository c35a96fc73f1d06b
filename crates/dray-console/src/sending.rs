//! Sends a file of a session's sandbox to the chat of the session: first a page that names both, then the delivery.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use dray_proto::v1::{self, ConsoleAction};
use dray_types::{Fault, FaultCode};
use http::Uri;
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::not_found_fault;
use crate::deliveries::target_text;
use crate::form::{self, ActionForm, FormFields, operation_field};
use crate::page::token_field;
use crate::respond::see_other;
use crate::sandboxes::{SandboxLocation, frame, named_path};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{operation_path, shown, url_part};
use crate::upload::invalid_fault;

/// Path of the page and of its form.
pub(crate) const SEND_PATH: &str = "/sandboxes/send";
/// Longest time for the acceptance of a delivery, which continues on its own.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest message beside a file, in characters, as the field takes it. Platforms have limits of their own.
const MAX_MESSAGE_CHARACTERS: usize = 4_000;

/// The link to the page for a file; nothing for a sandbox without a session, which has no chat.
pub(crate) fn send_link(location: &SandboxLocation, path: &str, name: &str) -> Markup {
    let session = &location.session;
    html! {
        @if !session.is_empty() {
            a href={ (SEND_PATH) "?session=" (url_part(session)) "&path=" (url_part(path)) } aria-label={ "Send " (name) } { "Send" }
        }
    }
}

/// `GET /sandboxes/send`: which file would go to which chat.
pub(crate) async fn send_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    if !session.can_act() {
        return form::acting_refused();
    }
    let found = async {
        let location = named_file(&FormFields::of_query(&uri))?;
        let request = v1::ShowSessionRequest {
            session: location.session.clone(),
        };
        let bound = state.read(&request).await?;
        let chat = bound.chat.ok_or_else(|| {
            not_found_fault("The session", "chat")
                .detail("no_chat")
                .advice("Bind one with `dray session bind --chat PLATFORM:ID`.")
        })?;
        Ok((location, chat))
    };
    match found.await {
        Ok((location, chat)) => {
            let form = send_form(&session, &location, &target_text(Some(&chat)));
            frame(&state, &session).render(&form)
        }
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

fn send_form(session: &ConsoleSession, location: &SandboxLocation, chat: &str) -> Markup {
    html! {
        h2 { "Send a file" }
        p { code { (shown(&location.path)) } " of the session " code { (shown(&location.session)) } " to the chat " strong { (chat) } "." }
        form.stacked method="post" action=(SEND_PATH) {
            (token_field(session)) (location.hidden_fields(&location.path))
            (operation_field())
            label { "Message beside the file" textarea name="message" rows="3" maxlength=(MAX_MESSAGE_CHARACTERS) {} }
            label { input type="checkbox" name="as_document" value="1"; " As a document, even a picture or a video" }
            button { "Send to " (chat) }
        }
        p { a href=(location.page_path()) { "Look at the directory instead" } }
    }
}

/// `POST /sandboxes/send`: starts the delivery, and leads to its page.
pub(crate) async fn send_file(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    match start_delivery(&state, &session, &fields).await {
        // The form may have been changed after its first request, so the page says that nothing was sent again. A
        // double click gets this page too, because the browser drops the response to the first request.
        Ok(accepted) if accepted.duplicate => {
            let advice = ", or open the page of the file again to send it once more.";
            frame(&state, &session).render(&repeated_notice(&accepted, advice))
        }
        Ok(accepted) => see_other(&operation_path(&accepted.delivery_id)),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// The notice after a form that was sent before, with the way to another delivery.
pub(crate) fn repeated_notice(accepted: &v1::DeliveryAccepted, advice: &str) -> Markup {
    html! {
        p.notice role="status" { "This form was sent before, and nothing was sent a second time. "
            a href=(operation_path(&accepted.delivery_id)) { "Look at the delivery" } (advice) }
    }
}

async fn start_delivery(
    state: &ConsoleState,
    session: &ConsoleSession,
    fields: &FormFields,
) -> Result<v1::DeliveryAccepted, Fault> {
    let location = named_file(fields)?;
    let message = fields.get("message");
    if message.chars().count() > MAX_MESSAGE_CHARACTERS {
        return Err(Fault::new(FaultCode::TooLarge, "The message is too long."));
    }
    let operation = fields.operation()?;
    let action = ActionRequest {
        action: ConsoleAction::SandboxSend,
        target: location.sentence(),
        time: ACCEPT_TIMEOUT,
        // The action and the delivery have the same operation, so one timeline shows both.
        operation: Some(operation),
    };
    let action = state.begin_action(session, action).await?;
    let request = v1::SendFileRequested {
        session: location.session.clone(),
        paths: vec![location.path.clone().into_bytes()],
        message: message.to_owned(),
        flags: Some(v1::DeliveryFlags {
            as_document: fields.is_checked("as_document"),
            ..v1::DeliveryFlags::default()
        }),
        ..v1::SendFileRequested::default()
    };
    let accepted = state.call_once(&action.meta, &request).await;
    action.finish(accepted).await
}

/// The file of a session that the fields name.
fn named_file(fields: &FormFields) -> Result<SandboxLocation, Fault> {
    SandboxLocation::of_fields(fields)
        .filter(|location| !location.session.is_empty() && names_file(fields))
        .ok_or_else(|| invalid_fault("The form names no session with a file."))
}

/// Whether the fields have a path: without one, a location is a directory.
fn names_file(fields: &FormFields) -> bool {
    named_path(fields).is_some_and(|path| !path.is_empty())
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/sandboxes", "the sandboxes");
    frame(state, session).render_failure("The file was not sent.", fault, back)
}
