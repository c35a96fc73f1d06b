//! Tests of templates that replace names.

use serde_json::{Value, json};

use super::*;
use crate::manifest::ManifestSettings;

/// A REST tool with one argument.
fn tool(name: &str) -> Value {
    json!({
        "type": "restapi-tool",
        "open_ai_tool": {"function": {"name": name, "parameters": {"properties": {
            "q": {"type": "string", "parameter_info": {"type": "query", "key": "q"}}}}}},
        "rest_api_method_info": {"method_url": "https://h.example/", "method_type": "get"},
    })
}

fn layers(entries: &[(&str, Value)]) -> LayerSet {
    let mut layers = LayerSet::default();
    for (path, body) in entries {
        assert!(layers.add(path, &body.to_string()).unwrap(), "{path}");
    }
    layers
}

fn resolve(layers: &LayerSet, tool_sets: &Value) -> ResolvedToolsets {
    let reader = ManifestReader::new(ManifestSettings::default());
    let document = json!({"orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": tool_sets});
    let manifest = reader.manifest(document).unwrap().value;
    layers.resolve(&reader, manifest.tool_sets)
}

/// Names of sets and of the functions of their REST tools.
fn names(resolved: &ResolvedToolsets) -> Vec<(String, Vec<String>)> {
    let name = |tool: &RestTool| match tool {
        RestTool::Endpoint(tool) => tool.open_ai_tool.function.name.clone(),
        RestTool::Predefined(_) => panic!("a predefined tool must be resolved"),
    };
    let set = |set: &ToolSet| match set {
        ToolSet::RestApi(set) => (set.name.clone(), set.tools.iter().map(name).collect()),
        other => panic!("{other:?}"),
    };
    resolved.tool_sets.iter().map(set).collect()
}

fn issues(resolved: &ResolvedToolsets) -> Vec<String> {
    resolved.failures.iter().map(ToString::to_string).collect()
}

#[test]
fn a_tool_set_is_resolved_and_then_the_tools_in_it() {
    let layers = layers(&[
        ("tool/search.json", tool("search")),
        (
            "toolset/web.json",
            json!({"type": "rest-api", "name": "web", "tools": [
                {"type": "predefined-tool", "template_name": "search"}, tool("own")]}),
        ),
    ]);
    let resolved = resolve(
        &layers,
        &json!([{"type": "predefined", "template_name": "web", "override": {"name": "net"}}]),
    );
    assert_eq!(
        names(&resolved),
        [(
            "net".to_owned(),
            vec!["search".to_owned(), "own".to_owned()]
        )]
    );
    assert_eq!(issues(&resolved), [""; 0]);
    assert_eq!(
        layers.body(EntryKind::ToolSet, "web").unwrap()["name"],
        "web"
    );
}

#[test]
fn r_11_a_failed_template_is_skipped_with_name_and_reasons_and_its_siblings_survive() {
    let layers = layers(&[("tool/search.json", tool("search"))]);
    let patched = |patch: Value| json!({"type": "predefined-tool", "template_name": "search", "override": patch});
    let resolved = resolve(
        &layers,
        &json!([
            {"type": "rest-api", "name": "web", "tools": [
                patched(json!({"type": "other", "open_ai_tool": {"function": {"parameters": {"properties": {"q": {"type": "number"}}}}}})),
                patched(json!({"rest_api_method_info": {"method_type": "brew", "method_url": null}})),
                {"type": "predefined-tool", "template_name": "nowhere"},
                patched(json!({"open_ai_tool": {"function": {"name": "renamed"}}})),
            ]},
            {"type": "predefined", "template_name": "search"},
        ]),
    );
    assert_eq!(
        names(&resolved),
        [("web".to_owned(), vec!["renamed".to_owned()])]
    );
    let reason = "'type' discriminator may not be overridden by a patch";
    assert_eq!(
        issues(&resolved),
        [
            "- **template 'search'**: toolset 'search' not found in predefined content".to_owned(),
            format!(
                "- **template 'search'**: the override is refused\n  ```\n  /type: {reason}\n  \
                 /open_ai_tool/function/parameters/properties/q/type: {reason}\n  ```"
            ),
            "- **template 'search'**: the configuration is not valid\n  ```\n  \
             rest_api_method_info.method_url: is required\n  \
             rest_api_method_info.method_type: must be one of get, post, put, delete\n  ```"
                .to_owned(),
            "- **template 'nowhere'**: tool 'nowhere' not found in predefined content".to_owned(),
        ]
    );
}

