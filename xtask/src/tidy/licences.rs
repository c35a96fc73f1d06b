//! Checks licences and sources of dependencies against the lists in `deny.toml`.
//!
//! `cargo deny` reads the same file and checks more, but this check needs no installed program.

use anyhow::Context as _;

use crate::metadata::CargoMetadata;

/// How the source of a package from a registry begins; one from a repository begins with `git+`.
const REGISTRY_PREFIX: &str = "registry+";

/// Packages whose licence is not on the list, or whose origin is not the registry.
pub(crate) fn violations(metadata: &CargoMetadata, deny_toml: &str) -> anyhow::Result<Vec<String>> {
    let allowed = allow_list(deny_toml)?;
    let mut violations = Vec::new();
    for package in metadata.packages.values() {
        let label = format!("{} {}", package.name, package.version);
        match &package.licence {
            Some(expression) if is_satisfied(expression, &allowed) => {}
            Some(expression) => violations.push(format!(
                "{label} is under `{expression}`, which deny.toml does not allow"
            )),
            None => violations.push(format!("{label} names no licence")),
        }
        if let Some(source) = package
            .source
            .as_deref()
            .filter(|source| !source.starts_with(REGISTRY_PREFIX))
        {
            violations.push(format!("{label} comes from {source}"));
        }
    }
    Ok(violations)
}

/// The list `licenses.allow` of `deny.toml`, as SPDX identifiers.
fn allow_list(deny_toml: &str) -> anyhow::Result<Vec<String>> {
    let table: toml::Table = deny_toml.parse()?;
    let list = table
        .get("licenses")
        .and_then(|licences| licences.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no licenses.allow")?;
    Ok(list
        .iter()
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect())
}

/// Whether an SPDX expression can be met with the allowed licences. `AND` binds tighter than `OR`; the old `/`
/// means `OR`. An expression that cannot be read is not met.
fn is_satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    // Words that remain mean that the expression was not parsed completely.
    any_of(&mut rest, allowed).is_some_and(|met| met && rest.is_empty())
}

/// Reads `a OR b`, the weakest operator; `None` for an invalid expression.
fn any_of(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = all_of(words, allowed)?;
    while words.first() == Some(&"OR") {
        *words = words.get(1..)?;
        // `met ||` would skip the rest, which must be read in any case.
        met |= all_of(words, allowed)?;
    }
    Some(met)
}

/// Reads `a AND b`, which binds tighter than `OR`.
fn all_of(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut met = parse_term(words, allowed)?;
    while words.first() == Some(&"AND") {
        *words = words.get(1..)?;
        met &= parse_term(words, allowed)?;
    }
    Some(met)
}

/// Reads `( … )`, `id` or `id WITH exception`.
fn parse_term(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let met = any_of(words, allowed)?;
        let (close, rest) = words.split_first()?;
        *words = rest;
        return (*close == ")").then_some(met);
    }
    let mut name = (*first).to_owned();
    if let [with @ "WITH", exception, rest @ ..] = *words {
        name = format!("{name} {with} {exception}");
        *words = rest;
    }
    Some(allowed.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::metadata::CargoPackage;

    fn check(expression: &str, expected: bool) {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        assert_eq!(is_satisfied(expression, &allowed), expected, "{expression}");
    }

    #[test]
    fn one_allowed_licence_of_a_choice_is_enough() {
        check("MIT", true);
        check("MIT OR LGPL-2.1-or-later", true);
        check("GPL-3.0/MIT", true);
        check("GPL-3.0", false);
        check("GPL-3.0 OR LGPL-2.1", false);
    }

    #[test]
    fn all_licences_of_a_conjunction_are_needed() {
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("MIT AND GPL-3.0", false);
        check("GPL-3.0 OR MIT AND Apache-2.0", true);
        check("(GPL-3.0 OR MIT) AND GPL-3.0", false);
    }

    #[test]
    fn an_exception_is_part_of_the_name() {
        check("Apache-2.0 WITH LLVM-exception", true);
        check("MIT WITH LLVM-exception", false);
    }

    #[test]
    fn invalid_licence_expressions_are_refused() {
        for broken in ["", "MIT OR", "(MIT", "MIT MIT", "AND", ") MIT"] {
            check(broken, false);
        }
    }

    #[test]
    fn origin_and_licence_are_both_reported() {
        let package = CargoPackage {
            name: "odd".to_owned(),
            version: "1.0.0".to_owned(),
            source: Some("git+https://example.org/odd".to_owned()),
            ..CargoPackage::default()
        };
        let metadata = CargoMetadata {
            packages: BTreeMap::from([("odd".to_owned(), package)]),
        };
        assert_eq!(
            violations(&metadata, "[licenses]\nallow = [\"MIT\"]").unwrap(),
            [
                "odd 1.0.0 names no licence",
                "odd 1.0.0 comes from git+https://example.org/odd"
            ]
        );
        assert!(violations(&metadata, "[licenses]").is_err());
    }
}
