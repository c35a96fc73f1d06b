//! The files of a conversation with all of their names. Tools look files up in the catalog, and the maps are made from
//! it (agent-file-context 11).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{AgentInputFile, FileType};

/// The turn of a file: an earlier message or the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileTurn {
    /// The file is from an earlier message.
    History,
    /// The file is from the current message.
    Current,
}

/// One file of the conversation, with all ids and URLs by which it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogEntry {
    /// Id, name, type and the URL that the server itself fetches.
    #[serde(flatten)]
    pub file: AgentInputFile,
    /// The turn of the file: the current message or an earlier one.
    pub turn: FileTurn,
    /// The URL that other services can open; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// Whether the file can no longer be fetched.
    #[serde(default, skip_serializing_if = "crate::is_false")]
    pub unavailable: bool,
    /// Older forms of its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Older forms that are only a position and a number: accepted for reading, but never replaced in arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<String>,
    /// URLs that it had before, as they were stored (16.2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_urls: Vec<String>,
}

impl CatalogEntry {
    /// Whether the URL is, or was before, a URL of this file.
    pub fn has_url(&self, url: &str) -> bool {
        !url.is_empty()
            && (self.file.url == url
                || self.public_url.as_deref() == Some(url)
                || self.former_urls.iter().any(|former| former == url))
    }
}

/// The files of a conversation, oldest first, the current turn's last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileCatalog {
    entries: Vec<CatalogEntry>,
}

impl FileCatalog {
    /// A catalog of these entries, oldest first. Of two entries with the same id, the later one counts. An older form
    /// that two files claim, or that is the id of another file, is removed.
    pub fn new(entries: Vec<CatalogEntry>) -> Self {
        let mut merged: Vec<CatalogEntry> = Vec::new();
        let mut index_of_key: BTreeMap<String, usize> = BTreeMap::new();
        for entry in entries {
            let known = index_of_key.get(&entry.file.id).copied();
            let Some(earlier) = known.and_then(|index| merged.get_mut(index)) else {
                index_of_key.insert(entry.file.id.clone(), merged.len());
                merged.push(entry);
                continue;
            };
            let former = std::mem::take(&mut earlier.former_urls);
            // The same stored object: URLs of the earlier message still lead to it (16.2).
            let is_same_object = earlier.file.key.is_some() && earlier.file.key == entry.file.key;
            // The later one counts, in place of the earlier (6.3).
            *earlier = entry;
            if is_same_object {
                earlier.former_urls.extend(former);
            }
        }
        let mut claims: BTreeMap<String, usize> = BTreeMap::new();
        for entry in &merged {
            // A set, since an entry that has a form twice claims it once.
            let forms: BTreeSet<_> = entry.aliases.iter().chain(&entry.positions).collect();
            for form in forms {
                *claims.entry(form.clone()).or_default() += 1;
            }
        }
        let is_clear =
            |form: &String| claims.get(form) == Some(&1) && !index_of_key.contains_key(form);
        for entry in &mut merged {
            entry.aliases.retain(is_clear);
            entry.positions.retain(is_clear);
        }
        Self { entries: merged }
    }

    /// All files, oldest first.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Whether the catalog is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file with this id, or with this older form of an id. The id is not trimmed, and case matters.
    pub fn find(&self, id: &str) -> Option<&CatalogEntry> {
        let by_id = self.entries.iter().find(|entry| entry.file.id == id);
        by_id.or_else(|| {
            let is_id = |form: &String| form == id;
            let mut entries = self.entries.iter();
            entries
                .find(|entry| entry.aliases.iter().any(is_id) || entry.positions.iter().any(is_id))
        })
    }

    /// The file that has this URL or had it before; the newest of several.
    pub fn find_url(&self, url: &str) -> Option<&CatalogEntry> {
        self.entries.iter().rev().find(|entry| entry.has_url(url))
    }

    /// The file of a number of G0: this turn's files, then the history's, each name once, from 1.
    pub fn find_number(&self, number: usize) -> Option<&CatalogEntry> {
        let index = number.checked_sub(1)?;
        self.numbered().into_iter().nth(index)
    }

    /// Files in the order of G0.
    pub fn numbered(&self) -> Vec<&CatalogEntry> {
        let of_turn = |turn: FileTurn| self.entries.iter().filter(move |entry| entry.turn == turn);
        let mut names = BTreeSet::new();
        of_turn(FileTurn::Current)
            .chain(of_turn(FileTurn::History))
            // G0 identified files by name, so a later file of the same name has no number (18.3).
            .filter(|entry| names.insert(&entry.file.name))
            .collect()
    }

