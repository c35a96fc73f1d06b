//! Unused dependencies: each adds build time for every contributor.

use super::source::SourceFile;
use crate::metadata::{CargoMetadata, CargoPackage, DeclaredDependency};

/// Crates that are needed only for a feature or a side effect, with the reason.
const SILENT_DEPENDENCIES: &[(&str, &str)] = &[];

/// A package that also compiles files outside of its directory, and the directory of these.
const SHARED_SOURCES: (&str, &str) = ("fuzz/check", "fuzz/fuzz_targets/");

/// Dependencies whose name is in no file of the crate that declares them.
pub(crate) fn violations(metadata: &CargoMetadata, sources: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in metadata.members() {
        let own = own_sources(package, sources);
        let silent = |declared: &&DeclaredDependency| {
            SILENT_DEPENDENCIES
                .iter()
                .all(|(name, _)| *name != declared.name)
        };
        for declared in package.declared.iter().filter(silent) {
            let name = declared.rename.as_ref().unwrap_or(&declared.name);
            // Source code writes the name with underscores.
            let name = name.replace('-', "_");
            if !own.iter().any(|source| names_crate(&source.text, &name)) {
                violations.push(format!(
                    "{} declares {} and never names it",
                    package.name, declared.name
                ));
            }
        }
    }
    violations
}

/// Files of one package.
fn own_sources<'all>(package: &CargoPackage, sources: &'all [SourceFile]) -> Vec<&'all SourceFile> {
    let directory = format!("{}/", package.directory);
    sources
        .iter()
        .filter(|source| {
            // The fuzz targets are in another workspace, and this package compiles them for tests.
            let is_shared = package.directory == SHARED_SOURCES.0;
            source.path.starts_with(&directory)
                || is_shared && source.path.starts_with(SHARED_SOURCES.1)
        })
        .collect()
}

/// Whether a text contains a crate name as a complete word.
fn names_crate(text: &str, name: &str) -> bool {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.match_indices(name).any(|(start, _)| {
        let before = text.get(..start).and_then(|text| text.chars().next_back());
        let after = text
            .get(start + name.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let package = CargoPackage {
            name: "ours".to_owned(),
            is_member: true,
            directory: "crates/ours".to_owned(),
            declared: vec![DeclaredDependency {
                name: "http-body".to_owned(),
                ..DeclaredDependency::default()
            }],
            ..CargoPackage::default()
        };
        let metadata = CargoMetadata {
            packages: BTreeMap::from([("ours".to_owned(), package)]),
        };
        let source = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let sources = [
            source("crates/ours/src/lib.rs", text),
            source("crates/ours-too/src/lib.rs", "use http_body::Body;"),
        ];
        assert_eq!(violations(&metadata, &sources), expected);
    }

    #[test]
    fn a_named_dependency_is_used() {
        check("use http_body::Body;", &[]);
        check("fn a() -> impl http_body::Body {}", &[]);
    }

    #[test]
    fn a_longer_name_is_another_crate() {
        check(
            "use http_body_util::Full;",
            &["ours declares http-body and never names it"],
        );
    }
}
