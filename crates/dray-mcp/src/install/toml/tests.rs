//! Edits of TOML: comments and order stay, and a removal gives the text back.

use serde_json::{Value, json};

use super::super::client::ConfigFormat;
use super::super::edit::{EditError, EditResult, EntryChange, apply_change};

const ENTRY_PATH: &[&str] = &["mcp_servers", "drayage"];

fn entry() -> Value {
    json!({ "command": "/usr/bin/dray", "args": ["mcp"], "env": { "A": "1" } })
}

fn set(text: &str, replace: bool) -> Result<EditResult, EditError> {
    let value = entry();
    let change = EntryChange::Set {
        value: &value,
        replace,
    };
    apply_change(ConfigFormat::Toml, text, ENTRY_PATH, change)
}

fn add_entry(text: &str) -> String {
    match set(text, false) {
        Ok(EditResult::Added(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

fn remove_entry(text: &str) -> String {
    match apply_change(ConfigFormat::Toml, text, ENTRY_PATH, EntryChange::Remove) {
        Ok(EditResult::Removed(edited) | EditResult::Emptied(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[test]
fn an_empty_file_gets_one_table() {
    let expected = "[mcp_servers.drayage]\ncommand = \"/usr/bin/dray\"\nargs = [\"mcp\"]\nenv = { A = \"1\" }\n";
    assert_eq!(add_entry(""), expected);
    assert_eq!(remove_entry(expected), "");
}

#[test]
fn line_ends_and_a_byte_order_mark_stay() {
    let text = "\u{feff}# head\r\n[a]\r\ntext = \"\"\"one\r\ntwo\"\"\"\r\n";
    let edited = add_entry(text);
    let entry = "\r\n[mcp_servers.drayage]\r\ncommand = \"/usr/bin/dray\"\r\nargs = [\"mcp\"]\r\nenv = { A = \"1\" }\r\n";
    assert_eq!(edited, format!("{text}{entry}"));
    let mixed = "# one\n# two\r\n[a]\nb = 1\r\n";
    let edited = add_entry(mixed);
    assert!(edited.starts_with(mixed), "{edited:?}");
}

#[test]
fn a_removal_restores_every_byte() {
    let texts = [
        "# head\r\n[a]\r\nb = 1\r\n",
        "\u{feff}model = \"x\"\n",
        "# one\n# two\r\n[mcp_servers.other]\ncommand = \"y\"\r\n[z]\n# tail\r\n",
        "model = \"x\" # the model\n",
        "# head\n\n[mcp_servers.other] # note\ncommand = \"y\"\n\n[tui]\nnotifications = true\n# tail\n",
        "[mcp_servers]\nother = { command = \"y\" }\n",
        "mcp_servers = { other = { command = \"y\" } }\n",
        "mcp_servers.other.command = \"y\"\n",
        "[projects.\"/home/a b\"]\ntrust_level = \"trusted\"\nsince = 2026-11-23T20:00:00Z\n",
    ];
    for text in texts {
        let edited = add_entry(text);
        assert_eq!(set(&edited, false), Ok(EditResult::Unchanged), "{edited}");
        assert_eq!(remove_entry(&edited), text, "{edited}");
    }
}

#[test]
fn the_entry_is_written_after_the_other_servers() {
    let text = "[mcp_servers.other]\ncommand = \"y\"\n\n# colours\n[tui]\na = 1\n";
    let edited = add_entry(text);
    let expected = "[mcp_servers.other]\ncommand = \"y\"\n\n[mcp_servers.drayage]\n";
    assert!(edited.starts_with(expected), "{edited}");
    assert!(edited.ends_with("\n# colours\n[tui]\na = 1\n"), "{edited}");
}

#[test]
fn a_replaced_entry_keeps_its_place_and_the_comment_above() {
    let text = "# mine\n[mcp_servers.drayage]\ncommand = \"/old\"\n\n[tui]\na = 1\n";
    assert_eq!(set(text, false), Err(EditError::Occupied));
    let Ok(EditResult::Replaced(edited)) = set(text, true) else {
        panic!("the entry must be replaced");
    };
    let expected = "# mine\n[mcp_servers.drayage]\ncommand = \"/usr/bin/dray\"\n";
    assert!(
        edited.starts_with(expected) && edited.ends_with("\n[tui]\na = 1\n"),
        "{edited}"
    );
}

#[test]
fn a_broken_file_is_refused_with_its_place() {
    let Err(EditError::Syntax(message)) = set("a = 1\n[mcp_servers\n", false) else {
        panic!("a broken file must be refused");
    };
    assert!(message.contains("line 2"), "{message}");
    let refused = set("mcp_servers = 3\n", false);
    assert_eq!(
        refused,
        Err(EditError::Unsupported(
            "`mcp_servers` is not a table".to_owned()
        ))
    );
}
