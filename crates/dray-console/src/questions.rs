//! Questions whether a session may reach a host: those that wait, and a person's answers.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, ConsoleAction, EgressAnswer};
use dray_types::{Fault, whole_millis};
use http::{StatusCode, Uri};
use maud::{Markup, html};

use crate::audit::ActionRequest;
use crate::calls::{PAGE_TIMEOUT, fault_notice, list_status};
use crate::form::{ActionForm, FormFields};
use crate::page::{PageFrame, token_field};
use crate::pager::{ListPager, RECORD_PAGES};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{shown, time_element};

/// Times for which an answer can hold: the value of the field, and its name. The service cuts them to the longest that
/// the operator allows.
const ANSWER_TIMES: [(&str, Duration, &str); 4] = [
    ("15m", Duration::from_mins(15), "15 minutes"),
    ("1h", Duration::from_hours(1), "an hour"),
    ("8h", Duration::from_hours(8), "8 hours"),
    ("longest", Duration::ZERO, "as long as the operator allows"),
];

/// `GET /questions`: lists the questions that wait; with `all`, also those that are answered.
pub(crate) async fn list_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    let include_answered = query.is_checked("all");
    let request = v1::ListEgressQuestionsRequest {
        include_answered,
        after: query.get("after").to_owned(),
    };
    // The answer is read for each view: a question that was answered elsewhere must not look open here.
    let reply = state.read(&request).await;
    let status = reply.as_ref().map_or_else(list_status, |_| StatusCode::OK);
    let filter = if include_answered { "all=1" } else { "" };
    let content = html! {
        p { "A rule of the egress policy asks a person before a session may reach these hosts. An answer holds for one session, \
             host and port, and can be changed." }
        form.filters method="get" action="/questions" {
            label { input type="checkbox" name="all" value="1" checked[include_answered]; " Include answered questions" }
            button { "Show" }
        }
        @match &reply {
            Err(fault) => (fault_notice("Questions cannot be listed.", fault)),
            Ok(reply) => {
                (question_table(&session, &reply.questions))
                (ListPager::of_query(RECORD_PAGES, &query).links("/questions", filter, &reply.next))
                @if reply.truncated && reply.next.is_empty() { p { "There are more questions than are listed." } }
            }
        }
    };
    frame(&state, &session, "Questions about hosts").render_as(status, &content)
}

fn frame<'a>(
    state: &'a ConsoleState,
    session: &'a ConsoleSession,
    title: &'a str,
) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/questions",
        title,
    }
}

fn question_table(session: &ConsoleSession, questions: &[v1::EgressQuestion]) -> Markup {
    html! {
        @if questions.is_empty() { p { "No question waits." } }
        @else {
            table {
                caption { "Oldest questions first" }
                thead { tr {
                    th scope="col" { "Host" } th scope="col" { "Session" } th scope="col" { "Asked" }
                    th scope="col" { "State" }
                } }
                tbody { @for question in questions { (question_row(session, question)) } }
            }
        }
    }
}

fn question_row(session: &ConsoleSession, question: &v1::EgressQuestion) -> Markup {
    html! {
        tr data-question=(shown(&question.id)) {
            td data-label="Host" {
                strong { (target_of(question)) }
                " " span.muted { code { (shown(&question.rule)) } }
            }
            td data-label="Session" {
                (shown(&question.session))
                @if !question.app.is_empty() { " " span.muted { "app " (shown(&question.app)) } }
            }
            td data-label="Asked" { (time_element(question.asked_at_ms)) }
            td data-label="State" {
                (answer_state(question))
                @if session.can_act() { (answer_form(session, question)) }
            }
        }
    }
}

fn target_of(question: &v1::EgressQuestion) -> String {
    format!("{}:{}", shown(&question.host), question.port)
}

