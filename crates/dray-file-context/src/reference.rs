//! References: one for each file of a run, under any of its URLs (agent-file-context 16.2, 16.3). Reads go by
//! reference, so that the age of a signature does not matter.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::address;
use crate::limits;
use crate::model::FilePart;
use crate::renew::{RenewalRefusal, RenewedLinks};

/// The location of a file. It determines the effect of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceLocation {
    /// The current message: a failure fails the run.
    Current,
    /// An earlier message: a failure is a warning.
    History,
    /// A variable, a form, or another source with this name, which a failure mentions.
    Source(String),
}

/// One file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReference {
    /// `chat:{key}` or `external:{url without fragment}`.
    pub identity: String,
    /// The URL that works now.
    pub url: String,
    /// Key of the object to read instead of the URL, if this system stores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name that the uploader gave.
    #[serde(default)]
    pub name: String,
}

/// The reason why a file has no reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnregisteredReason {
    /// A file of the current message.
    #[error(transparent)]
    Refused(#[from] RenewalRefusal),
    /// A file of a variable or a form.
    #[error("Invalid workflow {0} file URL")]
    Source(String),
    /// A file to read that was not registered.
    #[error("File is not registered in the provided context")]
    Read,
    /// A node's file that was not registered.
    #[error("Workflow file is not registered in the current context")]
    Node,
    /// A private file that a parent does not have cannot be handed to its child.
    #[error("Child workflow private file is not registered in the parent context")]
    Child,
}

/// All references of one run.
#[derive(Clone, Debug, Default)]
pub struct ReferenceTable {
    renewals: RenewedLinks,
    references: Vec<FileReference>,
    by_identity: BTreeMap<String, usize>,
    by_url: BTreeMap<String, usize>,
    warnings: Vec<(String, RenewalRefusal)>,
}

impl ReferenceTable {
    /// A table without references, for files that these links renew.
    pub fn new(renewals: RenewedLinks) -> Self {
        Self {
            renewals,
            ..Self::default()
        }
    }

    /// Registers a file. `None` is a file of history that is not available; a warning says so.
    pub fn register(
        &mut self,
        part: &FilePart,
        location: &ReferenceLocation,
    ) -> Result<Option<&FileReference>, UnregisteredReason> {
        match self.reference(part) {
            Ok(reference) => {
                let index = self.insert_reference(reference, part.url.as_deref());
                Ok(self.references.get(index))
            }
            Err(refusal) => match location {
                ReferenceLocation::Current => Err(refusal.into()),
                ReferenceLocation::Source(source) => {
                    Err(UnregisteredReason::Source(source.clone()))
                }
                ReferenceLocation::History => {
                    self.warnings.push((part.name.clone(), refusal));
                    Ok(None)
                }
            },
        }
    }

    /// The file to read for a URL or an identity; an old URL finds its file too.
    pub fn resolve(&self, handle: &str) -> Result<&FileReference, UnregisteredReason> {
        self.find(handle).ok_or(UnregisteredReason::Read)
    }

    /// Like [`Self::resolve`], with the error for a node of a workflow.
    pub fn resolve_for_node(&self, handle: &str) -> Result<&FileReference, UnregisteredReason> {
        self.find(handle).ok_or(UnregisteredReason::Node)
    }

    /// All references, in the order in which they were registered.
    pub fn all(&self) -> &[FileReference] {
        &self.references
    }

    /// Names of files of history that are not available, and why.
    pub fn warnings(&self) -> &[(String, RenewalRefusal)] {
        &self.warnings
    }

    /// The references of a child run: only the files that are passed to it. Private files are inherited or refused;
    /// unknown external ones belong only to the child. If there are too many, files of the child's message have
    /// priority over passed files, and passed files over the newest files of history. The order is kept. `history` is
    /// oldest first.
    pub fn child(
        &self,
        child_files: &ChildFiles<'_>,
        max_files: usize,
    ) -> Result<Self, UnregisteredReason> {
        let mut candidates = Vec::new();
        // The groups are in the order of the result. The rank decides which files stay when there are too many (16.3).
        let groups = [
            (child_files.history, 2),
            (child_files.message, 0),
            (child_files.passed, 1),
        ];
        for (files, rank) in groups {
            // Oldest first, numbered from the newest.
            for (age, part) in files.iter().rev().enumerate().rev() {
                // History counts from its newest message, the other groups from their first file (16.3).
                let order = if rank == 2 {
                    age
                } else {
                    files.len() - 1 - age
                };
                if let Some(reference) = self.inherited(part, rank == 2)? {
                    candidates.push(((rank, order), part, reference));
                }
            }
        }
        let limit = limits::max_files(max_files);
        let mut ranked: Vec<_> = candidates
            .iter()
            .map(|(rank, _, reference)| (*rank, &reference.identity))
            .collect();
        ranked.sort();
        let mut chosen = BTreeSet::new();
        for (_, identity) in ranked {
            if chosen.len() < limit {
                chosen.insert(identity.clone());
            }
        }
        let mut child = Self::new(self.renewals.clone());
        for (_, part, reference) in candidates {
            if chosen.contains(&reference.identity) {
                child.insert_reference(reference, part.url.as_deref());
            }
        }
        Ok(child)
    }

