//! Tests that the pages for operators and builders name only existing keys, and every key if a page claims to list them
//! all.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Config;

const ORCHESTRATOR_PAGE: &str = include_str!("../../../../../docs/orchestrator.md");
const FIRST_AGENT: &str = include_str!("../../../../../docs/first-agent.md");
const SKILLS_PAGE: &str = include_str!("../../../../../docs/skills.md");
const MANIFEST_PAGE: &str = include_str!("../../../../../docs/manifest.md");
const README_PAGE: &str = include_str!("../../../../../README.md");

/// Beginnings of paths in a manifest that look like keys.
const MANIFEST_PREFIXES: [&str; 1] = ["deployment"];

fn is_key_character(letter: char) -> bool {
    letter.is_ascii_lowercase() || matches!(letter, '_' | '.')
}

/// The names of settings after `orchestrator.` in a page.
fn named_settings(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in page.split("orchestrator.").skip(1) {
        let end = rest
            .find(|letter| !is_key_character(letter))
            .unwrap_or(rest.len());
        let key = rest[..end].trim_end_matches('.');
        if !key.is_empty() && key != "md" && !MANIFEST_PREFIXES.contains(&key) {
            found.insert(key.to_owned());
        }
    }
    found
}

/// Whether the configuration has a key. A map has every key, because operators choose its keys.
fn has_key(config: &Value, key: &str) -> bool {
    let mut at = config;
    for part in key.split('.') {
        match at.get(part) {
            Some(next) => at = next,
            None => return at.as_object().is_some_and(serde_json::Map::is_empty),
        }
    }
    true
}

#[test]
fn keys_that_pages_name_exist() {
    let config = serde_json::to_value(Config::default()).unwrap();
    for (page, text) in [
        ("orchestrator.md", ORCHESTRATOR_PAGE),
        ("first-agent.md", FIRST_AGENT),
        ("skills.md", SKILLS_PAGE),
        ("manifest.md", MANIFEST_PAGE),
        ("README.md", README_PAGE),
    ] {
        for key in named_settings(text) {
            assert!(has_key(&config, &key), "{page} names orchestrator.{key}");
        }
    }
    assert!(named_settings(FIRST_AGENT).contains("model_url"));
    assert!(!has_key(&config, "modell_url"));
}

#[test]
fn the_table_of_the_page_has_every_key() {
    let (_, table) = ORCHESTRATOR_PAGE.split_once("## Configuration").unwrap();
    let (table, _) = table.split_once("## Errors").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<String> = rows
        .filter_map(|row| row.split_once(" |"))
        .flat_map(|(keys, _)| keys.split("`, `"))
        .map(|key| key.trim_matches('`').trim_end_matches(".…").to_owned())
        .collect();
    let config = serde_json::to_value(Config::default()).unwrap();
    let keys = config.as_object().unwrap().keys().cloned();
    assert_eq!(listed, keys.collect());
}
