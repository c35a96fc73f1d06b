//! Previews of sandboxes: the button that makes a link, and the list of open ones.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use dray_proto::v1::{self, ConsoleAction};
use dray_types::{Fault, FaultCode};
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::fault_notice;
use crate::form::ActionForm;
use crate::page::token_field;
use crate::sandboxes::{SandboxLocation, frame};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{shown, time_element};

/// Path of the action that makes a link.
pub(crate) const PREVIEW_PATH: &str = "/sandboxes/preview";
/// Longest time for a link to be made.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(30);
/// Field with the id of a preview.
const PREVIEW_FIELD: &str = "preview";

/// `POST /sandboxes/preview`: a page with a new link. Only this response contains the link.
pub(crate) async fn create_preview(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let Some(location) = SandboxLocation::of_fields(&fields) else {
        return failed_page(&state, &session, &no_sandbox_fault());
    };
    let created = async {
        let action = preview_action(ConsoleAction::Preview, location.sentence());
        let action = state.begin_action(&session, action).await?;
        let request = v1::CreatePreviewRequest {
            sandbox: Some(location.reference()),
            path: location.path.clone().into_bytes(),
            lifetime_seconds: 0,
            ..v1::CreatePreviewRequest::default()
        };
        let created = state.call_once(&action.meta, &request).await;
        action.finish(created).await
    };
    match created.await {
        Ok(created) => frame(&state, &session).render(&link_notice(&location, &created)),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// `POST /sandboxes/preview/revoke`: ends a preview.
pub(crate) async fn revoke_preview(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let Some(location) = SandboxLocation::of_fields(&fields) else {
        return failed_page(&state, &session, &no_sandbox_fault());
    };
    let preview_id = fields.get(PREVIEW_FIELD).to_owned();
    let revoked = async {
        let target = format!("preview {preview_id} of {}", location.sentence());
        let action = state
            .begin_action(
                &session,
                preview_action(ConsoleAction::PreviewRevoke, target),
            )
            .await?;
        let request = v1::RevokePreviewRequest {
            sandbox: Some(location.reference()),
            preview_id,
        };
        let revoked = state.call_once(&action.meta, &request).await;
        action.finish(revoked).await
    };
    match revoked.await {
        Ok(revoked) => frame(&state, &session).render(&html! {
            p #revoked.notice role="status" { "The preview " code { (revoked.preview_id) } " has ended." }
            p { a href=(location.page_path()) { "Back to the directory" } }
        }),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

fn preview_action(action: ConsoleAction, target: String) -> ActionRequest {
    ActionRequest {
        action,
        target,
        time: PREVIEW_TIMEOUT,
        operation: None,
    }
}

fn no_sandbox_fault() -> Fault {
    Fault::new(FaultCode::InvalidArgument, "The form names no sandbox.")
}

fn link_notice(location: &SandboxLocation, created: &v1::CreatedPreview) -> Markup {
    let preview = created.preview.clone().unwrap_or_default();
    // Only http and https URLs become links: a `javascript:` URL in a reply must not run in this page.
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| created.url.starts_with(scheme));
    html! {
        div #preview.notice role="status" {
            p {
                @if is_web {
                    // The page gets neither an opener nor a referrer, because an agent made it.
                    a href=(created.url) target="_blank" rel="noopener noreferrer" data-preview { "Open the preview" }
                } @else { "The service returned no link for a browser." }
                ". It ends " (time_element(preview.expires_at_ms)) "."
            }
            p { "Everybody who has the link can look at " code { (shown(&preview.directory)) } " without a login." }
        }
        p { a href=(location.page_path()) { "Back to the directory" } }
    }
}

/// The button that makes a link to the path that `fields` name.
pub(crate) fn preview_button(session: &ConsoleSession, fields: &Markup, label: &str) -> Markup {
    html! {
        form.inline method="post" action=(PREVIEW_PATH) {
            (token_field(session)) (fields)
            button { (label) }
        }
    }
}

/// The open previews of a sandbox.
pub(crate) async fn open_previews(
    state: &ConsoleState,
    session: &ConsoleSession,
    location: &SandboxLocation,
    fields: &Markup,
) -> Markup {
    let request = v1::ListPreviewsRequest {
        sandbox: Some(location.reference()),
        ..v1::ListPreviewsRequest::default()
    };
    let previews = match state.read(&request).await {
        // A service without an endpoint for previews has none to list; the button shows this fault when it is used.
        Err(fault) if fault.detail == "no_previews" => return html! {},
        Err(fault) => return fault_notice("Open previews cannot be listed.", &fault),
        Ok(reply) => reply.previews,
    };
    html! {
        @if !previews.is_empty() {
            h2 { "Open previews" }
            ul #previews {
                @for preview in &previews {
                    li {
                        code { (shown(&preview.directory)) "/" (shown(&preview.file)) }
                        ", ends " (time_element(preview.expires_at_ms))
                        @if preview.opened_at_ms > 0 { ", first opened " (time_element(preview.opened_at_ms)) }
                        @else { ", not opened yet" }
                        " "
                        form.inline method="post" action="/sandboxes/preview/revoke" {
                            (token_field(session)) (fields)
                            input type="hidden" name=(PREVIEW_FIELD) value=(preview.preview_id);
                            button aria-label={ "End the preview of " (shown(&preview.directory)) "/" (shown(&preview.file)) } { "End" }
                        }
                    }
                }
            }
        }
    }
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/sandboxes", "the sandboxes");
    frame(state, session).render_failure("The preview was not changed.", fault, back)
}
