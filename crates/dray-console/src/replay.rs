//! The policy replay: what a second policy would have decided about the requests of the last hours or days, beside what
//! was decided then.
//!
//! It reads audit events and has no effect, so it only needs the role `look`. The events record what was decided, so
//! the page needs no access to the policy files of the fetcher.

pub(crate) mod job;

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use dray_guard::RuleSet;
use dray_guard::ruleset::replay::{ReplayChange, ReplayOutcome};
use dray_guard::ruleset::{MAX_POLICY_BYTES, PolicyText};
use dray_types::{Fault, whole_millis};
use http::StatusCode;
use maud::{Markup, html};

use self::job::{ReplayEnding, ReplayJob, ReplayProgress, policy_fault};
use crate::calls::fault_notice;
use crate::form::CheckedForm;
use crate::page::{PageFrame, token_field};
use crate::respond::{see_other, with_type};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{shown, time_element};
use crate::upload::{CheckedUpload, UploadForm, invalid_fault, next_part};

/// Most files of a policy.
const MAX_FILES: usize = 32;
/// Differences that a page shows.
const MAX_SHOWN_CHANGES: usize = 200;
/// Name of a policy that was typed.
const TYPED_NAME: &str = "policy.toml";
/// How far back a replay may go: value, sentence and hours.
const REPLAY_WINDOWS: [(&str, &str, u64); 4] = [
    ("hour", "the last hour", 1),
    ("day", "the last day", 24),
    ("week", "the last week", 7 * 24),
    ("month", "the last 30 days", 30 * 24),
];

/// `GET /policy/replay`: the form, and the newest replay of this login.
pub(crate) async fn replay_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
) -> Response {
    let job = state.replays.find(&session.login);
    let content = html! {
        p { "Requests of the audit stream are judged by the policy below. The page lists those whose outcome differs from what "
            "was decided then. Nothing is fetched and no name is looked up. Paths are not recorded, so a rule about "
            "paths leaves a request undecided." }
        (policy_form(&session))
        @if let Some(job) = &job { (job_section(&session, job)) }
    };
    frame(&state, &session).render(&content)
}

/// `GET /policy/replay/progress`: the newest replay alone, for the script.
pub(crate) async fn progress_fragment(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
) -> Response {
    let job = state.replays.find(&session.login);
    let section = job.map(|job| job_section(&session, &job).into_string());
    let body = Body::from(section.unwrap_or_default());
    with_type(StatusCode::OK, "text/html; charset=utf-8", body)
}

