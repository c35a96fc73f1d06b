//! Tests that manifests in pages and examples are read without a warning, and that all templates in them exist.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{ManifestReader, ManifestSettings};
use crate::layer::built_in;
use crate::manifest::toolset::ToolSet;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The JSON in a page.
fn examples(path: &str) -> Vec<Value> {
    let page = text(path);
    let blocks = page.split("```json\n").skip(1);
    blocks
        .map(|block| {
            let (block, _) = block.split_once("```").unwrap();
            serde_json::from_str(block).unwrap_or_else(|error| panic!("{path}: {error}: {block}"))
        })
        .collect()
}

/// Reads a manifest, or one tool set in the smallest manifest, and resolves its templates.
fn works(name: &str, document: Value) {
    let document = if document.get("orchestrator").is_some() {
        document
    } else {
        json!({"orchestrator": {}, "contexts": [], "tool_sets": [document]})
    };
    let reader = ManifestReader::new(ManifestSettings {
        preview: false,
        default_deployment: Some("m".to_owned()),
    });
    let reading = reader.manifest(document);
    let reading = reading.unwrap_or_else(|invalid| panic!("{name}: {invalid}"));
    assert_eq!(reading.warnings, [""; 0], "{name}");
    let layers = built_in();
    let prompt = layers.system_prompt(&reading.value.orchestrator.system_prompt);
    assert!(prompt.is_ok(), "{name}: {prompt:?}");
    let count = reading.value.tool_sets.len();
    let resolved = layers.resolve(&reader, reading.value.tool_sets);
    assert_eq!(resolved.failures, [], "{name}");
    assert_eq!(resolved.tool_sets.len(), count, "{name}");
}

#[test]
fn every_json_of_the_guides_is_a_manifest_or_a_tool_set() {
    for (path, count) in [("docs/first-agent.md", 4), ("docs/skills.md", 1)] {
        let examples = examples(path);
        assert_eq!(examples.len(), count, "{path}");
        for example in examples {
            works(path, example);
        }
    }
}

#[test]
fn every_example_is_read_and_named_in_the_guide() {
    let guide = text("docs/first-agent.md");
    let mut count = 0;
    for entry in fs::read_dir(root().join("examples/manifests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let document = serde_json::from_str(&fs::read_to_string(&path).unwrap());
        works(
            &name,
            document.unwrap_or_else(|error| panic!("{name}: {error}")),
        );
        let named = guide.contains(&format!("examples/manifests/{name}"));
        assert!(named || name == "weather.json", "{name}");
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn the_refusal_in_the_guide_is_the_actual_message() {
    let server = json!({"protocol": "stdio", "url": "https://h.example/mcp"});
    let sets = json!([{"type": "mcp", "name": "n", "mcp_server_info": server}]);
    let document = json!({
        "orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": sets,
    });
    let refused = ManifestReader::new(ManifestSettings::default()).manifest(document);
    let line = refused.unwrap_err().to_string();
    assert!(text("docs/first-agent.md").contains(&line), "{line}");

    let document = json!({"orchestrator": {}, "contexts": [], "tool_sets": []});
    let refused = ManifestReader::new(ManifestSettings::default()).manifest(document);
    let line = refused.unwrap_err().to_string();
    assert!(
        text("docs/first-agent.md").contains(&format!("| `{line}` |")),
        "{line}"
    );
}

#[test]
fn every_kind_of_tool_set_has_a_row_on_the_page_of_manifests() {
    let schema = serde_json::to_value(schemars::schema_for!(ToolSet)).unwrap();
    let kinds: Vec<_> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["properties"]["type"]["const"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"rest-api"), "{kinds:?}");
    let page = text("docs/manifest.md");
    for kind in kinds {
        assert!(
            page.contains(&format!("\n| `{kind}` |")),
            "no row for {kind}"
        );
    }
}
