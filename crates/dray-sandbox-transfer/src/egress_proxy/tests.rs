//! Rules, tokens and variables, without a sandbox.

use dray_types::{AppId, Deadline};

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn key() -> Secret {
    Secret::new("k".repeat(32))
}

fn rule(tenant: &str, sandbox: &str, address: &str) -> EgressProxyRule {
    EgressProxyRule {
        tenants: vec![tenant.to_owned()],
        sandboxes: vec![sandbox.to_owned()],
        address: address.to_owned(),
        tls: false,
        no_proxy: own_hosts(),
        ca_file: None,
    }
}

fn config(rules: Vec<EgressProxyRule>) -> EgressProxyConfig {
    EgressProxyConfig {
        token_key: Some(key()),
        rules,
    }
}

fn docker_config() -> EgressProxyConfig {
    config(vec![rule("acme", "docker:*", "egress-proxy:3128")])
}

fn meta() -> Meta {
    let tenant = TenantId::new("acme").unwrap();
    Meta::new(tenant, Deadline::after(NOW_MS, Duration::from_mins(1)))
}

fn request(sandbox: sandbox_ref::Sandbox) -> v1::ExecSandboxRequest {
    v1::ExecSandboxRequest {
        sandbox: Some(v1::SandboxRef {
            sandbox: Some(sandbox),
        }),
        ..v1::ExecSandboxRequest::default()
    }
}

fn by_session(session: &str) -> v1::ExecSandboxRequest {
    request(sandbox_ref::Sandbox::Session(session.to_owned()))
}

fn by_address() -> v1::ExecSandboxRequest {
    request(sandbox_ref::Sandbox::Address("docker:web".to_owned()))
}

/// The variables after the rules of `config`, and the names in the audit event.
fn variables(
    config: &EgressProxyConfig,
    meta: &Meta,
    sandbox: &str,
    mut body: v1::ExecSandboxRequest,
) -> (Vec<(String, String)>, Vec<String>) {
    let program = ProxiedProgram {
        meta,
        sandbox: &sandbox.parse().unwrap(),
        time: Duration::from_mins(10),
        clock: &Clock::manual(NOW_MS),
    };
    let mut audit = v1::SandboxCommandAudit::default();
    config
        .add_variables(&program, &mut body, &mut audit)
        .unwrap();
    let variables = body.environment.into_iter();
    let variables =
        variables.map(|variable| (variable.name, String::from_utf8(variable.value).unwrap()));
    (variables.collect(), audit.environment_names)
}

/// The identity in the URL of the proxy, and when it ends in Unix seconds.
fn identity(meta: &Meta, sandbox: &str, body: v1::ExecSandboxRequest) -> ProxyIdentity {
    let every = config(vec![rule("*", "*", "proxy:3128")]);
    let (variables, _) = variables(&every, meta, sandbox, body);
    let token = token_in(&variables[0].1, "proxy:3128");
    let keys = TokenKeys::new(&key(), None).unwrap();
    keys.verify(token.as_bytes(), NOW_MS).unwrap()
}

fn token_in(url: &str, address: &str) -> String {
    let rest = url.strip_prefix("http://sandbox:").unwrap();
    let token = rest.strip_suffix(&format!("@{address}")).unwrap();
    token.to_owned()
}

#[test]
fn without_a_rule_for_tenant_and_sandbox_a_program_gets_nothing() {
    let none = (Vec::new(), Vec::new());
    let off = EgressProxyConfig::default();
    assert_eq!(off.problem(), None);
    assert_eq!(variables(&off, &meta(), "docker:web", by_address()), none);
    let docker = docker_config();
    assert_eq!(variables(&docker, &meta(), "ssh:web", by_address()), none);
    let other = Meta::new(TenantId::new("beta").unwrap(), meta().deadline);
    assert_eq!(variables(&docker, &other, "docker:web", by_address()), none);
}

#[test]
fn the_proxy_is_in_both_cases_of_letters_and_the_sandbox_itself_is_left_out() {
    let (variables, audited) = variables(&docker_config(), &meta(), "docker:web", by_address());
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "NO_PROXY",
            "no_proxy"
        ]
    );
    assert_eq!(audited, names);
    let token = token_in(&variables[0].1, "egress-proxy:3128");
    for (name, value) in &variables[..6] {
        assert_eq!(token_in(value, "egress-proxy:3128"), token, "{name}");
    }
    assert_eq!(variables[7].1, "localhost,127.0.0.1,::1");
    assert!(!format!("{audited:?}").contains(&token));
}

#[test]
fn a_proxy_that_speaks_tls_has_an_address_with_https() {
    let mut rule = rule("acme", "docker:*", "egress-proxy:3128");
    rule.tls = true;
    let (variables, _) = variables(&config(vec![rule]), &meta(), "docker:web", by_address());
    for (name, value) in &variables[..6] {
        assert!(
            value.starts_with("https://sandbox:dray1."),
            "{name}: {value}"
        );
        assert!(value.ends_with("@egress-proxy:3128"), "{name}: {value}");
    }
}