/// `POST /policy/replay`: begins a replay.
pub(crate) async fn begin_replay(
    State(state): State<ConsoleState>,
    CheckedUpload { session, form }: CheckedUpload<MAX_POLICY_BYTES>,
) -> Response {
    let read = match form {
        Ok(form) => read_policy(form).await,
        Err(fault) => Err(fault),
    };
    let (rules, hours) = match read {
        Ok(read) => read,
        Err(fault) => return failed_page(&state, &session, &fault),
    };
    let window_ms = whole_millis(Duration::from_secs(hours * 3600));
    let since_ms = state.now_ms().saturating_sub(window_ms);
    let job = ReplayJob::new(&rules, since_ms, &state.stop);
    let is_open = |login: &str| state.sessions.is_open(login, state.now_ms());
    match state.replays.begin(&session.login, job, is_open) {
        Ok(job) => {
            let (running, owner) = (state.clone(), session.clone());
            state
                .turns
                .spawn(async move { job.run(&running, &owner, rules).await });
            see_other("/policy/replay")
        }
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// `POST /policy/replay/cancel`: ends the replay of this login.
pub(crate) async fn cancel_replay(
    State(state): State<ConsoleState>,
    CheckedForm { session, .. }: CheckedForm,
) -> Response {
    if let Some(job) = state.replays.find(&session.login) {
        job.cancel();
    }
    see_other("/policy/replay")
}

/// The rules of a form, and the hours that a replay goes back.
async fn read_policy(mut form: UploadForm) -> Result<(RuleSet, u64), Fault> {
    let window_name = form.fields.get("window").to_owned();
    let window = REPLAY_WINDOWS
        .iter()
        .find(|(value, ..)| *value == window_name);
    let (_, _, hours) = window.ok_or_else(|| invalid_fault("The form names no time."))?;
    let typed = form.fields.get("policy").to_owned();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    while let Some(mut part) = form.next_file().await? {
        let name = shown(part.file_name().unwrap_or_default());
        let used_bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut bytes = Vec::new();
        while let Some(chunk) = next_part(part.chunk()).await? {
            if used_bytes + bytes.len() + chunk.len() > MAX_POLICY_BYTES || files.len() >= MAX_FILES
            {
                return Err(invalid_fault(&format!(
                    "The policy has more than {MAX_FILES} files or {MAX_POLICY_BYTES} bytes."
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
        // A form without a chosen file has one part without a name.
        if !name.is_empty() {
            files.push((name, bytes));
        }
    }
    if files.is_empty() {
        if typed.is_empty() {
            return Err(invalid_fault("Choose a policy file, or write one."));
        }
        files.push((TYPED_NAME.to_owned(), typed.into_bytes()));
    }
    // The order of the names is the order of the rules, as in a directory of the fetcher.
    // Names of files are unique in a directory; equal ones here keep the order of their content.
    files.sort();
    let texts: Vec<PolicyText<'_>> = files
        .iter()
        .map(|(name, bytes)| PolicyText::new(name, bytes))
        .collect();
    let rules = RuleSet::parse(&texts).map_err(|problems| policy_fault(&problems))?;
    Ok((rules, *hours))
}

fn policy_form(session: &ConsoleSession) -> Markup {
    html! {
        form.stacked method="post" action="/policy/replay" enctype="multipart/form-data" {
            (token_field(session))
            label { "Requests of"
                select name="window" {
                    @for (value, sentence, hours) in REPLAY_WINDOWS {
                        option value=(value) selected[hours == 7 * 24] { (sentence) }
                    }
                }
            }
            label { "The second policy" textarea name="policy" rows="8" spellcheck="false" {} }
            label { "or its files, as in the directory of the fetcher" input type="file" name="file" accept=".toml" multiple; }
            button { "Replay" }
        }
    }
}

/// One replay: how far it is, or its result.
fn job_section(session: &ConsoleSession, job: &ReplayJob) -> Markup {
    let progress = job.progress();
    let is_running = progress.ending.is_none();
    html! {
        section #replay data-running[is_running] data-source="/policy/replay/progress" aria-label="The replay" {
            h2 { "The replay" }
            p.muted { "Policy " code { (job.digest) } ", " (job.rules) " rules; requests since " (time_element(job.since_ms)) }
            p role="status" data-progress { (progress_sentence(&progress)) }
            @match &progress.ending {
                None => form.inline method="post" action="/policy/replay/cancel" {
                    (token_field(session)) button { "Cancel the replay" }
                },
                Some(ReplayEnding::Failed(fault)) => (fault_notice("The replay failed.", fault)),
                Some(_) => (result(&progress)),
            }
        }
    }
}

fn progress_sentence(progress: &ReplayProgress) -> Markup {
    html! {
        @match &progress.ending {
            None => "Reading. ",
            Some(ReplayEnding::Complete) => "Complete. ",
            Some(ReplayEnding::Cancelled) => "Cancelled. ",
            Some(ReplayEnding::Limited(limit)) => { "Ended at the limit of " (limit) ": later requests were not judged. " },
            Some(ReplayEnding::Failed(_)) => "",
        }
        (progress.events) " events read"
        @if progress.read_to_ms > 0 { ", up to " (time_element(progress.read_to_ms)) }
        "."
    }
}

fn result(progress: &ReplayProgress) -> Markup {
    let replay = &progress.replay;
    let changes = replay.changes();
    html! {
        p #replay-result {
            (replay.judged + replay.undecided) " requests: " strong { (replay.changed) " with another outcome" } ", "
            (replay.unchanged) " with the same, " (replay.undecided) " undecided."
        }
        @if !changes.is_empty() {
            table {
                caption { "Those with the most requests first" }
                thead { tr {
                    th scope="col" { "Requests" } th scope="col" { "Target" } th scope="col" { "Decided then" }
                    th scope="col" { "By the second policy" } th scope="col" { "First" }
                } }
                tbody { @for change in changes.iter().take(MAX_SHOWN_CHANGES) { (change_row(change)) } }
            }
        }
        @let hidden = changes.len().saturating_sub(MAX_SHOWN_CHANGES);
        @if hidden > 0 { p.muted { (hidden) " more differences are not shown." } }
        @if replay.not_listed > 0 { p.muted { (replay.not_listed) " requests with another outcome are not listed." } }
    }
}

fn change_row(change: &ReplayChange) -> Markup {
    html! {
        tr {
            td data-label="Requests" { (change.count) }
            td data-label="Target" { code { (shown(&change.target)) } }
            td data-label="Decided then" { (outcome(change.old.0)) " by " code { (shown(change.old.1.to_string())) } }
            td data-label="By the second policy" { (outcome(change.new.0)) " by " code { (shown(change.new.1.to_string())) } }
            td data-label="First" { (time_element(change.times_ms.first().copied().unwrap_or_default())) }
        }
    }
}

fn outcome(outcome: ReplayOutcome) -> Markup {
    let (state, word) = match outcome {
        ReplayOutcome::Allow => ("allowed", "allowed"),
        ReplayOutcome::Report => ("unknown", "allowed and reported"),
        ReplayOutcome::Ask => ("unknown", "refused until a person allows it"),
        ReplayOutcome::Deny => ("refused", "refused"),
    };
    html! { span.state data-state=(state) { (word) } }
}

fn frame<'a>(state: &'a ConsoleState, session: &'a ConsoleSession) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/policy",
        title: "Policy replay",
    }
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/policy/replay", "the replay");
    frame(state, session).render_failure("No replay was begun.", fault, back)
}
