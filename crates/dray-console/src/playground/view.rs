//! A conversation as a page: messages, stages, files, how an answer ended, and each request as `curl`.

use dray_agent::message::Attachment;
use dray_dial::chat::StageEnd;
use dray_dial::inline_bytes;
use dray_presentation::size::human_size;
use maud::{Markup, html};

use super::agent::AgentClient;
use super::conversation::{AnswerStage, ChatTurn, Conversation, ConversationContent, TurnEnding};
use super::curl::{BODY_NAME, CurlCommand};
use super::stream::ReadPosition;
use crate::calls::fault_notice;
use crate::form::operation_field;
use crate::page::token_field;
use crate::session::ConsoleSession;
use crate::text::shown;

/// Agents that a page offers: it must stay usable even if the orchestrator lists a million names.
const MAX_OFFERED_AGENTS: usize = 500;

/// URL path of the page that shows the conversation `id`.
pub(super) fn conversation_path(id: &str) -> String {
    format!("/playground/{id}")
}

/// The form of a message. With `agents` it begins a conversation with one of them.
pub(super) fn message_form(
    session: &ConsoleSession,
    action: &str,
    agents: Option<&[String]>,
) -> Markup {
    html! {
        form.stacked #message-form method="post" action=(action) enctype="multipart/form-data" {
            (token_field(session)) (operation_field())
            @if let Some(agents) = agents { (agent_field(agents)) }
            label { "Message" textarea name="message" rows="4" required {} }
            label { "Files, up to 4 with 8 MiB together" input type="file" name="file" multiple; }
            button { "Send" }
        }
    }
}

/// The field for an agent. Beyond the agents that a list can offer, a person types its name.
fn agent_field(agents: &[String]) -> Markup {
    if agents.len() <= MAX_OFFERED_AGENTS {
        return html! {
            label { "Agent"
                select name="agent" required {
                    @for agent in agents { option value=(agent) { (shown(agent)) } }
                }
            }
        };
    }
    html! {
        label { "Agent"
            input name="agent" list="offered-agents" autocomplete="off" spellcheck="false" required;
        }
        datalist #offered-agents {
            @for agent in agents.iter().take(MAX_OFFERED_AGENTS) { option value=(agent) {} }
        }
        p.muted { "There are " (agents.len()) " agents. The first " (MAX_OFFERED_AGENTS) " are offered; type the name of any other." }
    }
}

/// All turns, and the forms for the next message and for the end of the conversation.
pub(super) fn conversation_body(
    session: &ConsoleSession,
    conversation: &Conversation,
    content: &ConversationContent,
) -> Markup {
    let newest = content.turns.len().saturating_sub(1);
    html! {
        p { "Agent " code { (shown(&conversation.agent)) } ". "
            "The conversation is in the memory of the console until you end it or log out." }
        @for (turn_index, turn) in content.turns.iter().enumerate() {
            (turn_article(conversation, turn_index, turn))
            @if turn_index == newest { (turn_end(session, conversation, turn_index, turn)) }
        }
        form.inline method="post" action=(format!("{}/end", conversation_path(&conversation.id))) {
            (token_field(session)) button { "End the conversation" }
        }
    }
}

fn turn_article(conversation: &Conversation, turn_index: usize, turn: &ChatTurn) -> Markup {
    let is_running = matches!(turn.ending, TurnEnding::Running);
    let revision = turn.stages.iter().map(|stage| stage.changed_at);
    let position = ReadPosition {
        text_bytes: turn.answer.len(),
        revision: revision.fold(turn.attached_at, u64::max),
    };
    let source = is_running.then(|| {
        format!(
            "{}/events?turn={turn_index}&after={position}",
            conversation_path(&conversation.id)
        )
    });
    html! {
        article.turn aria-label={ "Message " (turn_index + 1) } {
            h2 { "Message " (turn_index + 1) }
            div.said { (turn.text) }
            @for (name, bytes) in &turn.files {
                p.muted { "File " (shown(name)) ", " (human_size(u64::try_from(*bytes).unwrap_or(u64::MAX))) }
            }
            (curl_details(conversation, turn_index))
            div data-answer[is_running] data-source=[source] {
                ol.stages data-stages aria-label="Stages" {
                    @for stage in &turn.stages { (stage_item(turn_index, stage)) }
                }
                div.said data-text { (turn.answer) }
                div data-files { (answer_files(&conversation.id, turn_index, turn)) }
                @if is_running {
                    p.muted role="status" data-progress { "The answer comes in. Reload the page to see more of it." }
                }
            }
        }
    }
}

