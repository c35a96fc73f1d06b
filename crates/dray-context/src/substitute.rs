//! URLs in the place of ids, in the arguments of tools (agent-file-context 15).
//!
//! A model names files by id; other tools need links. Only a whole string that is an id is replaced: nothing within a
//! string, no key, nothing else. Values go in and values come out; what is looked up is looked up in the caller's map and
//! nowhere else.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address;
use crate::catalog::{Catalog, Entry};
use crate::escape::unescape;
use crate::limits;

/// Replaces every string that is an id of the map by its URL. A falsy value, an empty map and an empty URL change nothing.
///
/// This is the contract's own function: it trusts the map. [`substitute`] also takes older forms, renews links and never
/// gives out a relative one.
pub fn replace_agent_file_ids_with_urls(value: &Value, urls: &BTreeMap<String, String>) -> Value {
    if urls.is_empty() || is_falsy(value) {
        return value.clone();
    }
    replace(value, limits::ARGUMENT_DEPTH, &mut |text| {
        urls.get(text).filter(|url| !url.is_empty()).cloned()
    })
}

fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The same shape with other strings. What lies deeper than `depth` stays as it is.
fn replace(value: &Value, depth: usize, change: &mut impl FnMut(&str) -> Option<String>) -> Value {
    match value {
        Value::String(text) => Value::String(change(text).unwrap_or_else(|| text.clone())),
        Value::Array(items) if depth > 0 => {
            let items = items.iter().map(|item| replace(item, depth - 1, change));
            Value::Array(items.collect())
        }
        Value::Object(fields) if depth > 0 => {
            let fields = fields.iter();
            let fields = fields.map(|(key, item)| (key.clone(), replace(item, depth - 1, change)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// The arguments of a call: what the tool was configured with, and what the model said, which wins on a shared key. A
/// model's argument that is no object is no argument.
pub fn merge(configured: &Map<String, Value>, said: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = configured.clone();
    for (key, value) in said {
        merged.insert(key.clone(), value.clone());
    }
    merged
}

/// What kind of thing a model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Callee {
    /// A plain tool.
    Tool,
    /// A sub-workflow, its question included.
    SubWorkflow,
    /// A plugin's workflow.
    Plugin,
    /// `read_files`, which takes ids itself.
    ReadFiles,
    /// `dataset_search`.
    DatasetSearch,
    /// A tool of the sandbox.
    Sandbox,
}

impl Callee {
    /// Whether ids in its arguments are replaced.
    pub fn gets_urls(self) -> bool {
        matches!(self, Self::Tool | Self::SubWorkflow | Self::Plugin)
    }
}

/// Arguments with URLs, and what became of each file that they named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Substituted {
    /// The arguments.
    pub value: Value,
    /// Ids whose URL was put in.
    pub replaced: Vec<String>,
    /// Ids that stayed, because nothing gave a URL that others can open.
    pub unresolved: Vec<String>,
}

/// The ids of files that a value names, so that their links can be renewed before [`substitute`]. Each once, in
/// order of appearance.
pub fn named<'a>(value: &Value, catalog: &'a Catalog) -> Vec<&'a Entry> {
    let handles = Handles::of(catalog);
    let mut found: Vec<&Entry> = Vec::new();
    let mut seen = BTreeSet::new();
    replace(value, limits::ARGUMENT_DEPTH, &mut |text| {
        let entry = handles.find(text)?;
        if seen.insert(&entry.file.id) {
            found.push(entry);
        }
        None
    });
    found
}

/// Replaces every string that is a file's id, an older form of one, or a URL that it once had, by the URL that `renew`
/// gives for it now. `renew` is asked once for each file; what it gives must be an absolute `http(s)` URL, or the string
/// stays. Positions of the oldest conversations (`3-0`) are never replaced: too much else looks like them.
pub fn substitute(
    value: &Value,
    catalog: &Catalog,
    mut renew: impl FnMut(&Entry) -> Option<String>,
) -> Substituted {
    let handles = Handles::of(catalog);
    let mut fresh: BTreeMap<String, Option<String>> = BTreeMap::new();
    let value = replace(value, limits::ARGUMENT_DEPTH, &mut |text| {
        let entry = handles.find(text)?;
        let known = fresh.entry(entry.file.id.clone()).or_insert_with(|| {
            let url = renew(entry);
            url.filter(|url| address::is_absolute_http(url))
        });
        known.clone()
    });
    let of = |wanted: bool| -> Vec<String> {
        let ids = fresh.iter().filter(|(_, url)| url.is_some() == wanted);
        ids.map(|(id, _)| id.clone()).collect()
    };
    Substituted {
        replaced: of(true),
        unresolved: of(false),
        value,
    }
}

/// Every string that names a file.
struct Handles<'a> {
    by_text: BTreeMap<&'a str, &'a Entry>,
}

