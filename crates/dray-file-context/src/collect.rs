//! The files of one message: candidates, limit, index, type (agent-file-context 4 and 5).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::address::{self, UrlNormaliser};
use crate::built::{ExcludedFile, ExclusionReason};
use crate::catalog::FileTurn;
use crate::generation::ContractGeneration;
use crate::kind;
use crate::limits;
use crate::model::{ChatItem, FilePart, FileType, MessageAttachment};
use crate::renew::{RenewalRefusal, RenewedLinks};
use crate::request::ContextRequest;

/// Rules for every message of one request.
pub(crate) struct CollectRules<'a> {
    pub(crate) generation: ContractGeneration,
    pub(crate) normaliser: UrlNormaliser,
    max_files: usize,
    declared: &'a BTreeMap<String, FileType>,
    renewals: Option<&'a RenewedLinks>,
}

/// One file that was found, not yet named.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    /// Index in its id (section 4, step 5).
    pub(crate) index: usize,
    /// The file's index if `data:` URLs count. The older generations differ in that.
    pub(crate) index_with_data_urls: usize,
    /// The file's index if `data:` URLs do not count.
    pub(crate) index_without_data_urls: usize,
    /// The URL as the request has it.
    pub(crate) raw: String,
    /// The URL of this request.
    pub(crate) url: String,
    pub(crate) key: Option<String>,
    /// Files with the same identity are one file.
    pub(crate) identity: String,
    pub(crate) file_type: FileType,
    /// Name before it is made safe.
    pub(crate) hint: String,
    /// The file's persisted id, name and URL.
    pub(crate) attachment: Option<MessageAttachment>,
    /// The reason why it cannot be fetched.
    pub(crate) refusal: Option<RenewalRefusal>,
}

/// The files of one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct CollectedMessage {
    /// The message's files, in the order of their indexes.
    pub(crate) found: Vec<FoundFile>,
    /// Files without an id; only the default generation reports them.
    pub(crate) left_out: Vec<ExcludedFile>,
}

/// A value that may name a file.
struct FileCandidate<'a> {
    part: FilePart,
    attachment: Option<&'a MessageAttachment>,
}

impl<'a> CollectRules<'a> {
    pub(crate) fn of(request: &'a ContextRequest) -> Self {
        Self {
            generation: request.generation,
            normaliser: UrlNormaliser::new(request.generation, request.origin.as_deref()),
            max_files: limits::max_files(request.max_files),
            declared: &request.declared_types,
            renewals: request.renewals.as_ref(),
        }
    }

    /// The files of a stored message.
    pub(crate) fn of_history(&self, item: &ChatItem) -> CollectedMessage {
        self.collect(
            file_candidates(&item.files(), &item.attachments),
            FileTurn::History,
        )
    }

    /// The files of this turn: of the message first, then of the node's input.
    pub(crate) fn of_turn(&self, message: Option<&ChatItem>, input: &[Value]) -> CollectedMessage {
        let mut seen = BTreeSet::new();
        let mut parts = message.map(ChatItem::files).unwrap_or_default();
        let input_urls = input.iter().filter_map(Value::as_str);
        parts.extend(
            input_urls
                .filter(|url| !url.is_empty())
                .map(|url| FilePart {
                    url: Some(url.to_owned()),
                    ..FilePart::default()
                }),
        );
        // Equal strings are removed before normalisation (section 4, step 1).
        parts.retain(|part| {
            let url = part.url.clone().filter(|url| !url.is_empty());
            let is_named = part.key.is_some() || self.reports_left_out();
            // Without a URL, only a key identifies a file. The default generation keeps parts without both in order to
            // report them.
            url.map_or(is_named, |url| seen.insert(url))
        });
        let attachments = message.map_or(&[] as &[_], |item| &item.attachments);
        self.collect(file_candidates(&parts, attachments), FileTurn::Current)
    }

    fn reports_left_out(&self) -> bool {
        self.generation == ContractGeneration::Stable
    }

