//! Parts of an OOXML package and the relationships between them.

use std::collections::HashMap;
use std::rc::Rc;

use super::xml::{Event, Xml, decode_part};
use crate::container::{Container, Input};
use crate::hex::parse_hex_byte;
use crate::limits::{Budget, Damage, Failure};
use crate::markdown::Markdown;

/// Most relationships that are read of one part.
const MAX_RELATIONSHIPS: usize = 100_000;

/// The target of a relationship.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats) struct Relation {
    /// Last segment of its type, which the strict and the transitional spelling share: `hyperlink`, `styles`.
    pub(in crate::formats) kind: String,
    /// Name of a part, or the target of an external relationship.
    pub(in crate::formats) target: String,
    /// Whether the relationship leads out of the package.
    pub(in crate::formats) external: bool,
}

/// The relationships of one part, by id.
#[derive(Clone, Debug, Default)]
pub(in crate::formats) struct Relations {
    by_id: HashMap<String, Relation>,
    order: Vec<String>,
}

impl Relations {
    /// The relationship of this id, if the part has one.
    pub(in crate::formats) fn get(&self, id: &str) -> Option<&Relation> {
        self.by_id.get(id)
    }

    /// All relationships of a kind that stay in the package, in the order of the file.
    pub(in crate::formats) fn of_kind<'a>(
        &'a self,
        kind: &'a str,
    ) -> impl Iterator<Item = &'a Relation> {
        self.order
            .iter()
            .filter_map(|id| self.by_id.get(id))
            .filter(move |relation| relation.kind == kind && !relation.external)
    }

    /// The target of the first relationship of a kind that stays in the package.
    pub(in crate::formats) fn part(&self, kind: &str) -> Option<&str> {
        self.order
            .iter()
            .filter_map(|id| self.by_id.get(id))
            .find(|relation| relation.kind == kind && !relation.external)
            .map(|relation| relation.target.as_str())
    }
}

/// An open package: a container whose parts refer to each other.
#[derive(Debug)]
pub(in crate::formats) struct Package<'a> {
    container: Container<'a>,
    budget: Rc<Budget>,
}

impl<'a> Package<'a> {
    /// Opens a package.
    ///
    /// # Errors
    ///
    /// Those of [`Container::open`].
    pub(in crate::formats) fn open(
        input: &'a mut dyn Input,
        budget: &Rc<Budget>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            container: Container::open(input, budget)?,
            budget: Rc::clone(budget),
        })
    }

    /// The budget that counts the work.
    pub(in crate::formats) fn budget(&self) -> &Rc<Budget> {
        &self.budget
    }

    /// The main part: the one that the package declares, otherwise the first existing one of `guesses`.
    ///
    /// # Errors
    ///
    /// [`Damage::MissingPart`] if none exists.
    pub(in crate::formats) fn main(&mut self, guesses: &[&str]) -> Result<String, Failure> {
        let named = self
            .relations("")
            .ok()
            .and_then(|relations| relations.part("officeDocument").map(str::to_owned));
        if let Some(named) = named
            && self.container.has(&named)
        {
            return Ok(named);
        }
        guesses
            .iter()
            .find(|guess| self.container.has(guess))
            .map(|guess| (*guess).to_owned())
            .ok_or(Failure::Corrupt(Damage::MissingPart))
    }

    /// The bytes of a part; `None` if it is missing.
    pub(in crate::formats) fn part(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.container.part(name)
    }

    /// The relationships of a part, or of the package for an empty name. Empty for a part without relationships.
    pub(in crate::formats) fn relations(&mut self, part: &str) -> Result<Relations, Failure> {
        let (directory, file) = part.rsplit_once('/').unwrap_or(("", part));
        let name = if directory.is_empty() {
            format!("_rels/{file}.rels")
        } else {
            format!("{directory}/_rels/{file}.rels")
        };
        let Some(bytes) = self.container.part(&name)? else {
            return Ok(Relations::default());
        };
        let text = decode_part(&bytes);
        let mut xml = Xml::new(&text, &self.budget);
        let mut relations = Relations::default();
        loop {
            match xml.next()? {
                Event::Open(element) if element.name() == "Relationship" => {
                    let (Some(id), Some(target)) = (element.attr("Id"), element.attr("Target"))
                    else {
                        continue;
                    };
                    let kind = element.attr("Type").unwrap_or_default();
                    let external = element
                        .attr("TargetMode")
                        .is_some_and(|mode| mode.eq_ignore_ascii_case("external"));
                    let relation = Relation {
                        kind: kind.rsplit('/').next().unwrap_or_default().to_owned(),
                        target: if external {
                            target
                        } else {
                            resolve_part(directory, &target)
                        },
                        external,
                    };
                    if relations.by_id.insert(id.clone(), relation).is_none() {
                        relations.order.push(id);
                    }
                    if relations.order.len() >= MAX_RELATIONSHIPS {
                        return Ok(relations);
                    }
                }
                Event::End => return Ok(relations),
                _ => {}
            }
        }
    }
}

/// The result of an optional part. For a damaged part, returns the default and adds a warning.
pub(in crate::formats) fn default_if_damaged<T: Default>(
    read: Result<T, Failure>,
    out: &mut Markdown,
    description: &str,
) -> Result<T, Failure> {
    match read {
        Err(Failure::Corrupt(_)) => {
            out.warn(format!("{description} damaged"));
            Ok(T::default())
        }
        other => other,
    }
}

/// The name of the part to which `target` refers in `directory`: never outside the package, without escapes.
pub(in crate::formats) fn resolve_part(directory: &str, target: &str) -> String {
    // Fragments name a place inside the part.
    let target = target.split(['#', '?']).next().unwrap_or_default();
    let target = percent_decode(&target.replace('\\', "/"));
    let base = if target.starts_with('/') {
        ""
    } else {
        directory
    };
    let mut path: Vec<&str> = Vec::new();
    for step in base.split('/').chain(target.split('/')) {
        match step {
            "" | "." => {}
            // `..` at the top has no effect, so no target leaves the package (path traversal).
            ".." => {
                path.pop();
            }
            name => path.push(name),
        }
    }
    path.join("/")
}

/// Percent escapes decoded; invalid escapes and invalid UTF-8 are kept.
pub(in crate::formats) fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        let hex = bytes
            .get(index + 1..index + 3)
            .filter(|_| *byte == b'%')
            .and_then(parse_hex_byte);
        if let Some(decoded) = hex {
            out.push(decoded);
            index += 3;
        } else {
            out.push(*byte);
            index += 1;
        }
    }
    // A name that is not UTF-8 once decoded was not escaped; it is looked up as it is written.
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::percent_decode;

    #[test]
    fn an_escape_has_two_digits_and_no_sign() {
        assert_eq!(percent_decode("a%20b%2Fc"), "a b/c");
        assert_eq!(percent_decode("%+1%-1%1"), "%+1%-1%1");
    }
}
