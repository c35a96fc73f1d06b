//! Changes to a template: merge patches (RFC 7396) that leave discriminators alone (quickapps 8.3).

use std::fmt;

use serde_json::{Map, Value};

use crate::json_pointer::escape_segment;

/// A place that a patch may not change. Prints as `pointer: reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPatch {
    /// JSON pointer (RFC 6901) into the patch.
    pub pointer: String,
}

impl fmt::Display for RefusedPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: 'type' discriminator may not be overridden by a patch",
            self.pointer
        )
    }
}

/// The template with the patch applied; the template itself stays as it is.
///
/// Objects merge, arrays and scalars replace, `null` deletes. The patch must not contain a member `type` at any depth
/// or in any array: it defines the variant of its object, and an array would replace objects including their type.
///
/// # Errors
///
/// Every place where the patch has a `type`, in its order.
pub fn apply_patch(
    template: &Value,
    patch: &Map<String, Value>,
) -> Result<Value, Vec<RefusedPatch>> {
    let mut refusals = Vec::new();
    for (key, change) in patch {
        find_refusals(key, change, "", &mut refusals);
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let mut patched = template.clone();
    merge_patch(&mut patched, patch);
    Ok(patched)
}

fn find_refusals(key: &str, change: &Value, at: &str, refusals: &mut Vec<RefusedPatch>) {
    let pointer = format!("{at}/{}", escape_segment(key));
    if key == "type" {
        refusals.push(RefusedPatch { pointer });
        // Values below it are refused together with it.
        return;
    }
    match change {
        Value::Object(members) => {
            for (key, change) in members {
                find_refusals(key, change, &pointer, refusals);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                find_refusals(&number.to_string(), item, &pointer, refusals);
            }
        }
        _ => {}
    }
}

fn merge_patch(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        // RFC 7396 section 2: a target that is not an object becomes an empty one.
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else {
        return;
    };
    for (key, change) in patch {
        match change {
            Value::Null => {
                // `remove` would move the last member into the gap, and the model sees the order of arguments.
                members.shift_remove(key);
            }
            Value::Object(inner) => {
                // A missing member is merged too, because a `null` inside the patch deletes and must not be inserted.
                merge_patch(members.entry(key.clone()).or_insert(Value::Null), inner);
            }
            other => {
                members.insert(key.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patch_template(template: &Value, patch: &Value) -> Value {
        let before = template.clone();
        let result = apply_patch(template, patch.as_object().unwrap()).unwrap();
        assert_eq!(*template, before);
        result
    }

    fn assert_refused(template: &Value, patch: &Value, pointers: &[&str]) {
        let refusals = apply_patch(template, patch.as_object().unwrap()).unwrap_err();
        let found: Vec<_> = refusals
            .iter()
            .map(|refusal| refusal.pointer.as_str())
            .collect();
        assert_eq!(found, pointers);
    }

    #[test]
    fn the_examples_of_rfc_7396_with_objects_are_patched_as_specified() {
        for (template, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            assert_eq!(patch_template(&template, &patch), result);
        }
    }

    #[test]
    fn an_empty_patch_yields_a_copy_and_a_missing_key_may_be_deleted() {
        let template = json!({"type": "t", "a": [1]});
        assert_eq!(patch_template(&template, &json!({})), template);
        assert_eq!(
            patch_template(&template, &json!({"nowhere": null})),
            template
        );
    }

    #[test]
    fn a_type_is_refused_at_any_depth_and_inside_arrays() {
        let template = json!({"type": "t", "a": {"b/c": {"type": "u", "~": {"x": 1}}}, "tools": [{"type": "a"}]});
        assert_refused(
            &template,
            &json!({"type": "x", "a": {"b/c": {"type": null, "~": {"type": "v"}}}}),
            &["/type", "/a/b~1c/type", "/a/b~1c/~0/type"],
        );
        assert_refused(
            &template,
            &json!({"tools": [{"x": [{"type": "b"}]}, {"type": "a"}]}),
            &["/tools/0/x/0/type", "/tools/1/type"],
        );
        assert_refused(&template, &json!({"type": "t"}), &["/type"]);
        assert_refused(
            &template,
            &json!({"properties": {"p": {"type": "string"}}}),
            &["/properties/p/type"],
        );
        let refusal = RefusedPatch {
            pointer: "/tools/0/type".to_owned(),
        };
        assert_eq!(
            refusal.to_string(),
            "/tools/0/type: 'type' discriminator may not be overridden by a patch"
        );
    }

    #[test]
    fn an_array_without_types_replaces() {
        let template = json!({"type": "t", "allowed_tools": ["a"]});
        let done = json!({"type": "t", "allowed_tools": ["b"]});
        assert_eq!(
            patch_template(&template, &json!({"allowed_tools": ["b"]})),
            done
        );
    }

    /// JSON with few different keys, so that they often match; no `type`.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<i8>().prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applied_twice_is_applied_once(template in any_json(), patch in any_json()) {
            let Some(patch) = patch.as_object() else { return Ok(()); };
            let once = apply_patch(&template, patch).unwrap();
            prop_assert_eq!(&apply_patch(&once, patch).unwrap(), &once);
            for (key, change) in patch {
                prop_assert_eq!(change.is_null(), once.get(key).is_none());
            }
        }
    }
}
