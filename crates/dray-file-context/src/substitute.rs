//! URLs in place of ids, in the arguments of tools (agent-file-context 15).
//!
//! A model names files by id; other tools need links. A string value is replaced only if the complete string is an id;
//! parts of strings, keys and other values are never replaced. The functions map values to values, and look ids up only
//! in the caller's map.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address;
use crate::catalog::{CatalogEntry, FileCatalog};
use crate::escape::unescape_xml;
use crate::limits;

mod text;

pub use text::{SubstitutedText, named_in_text, substitute_text};

/// Replaces every string that is an id of the map by its URL. A falsy value, an empty map and an empty URL have no
/// effect.
///
/// This is the function of the contract, which trusts the map. [`substitute_ids`] also accepts older forms of ids,
/// renews links and never returns a relative one.
pub fn replace_agent_file_ids_with_urls(value: &Value, urls: &BTreeMap<String, String>) -> Value {
    if urls.is_empty() || is_falsy(value) {
        return value.clone();
    }
    replace_strings(value, limits::MAX_ARGUMENT_DEPTH, &mut |text| {
        urls.get(text).filter(|url| !url.is_empty()).cloned()
    })
}

fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The same shape with other strings. Values deeper than `depth` are not changed.
fn replace_strings(
    value: &Value,
    depth: usize,
    change: &mut impl FnMut(&str) -> Option<String>,
) -> Value {
    match value {
        Value::String(text) => Value::String(change(text).unwrap_or_else(|| text.clone())),
        // The depth is bounded, since arguments come from a model and the walk is recursive.
        Value::Array(items) if depth > 0 => {
            let items = items
                .iter()
                .map(|item| replace_strings(item, depth - 1, change));
            Value::Array(items.collect())
        }
        Value::Object(fields) if depth > 0 => {
            let fields = fields.iter();
            let fields =
                fields.map(|(key, item)| (key.clone(), replace_strings(item, depth - 1, change)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// The arguments of a call: the configured ones, overridden by those of the model. A model's argument that is not an
/// object is ignored.
pub fn merge_arguments(
    configured: &Map<String, Value>,
    given_arguments: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = configured.clone();
    for (key, value) in given_arguments {
        merged.insert(key.clone(), value.clone());
    }
    merged
}

/// The kind of tool that a model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CalleeKind {
    /// A plain tool, such as an HTTP request or an MCP server's.
    Tool,
    /// A sub-workflow, its question included.
    SubWorkflow,
    /// A workflow that a plugin brings along.
    Plugin,
    /// `read_files`, which itself accepts ids.
    ReadFiles,
    /// `dataset_search`, which accepts no links.
    DatasetSearch,
    /// A tool of the sandbox.
    Sandbox,
}

impl CalleeKind {
    /// Whether ids in its arguments are replaced.
    pub fn gets_urls(self) -> bool {
        matches!(self, Self::Tool | Self::SubWorkflow | Self::Plugin)
    }
}

/// Arguments with URLs, and the outcome of each file that they named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubstitutedArguments {
    /// The arguments after the replacement.
    pub value: Value,
    /// Ids whose URL was put in.
    pub replaced: Vec<String>,
    /// Ids that were kept, because they have no URL that other services can open.
    pub unresolved: Vec<String>,
}

/// The ids of files that a value names, so that their links can be renewed before [`substitute_ids`]. Each once,
/// in order of appearance.
pub fn named_entries<'a>(value: &Value, catalog: &'a FileCatalog) -> Vec<&'a CatalogEntry> {
    let handles = FileHandles::of(catalog);
    let mut found: Vec<&CatalogEntry> = Vec::new();
    let mut seen = BTreeSet::new();
    // Uses the walk of the replacement without changes, so that both find the same strings.
    replace_strings(value, limits::MAX_ARGUMENT_DEPTH, &mut |text| {
        let entry = handles.find(text)?;
        if seen.insert(&entry.file.id) {
            found.push(entry);
        }
        None
    });
    found
}

/// Replaces every string that is a file's id, an older form of one, or a former URL, by the current URL from `renew`.
/// `renew` is called once per file; if its result is not an absolute `http(s)` URL, the string is kept.
/// Positions of the oldest conversations (`3-0`) are never replaced, because many other texts look like them.
pub fn substitute_ids(
    value: &Value,
    catalog: &FileCatalog,
    mut renew: impl FnMut(&CatalogEntry) -> Option<String>,
) -> SubstitutedArguments {
    let handles = FileHandles::of(catalog);
    let mut fresh: BTreeMap<String, Option<String>> = BTreeMap::new();
    let value = replace_strings(value, limits::MAX_ARGUMENT_DEPTH, &mut |text| {
        let entry = handles.find(text)?;
        let known = fresh.entry(entry.file.id.clone()).or_insert_with(|| {
            let url = renew(entry);
            url.filter(|url| address::is_absolute_http(url))
        });
        known.clone()
    });
    let ids_where = |is_replaced: bool| -> Vec<String> {
        let ids = fresh.iter().filter(|(_, url)| url.is_some() == is_replaced);
        ids.map(|(id, _)| id.clone()).collect()
    };
    SubstitutedArguments {
        replaced: ids_where(true),
        unresolved: ids_where(false),
        value,
    }
}

/// A substitution as another service requests it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubstituteRequest {
    /// Arguments from the tool's configuration.
    pub configured: Map<String, Value>,
    /// Arguments from the model, which override the configured ones.
    pub arguments: Map<String, Value>,
    /// The files of the conversation, from [`crate::BuiltContext::catalog`].
    pub catalog: FileCatalog,
    /// Renewed links by id; null if the renewal failed. A file without an entry keeps the link of the build, which must
    /// still be valid.
    pub urls: BTreeMap<String, Option<String>>,
}

