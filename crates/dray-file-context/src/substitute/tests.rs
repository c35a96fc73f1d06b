//! Tests which values are replaced and which never are.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::catalog::tests::document;

fn urls() -> BTreeMap<String, String> {
    let pairs = [
        ("current-0", "https://x/a"),
        ("current-1", "https://x/b"),
        ("empty-0", ""),
        ("https://x/a", "https://loop"),
    ];
    pairs
        .map(|(id, url)| (id.to_owned(), url.to_owned()))
        .into()
}

fn check(value: &Value, expected: &Value) {
    let before = value.clone();
    let replaced = replace_agent_file_ids_with_urls(value, &urls());
    assert_eq!(replaced.to_string(), expected.to_string());
    assert_eq!(*value, before);
}

#[test]
fn only_whole_strings_are_replaced_and_keys_never() {
    check(
        &json!({"z": "current-0", "current-0": ["current-1", 1, true, null, {"deep": "current-0"}], "a": "x"}),
        &json!({"z": "https://x/a", "current-0": ["https://x/b", 1, true, null, {"deep": "https://x/a"}], "a": "x"}),
    );
    for same in [
        "please use current-0",
        "current-0 ",
        "Current-0",
        "{\"id\":\"current-0\"}",
        "empty-0",
        "\"current-0\"",
    ] {
        check(&json!({"v": same}), &json!({"v": same}));
    }
    check(&json!("current-0"), &json!("https://x/a"));
}

#[test]
fn falsy_values_are_returned_unchanged() {
    for falsy in [json!(null), json!(""), json!(0), json!(false)] {
        check(&falsy, &falsy);
    }
    let untouched = replace_agent_file_ids_with_urls(&json!(["current-0"]), &BTreeMap::new());
    assert_eq!(untouched, json!(["current-0"]));
}

#[test]
fn substituted_text_is_not_replaced_again() {
    check(
        &json!(["current-0", "https://x/a"]),
        &json!(["https://x/a", "https://loop"]),
    );
}

#[test]
fn r_9_only_the_maps_own_keys_are_looked_up() {
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
fn configured_parameters_are_replaced_too_and_the_model_overrides_them() {
    let object = |value: Value| value.as_object().unwrap().clone();
    let configured = object(json!({"file": "current-0", "mode": "a", "fixed": "current-1"}));
    let model_arguments = object(json!({"mode": "b", "file": "current-1"}));
    let merged = Value::Object(merge_arguments(&configured, &model_arguments));
    check(
        &merged,
        &json!({"file": "https://x/b", "mode": "b", "fixed": "https://x/b"}),
    );
}

#[test]
fn only_tools_of_other_services_get_urls() {
    for (callee, expected) in [
        (CalleeKind::Tool, true),
        (CalleeKind::SubWorkflow, true),
        (CalleeKind::Plugin, true),
        (CalleeKind::ReadFiles, false),
        (CalleeKind::DatasetSearch, false),
        (CalleeKind::Sandbox, false),
    ] {
        assert_eq!(callee.gets_urls(), expected);
    }
    assert_eq!(texts::tool_error("x"), "Tool error: x");
}

fn catalog() -> FileCatalog {
    let mut entry = document("a-0");
    entry.aliases = vec!["old-0".into()];
    entry.positions = vec!["3-0".into()];
    entry.former_urls = vec!["https://s3/k?sig=1&exp=2".into(), "/relative".into()];
    FileCatalog::new(vec![entry, document("b-0")])
}

#[test]
fn r_10_links_are_renewed_at_the_last_moment_and_once_for_each_file() {
    let value = json!({"a": ["a-0", "old-0", "https://s3/k?sig=1&exp=2", "https://s3/k?sig=1&amp;exp=2"], "b": "b-0"});
    let mut renewed_ids = Vec::new();
    let substituted = substitute_ids(&value, &catalog(), |entry| {
        renewed_ids.push(entry.file.id.clone());
        Some(format!("https://fresh/{}", entry.file.id))
    });
    let fresh = "https://fresh/a-0";
    assert_eq!(
        substituted.value,
        json!({"a": [fresh, fresh, fresh, fresh], "b": "https://fresh/b-0"})
    );
    assert_eq!(
        (renewed_ids, substituted.replaced),
        (
            vec!["a-0".to_owned(), "b-0".to_owned()],
            vec!["a-0".to_owned(), "b-0".to_owned()]
        )
    );
    let ids: Vec<_> = named_entries(&value, &catalog())
        .iter()
        .map(|entry| entry.file.id.clone())
        .collect();
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
        let substituted = substitute_ids(&json!(["a-0"]), &catalog(), |_| Some(bad.to_owned()));
        assert_eq!(
            (substituted.value, substituted.unresolved),
            (json!(["a-0"]), vec!["a-0".to_owned()]),
            "{bad}"
        );
    }
    let none = substitute_ids(
        &json!({"x": "a-0", "score": "3-0", "path": "/relative"}),
        &catalog(),
        |_| None,
    );
    assert_eq!(
        none.value,
        json!({"x": "a-0", "score": "3-0", "path": "/relative"})
    );
}

#[test]
fn a_call_of_another_service_is_merged_and_replaced() {
    let mut call: SubstituteRequest =
        serde_json::from_value(json!({"configured": {"x": "a-0", "y": "b-0"},
        "arguments": {"y": "old-0"}, "urls": {"a-0": "https://fresh/a"}, "catalog": catalog()}))
        .unwrap();
    assert_eq!(
        call.run().value,
        json!({"x": "https://fresh/a", "y": "https://fresh/a"})
    );
    call.urls.insert("a-0".to_owned(), None);
    assert_eq!(call.run().unresolved, ["a-0"]);
    call.urls.clear();
    assert_eq!(call.run().value["x"], "https://h.example/a-0.pdf");
}

#[test]
fn values_below_the_depth_limit_are_unchanged() {
    let mut value = json!("current-0");
    for _ in 0..=limits::MAX_ARGUMENT_DEPTH {
        value = json!([value]);
    }
    check(&value, &value);
}

fn arbitrary() -> impl Strategy<Value = Value> {
    let text = prop::sample::select(vec![
        "current-0",
        "current-1",
        "x",
        "",
        "current-0 ",
        "constructor",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..5).prop_map(|pairs| Value::Object(
                pairs
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            )),
        ]
    })
}

/// Same shape, same keys in order, and a leaf differs only where it was an id.
fn same_shape(before: &Value, after: &Value, urls: &BTreeMap<String, String>) -> bool {
    match (before, after) {
        (Value::Array(b), Value::Array(a)) => {
            b.len() == a.len()
                && b.iter()
                    .zip(a)
                    .all(|(after, before)| same_shape(after, before, urls))
        }
        (Value::Object(b), Value::Object(a)) => {
            b.len() == a.len()
                && b.iter().zip(a).all(|(after, before)| {
                    after.0 == before.0 && same_shape(after.1, before.1, urls)
                })
        }
        (Value::String(b), Value::String(a)) => {
            urls.get(b).filter(|url| !url.is_empty()).unwrap_or(b) == a
        }
        _ => before == after,
    }
}

proptest! {
    #[test]
    fn substitution_changes_no_key_no_shape_and_only_whole_strings(value in arbitrary()) {
        let after = replace_agent_file_ids_with_urls(&value, &urls());
        prop_assert!(same_shape(&value, &after, &urls()), "{} {}", value, after);
    }
}
