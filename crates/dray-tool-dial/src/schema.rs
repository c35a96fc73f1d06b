//! Reads the JSON schema of a deployment's settings. The schema is not trusted: references are followed a few steps
//! and within the document only, and parts of another shape are skipped.

use serde_json::{Map, Value};

/// Most references that are followed one after another.
const MAX_REFERENCE_STEPS: usize = 8;

/// Most branches of one setting that are searched.
const MAX_BRANCHES: usize = 256;

/// The settings, in the order of the document.
pub(crate) fn setting_properties(root: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let properties = root.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, property)| (name.as_str(), property))
}

/// Names of the settings that must be given.
pub(crate) fn required_settings(root: &Value) -> impl Iterator<Item = &str> {
    let required = root.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str)
}

/// The description of a setting, otherwise its title.
pub(crate) fn setting_description<'a>(root: &'a Value, property: &'a Value) -> Option<&'a str> {
    let text = |value: &'a Value| {
        let text = value.get("description").or_else(|| value.get("title"));
        text.and_then(Value::as_str)
    };
    text(property).or_else(|| text(follow_ref(root, property)))
}

/// The values that a setting can have, when they are listed; `null` is not among them.
pub(crate) fn setting_choices<'a>(root: &'a Value, property: &'a Value) -> Vec<&'a Value> {
    let mut found = Vec::new();
    let mut pending = vec![property];
    let mut searched = 0;
    while let Some(property) = pending.pop() {
        searched += 1;
        if searched > MAX_BRANCHES {
            break;
        }
        collect_choices(root, property, &mut pending, &mut found);
    }
    found
}

fn collect_choices<'a>(
    root: &'a Value,
    property: &'a Value,
    pending: &mut Vec<&'a Value>,
    found: &mut Vec<&'a Value>,
) {
    let property = follow_ref(root, property);
    let listed = property.get("enum").and_then(Value::as_array);
    let single = property.get("const");
    for value in listed.into_iter().flatten().chain(single) {
        if !value.is_null() && !found.contains(&value) {
            found.push(value);
        }
    }
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let branches = property.get(keyword).and_then(Value::as_array);
        // The branches are pushed in reverse, because the last one is processed first.
        pending.extend(branches.into_iter().flatten().rev());
    }
}

/// The target of a `$ref` within the document; the property itself without one.
fn follow_ref<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    let mut current = property;
    for _ in 0..MAX_REFERENCE_STEPS {
        let target = current.get("$ref").and_then(Value::as_str);
        let Some(next) = target
            .and_then(|target| target.strip_prefix('#'))
            .and_then(|pointer| root.pointer(pointer))
        else {
            break;
        };
        current = next;
    }
    current
}

/// The text of a value in the list of choices.
pub(crate) fn choice_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Removes the settings from the arguments and returns them. A text of the model becomes the listed value with this
/// text, or the number or boolean that the schema requires.
pub(crate) fn take_settings(
    root: &Value,
    arguments: &mut Map<String, Value>,
) -> Map<String, Value> {
    setting_properties(root)
        .filter_map(|(name, property)| {
            let value = arguments.shift_remove(name)?;
            Some((name.to_owned(), typed_value(root, property, value)))
        })
        .collect()
}

fn typed_value(root: &Value, property: &Value, value: Value) -> Value {
    let Some(text) = value.as_str() else {
        return value;
    };
    let choices = setting_choices(root, property);
    // Listed values are checked first, because they determine whether `2` is a number or a text.
    if let Some(choice) = choices.iter().find(|choice| choice_text(choice) == text) {
        return (*choice).clone();
    }
    let expected_types = setting_types(root, property);
    if expected_types.is_empty() || expected_types.contains(&"string") {
        return value;
    }
    let parsed = serde_json::from_str::<Value>(text.trim()).ok();
    let fits = parsed.filter(|parsed| {
        expected_types.iter().any(|kind| match *kind {
            "integer" => parsed.is_i64() || parsed.is_u64(),
            "number" => parsed.is_number(),
            "boolean" => parsed.is_boolean(),
            "array" => parsed.is_array(),
            "object" => parsed.is_object(),
            _ => false,
        })
    });
    fits.unwrap_or(value)
}