    /// The reference that a child gets for a part of its parent. An unavailable file of history is left out.
    fn inherited(
        &self,
        part: &FilePart,
        lenient: bool,
    ) -> Result<Option<FileReference>, UnregisteredReason> {
        let url = part.url.as_deref().unwrap_or_default();
        let known = match &part.key {
            Some(key) => self.by_identity.get(&format!("chat:{key}")),
            None => self.index_of_url(url),
        };
        if let Some(reference) = known.and_then(|index| self.references.get(*index)) {
            return Ok(Some(reference.clone()));
        }
        let found = match &part.key {
            // A key that the parent does not have could name any object of the store (16.3).
            Some(_) => Err(UnregisteredReason::Child),
            None => self.reference(part).map_err(UnregisteredReason::from),
        };
        match found {
            Ok(reference) => Ok(Some(reference)),
            Err(_) if lenient => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn reference(&self, part: &FilePart) -> Result<FileReference, RenewalRefusal> {
        let name = part.name.clone();
        if let Some(key) = &part.key {
            let url = self.renewals.url(key)?.to_owned();
            return Ok(FileReference {
                identity: format!("chat:{key}"),
                url,
                key: Some(key.clone()),
                name,
            });
        }
        let url = part.url.as_deref().unwrap_or_default();
        // An old URL of a stored object identifies that object and not an external file (16.2).
        if let Some(known) = self
            .index_of_url(url)
            .and_then(|index| self.references.get(*index))
        {
            return Ok(known.clone());
        }
        if !address::is_absolute_http(url) || !self.renewals.allows(url) {
            return Err(RenewalRefusal::Url);
        }
        Ok(FileReference {
            identity: format!("external:{}", address::without_fragment(url)),
            url: url.to_owned(),
            key: None,
            name,
        })
    }

    fn insert_reference(&mut self, reference: FileReference, old: Option<&str>) -> usize {
        let identity = reference.identity.clone();
        let urls = [Some(reference.url.clone()), old.map(str::to_owned)];
        // The identity is known: there is one reference, and both URLs lead to it (16.2).
        let index = *self.by_identity.entry(identity).or_insert_with(|| {
            self.references.push(reference);
            self.references.len() - 1
        });
        for url in urls.into_iter().flatten().filter(|url| !url.is_empty()) {
            self.by_url
                // Identities ignore the fragment, so lookups by URL do as well (16.2).
                .entry(address::without_fragment(&url).to_owned())
                .or_insert(index);
        }
        index
    }

    fn index_of_url(&self, url: &str) -> Option<&usize> {
        self.by_url.get(address::without_fragment(url))
    }

    fn find(&self, handle: &str) -> Option<&FileReference> {
        let index = self
            .by_identity
            .get(handle)
            .or_else(|| self.index_of_url(handle))?;
        self.references.get(*index)
    }
}

/// The references that a child run gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChildFiles<'a> {
    /// Files of its own message.
    pub message: &'a [FilePart],
    /// Files that its caller passes.
    pub passed: &'a [FilePart],
    /// Files of its history, oldest first.
    pub history: &'a [FilePart],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renew::StoreScope;

    fn private(key: &str) -> FilePart {
        FilePart {
            name: key.into(),
            url: Some(format!("https://s3.example/{key}?old")),
            key: Some(key.into()),
            ..FilePart::default()
        }
    }

    fn external(url: &str) -> FilePart {
        FilePart {
            url: Some(url.into()),
            ..FilePart::default()
        }
    }

    fn references() -> ReferenceTable {
        let signed = ["x/a", "x/b"].map(|key| {
            (
                key.to_owned(),
                Some(format!("https://s3.example/{key}?new")),
            )
        });
        ReferenceTable::new(RenewedLinks {
            scope: Some(StoreScope::of(["x".to_owned()])),
            signed: signed.into(),
            allowed_hosts: Some(vec!["ok.example".into()]),
            ..RenewedLinks::default()
        })
    }

    #[test]
    fn r_15_old_and_new_urls_of_one_file_are_one_reference() {
        let mut run = references();
        run.register(&private("x/a"), &ReferenceLocation::Current)
            .unwrap();
        run.register(&private("x/a"), &ReferenceLocation::History)
            .unwrap();
        // The old URL without its key.
        run.register(
            &external("https://s3.example/x/a?old#page"),
            &ReferenceLocation::Current,
        )
        .unwrap();
        assert_eq!(run.all().len(), 1);
        for handle in [
            "https://s3.example/x/a?old",
            "https://s3.example/x/a?new",
            "chat:x/a",
        ] {
            assert_eq!(run.resolve(handle).unwrap().key.as_deref(), Some("x/a"));
        }
        assert_eq!(
            run.resolve("https://ok.example/x").unwrap_err().to_string(),
            "File is not registered in the provided context"
        );
        assert_eq!(
            run.resolve_for_node("x").unwrap_err().to_string(),
            "Workflow file is not registered in the current context"
        );
    }

    #[test]
    fn urls_that_differ_in_the_fragment_are_one_file() {
        let mut run = references();
        for url in ["https://ok.example/a#1", "https://ok.example/a#2"] {
            run.register(&external(url), &ReferenceLocation::Current)
                .unwrap();
        }
        assert_eq!(run.all().len(), 1);
        assert_eq!(run.all()[0].identity, "external:https://ok.example/a");
    }

    #[test]
    fn r_15_the_location_determines_the_effect_of_a_failure() {
        let mut run = references();
        let mut refusal_text = |part: &FilePart, location: ReferenceLocation| {
            run.register(part, &location).unwrap_err().to_string()
        };
        assert_eq!(
            refusal_text(&private("y/a"), ReferenceLocation::Current),
            "Workflow file key does not belong to the current workflow"
        );
        assert_eq!(
            refusal_text(&external("/a.pdf"), ReferenceLocation::Current),
            "Invalid workflow file URL"
        );
        assert_eq!(
            refusal_text(
                &external("https://bad.example/a"),
                ReferenceLocation::Source("variable".into())
            ),
            "Invalid workflow variable file URL"
        );
        assert_eq!(
            run.register(&private("y/a"), &ReferenceLocation::History),
            Ok(None)
        );
        assert_eq!(run.warnings(), [("y/a".to_owned(), RenewalRefusal::Scope)]);
    }

    #[test]
    fn a_child_inherits_private_files_and_keeps_external_ones_to_itself() {
        let mut parent = references();
        parent
            .register(&private("x/a"), &ReferenceLocation::Current)
            .unwrap();
        let message = [private("x/a"), external("https://ok.example/new")];
        let child = parent
            .child(
                &ChildFiles {
                    message: &message,
                    ..ChildFiles::default()
                },
                0,
            )
            .unwrap();
        assert_eq!(child.all().len(), 2);
        assert!(parent.resolve("https://ok.example/new").is_err());
        let stranger = [private("x/b")];
        let refused = parent
            .child(
                &ChildFiles {
                    message: &stranger,
                    ..ChildFiles::default()
                },
                0,
            )
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Child workflow private file is not registered in the parent context"
        );
        let lenient = parent
            .child(
                &ChildFiles {
                    history: &stranger,
                    ..ChildFiles::default()
                },
                0,
            )
            .unwrap();
        assert!(lenient.all().is_empty());
    }

    #[test]
    fn over_the_limit_a_child_keeps_its_message_then_what_is_passed_then_the_newest() {
        let urls = |names: &[&str]| -> Vec<FilePart> {
            names
                .iter()
                .map(|name| external(&format!("https://ok.example/{name}")))
                .collect()
        };
        let (history, message, passed) = (
            urls(&["h1", "h2", "h3"]),
            urls(&["m1"]),
            urls(&["p1", "p2"]),
        );
        let files = ChildFiles {
            message: &message,
            passed: &passed,
            history: &history,
        };
        let names = |limit: usize| -> Vec<String> {
            let child = references().child(&files, limit).unwrap();
            child
                .all()
                .iter()
                .map(|reference| reference.url.rsplit('/').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(names(5), ["h2", "h3", "m1", "p1", "p2"]);
        assert_eq!(names(4), ["h3", "m1", "p1", "p2"]);
        assert_eq!(names(2), ["m1", "p1"]);
    }
}