    /// Removes unusable and repeated candidates, applies the limit and assigns indexes. Files without a type are
    /// removed last, so indexes may have gaps.
    fn collect(&self, candidates: Vec<FileCandidate<'_>>, turn: FileTurn) -> CollectedMessage {
        let mut seen = BTreeSet::new();
        let mut collected = CollectedMessage::default();
        let leave_out = |part: &FilePart, url: &str, reason: ExclusionReason| {
            // The name is cut, because it may be a `data:` URL with the complete content.
            let name: String = self
                .hint(part, url)
                .chars()
                .take(limits::MAX_LEFT_OUT_NAME_CHARS)
                .collect();
            let is_reported = self.reports_left_out() && !name.is_empty();
            is_reported.then_some(ExcludedFile { name, reason, turn })
        };
        let (mut index, mut index_without_data_urls) = (0, 0);
        for candidate in candidates {
            let Some((url, refusal)) = self.renew_url(&candidate.part) else {
                let written = candidate.part.url.as_deref().unwrap_or_default();
                let left_out = leave_out(&candidate.part, written, ExclusionReason::Url);
                collected.left_out.extend(left_out);
                continue;
            };
            let identity = self.identity(&candidate.part, &url);
            // The first one wins, with its name (section 4, step 3).
            if !seen.insert(identity.clone()) {
                continue;
            }
            // A persisted file keeps its index even if the limit is lower now.
            if index >= self.max_files && candidate.attachment.is_none() {
                let left_out = leave_out(&candidate.part, &url, ExclusionReason::Limit);
                collected.left_out.extend(left_out);
                continue;
            }
            let indexes = (index, index_without_data_urls);
            // The index counts before the type is known, so ids may have gaps (section 4, step 6).
            index += 1;
            index_without_data_urls += usize::from(!url.starts_with("data:"));
            let refused = refusal.filter(|refusal| self.is_left_out(*refusal, turn));
            if let Some(refusal) = refused {
                let left_out = leave_out(&candidate.part, &url, refusal.into());
                collected.left_out.extend(left_out);
                continue;
            }
            let part = candidate.part.clone();
            match self.to_found_file(candidate, indexes, (url.clone(), refusal), identity) {
                Some(found) => collected.found.push(found),
                None => collected
                    .left_out
                    .extend(leave_out(&part, &url, ExclusionReason::Url)),
            }
        }
        collected
    }

    /// Whether a file that cannot be fetched gets no id. A file of history keeps its id if it had one, because the
    /// model may use it.
    fn is_left_out(&self, refusal: RenewalRefusal, turn: FileTurn) -> bool {
        self.reports_left_out() && (turn == FileTurn::Current || refusal == RenewalRefusal::Name)
    }

    fn to_found_file(
        &self,
        candidate: FileCandidate<'_>,
        (index, index_without_data_urls): (usize, usize),
        (url, refusal): (String, Option<RenewalRefusal>),
        identity: String,
    ) -> Option<FoundFile> {
        let FileCandidate { part, attachment } = candidate;
        let file_type = match attachment {
            Some(attachment) => attachment.file_type,
            None => self.type_of(&part, &url)?,
        };
        // This check comes after the index is assigned (section 4, step 7).
        if self.generation == ContractGeneration::G2 && !file_type.is_document() {
            return None;
        }
        Some(FoundFile {
            index,
            index_with_data_urls: index,
            index_without_data_urls,
            hint: self.hint(&part, &url),
            raw: part.url.unwrap_or_default(),
            url,
            key: part.key,
            identity,
            file_type,
            attachment: attachment.cloned(),
            refusal,
        })
    }

    /// The URL for this request, and the reason if it cannot be used. `None` drops the candidate.
    fn renew_url(&self, part: &FilePart) -> Option<(String, Option<RenewalRefusal>)> {
        let stored = part.url.as_deref().unwrap_or_default();
        let Some(renewals) = self.renewals else {
            return Some((self.normaliser.normalise(stored)?, None));
        };
        if let Some(key) = &part.key {
            // Only the key counts: the signature of the stored URL may have expired (16.1).
            let fresh = renewals.url(key).and_then(|url| {
                let url = self.normaliser.normalise(url);
                url.ok_or(RenewalRefusal::Unsigned)
            });
            return Some(match fresh {
                Ok(url) => (url, None),
                Err(refusal) => {
                    let url = self.normaliser.normalise(stored);
                    (url.unwrap_or_default(), Some(refusal))
                }
            });
        }
        let url = self.normaliser.normalise(stored)?;
        // This server opens its own paths, and `data:` has no host.
        let external = !url.starts_with('/') && !url.starts_with("data:");
        let refusal = (external && !renewals.allows(&url)).then_some(RenewalRefusal::Url);
        Some((url, refusal))
    }