/// The types that a setting can have.
fn setting_types<'a>(root: &'a Value, property: &'a Value) -> Vec<&'a str> {
    let property = follow_ref(root, property);
    let branches = ["anyOf", "oneOf", "allOf"].into_iter().flat_map(|keyword| {
        let branches = property.get(keyword).and_then(Value::as_array);
        branches.into_iter().flatten()
    });
    std::iter::once(property)
        .chain(branches)
        .filter_map(|schema| follow_ref(root, schema).get("type"))
        .flat_map(|kind| match kind {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect::<Vec<_>>(),
        })
        .collect()
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "tests read better with literals in place"
)]
mod tests {
    use serde_json::json;

    use super::*;

    fn take_fixed(root: &Value, arguments: Value) -> (Value, Value) {
        let mut arguments = arguments.as_object().cloned().unwrap();
        let taken = take_settings(root, &mut arguments);
        (taken.into(), arguments.into())
    }

    #[test]
    fn settings_of_the_schema_are_removed_and_other_arguments_stay() {
        let root = json!({ "properties": { "mode": { "type": "string" } } });
        let (settings, rest) = take_fixed(&root, json!({ "mode": "1", "other": 2 }));
        assert_eq!(
            (settings, rest),
            (json!({"mode": "1"}), json!({"other": 2}))
        );
    }

    #[test]
    fn texts_become_the_types_of_the_schema() {
        let root = json!({ "properties": {
            "n": { "type": "integer" },
            "x": { "anyOf": [{ "type": "number" }, { "type": "null" }] },
            "yes": { "type": ["boolean", "null"] },
            "pick": { "anyOf": [{ "const": 1 }, { "const": 2 }] },
        }});
        let (settings, _) = take_fixed(
            &root,
            json!({ "n": " 5", "x": "0.5", "yes": "true", "pick": "2" }),
        );
        assert_eq!(
            settings,
            json!({ "n": 5, "x": 0.5, "yes": true, "pick": 2 })
        );
    }

    #[test]
    fn a_text_that_does_not_fit_stays_a_text() {
        let root = json!({ "properties": { "n": { "type": "integer" }, "s": {} } });
        let (settings, _) = take_fixed(&root, json!({ "n": "many", "s": "7" }));
        assert_eq!(settings, json!({ "n": "many", "s": "7" }));
    }

    #[test]
    fn references_within_the_document_are_followed() {
        let root = json!({
            "properties": { "mode": { "allOf": [{ "$ref": "#/$defs/Mode" }] }, "far": { "$ref": "http://e/x" } },
            "$defs": { "Mode": { "enum": ["a", null, "b", "a"], "title": "Mode" } },
        });
        let mode = &root["properties"]["mode"];
        assert_eq!(setting_choices(&root, mode), [&json!("a"), &json!("b")]);
        assert!(setting_choices(&root, &root["properties"]["far"]).is_empty());
    }

    #[test]
    fn a_schema_with_circular_references_ends() {
        let root = json!({
            "properties": { "x": { "$ref": "#/$defs/X" } },
            "$defs": { "X": { "$ref": "#/$defs/X", "anyOf": [{ "$ref": "#/$defs/X" }] } },
        });
        assert!(setting_choices(&root, &root["properties"]["x"]).is_empty());
        assert_eq!(
            take_fixed(&root, json!({ "x": "1" })).0,
            json!({ "x": "1" })
        );
    }

    #[test]
    fn a_schema_of_another_shape_has_no_settings() {
        for root in [
            json!(null),
            json!([1]),
            json!({ "properties": [1], "required": "x" }),
        ] {
            assert_eq!(
                setting_properties(&root).count() + required_settings(&root).count(),
                0
            );
        }
    }
}