#[test]
fn disabled_entries_are_dropped_and_disabled_templates_are_not_read() {
    let layers = layers(&[("tool/search.json", tool("search"))]);
    let resolved = resolve(
        &layers,
        &json!([
            {"type": "predefined", "template_name": "nowhere", "enabled": false},
            {"type": "rest-api", "name": "off", "enabled": false, "tools": []},
            {"type": "rest-api", "name": "web", "tools": [
                {"type": "predefined-tool", "template_name": "nowhere", "enabled": false},
                {"type": "predefined-tool", "template_name": "search", "override": {"enabled": false}},
            ]},
        ]),
    );
    assert_eq!(names(&resolved), [("web".to_owned(), vec![])]);
    assert_eq!(issues(&resolved), [""; 0]);
}

#[test]
fn tools_of_every_kind_of_set_may_be_templates_but_only_of_its_kind() {
    let layers = layers(&[
        ("tool/search.json", tool("search")),
        (
            "tool/rag.json",
            json!({"type": "dial-deployment-simple", "deployment_id": "rag"}),
        ),
        (
            "tool/py_interpreter.json",
            json!({"type": "python-interpreter", "mood": 1}),
        ),
    ]);
    let named = |name: &str| json!({"type": "predefined-tool", "template_name": name});
    let resolved = resolve(
        &layers,
        &json!([
            {"type": "dial-deployment", "name": "d", "tools": [named("rag"), named("search")]},
            {"type": "internal", "name": "i", "tools": [named("py_interpreter")]},
        ]),
    );
    let [
        ToolSet::DialDeployment(deployments),
        ToolSet::Internal(internal),
    ] = &resolved.tool_sets[..]
    else {
        panic!("{:?}", resolved.tool_sets);
    };
    assert!(matches!(
        &deployments.tools[..],
        [DeploymentTool::DialDeploymentSimple { .. }]
    ));
    assert!(matches!(
        &internal.tools[..],
        [InternalTool::PythonInterpreter(_)]
    ));
    assert_eq!(
        issues(&resolved),
        [
            "- **template 'search'**: the configuration is not valid\n  ```\n  type: must be one of \
          deployment-tool, dial-deployment-simple, predefined-tool\n  ```"
        ]
    );
    assert_eq!(
        resolved.warnings,
        ["template 'py_interpreter': Unknown key \"mood\" is ignored."]
    );
}

#[test]
fn a_template_that_leads_back_to_itself_ends() {
    let to = |name: &str| json!({"type": "predefined", "template_name": name});
    let layers = layers(&[("toolset/a.json", to("b")), ("toolset/b.json", to("a"))]);
    let resolved = resolve(&layers, &json!([to("a")]));
    assert_eq!(
        issues(&resolved),
        ["- **template 'a'**: the template refers to itself"]
    );
}

#[test]
fn the_system_prompt_is_found_by_name_or_is_the_text_itself() {
    let mut layers = LayerSet::default();
    layers.add("prompt/gpt_prompt.md", "Be kind.").unwrap();
    let text = |wire: Value| {
        let prompt: SystemPrompt = serde_json::from_value(wire).unwrap();
        layers.system_prompt(&prompt).map(str::to_owned)
    };
    assert_eq!(
        text(json!({"type": "predefined", "template": "gpt_prompt"})).unwrap(),
        "Be kind."
    );
    assert_eq!(
        text(json!({"type": "custom", "content": "{verbatim}", "variables": {"verbatim": 1}}))
            .unwrap(),
        "{verbatim}"
    );
    assert_eq!(
        text(json!({"type": "dial", "path": "prompts/b/p", "content": "x"})).unwrap(),
        ""
    );
    let failure = text(json!({"type": "predefined", "template": "nope"})).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "- **template 'nope'**: prompt 'nope' not found in predefined content"
    );
}
