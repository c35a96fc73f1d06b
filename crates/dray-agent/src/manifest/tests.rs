//! Tests of manifests that are read and of manifests that are refused.

use serde_json::{Value, json};

use super::feature::{StageLevel, Timestamp};
use super::orchestrator::SystemPrompt;
use super::tool::{RestEndpoint, RestTool};
use super::toolset::{AppTransport, McpProtocol, RestAuthorization, ToolSet};
use super::*;

mod documents;

/// The example of the manual.
fn example() -> Value {
    let page = include_str!("../../../../docs/manifest.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    serde_json::from_str(rest.split_once("```").unwrap().0).unwrap()
}

/// The smallest valid manifest, with one value changed.
fn minimal_manifest(pointer: &str, value: Value) -> Value {
    let mut document = json!({
        "orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": [], "features": {},
    });
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = value;
    document
}

fn reader(preview: bool) -> ManifestReader {
    ManifestReader::new(ManifestSettings {
        preview,
        default_deployment: None,
    })
}

fn read(document: Value) -> Manifest {
    let reading = reader(true).manifest(document).unwrap();
    assert_eq!(reading.warnings, [""; 0]);
    reading.value
}

fn assert_refused(document: Value, lines: &[&str]) {
    let error = reader(true).manifest(document).unwrap_err();
    assert_eq!(error.to_string(), lines.join("\n"));
}

fn endpoint(manifest: &Manifest) -> &RestEndpoint {
    let ToolSet::RestApi(set) = &manifest.tool_sets[0] else {
        panic!("{:?}", manifest.tool_sets[0]);
    };
    let RestTool::Endpoint(tool) = &set.tools[0] else {
        panic!("{:?}", set.tools[0]);
    };
    tool
}

#[test]
fn the_example_of_the_manual_is_read_without_a_warning() {
    let manifest = read(example());
    assert_eq!(manifest.tool_sets.len(), 8);
    let ToolSet::RestApi(shop) = &manifest.tool_sets[0] else {
        panic!("the first tool set must be `rest-api`");
    };
    assert!(
        matches!(&shop.authorization, Some(RestAuthorization::ApiKey { key, .. }) if key.expose() == "k-123")
    );
    assert_eq!(shop.common.timeout_seconds, Some(30.0));
    assert!(
        matches!(&manifest.tool_sets[5], ToolSet::DialApp(app) if app.transport == AppTransport::ChatCompletion)
    );
    assert_eq!(manifest.orchestrator.deployment.parameters.top_p, Some(0.9));
    assert_eq!(manifest.features.timestamp, None);
    assert_eq!(manifest.features.stage_display.level, StageLevel::Debug);
    assert!(
        !format!("{manifest:?}").contains("k-123"),
        "secrets do not print"
    );
}

#[test]
fn arguments_keep_their_order_their_schema_and_their_constants() {
    let manifest = read(example());
    let arguments = endpoint(&manifest)
        .open_ai_tool
        .function
        .parameters
        .as_ref();
    let properties = &arguments.unwrap().properties;
    let names: Vec<_> = properties.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["number", "format"]);
    assert_eq!(properties[0].1.schema["description"], "Number of the order");
    assert_eq!(properties[1].1.constant, Some(json!("full")));
    assert!(properties[1].1.kind.is_none());
}

#[test]
fn a_program_needs_its_protocol_and_an_address_with_its_name() {
    let sets = |protocol: &str, url: &str| {
        let server = json!({"protocol": protocol, "url": url});
        json!([{"type": "mcp", "name": "notes", "mcp_server_info": server}])
    };
    let manifest = read(minimal_manifest("/tool_sets", sets("stdio", "stdio:notes")));
    let [ToolSet::Mcp(set)] = &manifest.tool_sets[..] else {
        panic!("there must be one tool set");
    };
    assert_eq!(set.mcp_server_info.protocol, McpProtocol::Stdio);

    let url = "tool_sets.0.mcp_server_info.url: must be stdio:{name} for protocol stdio";
    let protocol = "tool_sets.0.mcp_server_info.protocol: must be stdio for a url of stdio:";
    for (document, line) in [
        (sets("stdio", "https://h.example/mcp"), url),
        (sets("stdio", "stdio:"), url),
        (sets("stdio", "notes"), url),
        (sets("sse", "stdio:notes"), protocol),
        (sets("streamable_http", "stdio:notes"), protocol),
    ] {
        assert_refused(minimal_manifest("/tool_sets", document), &[line]);
    }
}

#[test]
fn missing_fields_have_their_defaults() {
    let manifest = read(minimal_manifest("/features", json!({})));
    let orchestrator = &manifest.orchestrator;
    assert_eq!(orchestrator.system_prompt, SystemPrompt::default());
    assert!(orchestrator.propagate_stages);
    assert_eq!(orchestrator.max_iterations, None);
    assert_eq!(manifest.features.timestamp, Some(Timestamp::default()));
    assert_eq!(manifest.features.stage_display.level, StageLevel::Info);
    assert!(manifest.skills.is_none() && manifest.tool_defaults.is_none());

    let starters = json!({"starters": [{"title": "a", "text": "b"}]});
    let starters = read(minimal_manifest("/conversation_starters", starters))
        .conversation_starters
        .unwrap();
    assert_eq!(starters.intro_text, "Select an action");
    assert!(starters.auto_submit && !starters.chat_message_input_disabled);

    let sets = json!([{"type": "dial-mcp", "dial_id": "t"}]);
    let [ToolSet::DialMcp(set)] = &read(minimal_manifest("/tool_sets", sets)).tool_sets[..] else {
        panic!("there must be one tool set");
    };
    assert_eq!(set.name, "untitled-mcp-toolset");
    assert!(set.common.enabled);
}

#[test]
fn rules_of_calls_have_defaults_for_absent_and_null_values() {
    let rules: call::AttachmentRules =
        serde_json::from_value(json!({"supported_types": null})).unwrap();
    assert_eq!(rules.supported(), ["*/*"]);
    assert_eq!(
        rules.propagated(),
        ["image/*", "application/vnd.plotly.v1+json"]
    );
    let fallback: call::Fallback = serde_json::from_value(json!({})).unwrap();
    assert_eq!(fallback, call::Fallback::default());
    assert_eq!(fallback.strategies[0].kind, call::StrategyKind::Continue);
}

#[test]
fn r_11_all_problems_are_named_together_with_path_and_reason() {
    assert_refused(
        json!({
            "orchestrator": {"deployment": {"parameters": {"temperature": 3, "stop": 7}}, "max_iterations": -1,
                "system_prompt": {"type": "poem"}},
            "tool_sets": [
                {"type": "rest-api", "name": "s", "tools": [{"type": "tool"}, {"type": "predefined-tool"}]},
                {"name": "s"},
                "s",
            ],
            "tool_defaults": {"timeout_seconds": 0},
            "conversation_starters": {"starters": []},
            "features": {"stage_display": {"level": "all"}, "file_loading": {"size_limit": 0}},
        }),
        &[
            "contexts: is required",
            "orchestrator.deployment.deployment_id: is required",
            "orchestrator.deployment.parameters.temperature: must be at most 2",
            "orchestrator.deployment.parameters.stop: has none of the allowed types",
            "orchestrator.max_iterations: must be at least 1",
            "orchestrator.system_prompt.type: must be one of predefined, custom, dial",
            "tool_sets.0.tools.0.type: must be one of restapi-tool, predefined-tool",
            "tool_sets.0.tools.1.template_name: is required",
            "tool_sets.1.type: must be one of rest-api, dial-deployment, internal, mcp, dial-mcp, dial-app, agents, predefined",
            "tool_sets.2: must be an object, not a string",
            "tool_defaults.timeout_seconds: must be more than 0",
            "conversation_starters.starters: must have at least 1 item",
            "features.stage_display.level: must be one of none, error, info, debug",
            "features.file_loading.size_limit: must be at least 1",
        ],
    );
}

#[test]
fn values_other_than_objects_are_refused_at_the_root() {
    assert_refused(json!([]), &["(root): must be an object, not a list"]);
}

#[test]
fn timeouts_are_at_most_an_hour() {
    let with =
        |seconds: f64| minimal_manifest("/tool_defaults", json!({"timeout_seconds": seconds}));
    assert_eq!(
        read(with(3600.0)).tool_defaults.unwrap().timeout_seconds,
        Some(3600.0)
    );
    assert_refused(
        with(3600.5),
        &["tool_defaults.timeout_seconds: must be at most 3600"],
    );
}

#[test]
fn problems_never_show_a_value() {
    let set = json!({"type": "rest-api", "name": "s", "tools": [],
        "authorization": {"type": "bearer", "token": {"hunter2": "hunter2"}}});
    assert_refused(
        minimal_manifest("/tool_sets", json!([set])),
        &["tool_sets.0.authorization.token: must be a string, not an object"],
    );
}

#[test]
fn a_folder_ends_with_a_slash() {
    let with = |url: &str| minimal_manifest("/contexts", json!([{"type": "folder", "url": url}]));
    assert!(matches!(
        read(with("files/b/")).contexts[0],
        Context::Folder { max_depth: 10, .. }
    ));
    assert_refused(
        with("files/b"),
        &["contexts.0.url: folder context url must end with '/'"],
    );
}

#[test]
fn retry_needs_instructions_and_only_constants_need_no_type() {
    let mut document = example();
    let tool = document.pointer_mut("/tool_sets/0/tools/0").unwrap();
    tool["fallback_configuration"]["strategies"][0]["type"] = json!("retry");
    tool["open_ai_tool"]["function"]["parameters"]["properties"]["number"]["type"] = Value::Null;
    assert_refused(
        document,
        &[
            "tool_sets.0.tools.0.open_ai_tool.function.parameters.properties.number.type: \
             must be given unless there is a const",
            "tool_sets.0.tools.0.fallback_configuration.strategies.0.instructions: is required by retry",
        ],
    );
}

#[test]
fn unknown_keys_are_ignored_and_reported() {
    let document = minimal_manifest("/features/teleport", json!({"enabled": true}));
    let reading = reader(true).manifest(document).unwrap();
    assert_eq!(
        reading.warnings,
        ["Unknown key \"features.teleport\" is ignored."]
    );
}

#[test]
fn free_values_accept_any_json() {
    let mut document = example();
    let free = json!({"a": {"b": [{"c": null}]}});
    document["orchestrator"]["deployment"]["parameters"]["custom_fields"] =
        json!({"configuration": free});
    document["tool_sets"][6]["override"] = free.clone();
    let tool = document.pointer_mut("/tool_sets/0/tools/0/open_ai_tool/function");
    let parameters = &mut tool.unwrap()["parameters"];
    parameters["properties"]["number"]["items"] = free.clone();
    parameters["properties"]["format"]["const"] = free.clone();
    let manifest = read(document);
    let fields = manifest.orchestrator.deployment.parameters.custom_fields;
    assert_eq!(fields.unwrap().configuration.map(Value::from), Some(free));
}

#[test]
fn early_names_of_keys_are_read() {
    let document = minimal_manifest("/orchestrator/deployment", json!({"name": "old"}));
    assert_eq!(read(document).orchestrator.deployment.deployment_id, "old");
    let sets = json!([{"type": "dial-mcp", "deployment_id": "t"}]);
    assert!(
        matches!(&read(minimal_manifest("/tool_sets", sets)).tool_sets[0], ToolSet::DialMcp(set) if set.dial_id == "t")
    );
}

#[test]
fn the_default_model_is_used_if_none_is_named() {
    let read = |default: &str, deployment: Value| {
        let settings = ManifestSettings {
            preview: false,
            default_deployment: Some(default.to_owned()),
        };
        let reading = ManifestReader::new(settings)
            .manifest(minimal_manifest("/orchestrator/deployment", deployment));
        reading.map(|reading| reading.value.orchestrator.deployment.deployment_id)
    };
    assert_eq!(read("d", Value::Null).unwrap(), "d");
    assert_eq!(read("d", json!({"deployment_id": "m"})).unwrap(), "m");
    let error = read(" ", Value::Null).unwrap_err();
    assert_eq!(
        error.to_string(),
        "orchestrator.deployment: must be an object, not null"
    );
}

#[test]
fn without_preview_each_of_its_features_is_disabled_with_a_warning() {
    let mut document = minimal_manifest(
        "/orchestrator/attachment_strategy",
        json!({"type": "of tomorrow"}),
    );
    document["contexts"] =
        json!([{"type": "folder", "url": "files/b/"}, {"type": "user-defined", "content": "c"}]);
    document["hooks"] = json!([{}]);
    document["features"]["web_fetch"] = Value::Null;
    let reading = reader(false).manifest(document.clone()).unwrap();
    assert!(reading.value.orchestrator.attachment_strategy.is_none());
    assert!(reading.value.hooks.is_none());
    assert!(matches!(
        &reading.value.contexts[..],
        [Context::UserDefined { .. }]
    ));
    let warning = |name| {
        format!(
            "Preview feature \"{name}\" is configured but preview features are disabled (ENABLE_PREVIEW_FEATURES is \
             not set). The feature has been deactivated."
        )
    };
    assert_eq!(
        reading.warnings,
        ["attachment_strategy", "folder", "hooks"].map(warning)
    );
    assert_refused(
        document,
        &[
            "orchestrator.attachment_strategy.type: must be one of lazy_on_demand",
            "hooks.0.type: must be one of tool",
        ],
    );
}

/// Pointers to every value of a document.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                pointers(value, &format!("{at}/{}", key.replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// The check and the types agree: every value that passes the check can be parsed, so the fallback is never used.
#[test]
fn any_one_changed_value_is_read_or_refused_at_its_place() {
    let values = [
        json!(null),
        json!(true),
        json!(-7),
        json!(0.5),
        json!(""),
        json!([]),
        json!([null]),
        json!({}),
        json!({"type": "x"}),
        json!({"type": 1}),
        json!(u64::MAX),
    ];
    let reader = reader(true);
    let mut found = Vec::new();
    let example = example();
    pointers(&example, "", &mut found);
    for (pointer, value) in found
        .iter()
        .flat_map(|pointer| values.iter().map(move |value| (pointer, value)))
    {
        let mut document = example.clone();
        *document.pointer_mut(pointer).unwrap() = value.clone();
        let place = pointer
            .trim_start_matches('/')
            .replace('/', ".")
            .replace("~1", "/");
        let problems = reader
            .manifest(document)
            .map_or_else(|error| error.problems, |_| Vec::new());
        for problem in problems {
            assert!(problem.path.starts_with(&place), "{problem} for {place}");
            assert!(!problem.reason.contains("out of range"), "{place}");
        }
    }
}

#[test]
fn a_manifest_decides_which_parameters_clients_may_set() {
    let of = |value| read(minimal_manifest("/orchestrator/client_parameters", value)).orchestrator;
    let open = of(Value::Null);
    assert!(open.allows_parameter("tools") && open.allows_parameter("seed"));
    assert!(!open.allows_parameter("top_k"));
    let listed = of(json!(["top_k", "stop"]));
    assert!(listed.allows_parameter("top_k") && listed.allows_parameter("stop"));
    assert!(!listed.allows_parameter("tools"));
    assert!(!of(json!([])).allows_parameter("temperature"));
}
