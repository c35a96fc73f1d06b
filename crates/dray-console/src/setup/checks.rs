//! Live checks of platform accounts and sandbox backends, on request.
//!
//! The services that own the accounts and backends run the checks; this page shows their results. Each check is an
//! action, because it spends requests at platforms and providers with the operator's credentials.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use dray_presentation::size::human_size;
use dray_proto::v1::{self, BackendState, ConsoleAction, CredentialState, FilePermission};
use dray_proto::{Call, NamedCode as _};
use dray_types::Fault;
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::fault_notice;
use crate::form::ActionForm;
use crate::page::{PageFrame, token_field};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{duration_text, shown, time_element};

/// How long both services together may take: they give up a platform after 10 s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(12);

/// The button that starts the checks, for logins that may act.
pub(super) fn check_form(session: &ConsoleSession) -> Markup {
    html! {
        h2 { "Accounts and backends" }
        @if session.can_act() {
            form.toolbar method="post" action="/setup/check" {
                (token_field(session))
                button { "Check accounts and backends" }
                span.muted { "Asks each platform and provider once. No message is sent to anybody." }
            }
        } @else {
            p.muted { "A login that may act can have them checked." }
        }
    }
}

/// `POST /setup/check`: runs the checks and shows their results.
pub(crate) async fn check_page(
    State(state): State<ConsoleState>,
    ActionForm { session, .. }: ActionForm,
) -> Response {
    // Both run concurrently, so that an unavailable service does not delay the other.
    let (accounts, backends) = tokio::join!(
        check(
            &state,
            &session,
            "platform accounts",
            v1::CheckAccountsRequest::default()
        ),
        check(
            &state,
            &session,
            "sandbox backends",
            v1::CheckBackendsRequest::default()
        ),
    );
    let content = html! {
        h2 #accounts { "Platform accounts" }
        @match &accounts {
            Err(fault) => (fault_notice("Accounts cannot be checked.", fault)),
            Ok(reply) => (account_table(reply)),
        }
        h2 #backends { "Sandbox backends" }
        @match &backends {
            Err(fault) => (fault_notice("Backends cannot be checked.", fault)),
            Ok(reply) => (backend_table(&reply.backends)),
        }
        (check_form(&session))
        p { a href="/setup" { "Back to the set-up" } }
    };
    PageFrame {
        state: &state,
        session: &session,
        section: "/setup",
        title: "Accounts and backends",
    }
    .render(&content)
}

async fn check<C: Call>(
    state: &ConsoleState,
    session: &ConsoleSession,
    target: &str,
    request: C,
) -> Result<C::Reply, Fault> {
    let action = ActionRequest {
        action: ConsoleAction::SetUpCheck,
        target: target.to_owned(),
        time: CHECK_TIMEOUT,
        operation: None,
    };
    let action = state.begin_action(session, action).await?;
    let checked = state.call_once(&action.meta, &request).await;
    action.finish(checked).await
}

fn account_table(reply: &v1::CheckAccountsReply) -> Markup {
    html! {
        @if reply.accounts.is_empty() { p { "No account serves this tenant." } }
        @else {
            table {
                caption { "What the platforms said" }
                thead { tr {
                    th scope="col" { "Account" } th scope="col" { "Credentials" } th scope="col" { "Files" }
                    th scope="col" { "Limits" } th scope="col" { "Asked" }
                } }
                tbody { @for account in &reply.accounts { (account_row(account)) } }
            }
        }
        @if reply.truncated { p.muted { "More accounts are configured than one check asks." } }
    }
}

fn account_row(account: &v1::AccountCheck) -> Markup {
    // A state that this version does not know must not look valid.
    let state = match account.credentials() {
        CredentialState::Unspecified => CredentialState::Unreachable,
        state => state,
    };
    let word = match account.files() {
        FilePermission::Allowed => "may be sent",
        FilePermission::Denied => "may not be sent",
        FilePermission::PerChat => "depend on the chat",
        FilePermission::Unspecified => "not known",
    };
    html! {
        tr data-account=(shown(format!("{}/{}", account.platform, account.account))) {
            td data-label="Account" {
                strong { (shown(&account.platform)) } " " (shown(&account.account))
                @if !account.identity.is_empty() { br; "is " (shown(&account.identity)) }
            }
            td data-label="Credentials" {
                span.state data-state=(state.name()) { (state.name()) }
                @if !account.reason.is_empty() { " " (shown(&account.reason)) }
                @if !account.platform_code.is_empty() { " " code { (shown(&account.platform_code)) } }
            }
            td data-label="Files" {
                (word) @if !account.files_reason.is_empty() { ": " (shown(&account.files_reason)) }
            }
            td data-label="Limits" {
                @match &account.limits {
                    None => span.muted { "known for each chat" },
                    Some(limits) => (limit_list(limits)),
                }
            }
            td data-label="Asked" { (check_time(account.checked_at_ms, account.milliseconds)) }
        }
    }
}

fn limit_list(limits: &v1::AccountLimits) -> Markup {
    html! {
        ul.plain {
            li { (file_limit(limits.max_file_bytes)) }
            @for route in &limits.routes {
                li { (route.route().name()) ": " (file_limit(route.max_file_bytes)) }
            }
            li { (limits.max_files_per_message) " in one message" }
            li { (limits.chat_per_minute) " messages a minute in one chat, " (limits.account_per_minute) " in all" }
        }
    }
}

fn file_limit(bytes: u64) -> String {
    if bytes == u64::MAX {
        "files of any size".to_owned()
    } else {
        format!("files of {}", human_size(bytes))
    }
}

fn backend_table(backends: &[v1::BackendCheck]) -> Markup {
    html! {
        @if backends.is_empty() { p { "No backend is configured." } }
        @else {
            table {
                caption { "What hosts and providers said" }
                thead { tr {
                    th scope="col" { "Backend" } th scope="col" { "State" } th scope="col" { "Asked" }
                } }
                tbody { @for backend in backends {
                    @let state = backend_state(backend);
                    tr data-backend=(shown(&backend.backend)) {
                        td data-label="Backend" { strong { (shown(&backend.backend)) } }
                        td data-label="State" {
                            span.state data-state=(state.name()) { (state.name()) } " " (shown(&backend.detail))
                            @if !backend.failure.is_empty() { " " code { (shown(&backend.failure)) } }
                        }
                        td data-label="Asked" { (check_time(backend.checked_at_ms, backend.milliseconds)) }
                    }
                } }
            }
        }
    }
}

fn backend_state(backend: &v1::BackendCheck) -> BackendState {
    match backend.state() {
        BackendState::Unspecified => BackendState::Failed,
        state => state,
    }
}

fn check_time(checked_at_ms: u64, milliseconds: u32) -> Markup {
    html! { (time_element(checked_at_ms)) ", " (duration_text(u64::from(milliseconds))) }
}
