//! The tool that a deployment's own metadata describe (quickapps 24.4).

use std::collections::BTreeSet;

use dray_agent::caller::Caller;
use dray_dial::{DialPort, Error};
use dray_tool::naming;
use serde_json::{Map, Value, json};

use crate::schema;

/// Metadata of a deployment that decide how it is called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentFacts {
    /// Its name for people.
    pub display_name: Option<String>,
    /// Description for the model.
    pub description: Option<String>,
    /// Whether it accepts files.
    pub takes_files: bool,
    /// Whether it fetches addresses itself.
    pub url_attachments: bool,
    /// Whether it is an MCP server too.
    pub mcp: bool,
    /// JSON schema of its settings.
    pub configuration: Option<Value>,
}

impl DeploymentFacts {
    /// Reads the metadata, and the schema of the settings if the deployment has settings.
    pub(crate) async fn load(
        dial: &dyn DialPort,
        caller: &Caller,
        id: &str,
    ) -> Result<Self, Error> {
        let deployment = dial.deployment(caller, id).await?;
        let configuration = if deployment.features.configuration {
            Some(dial.deployment_configuration(caller, id).await?)
        } else {
            None
        };
        Ok(Self {
            display_name: Some(deployment.display_name),
            description: deployment.description,
            takes_files: !deployment.input_attachment_types.is_empty(),
            url_attachments: deployment.features.url_attachments,
            mcp: deployment.features.mcp,
            configuration,
        })
    }
}

/// Text of `query` for the model.
const QUERY_DESCRIPTION: &str =
    "The request, in full: the application sees nothing else of this conversation.";

/// Text of `attachment_urls` for the model.
pub(crate) const ATTACHMENTS_DESCRIPTION: &str = "URLs of the files that the request is about.";

/// The name of the function: the last segment of the id and `_tool`.
pub(crate) fn function_name(id: &str) -> String {
    let last = id.trim_end_matches('/').rsplit('/').next().unwrap_or(id);
    naming::sanitise_name(&format!("{}_tool", last.replace("%20", "_")))
}

/// The complete tool in the form of a manifest.
pub(crate) fn tool_manifest(id: &str, facts: &DeploymentFacts) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), function_name(id).into());
    if let Some(description) = &facts.description {
        function.insert("description".to_owned(), description.as_str().into());
    }
    function.insert("parameters".to_owned(), parameters_schema(facts));
    let shown = facts.display_name.as_deref().unwrap_or(id);
    json!({
        "type": "deployment-tool",
        "open_ai_tool": { "type": "function", "function": function },
        "deployment": { "deployment_id": id, "parameters": {} },
        "display": { "stage": { "name": format!("Call {shown}: ") } },
    })
}