fn answer_state(question: &v1::EgressQuestion) -> Markup {
    let end = time_element(question.expires_at_ms);
    html! {
        @match question.answer() {
            EgressAnswer::Unspecified => { span.state data-state="waiting" { "waits" } " until " (end) },
            // Both answers show who gave them and when they end, since either can be changed.
            answer => {
                span.state data-state=(answer.name()) { (answer.name()) }
                " by " (shown(&question.answered_by)) ", until " (end)
            },
        }
    }
}

fn answer_form(session: &ConsoleSession, question: &v1::EgressQuestion) -> Markup {
    let target = target_of(question);
    html! {
        form method="post" action="/questions/answer" {
            (token_field(session))
            input type="hidden" name="question" value=(shown(&question.id));
            // The audit event names what the person saw; the record of the question has the scope of the answer.
            input type="hidden" name="target" value=(target);
            p.toolbar {
                label { "for "
                    select name="time" aria-label={ "How long the answer for " (target) " holds" } {
                        @for (value, _, name) in ANSWER_TIMES { option value=(value) { (name) } }
                    }
                }
                button name="answer" value="allow" aria-label={ "Allow " (target) } { "Allow" }
                button name="answer" value="deny" aria-label={ "Deny " (target) } { "Deny" }
            }
        }
    }
}

/// `POST /questions/answer`: allows or denies.
pub(crate) async fn answer_question(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let frame = frame(&state, &session, "Answer");
    match record_answer(&state, &session, &fields).await {
        Ok(question) => frame.render(&answered_notice(&question)),
        Err(fault) => frame.render_failure(
            "The question was not answered.",
            &fault,
            ("/questions", "the questions"),
        ),
    }
}

fn answered_notice(question: &v1::EgressQuestion) -> Markup {
    html! {
        p #answered role="status" {
            "Session " strong { (shown(&question.session)) }
            @match question.answer() {
                EgressAnswer::Allow => " may reach ",
                EgressAnswer::Deny | EgressAnswer::Unspecified => " may not reach ",
            }
            strong { (target_of(question)) } " until " (time_element(question.expires_at_ms)) "."
        }
        p { a href="/questions" { "Back to the questions" } }
    }
}

async fn record_answer(
    state: &ConsoleState,
    session: &ConsoleSession,
    fields: &FormFields,
) -> Result<v1::EgressQuestion, Fault> {
    let mut request = v1::AnswerEgressQuestionRequest {
        id: fields.get("question").to_owned(),
        valid_ms: answer_time_ms(fields.get("time")),
        // Logins have no names; the audit event of the login has the same digits.
        principal: format!("console login {}", session.login),
        ..v1::AnswerEgressQuestionRequest::default()
    };
    // Anything but the two words stays without an answer, which the service refuses.
    request.set_answer(match fields.get("answer") {
        "allow" => EgressAnswer::Allow,
        "deny" => EgressAnswer::Deny,
        _ => EgressAnswer::Unspecified,
    });
    let action = ActionRequest {
        action: ConsoleAction::AnswerQuestion,
        target: format!("{} ({})", fields.get("target"), request.id),
        time: PAGE_TIMEOUT,
        operation: None,
    };
    let action = state.begin_action(session, action).await?;
    let outcome = state.call_once(&action.meta, &request).await;
    let reply = action.finish(outcome).await?;
    Ok(reply.question.unwrap_or_default())
}

/// The milliseconds of a request; 0 for as long as the operator allows. A time that is not offered counts as the
/// shortest.
fn answer_time_ms(value: &str) -> u64 {
    let [(_, shortest, _), ..] = ANSWER_TIMES;
    let mut times = ANSWER_TIMES.iter();
    let found = times.find(|(name, ..)| *name == value);
    let time = found.map_or(shortest, |(_, time, _)| *time);
    whole_millis(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_not_offered_is_the_shortest() {
        for (value, millis) in [
            ("15m", 900_000),
            ("8h", 28_800_000),
            ("longest", 0),
            ("", 900_000),
            ("999h", 900_000),
        ] {
            assert_eq!(answer_time_ms(value), millis, "{value}");
        }
    }
}