    /// The identity of a file (16.2); older generations compare URLs only.
    fn identity(&self, part: &FilePart, url: &str) -> String {
        if !self.generation.compares_identity() {
            return format!("external:{url}");
        }
        match &part.key {
            Some(key) => format!("chat:{key}"),
            None => format!("external:{}", address::without_fragment(url)),
        }
    }

    fn type_of(&self, part: &FilePart, url: &str) -> Option<FileType> {
        let by_url = kind::of_url(url)?;
        // An image that was uploaded as `file` is judged by its URL (5.1).
        let declared = part.file_type.filter(|kind| !kind.is_document());
        if let Some(declared) = declared.filter(|_| self.generation.trusts_declared()) {
            return Some(declared);
        }
        let raw = part.url.as_deref().unwrap_or_default();
        let without_fragment = address::without_fragment(url);
        // The URL of the request is looked up, too: the peer misses a declaration once it removed the origin (5.1).
        let mut urls = [url, raw, without_fragment].into_iter();
        let known = urls.find_map(|url| self.declared.get(url));
        if let Some(known) = known {
            return Some(*known);
        }
        // The default generation also uses the name if the URL has no file name.
        if self.generation == ContractGeneration::Stable && kind::file_name(url).is_none() {
            let key = part.key.as_deref().and_then(kind::file_name);
            let named = key.or_else(|| Some(part.name.clone()));
            let extension = named.as_deref().and_then(kind::name_extension);
            return Some(extension.map_or(by_url, kind::of_extension));
        }
        Some(by_url)
    }

    fn hint(&self, part: &FilePart, url: &str) -> String {
        if !part.name.is_empty() {
            return part.name.clone();
        }
        let by_key = || part.key.as_deref().and_then(kind::file_name);
        if let Some(name) = kind::file_name(url).or_else(by_key) {
            return name;
        }
        if self.generation.cleans_names() {
            // Cleaning takes the last segment: `/api/file/raw` shows as `raw` (5.2).
            let path = url.split(['?', '#']).next().unwrap_or_default();
            return path.trim_end_matches('/').to_owned();
        }
        url.to_owned()
    }
}

/// The parts, each with its persisted data, then persisted files without a part: files of a node's input.
fn file_candidates<'a>(
    parts: &[FilePart],
    attachments: &'a [MessageAttachment],
) -> Vec<FileCandidate<'a>> {
    let mut unmatched: Vec<_> = attachments.iter().collect();
    let mut candidates = Vec::new();
    for part in parts {
        let index = unmatched
            .iter()
            .position(|attachment| is_file_of_part(attachment, part));
        candidates.push(FileCandidate {
            part: part.clone(),
            // The attachment is removed: two parts with the same URL must not share one persisted file.
            attachment: index.map(|index| unmatched.remove(index)),
        });
    }
    candidates.extend(unmatched.into_iter().map(|attachment| FileCandidate {
        part: FilePart {
            file_type: Some(attachment.file_type),
            name: attachment.name.clone(),
            url: Some(attachment.url.clone()),
            key: attachment.key.clone(),
        },
        attachment: Some(attachment),
    }));
    candidates
}

fn is_file_of_part(attachment: &MessageAttachment, part: &FilePart) -> bool {
    if let (Some(left), Some(right)) = (&attachment.key, &part.key) {
        return left == right;
    }
    let url = part.url.as_deref().unwrap_or_default();
    attachment.url == url
        // The URL may have been signed again since it was stored.
        || address::without_signature(&attachment.url) == address::without_signature(url)
            && !url.is_empty()
}