    /// Ids of files that can be read, for a model that named another one.
    pub fn readable_ids(&self) -> Vec<&str> {
        let readable = self
            .entries
            .iter()
            .filter(|entry| entry.file.file_type.is_document() && !entry.unavailable);
        readable.map(|entry| entry.file.id.as_str()).collect()
    }

    /// Map from id to URL for tools: only URLs that other services can open, without expired or empty ones.
    pub fn urls(&self) -> BTreeMap<String, String> {
        let usable = self.entries.iter().filter(|entry| !entry.unavailable);
        usable
            .filter_map(|entry| Some((entry.file.id.clone(), entry.public_url.clone()?)))
            .collect()
    }
}

/// The value of an id in the map of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DocumentTarget {
    /// Only the URL (G0 to G3, and the default).
    Url(String),
    /// URL and name (G4, G5).
    Named {
        /// Name of the document for the model.
        name: String,
        /// URL that the server itself fetches.
        url: String,
    },
}

impl DocumentTarget {
    /// The URL, with or without a name beside it.
    pub fn url(&self) -> &str {
        match self {
            Self::Url(url) | Self::Named { url, .. } => url,
        }
    }
}

/// The value of an id in the map of all files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnyTarget {
    /// Name of the file for the model.
    pub name: String,
    /// The type for the model.
    #[serde(rename = "type")]
    pub file_type: FileType,
    /// URL that the server itself fetches.
    pub url: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(id: &str, name: &str, file_type: FileType, turn: FileTurn) -> CatalogEntry {
        let url = format!("https://h.example/{name}");
        CatalogEntry {
            file: AgentInputFile {
                id: id.into(),
                name: name.into(),
                file_type,
                url: url.clone(),
                key: None,
            },
            turn,
            public_url: Some(url),
            unavailable: false,
            aliases: Vec::new(),
            positions: Vec::new(),
            former_urls: Vec::new(),
        }
    }

    pub(crate) fn document(id: &str) -> CatalogEntry {
        entry(id, &format!("{id}.pdf"), FileType::File, FileTurn::History)
    }

    #[test]
    fn a_later_file_replaces_an_earlier_one_with_the_same_id() {
        let mut later = document("a-0");
        later.file.name = "new.pdf".into();
        let catalog = FileCatalog::new(vec![document("a-0"), document("b-0"), later]);
        assert_eq!(catalog.entries().len(), 2);
        assert_eq!(catalog.find("a-0").unwrap().file.name, "new.pdf");
    }

    #[test]
    fn r_1_an_older_form_that_two_files_claim_is_not_used() {
        let with_aliases = |id: &str, aliases: &[&str]| {
            let mut entry = document(id);
            entry.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
            entry
        };
        let catalog = FileCatalog::new(vec![
            with_aliases("a-0", &["x-0", "b-0", "y-0"]),
            with_aliases("b-0", &["x-0"]),
        ]);
        assert!(catalog.find("x-0").is_none());
        assert_eq!(catalog.find("b-0").unwrap().file.id, "b-0");
        assert_eq!(catalog.find("y-0").unwrap().file.id, "a-0");
        assert!(catalog.find("A-0").is_none() && catalog.find("a-0 ").is_none());
    }

    #[test]
    fn r_11_numbers_count_this_turn_first_and_each_name_once() {
        let catalog = FileCatalog::new(vec![
            entry("h-0", "a.pdf", FileType::File, FileTurn::History),
            entry("h-1", "b.png", FileType::Image, FileTurn::History),
            entry("c-0", "c.pdf", FileType::File, FileTurn::Current),
            entry("c-1", "a.pdf", FileType::File, FileTurn::Current),
        ]);
        let id = |number| {
            catalog
                .find_number(number)
                .map(|entry| entry.file.id.as_str())
        };
        assert_eq!(
            [id(1), id(2), id(3)],
            [Some("c-0"), Some("c-1"), Some("h-1")]
        );
        assert_eq!([id(0), id(4)], [None, None]);
    }

    #[test]
    fn a_catalog_survives_json() {
        let mut renewed = document("a-0");
        renewed.former_urls = vec!["https://old".into()];
        renewed.unavailable = true;
        let catalog = FileCatalog::new(vec![renewed, document("b-0")]);
        let json = serde_json::to_string(&catalog).unwrap();
        assert_eq!(serde_json::from_str::<FileCatalog>(&json).unwrap(), catalog);
        assert_eq!(catalog.urls().len(), 1);
        assert_eq!(catalog.find_url("https://old").unwrap().file.id, "a-0");
    }
}
