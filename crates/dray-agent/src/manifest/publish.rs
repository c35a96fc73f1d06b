//! The schema of manifests as editors and DIAL get it (quickapps 6).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Manifest;
use super::check::ManifestSchema;
use super::prepare::is_preview;
use super::read::ManifestSettings;

/// The id of the schema, unless another one is configured.
pub const SCHEMA_ID: &str = "https://mydial.epam.com/custom_application_schemas/quickapps2";

/// Id of the meta-schema of DIAL's application types.
const META_SCHEMA: &str = "https://dial.epam.com/application_type_schemas/schema#";

/// Private keys that only this service understands.
const PRIVATE_KEYS: [&str; 2] = ["x-alias", "x-rule"];

/// The schema for editors: no `dial:` fields at the root.
///
/// Without preview, it contains no preview features. Definitions of root properties are inlined, and only referenced
/// definitions are included.
pub fn editor_schema(settings: &ManifestSettings, id: &str) -> Value {
    let mut schema = ManifestSchema::of::<Manifest>().0;
    if let Some(deployment) = settings.deployment() {
        allow_default(&mut schema, deployment);
    }
    remove_private_keys(&mut schema, settings.preview);
    let mut definitions = take_definitions(&mut schema);
    // DIAL does not accept `$ref` directly under `properties` (quickapps 6).
    inline_properties(&mut schema, &definitions);
    // Removing previews and inlining properties leave unused definitions, so this comes after both.
    keep_reachable(&schema, &mut definitions);
    if let Some(root) = schema.as_object_mut() {
        root.insert("$schema".to_owned(), json!(META_SCHEMA));
        root.insert("$id".to_owned(), json!(id));
        // Last, after everything that refers to the definitions.
        root.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

/// The schema of the application type in DIAL. The operator who registers it adds the addresses of the service.
pub fn application_type(settings: &ManifestSettings, id: &str) -> Value {
    let mut schema = editor_schema(settings, id);
    let properties = schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten();
    for (order, (_, property)) in (1..).zip(properties) {
        if let Some(property) = property.as_object_mut() {
            let meta = json!({"dial:propertyKind": "server", "dial:propertyOrder": order});
            property.insert("dial:meta".to_owned(), meta);
        }
    }
    if let Some(root) = schema.as_object_mut() {
        for (key, value) in [
            ("applicationTypeDisplayName", json!("Quick App 2.0")),
            ("appendApplicationPropertiesHeader", json!(false)),
            (
                "applicationTypeAssistantAttachmentsInRequestSupported",
                json!(true),
            ),
        ] {
            root.insert(format!("dial:{key}"), value);
        }
    }
    schema
}

/// Shows the service's model as the default one.
fn allow_default(schema: &mut Value, id: &str) {
    let Some(orchestrator) = schema.pointer_mut("/$defs/Orchestrator") else {
        return;
    };
    if let Some(required) = orchestrator
        .get_mut("required")
        .and_then(Value::as_array_mut)
    {
        // A member with a default must not be required; otherwise editors would demand it.
        required.retain(|key| key != "deployment");
    }
    let deployment = orchestrator.pointer_mut("/properties/deployment");
    if let Some(deployment) = deployment.and_then(Value::as_object_mut) {
        deployment.insert("default".to_owned(), json!({ "deployment_id": id }));
    }
}

/// Removes private keys and, unless `preview`, preview features.
fn remove_private_keys(schema: &mut Value, preview: bool) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| {
                !PRIVATE_KEYS.contains(&key.as_str())
                    && (preview || key == "x-preview" || !is_preview(value.as_object()))
            });
            for member in members.values_mut() {
                remove_private_keys(member, preview);
            }
        }
        Value::Array(items) => {
            items.retain(|item| preview || !is_preview(item.as_object()));
            for item in items {
                remove_private_keys(item, preview);
            }
        }
        _ => {}
    }
}

fn take_definitions(schema: &mut Value) -> Map<String, Value> {
    let definitions = schema
        .as_object_mut()
        .and_then(|root| root.shift_remove("$defs"));
    match definitions {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    }
}

/// Replaces references directly under `properties` of the root by their definitions.
fn inline_properties(schema: &mut Value, definitions: &Map<String, Value>) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten() {
        let Some(property) = property.as_object_mut() else {
            continue;
        };
        let Some(reference) = property.shift_remove("$ref") else {
            continue;
        };
        let definition =
            definition_name(&reference).and_then(|name| definitions.get(name)?.as_object());
        for (key, value) in definition.into_iter().flatten() {
            // Members beside `$ref`, such as a description, override those of the definition.
            property.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Drops definitions that are not referenced, directly or indirectly.
fn keep_reachable(schema: &Value, definitions: &mut Map<String, Value>) {
    let mut reached = BTreeSet::new();
    let mut unvisited = vec![schema];
    while let Some(value) = unvisited.pop() {
        match value {
            Value::Object(members) => {
                if let Some(name) = members.get("$ref").and_then(definition_name)
                    // Each definition is followed once: a recursive one would make the loop endless.
                    && reached.insert(name.to_owned())
                {
                    unvisited.extend(definitions.get(name));
                }
                unvisited.extend(members.values());
            }
            Value::Array(items) => unvisited.extend(items),
            _ => {}
        }
    }
    definitions.retain(|name, _| reached.contains(name));
}

/// The name in a reference to a definition.
fn definition_name(reference: &Value) -> Option<&str> {
    reference.as_str()?.strip_prefix("#/$defs/")
}

#[cfg(test)]
mod tests;
