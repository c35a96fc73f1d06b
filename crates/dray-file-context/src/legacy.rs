//! The oldest generation: numbers instead of ids, only new files listed (agent-file-context 8.4, 18.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::built::{self, BuiltContext};
use crate::catalog::{CatalogEntry, FileCatalog, FileTurn};
use crate::collect::{CollectRules, FoundFile};
use crate::context::{BuildError, TurnBackground};
use crate::generation::ReminderLayout;
use crate::model::{AgentInputFile, ChatItem, MessagePart, MessageRole};
use crate::reminder::{self, ReminderLine};
use crate::request::ContextRequest;
use crate::window;

/// Builds the context of one request by numbers. History is not rewritten.
pub(crate) fn build_legacy(
    request: &ContextRequest,
    background: &TurnBackground,
) -> Result<BuiltContext, BuildError> {
    let rules = CollectRules::of(request);
    let stored = request.stored();
    let positions = window::kept_positions(stored, &request.history, request.generation);
    let chat: Vec<_> = positions
        .iter()
        .filter_map(|position| stored.get(*position).cloned())
        .collect();
    let input = request.file_input.as_deref().unwrap_or_default();
    let current = rules.of_turn(request.user_message.as_ref(), input).found;
    if let Some((found, reason)) = current
        .iter()
        .find_map(|found| Some((found, found.refusal?)))
    {
        let name = found.hint.clone();
        return Err(BuildError::Refused { name, reason });
    }
    let questions = chat.iter().filter(|item| item.obj == MessageRole::Human);
    let history: Vec<_> = questions
        .flat_map(|item| rules.of_history(item).found)
        .collect();
    let old_names: BTreeSet<_> = history.iter().map(|found| found.hint.clone()).collect();

    let entries = number_files(current, history);
    let of_turn = |entry: &&CatalogEntry| entry.turn == FileTurn::Current;
    let files: Vec<AgentInputFile> = entries
        .iter()
        .filter(of_turn)
        .map(|entry| entry.file.clone())
        .collect();
    let lines: Vec<_> = files
        .iter()
        // Only new files are listed, and images only with skills (8.4).
        .filter(|file| !old_names.contains(&file.name))
        .filter(|file| file.file_type.is_document() || !request.skills.is_empty())
        .map(reminder_line)
        .collect();
    let layout = request.layout.unwrap_or(ReminderLayout::Legacy);
    let sections = background.sections(request, &lines);
    let text = reminder::write_reminder(layout, &sections, &request.question);
    let catalog = FileCatalog::new(entries);
    let query = request.user_message.as_ref().map(ChatItem::text);
    let data_id = request.response_chat_item_id.as_deref();
    Ok(BuiltContext {
        rewritten_histories: chat.clone(),
        chat_histories: chat,
        current_user_message: ChatItem::new(
            MessageRole::Human,
            data_id,
            vec![MessagePart::Text(text)],
        ),
        query_input: query.unwrap_or_default(),
        current_files: files,
        files_map: built::files_map(&catalog, request.generation),
        all_files_map: built::all_files_map(&catalog, request.generation),
        file_url_map: BTreeMap::new(),
        catalog,
        current_attachments: Vec::new(),
        warnings: Vec::new(),
        left_out: Vec::new(),
    })
}

/// Numbers this turn's files, then those of the history, from 1. Later files with a repeated name are left out.
fn number_files(current: Vec<FoundFile>, history: Vec<FoundFile>) -> Vec<CatalogEntry> {
    let current = current.into_iter().map(|found| (FileTurn::Current, found));
    let history = history.into_iter().map(|found| (FileTurn::History, found));
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    for (turn, found) in current.chain(history) {
        // The name is checked before a number is assigned, because a repeated name gets none (18.3).
        if !names.insert(found.hint.clone()) {
            continue;
        }
        entries.push(CatalogEntry {
            file: AgentInputFile {
                id: (entries.len() + 1).to_string(),
                name: found.hint,
                file_type: found.file_type,
                url: found.url.clone(),
                key: found.key,
            },
            turn,
            public_url: Some(found.url),
            unavailable: found.refusal.is_some(),
            aliases: Vec::new(),
            positions: Vec::new(),
            former_urls: Vec::new(),
        });
    }
    entries
}

fn reminder_line(file: &AgentInputFile) -> ReminderLine {
    ReminderLine {
        id: file.id.clone(),
        name: file.name.clone(),
        file_type: file.file_type,
        url: file.url.clone(),
        ..ReminderLine::default()
    }
}
