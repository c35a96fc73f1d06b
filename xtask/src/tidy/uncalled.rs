//! Public items that only tests name: they look like a feature of the product and are none.
//!
//! The compiler reports a private item that nothing uses, but not a public one of a library. This rule compares names,
//! so it misses an item whose name something else has too. It never reports an item that the product names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::source::SourceFile;
use crate::metadata::CargoMetadata;

mod scan;

use scan::ProductCode;

/// Crates that exist for tests, beside `tests`, `bench` and `fuzz`.
const TEST_CRATES: [&str; 3] = [
    "dray-conformance",
    "dray-sandbox-conformance",
    "dray-testkit",
];

/// The file of the exceptions.
const EXCEPTIONS_FILE: &str = "xtask/uncalled.toml";

/// Items that stay although only tests name them: crate to name to reason.
#[derive(Debug, Default)]
pub(crate) struct CallExceptions(BTreeMap<String, BTreeMap<String, String>>);

impl CallExceptions {
    /// Reads the file of the exceptions.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(root.join(EXCEPTIONS_FILE))
            .with_context(|| format!("cannot read {EXCEPTIONS_FILE}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let exceptions =
            toml::from_str(text).with_context(|| format!("{EXCEPTIONS_FILE} is not valid"))?;
        Ok(Self(exceptions))
    }

    fn reason(&self, package: &str, name: &str) -> Option<&str> {
        self.0.get(package)?.get(name).map(String::as_str)
    }
}

/// A public item that no code of the product names.
struct UncalledItem<'a> {
    package: &'a str,
    name: &'a str,
    path: &'a str,
    line: usize,
}

/// Items that only tests name, and exceptions that are not needed.
pub(crate) fn violations(
    metadata: &CargoMetadata,
    sources: &[SourceFile],
    exceptions: &CallExceptions,
) -> Vec<String> {
    let found = uncalled_items(metadata, sources);
    let mut violations: Vec<_> = found
        .iter()
        .filter(|item| exceptions.reason(item.package, item.name).is_none())
        .map(|item| {
            format!(
                "{}:{} `{}` is public, and no code outside tests names it: call it from the product, remove it with \
                 its tests, or make it private, `#[cfg(test)]` or a part of the testkit; an exception needs a reason \
                 in {EXCEPTIONS_FILE}",
                item.path, item.line, item.name
            )
        })
        .collect();
    let needed: BTreeSet<_> = found.iter().map(|item| (item.package, item.name)).collect();
    for (package, items) in &exceptions.0 {
        for (name, reason) in items {
            if !needed.contains(&(package.as_str(), name.as_str())) {
                violations.push(format!(
                    "{EXCEPTIONS_FILE} lists `{name}` of {package}, which the product calls or which does not exist: \
                     remove the line"
                ));
            }
            if reason.trim().is_empty() {
                violations.push(format!(
                    "{EXCEPTIONS_FILE} gives no reason for `{name}` of {package}"
                ));
            }
        }
    }
    violations
}

/// Public items of product crates whose name occurs neither in the code of their crate nor in that of a crate that
/// depends on it.
fn uncalled_items<'a>(
    metadata: &'a CargoMetadata,
    sources: &'a [SourceFile],
) -> Vec<UncalledItem<'a>> {
    let test_modules = scan::test_modules(sources);
    let mut code: BTreeMap<&str, Vec<(&str, ProductCode<'_>)>> = BTreeMap::new();
    for source in sources {
        let package = metadata.members().find(|package| {
            source
                .path
                .starts_with(&format!("{}/src/", package.directory))
        });
        let Some(package) = package.filter(|package| is_product(&package.directory)) else {
            continue;
        };
        if !source.is_test_file() && !test_modules.contain(&source.path) {
            let scanned = ProductCode::scan(&source.text);
            let files = code.entry(package.name.as_str()).or_default();
            files.push((source.path.as_str(), scanned));
        }
    }
    let users = users_of_packages(metadata);
    let mut uncalled = Vec::new();
    for (package, files) in &code {
        let packages = users.get(package).into_iter().flatten();
        let named: Vec<_> = packages
            .filter_map(|user| code.get(user))
            .flatten()
            .map(|(_, scanned)| &scanned.named)
            .collect();
        for (path, scanned) in files {
            for (line, name) in &scanned.public_items {
                if !named.iter().any(|names| names.contains(name)) {
                    uncalled.push(UncalledItem {
                        package,
                        name,
                        path,
                        line: *line,
                    });
                }
            }
        }
    }
    uncalled
}

/// The files of the crates of the product that are not for tests, with the names of their crates.
pub(super) fn product_files(sources: &[SourceFile]) -> Vec<(&str, &SourceFile)> {
    let test_modules = scan::test_modules(sources);
    let files = sources.iter().filter_map(|source| {
        let (name, file) = source.path.strip_prefix("crates/")?.split_once('/')?;
        let is_product = file.starts_with("src/")
            && !TEST_CRATES.contains(&name)
            && !source.is_test_file()
            && !test_modules.contain(&source.path);
        is_product.then_some((name, source))
    });
    files.collect()
}

/// Whether the crate in this directory is a part of the product, or a tool that uses it.
fn is_product(directory: &str) -> bool {
    let name = directory.strip_prefix("crates/");
    directory == "xtask" || name.is_some_and(|name| !TEST_CRATES.contains(&name))
}

/// For each member, itself and all members that depend on it, even through others: those may name its items.
fn users_of_packages(metadata: &CargoMetadata) -> BTreeMap<&str, BTreeSet<&str>> {
    let members: BTreeMap<&str, _> = metadata
        .packages
        .iter()
        .filter(|(_, package)| package.is_member)
        .map(|(id, package)| (id.as_str(), package))
        .collect();
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, package) in &members {
        let mut seen = BTreeSet::new();
        let mut pending = vec![*id];
        while let Some(id) = pending.pop() {
            let Some(dependency) = members.get(id).filter(|_| seen.insert(id)) else {
                continue;
            };
            users
                .entry(&dependency.name)
                .or_default()
                .insert(&package.name);
            pending.extend(dependency.normal.iter().map(String::as_str));
        }
    }
    users
}

#[cfg(test)]
mod tests;