impl<'a> Handles<'a> {
    fn of(catalog: &'a Catalog) -> Self {
        let mut by_text = BTreeMap::new();
        for entry in catalog.entries() {
            let urls = [Some(&entry.file.url), entry.public_url.as_ref()];
            let urls = urls.into_iter().flatten().chain(&entry.former_urls);
            let absolute = urls.filter(|url| address::is_absolute_http(url));
            by_text.extend(absolute.map(|url| (url.as_str(), entry)));
        }
        for entry in catalog.entries() {
            by_text.extend(entry.aliases.iter().map(|alias| (alias.as_str(), entry)));
        }
        for entry in catalog.entries() {
            by_text.insert(&entry.file.id, entry);
        }
        Self { by_text }
    }

    /// The file of a whole string; a URL also as a model copies it out of a reminder (17.3).
    fn find(&self, text: &str) -> Option<&'a Entry> {
        if let Some(entry) = self.by_text.get(text) {
            return Some(entry);
        }
        if text.starts_with("http") && text.contains("&amp;") {
            return self.by_text.get(unescape(text).as_str()).copied();
        }
        None
    }
}

/// What a call of tools that fails is answered with.
pub mod texts {
    /// The arguments are no JSON object.
    pub const NOT_AN_OBJECT: &str = "Params is not object";
    /// Nothing can call this kind of tool.
    pub const INVALID_TYPE: &str = "Invalid tool type";

    /// The tool threw.
    pub fn tool_error(message: &str) -> String {
        format!("Tool error: {message}")
    }
}

#[cfg(test)]
mod tests {
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
    fn what_is_falsy_comes_back_as_it_is() {
        for falsy in [json!(null), json!(""), json!(0), json!(false)] {
            check(&falsy, &falsy);
        }
        let untouched = replace_agent_file_ids_with_urls(&json!(["current-0"]), &BTreeMap::new());
        assert_eq!(untouched, json!(["current-0"]));
    }

    #[test]
    fn what_was_put_in_is_not_replaced_again() {
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
    fn configured_parameters_are_replaced_too_and_the_model_wins() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let configured = object(json!({"file": "current-0", "mode": "a", "fixed": "current-1"}));
        let said = object(json!({"mode": "b", "file": "current-1"}));
        let merged = Value::Object(merge(&configured, &said));
        check(
            &merged,
            &json!({"file": "https://x/b", "mode": "b", "fixed": "https://x/b"}),
        );
    }

    #[test]
    fn only_others_tools_get_urls() {
        for (callee, expected) in [
            (Callee::Tool, true),
            (Callee::SubWorkflow, true),
            (Callee::Plugin, true),
            (Callee::ReadFiles, false),
            (Callee::DatasetSearch, false),
            (Callee::Sandbox, false),
        ] {
            assert_eq!(callee.gets_urls(), expected);
        }
        assert_eq!(texts::tool_error("x"), "Tool error: x");
    }

    fn catalog() -> Catalog {
        let mut one = document("a-0");
        one.aliases = vec!["old-0".into()];
        one.positions = vec!["3-0".into()];
        one.former_urls = vec!["https://s3/k?sig=1&exp=2".into(), "/relative".into()];
        Catalog::new(vec![one, document("b-0")])
    }

    #[test]
    fn r_10_links_are_renewed_at_the_last_moment_and_once_for_each_file() {
        let value = json!({"a": ["a-0", "old-0", "https://s3/k?sig=1&exp=2", "https://s3/k?sig=1&amp;exp=2"], "b": "b-0"});
        let mut asked = Vec::new();
        let done = substitute(&value, &catalog(), |entry| {
            asked.push(entry.file.id.clone());
            Some(format!("https://fresh/{}", entry.file.id))
        });
        let fresh = "https://fresh/a-0";
        assert_eq!(
            done.value,
            json!({"a": [fresh, fresh, fresh, fresh], "b": "https://fresh/b-0"})
        );
        assert_eq!(
            (asked, done.replaced),
            (
                vec!["a-0".to_owned(), "b-0".to_owned()],
                vec!["a-0".to_owned(), "b-0".to_owned()]
            )
        );
        let ids: Vec<_> = named(&value, &catalog())
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
            let done = substitute(&json!(["a-0"]), &catalog(), |_| Some(bad.to_owned()));
            assert_eq!(
                (done.value, done.unresolved),
                (json!(["a-0"]), vec!["a-0".to_owned()]),
                "{bad}"
            );
        }
        let none = substitute(
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
    fn what_lies_too_deep_stays_as_it_is() {
        let mut value = json!("current-0");
        for _ in 0..=limits::ARGUMENT_DEPTH {
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
                    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
                )),
            ]
        })
    }

    /// Same shape, same keys in order, and a leaf differs only where it was an id.
    fn same_shape(before: &Value, after: &Value, urls: &BTreeMap<String, String>) -> bool {
        match (before, after) {
            (Value::Array(b), Value::Array(a)) => {
                b.len() == a.len() && b.iter().zip(a).all(|(b, a)| same_shape(b, a, urls))
            }
            (Value::Object(b), Value::Object(a)) => {
                b.len() == a.len()
                    && b.iter()
                        .zip(a)
                        .all(|(b, a)| b.0 == a.0 && same_shape(b.1, a.1, urls))
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
}
