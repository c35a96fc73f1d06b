//! Additions of a turn to the conversation, before the model sees it: the system prompt, skills, and notices.

use std::sync::Arc;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_agent::issues::IssueLog;
use dray_agent::manifest::Manifest;
use dray_agent::message::Message;
use dray_agent::skill::{self, Skill};
use dray_agent::{clock, lazy, notify, pair, prompt};

use super::prepare::{OutgoingMessages, iso_now};
use super::{SharedParts, failures};

/// Adds calls at the beginning as if the model had made them: how files are passed in arguments, and the files of the
/// last message.
pub(super) fn insert_file_skill(
    takes_files: bool,
    skills: &[Skill],
    outgoing: &OutgoingMessages,
    messages: &mut Vec<Message>,
) {
    if takes_files {
        skill::inject_skill(messages, skills);
    }
    if let Some(types) = &outgoing.lazy {
        lazy::inject_files(messages, types);
    }
}

/// Adds the notices about files and the time at the end of the conversation.
pub(super) fn add_notices(
    manifest: &Manifest,
    outgoing: &OutgoingMessages,
    messages: &mut Vec<Message>,
) {
    let add_notice = |messages: &mut Vec<Message>, notice: &pair::CallPair| {
        pair::insert_pair(
            messages,
            notice,
            pair::PairPosition::End,
            pair::PairFrequency::Always,
        );
    };
    if let Some(notice) = notify::notice_pair(&manifest.contexts, messages) {
        add_notice(messages, &notice);
    }
    if outgoing.stamps {
        add_notice(messages, &clock::clock_pair(&iso_now(&outgoing.clock)));
    }
}

/// The skills of the layers and of the manifest, with their problems.
pub(super) async fn turn_skills(
    parts: &SharedParts,
    caller: &Caller,
    manifest: &Manifest,
) -> (Arc<[Skill]>, IssueLog) {
    let references = manifest.skills.as_deref().unwrap_or_default();
    let mut issues = IssueLog::default();
    if references.is_empty() {
        return (Arc::clone(&parts.additions.skills), issues);
    }
    let Some(core) = &parts.core else {
        issues.no_skills = true;
        return (Arc::clone(&parts.additions.skills), issues);
    };
    let fetched = super::skills::fetch_skills(core, caller, references).await;
    let learned = skill::merge_skills(&parts.additions.skills, fetched);
    issues.errors = learned.errors;
    issues.warnings = learned.warnings;
    (learned.skills.into(), issues)
}

/// Inserts the system prompt.
pub(super) fn system_prompt(
    parts: &SharedParts,
    manifest: &Manifest,
    is_dial: bool,
    skills: &[Skill],
    messages: &mut Vec<Message>,
) -> Result<(), RequestFailure> {
    let configured = parts
        .additions
        .layers
        .system_prompt(&manifest.orchestrator.system_prompt);
    let configured = configured.map_err(|failure| failures::prompt_failure(&failure))?;
    let text = prompt::assemble_prompt(configured, &manifest.contexts, skills);
    let keeps_inbound = parts.config.allow_override_system_message;
    if is_dial {
        prompt::place_system_message(messages, text, keeps_inbound);
    } else {
        prompt::merge_system_messages(messages, text, keeps_inbound);
    }
    Ok(())
}
