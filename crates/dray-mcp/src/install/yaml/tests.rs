//! Edits of YAML: what is inserted where, and that a removal gives the text back.

use serde_json::{Value, json};

use super::super::client::ConfigFormat;
use super::super::edit::{EditError, EditResult, EntryChange, apply_change};

const ENTRY_PATH: &[&str] = &["extensions", "drayage"];

fn entry() -> Value {
    json!({ "enabled": true, "cmd": "/opt/my tools/dray", "args": ["mcp", "-v"], "timeout": 300, "envs": { "A": "yes" } })
}

fn set(text: &str, replace: bool) -> Result<EditResult, EditError> {
    let value = entry();
    let change = EntryChange::Set {
        value: &value,
        replace,
    };
    apply_change(ConfigFormat::Yaml, text, ENTRY_PATH, change)
}

fn add_entry(text: &str) -> String {
    match set(text, false) {
        Ok(EditResult::Added(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

fn remove_entry(text: &str) -> String {
    match apply_change(ConfigFormat::Yaml, text, ENTRY_PATH, EntryChange::Remove) {
        Ok(EditResult::Removed(edited) | EditResult::Emptied(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[test]
fn an_empty_file_gets_one_table() {
    let expected = "extensions:\n  drayage:\n    enabled: true\n    cmd: \"/opt/my tools/dray\"\n    args:\n      - mcp\n      \
                    - \"-v\"\n    timeout: 300\n    envs:\n      A: \"yes\"\n";
    assert_eq!(add_entry(""), expected);
    assert_eq!(remove_entry(expected), "");
}

#[test]
fn a_removal_restores_every_byte() {
    let texts = [
        "GOOSE_MODEL: x # the model\n",
        "extensions:\n  developer:\n    enabled: true\n    type: builtin\nother: 1\n",
        "extensions:\n    # built in\n    developer:\n        enabled: true # yes\n        # inside\n\n# about the rest\nother:\n  - 1\n",
        "---\nextensions:\r\n  developer:\r\n    enabled: true\r\n",
        "# head\n\"extensions\":\n  developer:\n    text: |\n      extensions:\n        drayage: no\n",
        "list:\n- a\n- b\nextensions:\n  x: {enabled: true}\n",
    ];
    for text in texts {
        let edited = add_entry(text);
        assert_eq!(set(&edited, false), Ok(EditResult::Unchanged), "{edited}");
        assert_eq!(remove_entry(&edited), text, "{edited}");
    }
}

#[test]
fn the_entry_is_written_at_the_end_of_the_table() {
    let text = "extensions:\n  developer:\n    enabled: true\n\n# models\nmodel: x\n";
    let edited = add_entry(text);
    let expected = "extensions:\n  developer:\n    enabled: true\n  drayage:\n    enabled: true\n";
    assert!(edited.starts_with(expected), "{edited}");
    assert!(edited.ends_with("\n\n# models\nmodel: x\n"), "{edited}");
}

#[test]
fn an_empty_table_is_opened_and_its_comment_kept() {
    for (text, first) in [
        ("extensions: {}\nb: 1\n", "extensions:\n  drayage:\n"),
        (
            "extensions: {} # none\nb: 1\n",
            "extensions: # none\n  drayage:\n",
        ),
        ("extensions:\nb: 1\n", "extensions:\n  drayage:\n"),
    ] {
        let edited = add_entry(text);
        assert!(
            edited.starts_with(first) && edited.ends_with("\nb: 1\n"),
            "{edited}"
        );
    }
}

#[test]
fn a_table_with_comments_only_is_kept_as_an_empty_one() {
    let text = "extensions:\n  # keep me\n  drayage:\n    enabled: true\n";
    assert_eq!(remove_entry(text), "extensions: {}\n  # keep me\n");
}

#[test]
fn a_replaced_entry_keeps_its_place() {
    let text = "extensions:\n  drayage: {enabled: false}\n  z:\n    enabled: true\n";
    assert_eq!(set(text, false), Err(EditError::Occupied));
    let Ok(EditResult::Replaced(edited)) = set(text, true) else {
        panic!("the entry must be replaced");
    };
    assert!(
        edited.starts_with("extensions:\n  drayage:\n    enabled: true\n"),
        "{edited}"
    );
    assert!(edited.ends_with("\n  z:\n    enabled: true\n"), "{edited}");
}

#[test]
fn unusual_files_are_refused() {
    let cases = [
        ("a: 1\nb: [1\n", "not valid YAML on line"),
        ("- a\n", "does not hold a table"),
        ("extensions: {developer: {enabled: true}}\n", "block style"),
        ("extensions:\n  - developer\n", "is a list"),
        ("{extensions: {}}\n", "layout is unusual"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
    ];
    for (text, part) in cases {
        let Err(EditError::Syntax(message) | EditError::Unsupported(message)) = set(text, false)
        else {
            panic!("{text} is accepted");
        };
        assert!(message.contains(part), "{text}: {message}");
    }
}
