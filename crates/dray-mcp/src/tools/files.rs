//! `fetch`, `list`, `get` and `put`: move and list files. Results contain handles and not the bytes of files.

use dray_presentation::name;
use dray_proto::{NamedCode as _, v1};
use dray_types::{Fault, Sha256Digest};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use super::{ToolCall, extended, linked_result, next_call, not_permitted, structured_result};
use crate::arguments::{FetchArguments, GetArguments, ListArguments, PutArguments};
use crate::budget;
use crate::client::{SHORT_TIMEOUT, TRANSFER_TIMEOUT};
use crate::content::{StoredFile, run_blocking};
use crate::failure;
use crate::location::{Location, host_name_of_url, path_name_of_url};
use crate::options::ToolName;

/// Entries of a directory in one result unless the caller sets a limit.
const DEFAULT_ENTRIES: u32 = 200;
/// Most entries of a directory in one result.
const MAX_ENTRIES: u32 = 500;

impl ToolCall<'_> {
    pub(super) async fn fetch(&mut self, fetch: FetchArguments) -> Result<CallToolResult, Fault> {
        let Location::Url(url) = self.access.parse(&fetch.url)? else {
            return Err(failure::invalid(
                "`url` is not an http or https URL.",
                "`read` and `get` take other places.",
            )
            .detail("url_invalid"));
        };
        self.progress.step("fetching").await;
        let (stored, reply) = self.access.fetch(&url, fetch.max_bytes).await?;
        let value = json!({
            "final_url": reply.final_url,
            "http_status": reply.http_status,
            "next": read_call(&stored),
        });
        Ok(linked_result(&stored, extended(stored.describe(), value)))
    }

    pub(super) async fn list(&mut self, list: ListArguments) -> Result<CallToolResult, Fault> {
        let limit = list.limit.unwrap_or(DEFAULT_ENTRIES).clamp(1, MAX_ENTRIES);
        let listing = match self.access.parse(&list.path)? {
            Location::Local(path) => self.list_local(path, list.offset, limit).await?,
            Location::Sandbox(path) => self.list_sandbox(&path, list.offset, limit).await?,
            Location::Url(_) | Location::Artifact(_) | Location::Ticket(_) => {
                return Err(failure::invalid(
                    "Only directories have a listing.",
                    "`read` shows what is in an archive.",
                )
                .detail("not_a_directory"));
            }
        };
        let listing = listing.within_bytes(budget::text_bytes(None)?);
        let is_truncated = listing.has_more || listing.is_cut;
        let mut value = json!({"entries": listing.entries, "truncated": is_truncated});
        if let Some(note) = listing.note() {
            value = extended(value, json!({"note": note}));
        }
        if listing.has_more {
            let shown = u32::try_from(listing.entries.len()).unwrap_or(limit);
            let arguments = json!({"path": list.path, "offset": list.offset.saturating_add(shown), "limit": limit});
            value = extended(
                value,
                json!({"next": next_call(ToolName::List, &arguments)}),
            );
        }
        Ok(structured_result(value))
    }

    async fn list_local(&self, path: String, offset: u32, limit: u32) -> Result<Listing, Fault> {
        let root = self.access.root()?.clone();
        let page = move || root.list(&path, offset as usize, limit as usize);
        let page = run_blocking(page).await?;
        let entries = page.entries.iter();
        let entries = entries
            .map(|entry| json!({"name": entry.name, "kind": entry.kind, "size": entry.size}));
        Ok(Listing {
            entries: entries.collect(),
            has_more: page.has_more,
            is_cut: page.is_cut && !page.has_more,
            denied: 0,
        })
    }

    async fn list_sandbox(&self, path: &str, offset: u32, limit: u32) -> Result<Listing, Fault> {
        let request = v1::ListSandboxRequest {
            sandbox: Some(self.access.client.sandbox()),
            path: path.as_bytes().to_vec(),
            depth: 1,
            // One more entry, which shows whether there is a next part.
            limit: limit.saturating_add(1),
            offset,
        };
        let client = &self.access.client;
        let call = |request| async move { client.call(SHORT_TIMEOUT, &request).await };
        let reply = request.list_from_offset(call).await?;
        let entries = reply.entries.iter().map(|entry| {
            let path = String::from_utf8_lossy(&entry.path);
            json!({
                "name": path.rsplit('/').next().unwrap_or_default(),
                "path": format!("sandbox:{path}"),
                "kind": entry.entry_kind().name(),
                "size": entry.size,
            })
        });
        let mut listing = Listing::page(entries, 0, limit);
        // A message may hold fewer entries than requested. Without any, the limit of a listing is reached.
        listing.is_cut = reply.truncated && reply.entries.is_empty();
        listing.has_more |= reply.truncated && !listing.is_cut;
        listing.denied = reply.denied;
        Ok(listing)
    }

    pub(super) async fn get(&mut self, get: GetArguments) -> Result<CallToolResult, Fault> {
        let location = self.access.parse(&get.from)?;
        if get.to.is_some() && !self.options.permissions.write {
            return Err(not_permitted(
                "Writing files of this machine",
                "--allow-write",
            ));
        }
        let stored = self.access.store(&location, &mut self.progress).await?;
        let mut value = extended(stored.describe(), json!({"next": read_call(&stored)}));
        if let Some(to) = &get.to {
            let Location::Local(path) = self.access.parse(to)? else {
                return Err(failure::invalid(
                    "`to` is not a path of this machine.",
                    "`put` copies a file into the sandbox.",
                )
                .detail("location_invalid"));
            };
            self.save(&stored, &path).await?;
            value = extended(value, json!({"written_to": path}));
        }
        Ok(linked_result(&stored, value))
    }

    /// Writes a new local file. In a repeated transfer, an existing file with the same content counts as written:
    /// another server wrote it before it died.
    async fn save(&mut self, stored: &StoredFile, path: &str) -> Result<(), Fault> {
        let saved = self.access.save(stored, path, &mut self.progress).await;
        match saved {
            Err(fault) if self.repeats && fault.detail == "exists" => {
                let found = self.access.local_digest(path).await?;
                if found == stored.claim.artifact.sha256 {
                    return Ok(());
                }
                Err(fault)
            }
            saved => saved,
        }
    }

    pub(super) async fn put(&mut self, put: PutArguments) -> Result<CallToolResult, Fault> {
        let location = self.access.parse(&put.from)?;
        let stored = self.access.store(&location, &mut self.progress).await?;
        let directory = match put.directory.strip_prefix("sandbox:") {
            Some(directory) => directory,
            None => &put.directory,
        };
        let target_name = file_name(&put.name, &location, &stored)?;
        self.progress.step("copying into the sandbox").await;
        let request = v1::PutSandboxFileRequest {
            sandbox: Some(self.access.client.sandbox()),
            claim: Some(stored.claim.clone().into()),
            directory: directory.as_bytes().to_vec(),
            name: target_name.into_bytes(),
            collision: put.collision.as_str().to_owned(),
            mode: 0,
        };
        let placed = self
            .access
            .client
            .call_once_as(self.operation.clone(), TRANSFER_TIMEOUT, &request)
            .await?;
        let integrity = placed.receipt.map(|receipt| receipt.integrity);
        Ok(structured_result(json!({
            "path": format!("sandbox:{}", String::from_utf8_lossy(&placed.path)),
            "size": placed.size,
            "sha256": digest_text(&placed.sha256),
            "renamed": placed.renamed,
            "integrity": integrity.unwrap_or_default(),
        })))
    }
}

