//! Tests that the built-in layer contains the names that manifests use, and that the reader accepts it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dray_types::reference::{FileReference, MISSING_PREFIX, ParsedReference};
use serde_json::{Value, json};

use super::*;
use crate::layer::{EntryKind, ResolvedToolsets};
use crate::manifest::orchestrator::SystemPrompt;
use crate::manifest::tool::{DeploymentTool, InternalTool, RestEndpoint, RestTool};
use crate::manifest::toolset::ToolSet;
use crate::manifest::{ManifestReader, ManifestSettings};
use crate::skill::{self, FILE_PARAMETERS};

/// Resolves the tool sets of a small manifest; it must have no problems, not even an unknown key.
fn resolve_tool_sets(tool_sets: &Value) -> ResolvedToolsets {
    let reader = ManifestReader::new(ManifestSettings::default());
    let document = json!({
        "orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": tool_sets,
    });
    let reading = reader.manifest(document).unwrap();
    assert_eq!(reading.warnings, [""; 0]);
    let resolved = built_in().resolve(&reader, reading.value.tool_sets);
    assert_eq!(resolved.failures, []);
    assert_eq!(resolved.warnings, [""; 0]);
    resolved
}

fn tool_set(name: &str) -> ToolSet {
    let mut resolved = resolve_tool_sets(&json!([{"type": "predefined", "template_name": name}]));
    assert_eq!(resolved.tool_sets.len(), 1, "{name}");
    resolved.tool_sets.remove(0)
}

fn endpoints(name: &str) -> Vec<RestEndpoint> {
    let ToolSet::RestApi(set) = tool_set(name) else {
        panic!("{name} has endpoints");
    };
    assert_eq!(set.name, name);
    assert!(set.authorization.is_none(), "{name} needs no key");
    let tools = set.tools.into_iter().map(|tool| match tool {
        RestTool::Endpoint(tool) => *tool,
        RestTool::Predefined(template) => panic!("{template:?} is left"),
    });
    tools.collect()
}

#[test]
fn the_names_that_manifests_rely_on_exist() {
    let layers = built_in();
    let names = |kind| layers.names(kind).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        names(EntryKind::Prompt),
        ["anthropic_prompt", "gemini_prompt", "gpt_prompt"]
    );
    assert_eq!(
        names(EntryKind::Tool),
        [
            "dial_rag",
            "image_generation",
            "py_interpreter",
            "web_search"
        ]
    );
    assert_eq!(
        names(EntryKind::ToolSet),
        ["chathub", "location", "py_interpreter", "weather"]
    );
    assert_eq!(
        names(EntryKind::Skill),
        ["tool-call-file-parameter-formatting"]
    );
}

#[test]
fn every_file_of_the_directory_is_an_entry_of_the_layer() {
    fn collect(directory: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, found);
            } else {
                let inner = path.strip_prefix(root).unwrap().to_str().unwrap();
                assert!(found.insert(inner.replace('\\', "/")));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let mut found = BTreeSet::new();
    collect(&root, &root, &mut found);
    let listed: BTreeSet<_> = BUILT_IN_FILES
        .iter()
        .map(|(path, _)| (*path).to_owned())
        .collect();
    assert_eq!(found, listed);
    for (path, content) in BUILT_IN_FILES {
        assert!(LayerSet::default().add(path, content).unwrap(), "{path}");
        assert!(content.ends_with('\n'), "{path}");
    }
}

#[test]
fn every_prompt_serves_a_manifest_that_names_it() {
    let layers = built_in();
    for name in ["anthropic_prompt", "gemini_prompt", "gpt_prompt"] {
        let prompt: SystemPrompt =
            serde_json::from_value(json!({"type": "predefined", "template": name})).unwrap();
        let text = layers.system_prompt(&prompt).unwrap();
        assert!(text.contains(FILE_PARAMETERS), "{name} names the skill");
        assert!(!text.starts_with("---"), "{name} has no front matter");
    }
}

#[test]
fn deployments_of_the_hub_accept_a_query_and_another_target() {
    let ToolSet::DialDeployment(hub) = tool_set("chathub") else {
        panic!("the tool set of the hub must be one of deployments");
    };
    let descriptions: Vec<_> = hub.tools.iter().map(describe_tool).collect();
    assert_eq!(
        descriptions,
        [
            ("dial_rag", "dial-rag", vec!["query", "attachment_urls"]),
            ("web_search", "web-search", vec!["query"]),
            ("image_generation", "dall-e-3", vec!["query"]),
        ]
    );
    let elsewhere = resolve_tool_sets(
        &json!([{"type": "dial-deployment", "name": "own", "tools": [{
            "type": "predefined-tool", "template_name": "web_search",
            "override": {"deployment": {"deployment_id": "our-search"}},
        }]}]),
    );
    let [ToolSet::DialDeployment(own)] = &elsewhere.tool_sets[..] else {
        panic!("there must be one tool set");
    };
    assert_eq!(describe_tool(&own.tools[0]).1, "our-search");
}