fn parameters_schema(facts: &DeploymentFacts) -> Value {
    let mut properties = Map::new();
    // Sorted (quickapps 24.4).
    let mut required = BTreeSet::from(["query".to_owned()]);
    properties.insert(
        "query".to_owned(),
        json!({
            "type": "string",
            "description": QUERY_DESCRIPTION,
            "display": { "stage": { "show_value_in_stage_title": true } },
        }),
    );
    if facts.takes_files {
        properties.insert("attachment_urls".to_owned(), files_schema());
    }
    if let Some(root) = &facts.configuration {
        let required_names: BTreeSet<_> = schema::required_settings(root).collect();
        for (name, property) in schema::setting_properties(root) {
            // The two arguments of every deployment replace settings of the same names.
            if properties.contains_key(name) || name == "attachment_urls" {
                continue;
            }
            if required_names.contains(name) {
                required.insert(name.to_owned());
            }
            properties.insert(name.to_owned(), setting_schema(root, property));
        }
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The schema of `attachment_urls`.
pub(crate) fn files_schema() -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": ATTACHMENTS_DESCRIPTION })
}

/// The schema of one setting: a text that is hidden from the user, limited to a list of values if there is one.
fn setting_schema(root: &Value, property: &Value) -> Value {
    let mut shown = Map::new();
    shown.insert("type".to_owned(), "string".into());
    if let Some(text) = schema::setting_description(root, property) {
        shown.insert("description".to_owned(), text.into());
    }
    let choices = schema::setting_choices(root, property);
    if !choices.is_empty() {
        let choices: Vec<_> = choices
            .iter()
            .map(|choice| schema::choice_text(choice))
            .collect();
        shown.insert("enum".to_owned(), choices.into());
    }
    // Settings are hidden in the stage (quickapps 24.4).
    shown.insert("display".to_owned(), json!({ "stage": { "ignore": true } }));
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(configuration: Value) -> DeploymentFacts {
        DeploymentFacts {
            display_name: Some("Weather".to_owned()),
            description: Some("Knows the weather.".to_owned()),
            takes_files: true,
            configuration: Some(configuration),
            ..DeploymentFacts::default()
        }
    }

    fn arguments(facts: &DeploymentFacts) -> Value {
        tool_manifest("a", facts)["open_ai_tool"]["function"]["parameters"].clone()
    }

    #[test]
    fn the_name_is_the_last_segment_of_the_id() {
        assert_eq!(function_name("gpt-4o"), "gpt-4o_tool");
        assert_eq!(
            function_name("applications/bucket/My%20App v1.0"),
            "My_App_v1_0_tool"
        );
        assert_eq!(function_name("applications/b/x/"), "x_tool");
    }

    #[test]
    fn a_deployment_without_metadata_accepts_a_query() {
        let tool = tool_manifest("x", &DeploymentFacts::default());
        let function = &tool["open_ai_tool"]["function"];
        assert_eq!(tool["display"]["stage"]["name"], "Call x: ");
        assert_eq!(function["name"], "x_tool");
        assert_eq!(function.get("description"), None);
        assert_eq!(function["parameters"]["required"], json!(["query"]));
        assert_eq!(
            function["parameters"]["properties"]["query"]["type"],
            "string"
        );
        assert_eq!(
            function["parameters"]["properties"].get("attachment_urls"),
            None
        );
    }

    #[test]
    fn settings_become_hidden_texts_with_their_choices() {
        let facts = facts(json!({
            "properties": {
                "zeal": { "description": "How much.", "anyOf": [
                    { "enum": ["low", "high"], "type": "string" }, { "type": "null" } ] },
                "mode": { "anyOf": [{ "const": "fast", "title": "Fast" }, { "const": 2 }] },
                "free": { "type": "integer" },
            },
            "required": ["zeal", "free", "absent"],
        }));
        let arguments = arguments(&facts);
        let properties = &arguments["properties"];
        assert_eq!(arguments["required"], json!(["free", "query", "zeal"]));
        assert_eq!(
            properties["zeal"],
            json!({
                "type": "string", "description": "How much.", "enum": ["low", "high"],
                "display": { "stage": { "ignore": true } },
            })
        );
        assert_eq!(properties["mode"]["enum"], json!(["fast", "2"]));
        assert_eq!(properties["free"]["type"], "string");
        assert_eq!(properties["attachment_urls"]["items"]["type"], "string");
    }

    #[test]
    fn a_setting_never_replaces_the_query() {
        let facts = facts(json!({ "properties": {
            "query": { "type": "integer", "description": "mine" },
            "attachment_urls": { "type": "integer" },
        }}));
        let arguments = arguments(&facts);
        assert_eq!(
            arguments["properties"]["query"]["description"],
            QUERY_DESCRIPTION
        );
        assert_eq!(arguments["properties"]["attachment_urls"]["type"], "array");
        assert_eq!(arguments["required"], json!(["query"]));
    }

    #[test]
    fn r_16_the_same_metadata_give_the_same_bytes() {
        let root = json!({ "properties": { "b": {}, "a": {} }, "required": ["b", "a"] });
        let first = tool_manifest("x", &facts(root.clone())).to_string();
        assert_eq!(first, tool_manifest("x", &facts(root)).to_string());
    }
}