/// The request of a turn, once its files are with the orchestrator.
fn curl_details(conversation: &Conversation, turn_index: usize) -> Markup {
    let path = format!(
        "{}/requests/{turn_index}",
        conversation_path(&conversation.id)
    );
    html! {
        details.curl data-fragment=(path) {
            summary { "The request as curl" }
            // The request is loaded when it is opened: each request repeats the conversation, so the page would grow
            // with the square of its length.
            div data-fragment-place { p { a href=(path) { "Show the request" } } }
        }
    }
}

/// The request as a command, with its button.
pub(super) fn curl_fragment(agents: &AgentClient, path: &str, body: &str) -> Markup {
    let command = CurlCommand::new(&agents.chat_url(), agents.has_key(), body);
    html! {
        pre data-copy { (command.text) }
        p {
            button type="button" data-copy-button hidden { "Copy" } " "
            @if command.has_body_file { a href=(format!("{path}?body=1")) { "Download " (BODY_NAME) } ", then run the command beside it. " }
            @if agents.has_key() { "The key is not shown: the command takes it from " code { "DRAY_API_KEY" } "." }
        }
    }
}

/// A step of the agent: open while it runs and where it failed.
pub(super) fn stage_item(turn: usize, stage: &AnswerStage) -> Markup {
    let (state, word, is_open) = match stage.status {
        None => ("working", "working", true),
        Some(StageEnd::Completed) => ("done", "done", false),
        Some(StageEnd::Failed) => ("failed", "failed", true),
    };
    html! {
        li id={ "stage-" (turn) "-" (stage.index) } {
            details open[is_open] {
                summary {
                    span.state data-state=(state) { (word) } " "
                    @if stage.name.is_empty() { "Stage " (stage.index) } @else { (shown(&stage.name)) }
                }
                @if !stage.content.is_empty() { pre { (stage.content) } }
                @for file in &stage.files { p.muted { "File " (shown(file)) } }
                @if stage.is_cut { p.muted { "More of it was not kept." } }
            }
        }
    }
}

/// Files of an answer: content as downloads, and addresses as links.
pub(super) fn answer_files(id: &str, turn_index: usize, turn: &ChatTurn) -> Markup {
    html! {
        @if !turn.attachments.is_empty() {
            ul.plain aria-label="Files of the answer" {
                @for (number, file) in turn.attachments.iter().enumerate() {
                    li { (answer_file(id, turn_index, number, file)) }
                }
            }
        }
    }
}

fn answer_file(id: &str, turn_index: usize, number: usize, file: &Attachment) -> Markup {
    let title = file.title.as_deref().filter(|title| !title.is_empty());
    let title = shown(title.unwrap_or("file"));
    let kind = file.kind.as_deref().map(shown).unwrap_or_default();
    let url = file.url.as_deref().unwrap_or_default();
    // Only http and https URLs become links: a `javascript:` URL of an agent must not run in this page.
    let parsed = url::Url::parse(url).ok();
    let web = parsed.filter(|url| matches!(url.scheme(), "http" | "https"));
    html! {
        @if inline_bytes(file).is_some() {
            a href=(format!("{}/files/{turn_index}/{number}", conversation_path(id))) { (title) }
        } @else if let Some(url) = web {
            // The host is shown, because the agent chose it. It gets no referrer, because it must not learn the URL of
            // this page.
            a href=(url.as_str()) target="_blank" rel="noopener noreferrer" { (title) }
            " at " code { (shown(url.host_str().unwrap_or_default())) }
        } @else { (title) " (no address that a browser opens)" }
        " " span.muted { (kind) }
    }
}

/// How the newest answer ended, with the form of the next message. While the answer runs, the button that cancels it.
pub(super) fn turn_end(
    session: &ConsoleSession,
    conversation: &Conversation,
    turn_index: usize,
    turn: &ChatTurn,
) -> Markup {
    let path = conversation_path(&conversation.id);
    html! {
        section #turn-end data-turn=(turn_index) aria-label="The answer and what is next" {
            @match &turn.ending {
                TurnEnding::Running => {
                    form.inline method="post" action=(format!("{path}/cancel")) {
                        (token_field(session)) button { "Cancel the answer" }
                    }
                },
                TurnEnding::Cancelled => p.notice data-ending="cancelled" { "The answer was cancelled. The next message is sent without it and its question." },
                TurnEnding::Failed(fault) => div data-ending="failed" { (fault_notice("The answer failed.", fault)) },
                TurnEnding::Done { reason, tokens } => p.muted data-ending="done" {
                    "The answer is complete"
                    @if !reason.is_empty() { ": " code { (shown(reason)) } }
                    @if let Some((question, answer)) = tokens { ", " (question) " tokens in and " (answer) " out" }
                    "."
                },
            }
            @if !matches!(turn.ending, TurnEnding::Running) { (message_form(session, &path, None)) }
        }
    }
}
