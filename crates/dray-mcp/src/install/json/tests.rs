//! Edits of JSON with comments: what is inserted where, and that a removal gives the text back.

use serde_json::{Value, json};

use super::super::client::ConfigFormat;
use super::super::edit::{EditError, EditResult, EntryChange, apply_change};

const ENTRY_PATH: &[&str] = &["mcpServers", "drayage"];

fn entry() -> Value {
    json!({ "command": "/usr/bin/dray", "args": ["mcp"] })
}

fn change(text: &str, change: EntryChange<'_>) -> Result<EditResult, EditError> {
    apply_change(ConfigFormat::Json, text, ENTRY_PATH, change)
}

fn set(text: &str) -> Result<EditResult, EditError> {
    let value = entry();
    let change_entry = EntryChange::Set {
        value: &value,
        replace: false,
    };
    change(text, change_entry)
}

fn add_entry(text: &str) -> String {
    match set(text) {
        Ok(EditResult::Added(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

fn remove_entry(text: &str) -> String {
    match change(text, EntryChange::Remove) {
        Ok(EditResult::Removed(edited) | EditResult::Emptied(edited)) => edited,
        other => panic!("{text:?} gives {other:?}"),
    }
}

#[test]
fn an_empty_file_gets_a_complete_document() {
    let expected = r#"{
  "mcpServers": {
    "drayage": {
      "command": "/usr/bin/dray",
      "args": [
        "mcp"
      ]
    }
  }
}
"#;
    assert_eq!(add_entry(""), expected);
    assert_eq!(
        change(expected, EntryChange::Remove),
        Ok(EditResult::Emptied("{\n}\n".to_owned()))
    );
}

#[test]
fn a_removal_restores_every_byte() {
    let texts = [
        "{\n  \"a\": 1\n}\n",
        "{\n  \"a\": 1 // note\n}\n",
        "{\n  \"a\": 1, // note\n  /* last */\n}\n",
        "{\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\": \"x\"}\n\t}\n}",
        "{\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\": \"x\"}, // why\n\t\t// \"off\": {}\n\t},\n}",
        "{\r\n  \"mcpServers\": {\r\n    \"other\": {}\r\n  },\r\n  \"b\": 2\r\n}\r\n",
        "\u{feff}{\n  \"mcpServers\": {\n    \"other\": {}\n  }\n}\n",
        "// head\n{\"mcpServers\": {\"other\": {\"command\": \"x\"}}, \"b\": [1, 2]}\n// tail\n",
        "{\"b\": \"// no comment, { \"}",
        "{\n  \"mcpServers\": {\n    // nothing yet\n  }\n}\n",
    ];
    for text in texts {
        let edited = add_entry(text);
        assert_eq!(set(&edited), Ok(EditResult::Unchanged), "{edited}");
        assert_eq!(remove_entry(&edited), text, "{edited}");
    }
}

#[test]
fn comments_stay_at_their_member() {
    let text = "{\n    \"mcpServers\": {\n        \"other\": {} // stays here\n        // the end\n    }\n}\n";
    let expected = "{\n    \"mcpServers\": {\n        \"other\": {}, // stays here\n        \"drayage\": {\n            \
                    \"command\": \"/usr/bin/dray\",\n            \"args\": [\n                \"mcp\"\n            ]\n        \
                    }\n        // the end\n    }\n}\n";
    assert_eq!(add_entry(text), expected);
}

#[test]
fn the_first_and_a_middle_member_are_removed_without_a_trace() {
    let text = "{\n  \"mcpServers\": {\n    \"drayage\": {},\n    \"z\": {}\n  }\n}";
    assert_eq!(
        remove_entry(text),
        "{\n  \"mcpServers\": {\n    \"z\": {}\n  }\n}"
    );
    let text = "{\"mcpServers\": {\"a\": {}, \"drayage\": {}, \"z\": {}}}";
    assert_eq!(
        remove_entry(text),
        "{\"mcpServers\": {\"a\": {}, \"z\": {}}}"
    );
}

#[test]
fn comments_around_a_removed_member_stay() {
    let cases = [
        // Otherwise the preceding comment would include the closing brace.
        (
            "{\"mcpServers\": {\"a\": 1, // c\n\"drayage\": {} }\n}",
            "{\"mcpServers\": {\"a\": 1 // c\n }\n}",
        ),
        (
            "{\"mcpServers\": {\"drayage\": {} /* c */, \"z\": 1}}",
            "{\"mcpServers\": { /* c */ \"z\": 1}}",
        ),
        (
            "{\"mcpServers\": /* c */ {\"drayage\": {}}}",
            "{\"mcpServers\": /* c */ {}}",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(remove_entry(text), expected);
    }
}

#[test]
fn a_null_table_is_replaced() {
    let edited = add_entry("{\n  \"mcpServers\": null,\n  \"b\": 1\n}\n");
    assert!(edited.contains("\"drayage\"") && edited.ends_with("},\n  \"b\": 1\n}\n"));
}

#[test]
fn another_entry_of_the_name_is_replaced_only_on_request() {
    let text = "{\n  \"mcpServers\": {\n    \"drayage\": {\"command\": \"/old\"} // mine\n  }\n}\n";
    assert_eq!(set(text), Err(EditError::Occupied));
    let value = entry();
    let replace = EntryChange::Set {
        value: &value,
        replace: true,
    };
    let Ok(EditResult::Replaced(edited)) = change(text, replace) else {
        panic!("the entry must be replaced");
    };
    assert!(edited.contains("/usr/bin/dray") && edited.contains("} // mine\n"));
}

#[test]
fn unusual_files_are_refused() {
    let cases = [
        ("{\n  \"mcpServers\": [\n", "line 3"),
        ("{\"a\": 1} {\"b\": 2}", "line 1"),
        ("{'a': 1}", "line 1"),
        ("[1]", "does not hold a table"),
        ("{\"mcpServers\": []}", "`mcpServers` is not an object"),
        ("{\"mcpServers\": {}, \"mcpServers\": {}}", "occurs twice"),
    ];
    for (text, part) in cases {
        let Err(EditError::Syntax(message) | EditError::Unsupported(message)) = set(text) else {
            panic!("{text} is accepted");
        };
        assert!(message.contains(part), "{text}: {message}");
    }
}
