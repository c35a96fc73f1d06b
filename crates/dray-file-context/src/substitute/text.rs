//! Ids in the text of arguments: only replaced strings change; all other bytes are kept. Numbers keep all digits, keys
//! keep their position, and escapes keep their spelling.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;

use super::FileHandles;
use crate::address;
use crate::catalog::{CatalogEntry, FileCatalog};
use crate::limits;

/// Arguments as text with URLs, and the outcome of each file that they named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubstitutedText {
    /// The text after the replacement, otherwise the same byte for byte.
    pub text: String,
    /// Ids whose URL was put in.
    pub replaced: Vec<String>,
    /// Ids that were kept, because they have no URL that other services can open (R-10).
    pub unresolved: Vec<String>,
}

/// Finds entries as [`super::named_entries`] does, in the text of a JSON value.
///
/// # Errors
///
/// The text is not JSON.
pub fn named_in_text<'a>(
    json: &str,
    catalog: &'a FileCatalog,
) -> Result<Vec<&'a CatalogEntry>, serde_json::Error> {
    let handles = FileHandles::of(catalog);
    let mut found: Vec<&CatalogEntry> = Vec::new();
    let mut seen = BTreeSet::new();
    replace_strings(json, &mut |text| {
        let entry = handles.find(text)?;
        if seen.insert(&entry.file.id) {
            found.push(entry);
        }
        None
    })?;
    Ok(found)
}

/// Replaces ids as [`super::substitute_ids`] does, in the text of a JSON value.
///
/// # Errors
///
/// The text is not JSON.
pub fn substitute_text(
    json: &str,
    catalog: &FileCatalog,
    mut renew: impl FnMut(&CatalogEntry) -> Option<String>,
) -> Result<SubstitutedText, serde_json::Error> {
    let handles = FileHandles::of(catalog);
    let mut fresh: BTreeMap<String, Option<String>> = BTreeMap::new();
    let text = replace_strings(json, &mut |text| {
        let entry = handles.find(text)?;
        let known = fresh.entry(entry.file.id.clone()).or_insert_with(|| {
            let url = renew(entry);
            url.filter(|url| address::is_absolute_http(url))
        });
        known.clone()
    })?;
    let ids_where = |is_replaced: bool| -> Vec<String> {
        let ids = fresh.iter().filter(|(_, url)| url.is_some() == is_replaced);
        ids.map(|(id, _)| id.clone()).collect()
    };
    Ok(SubstitutedText {
        replaced: ids_where(true),
        unresolved: ids_where(false),
        text,
    })
}

/// The same text with other strings in place of values. Keys and values that are too deep are kept.
fn replace_strings(
    json: &str,
    change: &mut impl FnMut(&str) -> Option<String>,
) -> Result<String, serde_json::Error> {
    // The walk below trusts the syntax.
    serde_json::from_str::<IgnoredAny>(json)?;
    let mut written = String::with_capacity(json.len());
    let mut rest = json;
    let mut position = JsonPosition::default();
    while let Some(index) = rest.find(['"', '{', '}', '[', ']', ',', ':']) {
        let (before, tail) = rest.split_at(index);
        written.push_str(before);
        let length = if tail.starts_with('"') {
            literal_length(tail)
        } else {
            position.step(tail);
            1
        };
        let (token, after) = tail.split_at(length);
        // Punctuation is one byte long, a string literal at least two.
        let is_value = token.len() > 1 && position.is_value();
        // Half of a surrogate pair is not text, so it cannot be an id.
        let decoded = is_value.then(|| serde_json::from_str::<String>(token).ok());
        match decoded.flatten().and_then(|text| change(&text)) {
            Some(other) => written.push_str(&serde_json::to_string(&other)?),
            None => written.push_str(token),
        }
        rest = after;
    }
    written.push_str(rest);
    Ok(written)
}

/// The position of the walk in the structure.
#[derive(Debug, Default)]
struct JsonPosition {
    /// Whether each open container is an object, outermost first.
    open: Vec<bool>,
    /// Whether the next string is a key.
    at_key: bool,
}

impl JsonPosition {
    fn step(&mut self, tail: &str) {
        match tail.as_bytes().first() {
            Some(b'{') => {
                self.open.push(true);
                self.at_key = true;
            }
            Some(b'[') => {
                self.open.push(false);
                self.at_key = false;
            }
            Some(b'}' | b']') => {
                self.open.pop();
                self.at_key = false;
            }
            Some(b',') => self.at_key = self.open.last().copied().unwrap_or_default(),
            _ => self.at_key = false,
        }
    }

    fn is_value(&self) -> bool {
        !self.at_key && self.open.len() <= limits::MAX_ARGUMENT_DEPTH
    }
}

/// Bytes of the string literal that `text` begins with, quotes included.
fn literal_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::catalog::tests::document;
    use crate::substitute::substitute_ids;

    fn catalog() -> FileCatalog {
        FileCatalog::new(vec![document("a-0"), document("b-0")])
    }

    fn signed(entry: &CatalogEntry) -> Option<String> {
        (entry.file.id == "a-0").then(|| "https://s.example/a?x=\"1\"".to_owned())
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
        let found = catalog();
        let named = named_in_text(json, &found).unwrap();
        let ids: Vec<_> = named.iter().map(|entry| entry.file.id.as_str()).collect();
        assert_eq!(ids, ["a-0", "b-0"]);
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

    proptest! {
        #[test]
        fn text_and_value_are_substituted_in_the_same_way(value in value(), pretty in any::<bool>()) {
            let json = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let by_text = substitute_text(&json, &catalog(), signed).unwrap();
            let by_value = substitute_ids(&value, &catalog(), signed);
            prop_assert_eq!(serde_json::from_str::<Value>(&by_text.text).unwrap(), by_value.value);
            prop_assert_eq!(by_text.replaced, by_value.replaced);
            prop_assert_eq!(by_text.unresolved, by_value.unresolved);
        }
    }
}