/// A part of the entries of a directory.
struct Listing {
    entries: Vec<Value>,
    /// Whether the next part has entries.
    has_more: bool,
    /// Whether the directory has entries that no part lists.
    is_cut: bool,
    /// Entries that policy refuses.
    denied: u32,
}

impl Listing {
    fn page(entries: impl Iterator<Item = Value>, offset: u32, limit: u32) -> Self {
        let mut rest = entries.skip(offset as usize);
        let entries = rest.by_ref().take(limit as usize).collect();
        Self {
            entries,
            has_more: rest.next().is_some(),
            is_cut: false,
            denied: 0,
        }
    }

    /// The sentence about entries that are missing, with the reason; `None` when none is missing.
    fn note(&self) -> Option<String> {
        let denied = (self.denied > 0)
            .then(|| format!("Left out, because policy refuses them: {}.", self.denied));
        let truncation = self.is_cut.then(|| {
            "The directory has more entries than can be listed; name those that you need."
                .to_owned()
        });
        let notes: Vec<_> = denied.into_iter().chain(truncation).collect();
        (!notes.is_empty()).then(|| notes.join(" "))
    }

    /// The first entries that take at most this many bytes of JSON, and at least one.
    fn within_bytes(mut self, max_bytes: u64) -> Self {
        let mut bytes = 0;
        let fitting = self.entries.iter().take_while(|entry| {
            // The comma between entries counts as well.
            bytes += entry.to_string().len() as u64 + 1;
            bytes <= max_bytes
        });
        let count = fitting.count().max(1);
        self.has_more |= count < self.entries.len();
        self.entries.truncate(count);
        self
    }
}

fn read_call(stored: &StoredFile) -> Value {
    next_call(ToolName::Read, &json!({"path": stored.handle()}))
}

/// The name of a file in the sandbox: the given one, its own, or an error if it has none.
fn file_name(given: &str, location: &Location, stored: &StoredFile) -> Result<String, Fault> {
    if !given.is_empty() {
        return Ok(name::clean_name(given));
    }
    let own = &stored.claim.artifact.name;
    if !own.is_empty() {
        return Ok(own.clone());
    }
    match location {
        Location::Artifact(_) | Location::Ticket(_) => Err(failure::invalid(
            "The stored file has no name.",
            "Give `name`.",
        )
        .detail("name_missing")),
        Location::Url(url) => {
            Ok(path_name_of_url(url).unwrap_or_else(|| host_name_of_url(url, &stored.media_type)))
        }
        Location::Local(path) | Location::Sandbox(path) => Ok(name::clean_name(
            path.rsplit('/').next().unwrap_or_default(),
        )),
    }
}

/// A digest of the wire as text; empty where it is absent.
pub(super) fn digest_text(bytes: &[u8]) -> String {
    Sha256Digest::try_from(bytes)
        .map(Sha256Digest::to_hex)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_listing_meet_without_gaps() {
        let entries = || (0..5).map(|entry| json!(entry));
        let page = |offset| {
            let listing = Listing::page(entries(), offset, 2);
            (listing.entries, listing.has_more)
        };
        assert_eq!(page(0), (vec![json!(0), json!(1)], true));
        assert_eq!(page(4), (vec![json!(4)], false));
        assert_eq!(page(9), (Vec::new(), false));
    }
}
