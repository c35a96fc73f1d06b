//! The published schema.

use serde_json::{Value, json};

use super::*;

fn settings(preview: bool, default: Option<&str>) -> ManifestSettings {
    ManifestSettings {
        preview,
        default_deployment: default.map(str::to_owned),
    }
}

/// All values of a schema.
fn all(value: &Value) -> Vec<&Value> {
    let inner: Vec<_> = match value {
        Value::Object(members) => members.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let mut found = vec![value];
    found.extend(inner.into_iter().flat_map(all));
    found
}

#[test]
fn the_application_type_identifies_its_owner() {
    let schema = application_type(&settings(false, None), SCHEMA_ID);
    assert_eq!(
        schema["$schema"],
        "https://dial.epam.com/application_type_schemas/schema#"
    );
    assert_eq!(
        schema["$id"],
        "https://mydial.epam.com/custom_application_schemas/quickapps2"
    );
    assert_eq!(schema["dial:applicationTypeDisplayName"], "Quick App 2.0");
    assert_eq!(schema["dial:appendApplicationPropertiesHeader"], false);
    assert_eq!(
        schema["dial:applicationTypeAssistantAttachmentsInRequestSupported"],
        true
    );
    let meta = |name: &str| &schema["properties"][name]["dial:meta"];
    assert_eq!(
        meta("orchestrator"),
        &json!({"dial:propertyKind": "server", "dial:propertyOrder": 1})
    );
    assert_eq!(meta("contexts")["dial:propertyOrder"], 2);
}

#[test]
fn the_schema_for_editors_has_no_fields_of_dial_at_the_root() {
    let schema = editor_schema(&settings(true, None), "urn:own");
    assert_eq!(schema["$id"], "urn:own");
    assert!(
        schema
            .as_object()
            .unwrap()
            .keys()
            .all(|key| !key.starts_with("dial:"))
    );
    assert!(
        schema["properties"]["orchestrator"]
            .get("dial:meta")
            .is_none()
    );
}

#[test]
fn root_properties_are_inlined_and_every_definition_is_needed() {
    let schema = editor_schema(&settings(false, None), SCHEMA_ID);
    for (name, property) in schema["properties"].as_object().unwrap() {
        assert!(property.get("$ref").is_none(), "{name}");
    }
    assert!(schema["properties"]["orchestrator"]["properties"]["deployment"].is_object());
    let names: Vec<_> = schema["$defs"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert!(
        !names.contains(&"Orchestrator".to_owned()),
        "inlined, so not needed: {names:?}"
    );
    assert!(
        !names.contains(&"WebFetch".to_owned()),
        "in preview, so not needed: {names:?}"
    );
    let references: Vec<_> = all(&schema)
        .into_iter()
        .filter_map(|value| definition_name(value.get("$ref")?))
        .collect();
    for reference in &references {
        assert!(
            names.iter().any(|name| name == reference),
            "{reference} has no definition"
        );
    }
    for name in &names {
        assert!(
            references.contains(&name.as_str()),
            "{name} is never referred to"
        );
    }
}

#[test]
fn preview_is_marked_or_absent() {
    let marked = |schema: &Value| {
        let found = all(schema)
            .into_iter()
            .filter(|value| is_preview(value.as_object()))
            .count();
        let has = |pointer: &str| schema.pointer(pointer).is_some();
        (
            found,
            has("/properties/hooks"),
            has("/$defs/WebFetch"),
            schema.to_string().contains("max_depth"),
        )
    };
    assert_eq!(
        marked(&editor_schema(&settings(true, None), SCHEMA_ID)),
        (5, true, true, true)
    );
    assert_eq!(
        marked(&editor_schema(&settings(false, None), SCHEMA_ID)),
        (0, false, false, false)
    );
}

#[test]
fn the_default_model_is_shown_and_not_required() {
    let orchestrator = |default| {
        let schema = editor_schema(&settings(false, default), SCHEMA_ID);
        let orchestrator = &schema["properties"]["orchestrator"];
        (
            orchestrator.get("required").cloned(),
            orchestrator["properties"]["deployment"]
                .get("default")
                .cloned(),
        )
    };
    assert_eq!(
        orchestrator(Some("gpt-5")),
        (Some(json!([])), Some(json!({"deployment_id": "gpt-5"})))
    );
    assert_eq!(orchestrator(Some(" ")), (Some(json!(["deployment"])), None));
}

#[test]
fn private_schema_keys_are_not_published() {
    let text = editor_schema(&settings(true, None), SCHEMA_ID).to_string();
    assert!(PRIVATE_KEYS.iter().all(|key| !text.contains(key)), "{text}");
}
