//! Checks that everything that `docs/glossary.md` refers to exists, and that a search for a term finds its code.
//!
//! The last column of each row names crates, and after a crate its types, modules and files. A type that is renamed
//! would otherwise stay in the glossary under its old name. The first column is the term, which must be in the text of
//! one of these crates: readers search the code for the field's word before they know our names.

use std::path::Path;

use anyhow::Context as _;

use super::source::SourceFile;

/// Rows that refer to something that does not exist.
pub(crate) fn violations(root: &Path, sources: &[SourceFile]) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("docs/glossary.md"))
        .context("cannot read docs/glossary.md")?;
    let mut violations = missing_references(&text, sources);
    violations.extend(untraceable_terms(&text, sources));
    Ok(violations)
}

/// Terms whose crates do not contain them. Case, backticks and the joint of several words (space, hyphen, underscore)
/// do not matter.
fn untraceable_terms(glossary: &str, sources: &[SourceFile]) -> Vec<String> {
    let normalize = |text: &str| {
        let text = text.to_lowercase().replace('`', "");
        text.replace(['-', '_'], " ")
    };
    let mut violations = Vec::new();
    for (index, line) in glossary.lines().enumerate() {
        let Some((term, location)) = first_column(line).zip(last_column(line)) else {
            continue;
        };
        let crates: Vec<_> = backticked_parts(location)
            .filter(|name| is_crate(name))
            .map(source_directory)
            .collect();
        let wanted = normalize(term);
        let is_found = sources
            .iter()
            .filter(|source| crates.iter().any(|path| source.path.starts_with(path)))
            .any(|source| normalize(&source.text).contains(&wanted));
        if !crates.is_empty() && !is_found {
            violations.push(format!(
                "docs/glossary.md:{}: no source of the crates contains the term `{term}`; mention it at its code",
                index + 1
            ));
        }
    }
    violations
}

fn first_column(line: &str) -> Option<&str> {
    let columns = line.strip_prefix('|')?;
    columns.split('|').next().map(str::trim)
}

fn missing_references(glossary: &str, sources: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for (index, line) in glossary.lines().enumerate() {
        let Some(location) = last_column(line) else {
            continue;
        };
        let mut crate_name = "";
        for name in backticked_parts(location) {
            if is_crate(name) {
                // The names that follow belong to this crate, until another one is named.
                crate_name = name;
            }
            if !exists(crate_name, name, sources) {
                violations.push(format!(
                    "docs/glossary.md:{}: `{name}` is not in `{crate_name}`",
                    index + 1
                ));
            }
        }
    }
    violations
}

fn last_column(line: &str) -> Option<&str> {
    let columns = line.strip_prefix('|')?.strip_suffix('|')?;
    columns.rsplit('|').next().map(str::trim)
}

/// The parts of a text between backticks.
fn backticked_parts(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a name is that of a crate, and not of a command or of something in a crate.
fn is_crate(name: &str) -> bool {
    name == "xtask" || name.starts_with("dray") && !name.contains(' ')
}

fn source_directory(crate_name: &str) -> String {
    if crate_name == "xtask" {
        "xtask/src/".to_owned()
    } else {
        format!("crates/{crate_name}/src/")
    }
}

/// Whether a crate has a type, a module or a file of this name.
fn exists(crate_name: &str, name: &str, sources: &[SourceFile]) -> bool {
    let directory = source_directory(crate_name);
    let mut own = sources
        .iter()
        .filter(|source| source.path.starts_with(&directory));
    if name == crate_name {
        return own.next().is_some();
    }
    if name.starts_with(char::is_uppercase) {
        let kinds = ["struct", "enum", "trait", "type"];
        return own.any(|source| {
            kinds.iter().any(|kind| {
                let definition = format!("pub {kind} {name}");
                source.text.match_indices(&definition).any(|(start, _)| {
                    // A longer name that begins the same is another type.
                    let after = source.text[start + definition.len()..].chars().next();
                    !after.is_some_and(|next| next.is_alphanumeric() || next == '_')
                })
            })
        });
    }
    if name.contains(' ') {
        // A command.
        return name.starts_with("dray ");
    }
    own.any(|source| {
        let path = &source.path[directory.len()..];
        path == name || path == format!("{name}.rs") || path.starts_with(&format!("{name}/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_terms_that_a_search_does_not_find_in_their_crates() {
        let source = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source(
                "crates/dray-a/src/lib.rs",
                "//! Back-pressure.\nlet claim_check = 1;",
            ),
            source("crates/dray-b/src/lib.rs", "//! `MEDIA:` tags."),
        ];
        let glossary = "| Term | Where |\n\
            | back-pressure | `dray-a` |\n\
            | claim check | `dray-b`, `dray-a` |\n\
            | `MEDIA:` tag | `dray-b` |\n\
            | claim check | `dray-b` |\n";
        assert_eq!(
            untraceable_terms(glossary, &sources),
            [
                "docs/glossary.md:5: no source of the crates contains the term `claim check`; mention it at its code"
            ]
        );
    }

    #[test]
    fn reports_types_and_files_that_are_not_in_their_crate() {
        let source = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source("crates/dray-a/src/lib.rs", "pub struct Known;"),
            source("crates/dray-a/src/part/inner.rs", "pub enum KnownToo {}"),
            source("crates/dray-b/src/lib.rs", ""),
            source("xtask/src/alerts.rs", ""),
        ];
        let glossary = "| Term | Where |\n\
            | fine | `dray-a`: `Known`, `part`, `part/inner.rs`, `dray up`; `xtask`: `alerts.rs` |\n\
            | other crate | `dray-b`: `Known` |\n\
            | part of a name | `dray-a`: `Kno` |\n\
            | no crate | `dray-c` |\n\
            | no file | `dray-a`: `gone.rs` |\n";
        assert_eq!(
            missing_references(glossary, &sources),
            [
                "docs/glossary.md:3: `Known` is not in `dray-b`",
                "docs/glossary.md:4: `Kno` is not in `dray-a`",
                "docs/glossary.md:5: `dray-c` is not in `dray-c`",
                "docs/glossary.md:6: `gone.rs` is not in `dray-a`",
            ]
        );
    }
}
