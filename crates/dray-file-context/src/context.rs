//! Builds from a request everything that a model, its tools and the next turn need (agent-file-context 2, 7, 11).

use std::collections::BTreeMap;

use crate::built::{BuiltContext, ExcludedFile, FileWarning, all_files_map, files_map};
use crate::catalog::{CatalogEntry, FileCatalog, FileTurn};
use crate::clock::UnknownZone;
use crate::collect::{CollectRules, CollectedMessage, FoundFile};
use crate::dataset::Dataset;
use crate::generation::{ContractGeneration, ReminderLayout};
use crate::identity::{self, IdAllocator, IdOwner};
use crate::model::{
    AgentInputFile, ChatItem, FilePart, MessageAttachment, MessagePart, MessageRole,
};
use crate::name::{self, NameAllocator};
use crate::reminder::{self, ReminderLine, ReminderSections};
use crate::renew::RenewalRefusal;
use crate::request::ContextRequest;
use crate::window;

/// The directory of a sandbox that uploads are written to.
const SANDBOX_DIRECTORY: &str = "user_files";

/// Builds contexts. It has no settings: all data is in the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContextBuilder;

/// The reason why no context could be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A file of this turn cannot be fetched. Only generations of the peer fail then; the default generation leaves the
    /// file out. The contract defines the sentence that users see; the name is for the operator.
    #[error("{reason}")]
    Refused {
        /// Name of the refused file.
        name: String,
        /// The reason why it has no URL that works.
        reason: RenewalRefusal,
    },
    /// The time zone is unknown.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
}

impl ContextBuilder {
    /// Builds the context of one request.
    pub fn build(request: &ContextRequest) -> Result<BuiltContext, BuildError> {
        let time = request
            .now
            .as_ref()
            .map(crate::clock::LocalTime::text)
            .transpose()?;
        let datasets = request.datasets.as_ref();
        let datasets = datasets.map(|datasets| datasets.resolve(request.generation));
        let background = TurnBackground {
            time,
            datasets: datasets.unwrap_or_default(),
        };
        if request.generation == ContractGeneration::G0 {
            return crate::legacy::build_legacy(request, &background);
        }
        BuildState::new(request).build(&background)
    }
}

/// Data that only the current turn's reminder shows.
pub(crate) struct TurnBackground {
    time: Option<String>,
    datasets: Vec<Dataset>,
}

impl TurnBackground {
    /// The sections of this turn's reminder.
    pub(crate) fn sections<'a>(
        &'a self,
        request: &'a ContextRequest,
        files: &'a [ReminderLine],
    ) -> ReminderSections<'a> {
        ReminderSections {
            language: request.reminder_language(),
            hides_urls: request.hide_urls,
            reach: request.reach.as_deref(),
            files,
            datasets: &self.datasets,
            skills: &request.skills,
            time: self.time.as_deref(),
            working_directory: request.directory(),
            write_boundary: request.write_boundary.as_deref(),
            ..ReminderSections::default()
        }
    }
}

struct BuildState<'a> {
    request: &'a ContextRequest,
    rules: CollectRules<'a>,
    layout: ReminderLayout,
    ids: IdAllocator,
    names: NameAllocator,
    entries: Vec<CatalogEntry>,
    warnings: Vec<FileWarning>,
    left_out: Vec<ExcludedFile>,
}

