//! Tests which values are replaced and which never are.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::catalog::tests::document;

fn catalog() -> FileCatalog {
    let mut entry = document("a-0");
    entry.aliases = vec!["old-0".into()];
    entry.positions = vec!["3-0".into()];
    entry.former_urls = vec!["https://s3/k?sig=1&exp=2".into(), "/relative".into()];
    FileCatalog::new(vec![entry, document("b-0")])
}

/// A link for `a-0`, and none for other files.
fn signed(entry: &CatalogEntry) -> Option<String> {
    (entry.file.id == "a-0").then(|| "https://s.example/a?x=\"1\"".to_owned())
}

fn check(value: &Value, expected: &Value) {
    let json = value.to_string();
    let substituted = substitute_text(&json, &catalog(), |entry| {
        Some(format!("https://fresh/{}", entry.file.id))
    });
    assert_eq!(substituted.unwrap().text, expected.to_string());
}

#[test]
fn only_whole_strings_are_replaced_and_keys_never() {
    check(
        &json!({"z": "a-0", "a-0": ["b-0", 1, true, null, {"deep": "a-0"}], "a": "x"}),
        &json!({"z": "https://fresh/a-0", "a-0": ["https://fresh/b-0", 1, true, null, {"deep": "https://fresh/a-0"}], "a": "x"}),
    );
    for same in [
        "please use a-0",
        "a-0 ",
        "A-0",
        "{\"id\":\"a-0\"}",
        "\"a-0\"",
    ] {
        check(&json!({"v": same}), &json!({"v": same}));
    }
    check(&json!("a-0"), &json!("https://fresh/a-0"));
    for falsy in [json!(null), json!(""), json!(0), json!(false)] {
        check(&falsy, &falsy);
    }
}

#[test]
fn r_9_only_the_catalogs_own_ids_are_looked_up() {
    for name in [
        "constructor",
        "toString",
        "__proto__",
        "hasOwnProperty",
        "length",
    ] {
        check(&json!([name]), &json!([name]));
    }
}

#[test]
fn r_10_links_are_renewed_at_the_last_moment_and_once_for_each_file() {
    let arguments = json!({"a": ["a-0", "old-0", "https://s3/k?sig=1&exp=2", "https://s3/k?sig=1&amp;exp=2"], "b": "b-0"})
        .to_string();
    let mut renewed_ids = Vec::new();
    let substituted = substitute_text(&arguments, &catalog(), |entry| {
        renewed_ids.push(entry.file.id.clone());
        Some(format!("https://fresh/{}", entry.file.id))
    })
    .unwrap();
    let fresh = "https://fresh/a-0";
    assert_eq!(
        substituted.text,
        json!({"a": [fresh, fresh, fresh, fresh], "b": "https://fresh/b-0"}).to_string()
    );
    assert_eq!(renewed_ids, ["a-0", "b-0"]);
    assert_eq!(substituted.replaced, ["a-0", "b-0"]);
    let catalog = catalog();
    let named = named_in_text(&arguments, &catalog).unwrap();
    let ids: Vec<_> = named.iter().map(|entry| entry.file.id.as_str()).collect();
    assert_eq!(ids, ["a-0", "b-0"]);
}

#[test]
fn r_10_a_link_that_others_cannot_open_is_never_given_out() {
    for bad in [
        "",
        "/a.pdf",
        "ftp://x/a",
        "javascript:x",
        "https://",
        "data:image/png;base64,AA",
    ] {
        let substituted =
            substitute_text(r#"["a-0"]"#, &catalog(), |_| Some(bad.to_owned())).unwrap();
        assert_eq!(substituted.text, r#"["a-0"]"#, "{bad}");
        assert_eq!(substituted.unresolved, ["a-0"], "{bad}");
    }
}

#[test]
fn positions_and_relative_urls_are_not_replaced() {
    let same = json!({"score": "3-0", "path": "/relative"});
    check(&same, &same);
}

#[test]
fn only_the_strings_that_are_replaced_change() {
    let json = r#" { "n" : 123456789012345678901234567890 , "e":1.50E+400,"f":0.1000000000000000055511151231257827,
        "id":"a-0", "a-0":"a-0 stays", "list":[ "b-0" ,"\u0061-0", {"a-0":-0.0}], "s":"\ud800", "q":"\\\"a-0" } "#;
    let substituted = substitute_text(json, &catalog(), signed).unwrap();
    let url = r#""https://s.example/a?x=\"1\"""#;
    let expected = json
        .replace(r#""id":"a-0""#, &format!(r#""id":{url}"#))
        .replace(r#""\u0061-0""#, url);
    assert_eq!(substituted.text, expected);
    assert_eq!(
        (substituted.replaced, substituted.unresolved),
        (vec!["a-0".to_owned()], vec!["b-0".to_owned()])
    );
}

#[test]
fn text_that_is_not_json_is_an_error() {
    for json in ["", "{", "a-0", "\"a-0", "[1,]", "{\"a\":1} x"] {
        assert!(substitute_text(json, &catalog(), signed).is_err(), "{json}");
    }
}

#[test]
fn values_deeper_than_the_limit_are_unchanged() {
    let nested = |depth: usize| format!("{}\"a-0\"{}", "[".repeat(depth), "]".repeat(depth));
    let is_replaced = |depth: usize| {
        let substituted = substitute_text(&nested(depth), &catalog(), signed).unwrap();
        !substituted.replaced.is_empty()
    };
    assert!(is_replaced(0) && is_replaced(limits::MAX_ARGUMENT_DEPTH - 1));
    assert!(!is_replaced(limits::MAX_ARGUMENT_DEPTH + 1));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["a-0", "b-0", "a-0 ", "\"", "\\", ":,{}[]"])
            .prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("(a-0|[a-c\"\\\\]{0,2})", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The value with a link in place of each string `a-0`, the only file of [`signed`].
fn with_links(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "a-0" => Value::from("https://s.example/a?x=\"1\""),
        Value::Array(items) => items.iter().map(with_links).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, item)| (key.clone(), with_links(item)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn substitution_changes_no_key_no_shape_and_only_whole_strings(value in value(), pretty in any::<bool>()) {
        let json = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        let substituted = substitute_text(&json, &catalog(), signed).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&substituted.text).unwrap(), with_links(&value));
    }
}