fn describe_tool(tool: &DeploymentTool) -> (&str, &str, Vec<&str>) {
    let DeploymentTool::DeploymentTool(tool) = tool else {
        panic!("{tool:?} is not described");
    };
    let function = &tool.open_ai_tool.function;
    let properties = &function.parameters.as_ref().unwrap().properties;
    let arguments = properties.iter().map(|(name, _)| name.as_str()).collect();
    (&function.name, &tool.deployment.deployment_id, arguments)
}

#[test]
fn the_interpreter_comes_as_a_set_and_as_a_tool() {
    let tool = json!({"type": "predefined-tool", "template_name": "py_interpreter"});
    for sets in [
        json!([{"type": "predefined", "template_name": "py_interpreter"}]),
        json!([{"type": "internal", "name": "code", "tools": [tool]}]),
    ] {
        let resolved = resolve_tool_sets(&sets);
        let [ToolSet::Internal(set)] = &resolved.tool_sets[..] else {
            panic!("there must be one internal tool set");
        };
        assert!(matches!(
            set.tools[..],
            [InternalTool::PythonInterpreter(_)]
        ));
    }
}

#[test]
fn endpoints_are_reached_without_a_key_and_require_what_they_have() {
    for (name, tools) in [
        (
            "weather",
            vec!["find_place", "forecast", "history", "air_quality"],
        ),
        ("location", vec!["find_place", "postal_code", "elevation"]),
    ] {
        let endpoints = endpoints(name);
        let names: Vec<_> = endpoints
            .iter()
            .map(|tool| tool.open_ai_tool.function.name.as_str())
            .collect();
        assert_eq!(names, tools);
        for tool in &endpoints {
            let url = &tool.rest_api_method_info.method_url;
            assert!(url.starts_with("https://") && !url.contains('?'), "{url}");
            let arguments = tool.open_ai_tool.function.parameters.as_ref().unwrap();
            let has = |key: &String| arguments.properties.iter().any(|(name, _)| name == key);
            assert!(arguments.required.iter().all(has), "{url}");
            for (key, property) in &arguments.properties {
                let place = &property.parameter_info;
                let in_path = url.contains(&format!("{{{}}}", place.key));
                let is_path = format!("{:?}", place.place) == "Url";
                assert_eq!(is_path, in_path, "{url} {key}");
                assert!(
                    property.constant.is_some() || property.schema.contains_key("description"),
                    "{url} {key} is explained"
                );
            }
        }
    }
}

#[test]
fn the_skill_has_the_name_of_its_directory_and_teaches_the_grammar_of_the_resolver() {
    let (skills, left_out) = skill::of_layers(&built_in());
    assert_eq!(left_out, [""; 0]);
    let [skill] = &skills[..] else {
        panic!("there must be one skill");
    };
    assert_eq!(skill.name, FILE_PARAMETERS);
    let body = &skill.markdown;
    for needed in [
        "file:url::",
        "file:text::",
        "file:base64::",
        "attachment_urls",
        "**once**",
    ] {
        assert!(body.contains(needed), "{needed}");
    }
    for example in body.split("```json\n").skip(1) {
        let (example, _) = example.split_once("```").unwrap();
        let arguments: Value = serde_json::from_str(example).unwrap();
        assert!(arguments.is_object(), "{example}");
        let lists = arguments.as_object().unwrap().values();
        let values = lists.flat_map(|value| match value {
            Value::Array(items) => items.clone(),
            other => vec![other.clone()],
        });
        for value in values {
            let value = value.as_str().unwrap().to_owned();
            let is_reference =
                matches!(FileReference::parse(&value), ParsedReference::Reference(_));
            assert_eq!(is_reference, value.starts_with("file:"), "{value}");
        }
    }
    // Any text between `file:` and `::` is a prefix that the prompt mentions.
    let taught: BTreeSet<_> = body
        .split("file:")
        .skip(1)
        .filter_map(|after| after.split_once("::"))
        .map(|(prefix, _)| prefix)
        .filter(|prefix| {
            prefix
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
        .collect();
    for prefix in &taught {
        let reference = format!("file:{prefix}::files/B/a");
        assert!(
            matches!(
                FileReference::parse(&reference),
                ParsedReference::Reference(_)
            ),
            "{reference}"
        );
        assert!(MISSING_PREFIX.contains(&format!("{prefix}::")), "{prefix}");
        assert!(body.contains(&format!("\n| `{prefix}` |")), "{prefix}");
    }
    assert_eq!(taught.len(), MISSING_PREFIX.matches("::").count());
}