impl<'a> BuildState<'a> {
    fn new(request: &'a ContextRequest) -> Self {
        Self {
            request,
            rules: CollectRules::of(request),
            layout: request.layout.unwrap_or(request.generation.layout()),
            ids: IdAllocator::default(),
            names: NameAllocator::new(),
            entries: Vec::new(),
            warnings: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn build(mut self, background: &TurnBackground) -> Result<BuiltContext, BuildError> {
        let request = self.request;
        let stored = request.stored();
        let visible = window::kept_positions(stored, &request.history, request.generation);
        let input = request.file_input.as_deref().unwrap_or_default();
        let current = self.rules.of_turn(request.user_message.as_ref(), input);
        // In the default generation, `of_turn` left such files out. Generations of the peer fail the run.
        if let Some((found, reason)) = current
            .found
            .iter()
            .find_map(|found| Some((found, found.refusal?)))
        {
            let name = found.hint.clone();
            return Err(BuildError::Refused { name, reason });
        }
        // The hidden history gets names, too, because ids must not depend on the window.
        let histories: Vec<_> = stored
            .iter()
            .map(|item| match item.obj {
                MessageRole::Human => self.rules.of_history(item),
                MessageRole::System | MessageRole::Ai => CollectedMessage::default(),
            })
            .collect();
        let old = histories.iter().flat_map(|collected| &collected.found);
        for found in old.chain(&current.found) {
            self.reserve(found);
        }
        let (chat, rewritten) = self.rewrite_histories(stored, histories, &visible);
        let (message, files, attachments) = self.build_turn(current, background);
        let catalog = FileCatalog::new(self.entries);
        let query = request.user_message.as_ref().map(ChatItem::text);
        Ok(BuiltContext {
            chat_histories: chat,
            rewritten_histories: rewritten,
            current_user_message: message,
            query_input: query.unwrap_or_default(),
            current_files: files,
            files_map: files_map(&catalog, request.generation),
            all_files_map: all_files_map(&catalog, request.generation),
            file_url_map: if request.generation.maps_urls() {
                catalog.urls()
            } else {
                BTreeMap::new()
            },
            catalog,
            current_attachments: attachments,
            warnings: self.warnings,
            left_out: self.left_out,
        })
    }

    /// Reserves the ids and names that were persisted before any new one is given.
    fn reserve(&mut self, found: &FoundFile) {
        self.ids.reserve(found);
        if let Some(attachment) = &found.attachment {
            let owner = identity::lasting_identity(found);
            self.names.reserve(&attachment.name, &owner);
        }
    }

    /// The visible history, unmodified and rewritten. The default generation also assigns names in hidden history, so
    /// that ids and names do not depend on the window.
    fn rewrite_histories(
        &mut self,
        stored: &'a [ChatItem],
        collected: Vec<CollectedMessage>,
        visible: &[usize],
    ) -> (Vec<ChatItem>, Vec<ChatItem>) {
        let (mut chat, mut rewritten) = (Vec::new(), Vec::new());
        for (index, (item, collected)) in stored.iter().zip(collected).enumerate() {
            let CollectedMessage { found, left_out } = collected;
            // Positions are listed in order, so they are sorted.
            let position = visible.binary_search(&index).ok();
            let owner = IdOwner {
                answer: identity::answer_to(stored, index),
                question: item.id(),
                position,
                ..IdOwner::default()
            };
            if position.is_none() {
                // A hidden message only claims its ids and names.
                if self.request.generation == ContractGeneration::Stable {
                    self.assign_names(found, &owner, FileTurn::History);
                }
                continue;
            }
            chat.push(item.clone());
            let entries = self.assign_names(found, &owner, FileTurn::History);
            rewritten.push(self.rewrite(item, &entries, &left_out));
            self.left_out.extend(left_out);
            self.entries
                .extend(entries.into_iter().map(|named| named.entry));
        }
        (chat, rewritten)
    }

    fn rewrite(
        &mut self,
        item: &ChatItem,
        named: &[NamedEntry],
        left_out: &[ExcludedFile],
    ) -> ChatItem {
        if named.is_empty() && left_out.is_empty() {
            return item.clone();
        }
        for named_entry in named {
            self.warnings
                .extend(named_entry.refusal.map(|reason| FileWarning {
                    id: named_entry.entry.file.id.clone(),
                    name: named_entry.entry.file.name.clone(),
                    reason,
                }));
        }
        let lines = self.reminder_lines(named);
        let sections = ReminderSections {
            language: self.request.reminder_language(),
            hides_urls: self.request.hide_urls,
            reach: self.request.reach.as_deref(),
            media_attached: self.attached_media(named).next().is_some(),
            left_out,
            // History has no time, datasets or skills, because they describe the present (section 7).
            ..ReminderSections::of_history(&lines)
        };
        let text = reminder::write_reminder(self.layout, &sections, &item.text());
        item.with_parts(self.message_parts(named, text))
    }

    /// The files that stay parts of their message.
    fn attached_media<'n>(
        &self,
        named: &'n [NamedEntry],
    ) -> impl Iterator<Item = &'n CatalogEntry> + use<'n> {
        let keeps = self.request.keeps_media();
        let entries = named.iter().map(|named_entry| &named_entry.entry);
        entries
            .filter(move |entry| keeps && !entry.file.file_type.is_document() && !entry.unavailable)
    }

    /// Media first where they are kept, then the text unless it is empty.
    fn message_parts(&self, named: &[NamedEntry], text: String) -> Vec<MessagePart> {
        let mut parts: Vec<_> = self
            .attached_media(named)
            .map(|entry| {
                MessagePart::File(FilePart {
                    file_type: Some(entry.file.file_type),
                    name: entry.file.name.clone(),
                    url: Some(entry.public_url.as_ref().unwrap_or(&entry.file.url).clone()),
                    // A model's provider opens the URL; the key is for this server.
                    key: None,
                })
            })
            .collect();
        if !text.is_empty() {
            parts.push(MessagePart::Text(text));
        }
        parts
    }

    fn build_turn(
        &mut self,
        collected: CollectedMessage,
        background: &TurnBackground,
    ) -> (ChatItem, Vec<AgentInputFile>, Vec<MessageAttachment>) {
        let request = self.request;
        let answer = request
            .response_chat_item_id
            .as_deref()
            .filter(|id| !id.is_empty());
        let owner = IdOwner {
            answer,
            question: request.user_message.as_ref().and_then(ChatItem::id),
            position: None,
            fallback: request.fallback_id.as_deref().or(answer),
            current: true,
        };
        let CollectedMessage { found, left_out } = collected;
        let raw_urls: Vec<_> = found.iter().map(|found| found.raw.clone()).collect();
        let named = self.assign_names(found, &owner, FileTurn::Current);
        let lines = self.reminder_lines(&named);
        let sections = ReminderSections {
            media_attached: self.attached_media(&named).next().is_some(),
            left_out: &left_out,
            ..background.sections(request, &lines)
        };
        // The node's question, which may differ from the text of the raw message (section 2).
        let text = reminder::write_reminder(self.layout, &sections, &request.question);
        self.left_out.extend(left_out);
        let data_id = source_of(request.generation, &owner);
        let message = ChatItem::new(
            MessageRole::Human,
            data_id.as_deref(),
            self.message_parts(&named, text),
        );
        let files: Vec<_> = named
            .iter()
            .map(|named_entry| named_entry.entry.file.clone())
            .collect();
        // G6 has no ids that could be persisted.
        let attachments = if request.generation == ContractGeneration::G6 {
            Vec::new()
        } else {
            let pairs = files.iter().zip(raw_urls);
            pairs.map(|(file, raw)| to_attachment(file, raw)).collect()
        };
        self.entries
            .extend(named.into_iter().map(|named| named.entry));
        (message, files, attachments)
    }

    /// Names and ids of one message's files.
    fn assign_names(
        &mut self,
        found: Vec<FoundFile>,
        owner: &IdOwner<'_>,
        turn: FileTurn,
    ) -> Vec<NamedEntry> {
        let generation = self.request.generation;
        if generation != ContractGeneration::Stable {
            // Generations of the peer keep names apart within one message only (5.2).
            self.names = NameAllocator::new();
            for file in &found {
                if let Some(attachment) = &file.attachment {
                    self.names.reserve(&attachment.name, &file.identity);
                }
            }
        }
        let mut named = Vec::new();
        for file in found {
            let ids = self.ids.assign(generation, owner, &file);
            let name = match &file.attachment {
                Some(attachment) => attachment.name.clone(),
                None if !generation.cleans_names() => file.hint.clone(),
                None if generation == ContractGeneration::Stable => {
                    let owner = identity::lasting_identity(&file);
                    self.names.assign(&file.hint, file.index, &owner)
                }
                None => self.names.assign(&file.hint, file.index, &file.identity),
            };
            // Only the default requires a URL that others can open.
            let public_url = if generation == ContractGeneration::Stable {
                self.rules.normaliser.absolute(&file.url)
            } else {
                Some(file.url.clone()).filter(|url| !url.is_empty())
            };
            // The stored URL still names the file within this run (16.2).
            let stale = (file.raw != file.url && !file.raw.is_empty()).then_some(file.raw);
            let entry = CatalogEntry {
                file: AgentInputFile {
                    id: ids.id,
                    name,
                    file_type: file.file_type,
                    url: file.url,
                    key: file.key,
                },
                turn,
                public_url,
                unavailable: file.refusal.is_some(),
                aliases: ids.aliases,
                positions: ids.positions,
                former_urls: stale.into_iter().collect(),
            };
            named.push(NamedEntry {
                entry,
                refusal: file.refusal,
            });
        }
        named
    }

    /// The files to list. The tool-call layout lists only documents whose text is available.
    fn reminder_lines(&self, named: &[NamedEntry]) -> Vec<ReminderLine> {
        let all = self.layout != ReminderLayout::ToolCall;
        let entries = named.iter().map(|named_entry| &named_entry.entry);
        let listed = entries.filter(|entry| {
            all || entry.file.file_type.is_document()
                && !entry.unavailable
                && (self.request.contents.is_empty()
                    || self.request.contents.contains_key(&entry.file.id))
        });
        listed.map(|entry| self.reminder_line(entry)).collect()
    }

    fn reminder_line(&self, entry: &CatalogEntry) -> ReminderLine {
        let sandbox = self.request.directory();
        let sandbox = sandbox.filter(|_| !entry.unavailable);
        let path =
            // Early generations show names that are not safe as a path.
            sandbox.map(|_| format!("{SANDBOX_DIRECTORY}/{}", name::clean_name(&entry.file.name, 0)));
        ReminderLine {
            id: entry.file.id.clone(),
            name: entry.file.name.clone(),
            file_type: entry.file.file_type,
            url: entry.public_url.clone().unwrap_or_default(),
            sandbox_path: path,
            content: self.request.contents.get(&entry.file.id).cloned(),
            unavailable: entry.unavailable,
        }
    }
}

struct NamedEntry {
    entry: CatalogEntry,
    refusal: Option<RenewalRefusal>,
}

/// The id that is the prefix of the ids of this turn's files.
fn source_of(generation: ContractGeneration, owner: &IdOwner<'_>) -> Option<String> {
    let answer = owner.answer.filter(|_| generation.names_by_answer());
    // G1 writes `current` if the answer has no id yet (6.2).
    let literal = (generation == ContractGeneration::G1).then_some("current");
    let found = answer.or(literal).or(owner.question).or(owner.fallback);
    found.map(str::to_owned)
}

fn to_attachment(file: &AgentInputFile, raw: String) -> MessageAttachment {
    MessageAttachment {
        id: file.id.clone(),
        name: file.name.clone(),
        file_type: file.file_type,
        url: raw,
        key: file.key.clone(),
    }
}
