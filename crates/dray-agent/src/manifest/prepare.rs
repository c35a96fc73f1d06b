//! Converts a document into the form of the types: renames old keys, and removes preview features.

use serde_json::{Map, Value};

use super::check::{ManifestSchema, member_schema};

impl ManifestSchema {
    /// Renames keys and, unless `preview`, disables preview features: members become `null`, variants are removed from
    /// their list. Adds one warning for each.
    pub(super) fn prepare(
        &self,
        schema: &Value,
        value: &mut Value,
        preview: bool,
        warnings: &mut Vec<String>,
    ) {
        // An error causes no warning here, because the check that follows reports it.
        let Ok(chain) = self.applicable(schema, value) else {
            return;
        };
        match value {
            Value::Object(object) => {
                rename_legacy_keys(&chain, object);
                for (key, value) in object {
                    let Some(schema) = member_schema(&chain, key) else {
                        continue;
                    };
                    if !preview && !value.is_null() && is_preview(schema.as_object()) {
                        warnings.push(deactivated_name(key));
                        // Members in preview are optional, so `null` is always allowed.
                        *value = Value::Null;
                    } else {
                        self.prepare(schema, value, preview, warnings);
                    }
                }
            }
            Value::Array(items) => {
                for schema in chain.iter().filter_map(|members| members.get("items")) {
                    if !preview {
                        items.retain(|item| self.is_usable(schema, item, warnings));
                    }
                    for item in &mut *items {
                        self.prepare(schema, item, preview, warnings);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether an item is not of a variant in preview.
    fn is_usable(&self, schema: &Value, item: &Value, warnings: &mut Vec<String>) -> bool {
        let Ok(chain) = self.applicable(schema, item) else {
            // The check reports the wrong type.
            return true;
        };
        let is_hidden = chain.iter().any(|members| is_preview(Some(members)));
        if is_hidden {
            let name = item.get("type").and_then(Value::as_str);
            warnings.push(deactivated_name(name.unwrap_or_default()));
        }
        !is_hidden
    }
}

/// Renames keys of early manifests to their present names.
fn rename_legacy_keys(chain: &[&Map<String, Value>], object: &mut Map<String, Value>) {
    let properties = chain
        .iter()
        .filter_map(|members| members.get("properties")?.as_object());
    for (key, schema) in properties.flatten() {
        let Some(alias) = schema.get("x-alias").and_then(Value::as_str) else {
            continue;
        };
        // In a manifest with both, the current name applies, and the check reports the other one as unknown.
        if !object.contains_key(key)
            && let Some(value) = object.shift_remove(alias)
        {
            object.insert(key.clone(), value);
        }
    }
}

/// Whether a schema is marked as preview.
pub(super) fn is_preview(schema: Option<&Map<String, Value>>) -> bool {
    schema.is_some_and(|schema| schema.get("x-preview") == Some(&Value::Bool(true)))
}

fn deactivated_name(name: &str) -> String {
    format!(
        "Preview feature \"{name}\" is configured but preview features are disabled (ENABLE_PREVIEW_FEATURES is not \
         set). The feature has been deactivated."
    )
}