impl SubstituteRequest {
    /// The merged arguments before anything is replaced; [`named_entries`] returns the files whose links to renew.
    pub fn merged(&self) -> Value {
        Value::Object(merge_arguments(&self.configured, &self.arguments))
    }

    /// Merges the arguments and replaces the ids in them.
    pub fn run(&self) -> SubstitutedArguments {
        substitute_ids(&self.merged(), &self.catalog, |entry| {
            match self.urls.get(&entry.file.id) {
                Some(fresh) => fresh.clone(),
                None => entry.public_url.clone().filter(|_| !entry.unavailable),
            }
        })
    }
}

/// Every string that names a file.
struct FileHandles<'a> {
    by_text: BTreeMap<&'a str, &'a CatalogEntry>,
}

impl<'a> FileHandles<'a> {
    fn of(catalog: &'a FileCatalog) -> Self {
        // Later entries win: ids over older forms of ids, those over URLs.
        let mut by_text = BTreeMap::new();
        for entry in catalog.entries() {
            let urls = [Some(&entry.file.url), entry.public_url.as_ref()];
            let urls = urls.into_iter().flatten().chain(&entry.former_urls);
            let absolute = urls.filter(|url| address::is_absolute_http(url));
            by_text.extend(absolute.map(|url| (url.as_str(), entry)));
        }
        for entry in catalog.entries() {
            by_text.extend(entry.aliases.iter().map(|alias| (alias.as_str(), entry)));
        }
        for entry in catalog.entries() {
            by_text.insert(&entry.file.id, entry);
        }
        Self { by_text }
    }

    /// The file that a complete string identifies; a URL may have the spelling of a reminder (17.3).
    fn find(&self, text: &str) -> Option<&'a CatalogEntry> {
        if let Some(entry) = self.by_text.get(text) {
            return Some(entry);
        }
        if text.starts_with("http") && text.contains("&amp;") {
            return self.by_text.get(unescape_xml(text).as_str()).copied();
        }
        None
    }
}

/// Results of calls that fail.
pub mod texts {
    /// The arguments are not a JSON object.
    pub const NOT_AN_OBJECT: &str = "Params is not object";
    /// The message for an unsupported kind of tool.
    pub const INVALID_TYPE: &str = "Invalid tool type";

    /// Result of a tool that failed, with its message.
    pub fn tool_error(message: &str) -> String {
        format!("Tool error: {message}")
    }
}

#[cfg(test)]
mod tests;
