//! Tests of valid and invalid settings.

use dray_service::config::AliasValue;
use serde_json::json;

use super::*;

mod documents;

fn check(change: impl FnOnce(&mut Config), field: &str) {
    assert_eq!(dray_service::config::refused_fields(change), [field]);
}

fn parse(variable: &str, text: &str) -> Result<AliasValue, String> {
    let alias = Config::aliases()
        .iter()
        .find(|alias| alias.variable == variable);
    (alias.unwrap().parse)(text)
}

#[test]
fn defaults_are_valid_and_those_of_the_peer() {
    let config = Config::default();
    assert_eq!(config.validate(), []);
    assert_eq!(config.listen.to_string(), "127.0.0.1:5000");
    assert_eq!(config.dial_api_version, "2025-01-01-preview");
    assert_eq!(config.max_iterations, 15);
    assert_eq!(config.tool_timeout, Period::secs(300));
    assert_eq!(config.files.size_limit, ByteSize::bytes(10_485_760));
    assert_eq!(config.interactive_login_timeout, Period::secs(120));
    assert_eq!(config.files.offload_threshold, ByteSize::bytes(40_000));
}

#[test]
fn origins_are_exact_and_times_of_client_tools_within_those_of_the_store() {
    check(
        |config| config.client_tool_timeout = Period::secs(16 * 24 * 3600),
        "client_tool_timeout",
    );
    check(
        |config| config.heartbeat_interval = Period::default(),
        "heartbeat_interval",
    );
    for origin in [
        "*",
        "null",
        "https://a.example/",
        "https://A.example",
        "a.example",
        "ftp://a",
    ] {
        check(
            |config| config.cors_origins = vec![origin.to_owned()],
            "cors_origins",
        );
    }
    let config = Config {
        cors_origins: vec![
            "https://a.example".to_owned(),
            "http://localhost:3000".to_owned(),
        ],
        ..Config::default()
    };
    assert_eq!(config.validate(), []);
}

#[test]
fn every_field_has_its_bounds() {
    check(
        |config| config.dial_url = Some("core".to_owned()),
        "dial_url",
    );
    check(
        |config| config.model_url = Some("http://u:p@h/".to_owned()),
        "model_url",
    );
    check(
        |config| config.py_interpreter.url = Some("http://h/?a=1".to_owned()),
        "py_interpreter.url",
    );
    check(|config| config.max_iterations = 0, "max_iterations");
    check(
        |config| config.tool_timeout = Period::secs(3601),
        "tool_timeout",
    );
    check(
        |config| config.files.size_limit = ByteSize::default(),
        "files.size_limit",
    );
    check(|config| config.max_chats = 0, "max_chats");
    check(|config| config.max_body = ByteSize::mib(257), "max_body");
    check(
        |config| config.max_body = ByteSize::mib(129),
        "max_body_total",
    );
    check(
        |config| config.language_header = "a b".to_owned(),
        "language_header",
    );
    check(
        |config| config.forward_headers = vec!["a\n".to_owned()],
        "forward_headers",
    );
    check(
        |config| config.model_timeout = Period::default(),
        "model_timeout",
    );
    check(|config| config.deployments = Vec::new(), "deployments");
    check(
        |config| {
            config
                .mcp_servers
                .insert("git".to_owned(), McpServer::default());
        },
        "mcp_servers.git.command",
    );
    check(
        |config| {
            config.clients.insert("a".to_owned(), Secret::default());
        },
        "clients.a",
    );
}

#[test]
fn a_workload_token_names_its_token_endpoints() {
    check(
        |config| {
            let token = McpWorkloadToken {
                file: "/run/token".into(),
                servers: vec!["https://mcp.example/mcp".to_owned()],
                ..McpWorkloadToken::default()
            };
            config.mcp_workload_tokens.insert("a".to_owned(), token);
        },
        "mcp_workload_tokens.a",
    );
}

#[test]
fn a_user_header_is_refused_if_the_service_reads_it_itself_or_the_caller_is_not_a_client() {
    check(
        |config| {
            config.clients.insert("a".to_owned(), Secret::new("k"));
            let caller = permissions::CallerPermissions {
                // A header that this service reads itself.
                user_header: Some("X-DIAL-Application-Id".to_owned()),
                ..permissions::CallerPermissions::default()
            };
            config.permissions.clients.insert("a".to_owned(), caller);
        },
        "permissions.clients.a.user_header",
    );
    check(
        |config| config.permissions.local.user_header = Some("x-user".to_owned()),
        "permissions.local.user_header",
    );
}

#[test]
fn other_machines_need_a_key_or_dial() {
    let open = |config: &mut Config| config.listen = "0.0.0.0:5000".parse().unwrap();
    check(open, "clients");
    let mut config = Config::default();
    open(&mut config);
    config.dial_url = Some("https://core.example".to_owned());
    assert_eq!(config.validate(), []);
    config.dial_url = None;
    config.clients.insert("a".to_owned(), Secret::new("k"));
    assert_eq!(config.validate(), []);
}

