//! URLs in place of ids, in the arguments of tools (agent-file-context 15).
//!
//! A model names files by id; other tools need links. A string value is replaced only if the complete string is an id;
//! parts of strings, keys and other values are never replaced. The arguments stay text: numbers keep all digits, keys
//! keep their position, and escapes keep their spelling. Ids are looked up only in the caller's catalog.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;

use crate::address;
use crate::catalog::{CatalogEntry, FileCatalog};
use crate::escape::unescape_xml;
use crate::limits;

/// Arguments as text with URLs, and the outcome of each file that they named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubstitutedText {
    /// The text after the replacement, otherwise the same byte for byte.
    pub text: String,
    /// Ids whose URL was put in.
    pub replaced: Vec<String>,
    /// Ids that were kept, because they have no URL that other services can open.
    pub unresolved: Vec<String>,
}

/// The files that the strings of a JSON text name, so that their links can be renewed before [`substitute_text`]
/// . Each once, in order of appearance.
///
/// # Errors
///
/// The text is not JSON.
pub fn named_in_text<'a>(
    json: &str,
    catalog: &'a FileCatalog,
) -> Result<Vec<&'a CatalogEntry>, serde_json::Error> {
    let handles = FileHandles::of(catalog);
    let mut found: Vec<&CatalogEntry> = Vec::new();
    let mut seen = BTreeSet::new();
    replace_strings(json, &mut |text| {
        let entry = handles.find(text)?;
        if seen.insert(&entry.file.id) {
            found.push(entry);
        }
        None
    })?;
    Ok(found)
}

/// Replaces every string of a JSON text that is a file's id, an older form of one, or a former URL, by the current URL
/// from `renew`. `renew` is called once per file; if its result is not an absolute `http(s)` URL, the string is kept
/// . Positions of the oldest conversations (`3-0`) are never replaced, because many other texts look like them.
///
/// # Errors
///
/// The text is not JSON.
pub fn substitute_text(
    json: &str,
    catalog: &FileCatalog,
    mut renew: impl FnMut(&CatalogEntry) -> Option<String>,
) -> Result<SubstitutedText, serde_json::Error> {
    let handles = FileHandles::of(catalog);
    let mut fresh: BTreeMap<String, Option<String>> = BTreeMap::new();
    let text = replace_strings(json, &mut |text| {
        let entry = handles.find(text)?;
        let known = fresh.entry(entry.file.id.clone()).or_insert_with(|| {
            let url = renew(entry);
            url.filter(|url| address::is_absolute_http(url))
        });
        known.clone()
    })?;
    let ids_where = |is_replaced: bool| -> Vec<String> {
        let ids = fresh.iter().filter(|(_, url)| url.is_some() == is_replaced);
        ids.map(|(id, _)| id.clone()).collect()
    };
    Ok(SubstitutedText {
        replaced: ids_where(true),
        unresolved: ids_where(false),
        text,
    })
}

/// The same text with other strings in place of values. Keys and values that are too deep are kept.
fn replace_strings(
    json: &str,
    change: &mut impl FnMut(&str) -> Option<String>,
) -> Result<String, serde_json::Error> {
    // The walk below trusts the syntax.
    serde_json::from_str::<IgnoredAny>(json)?;
    let mut written = String::with_capacity(json.len());
    let mut rest = json;
    let mut position = JsonPosition::default();
    while let Some(index) = rest.find(['"', '{', '}', '[', ']', ',', ':']) {
        let (before, tail) = rest.split_at(index);
        written.push_str(before);
        let length = if tail.starts_with('"') {
            literal_length(tail)
        } else {
            position.step(tail);
            1
        };
        let (token, after) = tail.split_at(length);
        // Punctuation is one byte long, a string literal at least two.
        let is_value = token.len() > 1 && position.is_value();
        // Half of a surrogate pair is not text, so it cannot be an id.
        let decoded = is_value.then(|| serde_json::from_str::<String>(token).ok());
        match decoded.flatten().and_then(|text| change(&text)) {
            Some(other) => written.push_str(&serde_json::to_string(&other)?),
            None => written.push_str(token),
        }
        rest = after;
    }
    written.push_str(rest);
    Ok(written)
}

/// The position of the walk in the structure.
#[derive(Debug, Default)]
struct JsonPosition {
    /// Whether each open container is an object, outermost first.
    open: Vec<bool>,
    /// Whether the next string is a key.
    at_key: bool,
}

impl JsonPosition {
    fn step(&mut self, tail: &str) {
        match tail.as_bytes().first() {
            Some(b'{') => {
                self.open.push(true);
                self.at_key = true;
            }
            Some(b'[') => {
                self.open.push(false);
                self.at_key = false;
            }
            Some(b'}' | b']') => {
                self.open.pop();
                self.at_key = false;
            }
            Some(b',') => self.at_key = self.open.last().copied().unwrap_or_default(),
            _ => self.at_key = false,
        }
    }

    fn is_value(&self) -> bool {
        !self.at_key && self.open.len() <= limits::MAX_ARGUMENT_DEPTH
    }
}

/// Bytes of the string literal that `text` begins with, quotes included.
fn literal_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
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

#[cfg(test)]
mod tests;