#[test]
fn the_first_rule_that_fits_names_the_proxy() {
    let rules = config(vec![
        rule("acme", "kubernetes:*", "10.96.0.7:3128"),
        rule("*", "docker:*", "egress-proxy:3128"),
        rule("*", "*", "last:3128"),
    ]);
    for (sandbox, address) in [
        ("kubernetes:sandboxes/a", "10.96.0.7:3128"),
        ("docker:web", "egress-proxy:3128"),
        ("exec:box", "last:3128"),
    ] {
        let (variables, _) = variables(&rules, &meta(), sandbox, by_address());
        assert!(
            variables[0].1.ends_with(&format!("@{address}")),
            "{sandbox}"
        );
    }
}

#[test]
fn a_variable_of_the_request_stays_in_any_case_of_letters() {
    let mut body = by_address();
    for name in ["https_proxy", "No_Proxy"] {
        body.environment.push(v1::EnvironmentVariable {
            name: name.to_owned(),
            value: b"mine".to_vec(),
        });
    }
    let (variables, audited) = variables(&docker_config(), &meta(), "docker:web", body);
    let mine: Vec<_> = variables
        .iter()
        .filter(|(_, value)| value == "mine")
        .collect();
    assert_eq!(mine.len(), 2);
    assert_eq!(
        audited,
        ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
    );
    assert_eq!(variables.len(), 6);
}

#[test]
fn a_token_is_for_the_tenant_session_and_app_and_ends_with_the_program() {
    let in_chat = meta()
        .with_session(SessionId::new("chat-2").unwrap())
        .with_app(AppId::new("analyst").unwrap());
    let bound = identity(&in_chat, "docker:web", by_session("chat-1"));
    assert_eq!(bound.tenant.as_str(), "acme");
    assert_eq!(bound.session.as_str(), "chat-1");
    assert_eq!(bound.app.unwrap().as_str(), "analyst");
    assert_eq!(bound.allow, None);
    assert_eq!(bound.expires_s, NOW_MS / 1000 + 600 + 30);
    let addressed = identity(&in_chat, "docker:web", by_address());
    assert_eq!(addressed.session.as_str(), "chat-2");
    let alone = identity(&meta(), "docker:web", by_address());
    assert_eq!((alone.session.as_str(), alone.app), ("docker:web", None));
    // An address that is no session id: one with a blank, and one that is too long.
    for sandbox in ["exec:a b".to_owned(), format!("local:/{}", "x".repeat(200))] {
        let alone = identity(&meta(), &sandbox, by_address());
        assert_eq!(alone.session.as_str(), key_token(&sandbox));
    }
}

#[test]
fn rules_that_no_program_could_use_are_problems() {
    assert_eq!(docker_config().problem(), None);
    let field = |config: &EgressProxyConfig| config.problem().map(|(field, _)| field);
    let mut without_key = docker_config();
    without_key.token_key = None;
    assert_eq!(field(&without_key), Some("token_key"));
    let mut short_key = docker_config();
    short_key.token_key = Some(Secret::new("short"));
    assert_eq!(field(&short_key), Some("token_key"));
    for address in [
        "egress-proxy",
        "http://egress-proxy:3128",
        "a b:1",
        "user@proxy:1",
        "",
    ] {
        let config = config(vec![rule("*", "*", address)]);
        assert_eq!(field(&config), Some("rules"), "{address}");
    }
    for wrong in ["", "a,b", "a b"] {
        let mut config = docker_config();
        config.rules[0].no_proxy = vec![wrong.to_owned()];
        assert_eq!(field(&config), Some("rules"), "{wrong}");
    }
    let mut empty = docker_config();
    empty.rules[0].tenants.clear();
    assert_eq!(field(&empty), Some("rules"));
}

#[test]
fn programs_get_the_certificates_of_an_intercepting_proxy_in_the_variables_of_their_clients() {
    let mut config = docker_config();
    config.rules[0].ca_file = Some("/etc/ssl/sandbox.pem".to_owned());
    let mut body = by_address();
    body.environment.push(v1::EnvironmentVariable {
        name: "PIP_CERT".to_owned(),
        value: b"/mine.pem".to_vec(),
    });
    let (variables, audited) = variables(&config, &meta(), "docker:web", body);
    let names: Vec<&str> = variables
        .iter()
        .filter(|(_, value)| value == "/etc/ssl/sandbox.pem")
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "SSL_CERT_FILE",
            "CURL_CA_BUNDLE",
            "REQUESTS_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "NPM_CONFIG_CAFILE",
            "GIT_SSL_CAINFO",
            "CARGO_HTTP_CAINFO"
        ]
    );
    assert!(
        audited
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .ends_with(&names)
    );
    config.rules[0].ca_file = Some("relative.pem".to_owned());
    assert_eq!(config.problem().unwrap().0, "rules");
}
