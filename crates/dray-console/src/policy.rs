//! The policy tester: shows each step by which egress-fetcher judges a URL, without a fetch.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, ConsoleAction, StepVerdict};
use dray_types::{Fault, RedactedUrl};
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::{PAGE_TIMEOUT, fault_notice};
use crate::form::{self, CheckedForm, FormFields};
use crate::page::{PageFrame, token_field};
use crate::rules_in_force::{rules_section, section_of_reply};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;

/// `GET /policy`: the form without a judgement.
pub(crate) async fn empty_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
) -> Response {
    let content = html! {
        (question_form(&session, &FormFields::default()))
        (rules_section(&state).await)
    };
    frame(&state, &session).render(&content)
}

/// `POST /policy`: the judgement of a URL. Not a `GET` with a query, because a URL may hold a secret, which must not be
/// stored in the history of the browser.
pub(crate) async fn judged_page(
    State(state): State<ConsoleState>,
    CheckedForm { session, fields }: CheckedForm,
) -> Response {
    let request = v1::ExplainRequest {
        url: fields.get("url").to_owned(),
        app_policy: app_policy(&fields),
        resolve_names: fields.is_checked("resolve"),
        client_certificate: fields.get("certificate").trim().to_owned(),
    };
    // A lookup sends a name that the person chose to external DNS servers.
    if request.resolve_names && !session.can_act() {
        return form::acting_refused();
    }
    let reply = explain(&state, &session, &request).await;
    let content = html! {
        (question_form(&session, &fields))
        section #judgement aria-live="polite" {
            h2 { "Judgement" }
            @match &reply {
                Err(fault) => (fault_notice("The URL was not judged.", fault)),
                Ok(reply) => (judgement(reply)),
            }
        }
        @if let Ok(reply) = &reply { (section_of_reply(&state, reply).await) }
    };
    frame(&state, &session).render(&content)
}

async fn explain(
    state: &ConsoleState,
    session: &ConsoleSession,
    request: &v1::ExplainRequest,
) -> Result<v1::ExplainReply, Fault> {
    // An explanation without a lookup has no effect, so it is not an action and leaves no audit event.
    if !request.resolve_names {
        return state.read(request).await;
    }
    let action = ActionRequest {
        action: ConsoleAction::PolicyResolve,
        target: RedactedUrl::from_text(&request.url).to_string(),
        time: PAGE_TIMEOUT,
        operation: None,
    };
    let action = state.begin_action(session, action).await?;
    let outcome = state.call_once(&action.meta, request).await;
    action.finish(outcome).await
}

fn frame<'a>(state: &'a ConsoleState, session: &'a ConsoleSession) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/policy",
        title: "Policy tester",
    }
}

fn question_form(session: &ConsoleSession, fields: &FormFields) -> Markup {
    html! {
        form.stacked method="post" action="/policy" {
            (token_field(session))
            label { "URL, as an agent writes it" input name="url" required maxlength="8192" value=(fields.get("url")); }
            fieldset {
                legend { "Hosts that the app allows" }
                label { input type="checkbox" name="with_list" value="1" checked[fields.is_checked("with_list")];
                    " The app has a list" }
                label { "One pattern a line, such as " code { "*.example.com" } "; a list without a line allows no host"
                    textarea name="allow" rows="3" { (fields.get("allow")) } }
            }
            label { "Client certificate of the forward proxy, such as "
                code { "spiffe://example.org/agents/a" } "; empty for a caller without one"
                input name="certificate" maxlength="512" value=(fields.get("certificate")); }
            label {
                input type="checkbox" name="resolve" value="1" checked[fields.is_checked("resolve")]
                    disabled[!session.can_act()];
                " Look the name up in DNS, and judge its addresses (needs a login that may act)"
            }
            button { "Judge" }
        }
        p { a href="/policy/replay" { "What another policy would have decided" } }
    }
}

/// The policy of the app; `None` for an app without a list, which restricts nothing.
fn app_policy(fields: &FormFields) -> Option<v1::AppPolicy> {
    fields.is_checked("with_list").then(|| v1::AppPolicy {
        enabled: None,
        host_allowlist: Some(v1::HostAllowlist {
            patterns: fields
                .get("allow")
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect(),
        }),
    })
}

fn judgement(reply: &v1::ExplainReply) -> Markup {
    let verdict = match (reply.verdict(), reply.complete) {
        (StepVerdict::Refused, _) => "A fetch is refused.",
        (StepVerdict::Allowed, true) => "A fetch is allowed.",
        (StepVerdict::Allowed, false) => {
            "Allowed as far as it was judged; the name has to be looked up for the rest."
        }
        (StepVerdict::NotJudged | StepVerdict::Unspecified, _) => "It was not judged.",
    };
    html! {
        p #verdict data-verdict=(reply.verdict().name()) { strong { (verdict) } }
        @if let Some(fault) = &reply.fault {
            p { "The agent gets: " q { (shown(&fault.message)) } }
        }
        table {
            caption { "Steps, in their order" }
            thead { tr {
                th scope="col" { "Step" } th scope="col" { "Verdict" } th scope="col" { "Rule" }
                th scope="col" { "Setting that decides" }
            } }
            tbody { @for step in &reply.steps { (step_row(step)) } }
        }
    }
}

fn step_row(step: &v1::JudgementStep) -> Markup {
    let verdict = step.verdict().name();
    html! {
        tr {
            td data-label="Step" { (step.step().name()) }
            td data-label="Verdict" {
                span.state data-state=(verdict) { (verdict) }
                @if !step.code.is_empty() { " " code { (shown(&step.code)) } }
            }
            td data-label="Rule" { (shown(&step.rule)) }
            td data-label="Setting" {
                @if step.setting.is_empty() { "built in" } @else { code { (shown(&step.setting)) } }
                @if !step.origin.is_empty() { ", from " (shown(&step.origin)) }
                @if !step.decided_by.is_empty() { ", by " code { (shown(&step.decided_by)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    fn fields(query: &str) -> FormFields {
        FormFields::of_query(&format!("/?{query}").parse::<Uri>().unwrap())
    }

    #[test]
    fn an_app_without_a_list_differs_from_one_with_an_empty_list() {
        assert_eq!(app_policy(&fields("allow=a.example")), None);
        let patterns = |query| {
            let policy = app_policy(&fields(query)).unwrap();
            policy.host_allowlist.unwrap().patterns
        };
        assert!(patterns("with_list=1&allow=").is_empty());
        assert_eq!(
            patterns("with_list=1&allow=a.example%0D%0A%0D%0A*.b.example%0D%0A"),
            ["a.example", "*.b.example"]
        );
    }
}