#[test]
fn several_people_never_share_a_sandbox_by_default() {
    let of = |address: &str, listen: &str, dial: bool| Config {
        sandbox: Some(address.to_owned()),
        listen: listen.parse().unwrap(),
        dial_url: dial.then(|| "https://core.example".to_owned()),
        clients: [("a".to_owned(), Secret::new("k"))].into(),
        ..Config::default()
    };
    assert_eq!(of("local:/box", "127.0.0.1:5000", false).validate(), []);
    assert_eq!(of("docker:{session}", "0.0.0.0:5000", true).validate(), []);
    for (listen, dial) in [("0.0.0.0:5000", false), ("127.0.0.1:5000", true)] {
        let problems = of("local:/box", listen, dial).validate();
        assert!(
            matches!(problems.as_slice(), [one] if one.field == "sandbox"),
            "{problems:?}"
        );
    }
}

#[test]
fn an_address_that_can_name_no_sandbox_is_refused() {
    for address in ["foo", "", ":web", "docker:", "Docker:web", "local:box"] {
        check(
            |config| config.sandbox = Some(address.to_owned()),
            "sandbox",
        );
    }
    for address in ["docker:agent-{session}", "ssh:me@host:22", "local:/srv/box"] {
        let config = Config {
            sandbox: Some(address.to_owned()),
            ..Config::default()
        };
        assert_eq!(config.validate(), [], "{address}");
    }
}

#[test]
fn a_model_belongs_to_one_prompt() {
    let mut config = Config::default();
    let models = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    config
        .prompt_mapping
        .insert("a".to_owned(), models(&["x", "y"]));
    config
        .prompt_mapping
        .insert("b".to_owned(), models(&["y", "z", "x"]));
    let problems = config.validate();
    assert_eq!(
        problems,
        [ConfigProblem::new(
            "prompt_mapping",
            "Duplicate model/deployment names found: x, y"
        )]
    );
}

#[test]
fn variables_of_the_peer_are_read_as_it_reads_them() {
    let value = |value| Ok(AliasValue::Value(value));
    assert_eq!(parse("ENABLE_PREVIEW_FEATURES", "True"), value(json!(true)));
    assert_eq!(parse("LOG_PAYLOADS", "0"), value(json!(false)));
    assert!(parse("LOG_PAYLOADS", "maybe").is_err());
    assert_eq!(parse("DEFAULT_AGENT_MAX_ITERATIONS", "7"), value(json!(7)));
    assert!(
        parse("DEFAULT_AGENT_MAX_ITERATIONS", "-1")
            .unwrap_err()
            .contains("-1")
    );
    assert_eq!(
        parse("DEFAULT_TOOL_TIMEOUT_SECONDS", "300.0"),
        value(json!("5m"))
    );
    assert_eq!(
        parse("DEFAULT_STAGE_DISPLAY_LEVEL", "DEBUG"),
        value(json!("debug"))
    );
    assert!(parse("DEFAULT_STAGE_DISPLAY_LEVEL", "all").is_err());
    for (text, expected) in [
        (r#"["/a", "/b:c"]"#, json!(["/a", "/b:c"])),
        ("/a:/b", json!(["/a", "/b"])),
    ] {
        assert_eq!(
            parse("PREDEFINED_EXTRA_PATHS", text),
            value(expected),
            "{text}"
        );
    }
    assert!(parse("PREDEFINED_EXTRA_PATHS", "[1]").is_err());
    assert_eq!(
        parse("CONFIG_PROMPT_MAPPING", r#"{"gpt_prompt": ["gpt-4o"]}"#),
        value(json!({"gpt_prompt": ["gpt-4o"]}))
    );
    assert!(parse("CONFIG_PROMPT_MAPPING", "[]").is_err());
    for variable in [
        "DEFAULT_STAGE_DISPLAY_LEVEL",
        "DEFAULT_ORCHESTRATOR_DEPLOYMENT_ID",
        "PREDEFINED_BASE_PATH",
    ] {
        assert!(
            matches!(parse(variable, " "), Ok(AliasValue::Unset(_))),
            "{variable}"
        );
    }
}

#[test]
fn no_variable_is_named_twice() {
    let names: BTreeSet<_> = Config::aliases()
        .iter()
        .map(|alias| alias.variable)
        .collect();
    assert_eq!(names.len(), Config::aliases().len());
}

#[test]
fn keys_do_not_print() {
    let mut config = Config {
        model_key: Secret::new("hunter2"),
        ..Config::default()
    };
    config
        .clients
        .insert("a".to_owned(), Secret::new("hunter2"));
    let server = McpServer {
        env: BTreeMap::from([("TOKEN".to_owned(), Secret::new("hunter2"))]),
        ..McpServer::default()
    };
    config.mcp_servers.insert("s".to_owned(), server);
    let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
    assert!(!shown.contains("hunter2"));
}
