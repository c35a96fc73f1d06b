//! Tests of every variable of section 20, and of every mistake that stops a start.

use dray_service::config::{ConfigError, ConfigLoader, ConfigSources, Environment};

use super::*;

mod mistakes;

fn load(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment: Environment = variables.iter().copied().collect();
    let sources = ConfigSources {
        environment,
        ..ConfigSources::default()
    };
    let loaded = ConfigLoader::new()
        .section::<Config>("egress-fetcher")
        .load(&sources)?;
    Ok(loaded.section("egress-fetcher").unwrap())
}

fn accepts(variable: &str, value: &str) -> Config {
    load(&[(&format!("EXTERNAL_URL_FETCH_{variable}"), value)])
        .unwrap_or_else(|error| panic!("{variable}={value}: {error}"))
}

fn refuses(variable: &str, values: &[&str]) {
    for value in values {
        let name = format!("EXTERNAL_URL_FETCH_{variable}");
        assert!(load(&[(&name, value)]).is_err(), "{variable}={value}");
    }
}

#[test]
fn section_20_defaults_are_the_documented_ones() {
    let compiled = Config::default().compile().unwrap();
    assert!(!compiled.admin.enabled);
    assert!(compiled.admin.host_allowlist.is_none());
    assert_eq!(compiled.admin.max_redirects.get(), 5);
    assert_eq!(compiled.admin.ports.to_string(), "80,443,8000,8080,8443");
    let settings = &compiled.settings;
    let seconds = |duration: std::time::Duration| duration.as_secs();
    assert_eq!(
        [
            settings.dns,
            settings.connect,
            settings.tls,
            settings.head,
            settings.idle,
            settings.total
        ]
        .map(seconds),
        [3, 5, 5, 10, 15, 60]
    );
    assert_eq!(
        (settings.size, settings.size_ceiling),
        (10_485_760, 104_857_600)
    );
    assert_eq!((settings.floor, seconds(settings.grace)), (1024, 20));
    assert_eq!(compiled.sizes, crate::limits::AdmissionLimits::default());
    assert!(settings.user_agent.to_str().unwrap().starts_with("dray/"));
}

#[test]
fn section_20_switches_are_strict_booleans() {
    for (text, value) in [
        ("true", true),
        ("TRUE", true),
        ("False", false),
        ("false", false),
    ] {
        assert_eq!(accepts("ENABLED", text).enabled, value);
        assert_eq!(accepts("HTTPS_ONLY", text).https_only, value);
        assert_eq!(accepts("ALLOW_DOWNGRADE", text).allow_downgrade, value);
        assert_eq!(accepts("IPV6", text).ipv6, value);
        assert_eq!(accepts("AUDIT_REQUIRED", text).audit_required, value);
    }
    for variable in [
        "ENABLED",
        "HTTPS_ONLY",
        "ALLOW_DOWNGRADE",
        "IPV6",
        "AUDIT_REQUIRED",
    ] {
        refuses(
            variable,
            &["1", "0", "yes", "on", "", " true", "true\n", "tru"],
        );
    }
}

#[test]
fn p_4_blank_allowlists_are_unset_and_others_must_name_a_host() {
    assert_eq!(accepts("HOST_ALLOWLIST", "  ").host_allowlist, None);
    let expected = Some(vec!["*.example.net".to_owned(), "example.org".to_owned()]);
    for text in [
        "example.org, *.EXAMPLE.net",
        r#"["*.example.net", "example.org."]"#,
    ] {
        let mut hosts = accepts("HOST_ALLOWLIST", text).host_allowlist;
        hosts.as_mut().unwrap().sort();
        assert_eq!(hosts, expected);
    }
    // An address in the list refuses the hosts that it would allow (P-2); it does not stop the start.
    let address = accepts("HOST_ALLOWLIST", "10.0.0.1").host_allowlist;
    assert_eq!(address, Some(vec!["10.0.0.1".to_owned()]));
    refuses(
        "HOST_ALLOWLIST",
        &[
            ",",
            "[]",
            "[\"\"]",
            "a.example,,b.example",
            "*",
            "localhost",
            "https://a.example",
            "[1]",
            "[",
        ],
    );
    let empty = Config {
        host_allowlist: Some(Vec::new()),
        ..Config::default()
    };
    assert!(empty.compile().is_err());
}

#[test]
fn x_1_the_redirect_limit_is_0_to_10() {
    assert_eq!(accepts("MAX_REDIRECTS", "0").max_redirects, 0);
    assert_eq!(accepts("MAX_REDIRECTS", "10").max_redirects, 10);
    refuses("MAX_REDIRECTS", &["11", "-1", "five", "", "5.0", "+5"]);
}

#[test]
fn section_20_times_are_bounded() {
    assert_eq!(
        accepts("CONNECT_TIMEOUT_SECONDS", "0.5").connect_timeout,
        Period::millis(500)
    );
    assert_eq!(
        accepts("CONNECT_TIMEOUT_SECONDS", "30").connect_timeout,
        Period::secs(30)
    );
    refuses(
        "CONNECT_TIMEOUT_SECONDS",
        &["0", "30.5", "-1", "nan", "inf", "5s", "", "0.0001"],
    );
    assert_eq!(
        accepts("TOTAL_TIMEOUT_SECONDS", "300").total_timeout,
        Period::secs(300)
    );
    refuses("TOTAL_TIMEOUT_SECONDS", &["301", "0", "x"]);
}

#[test]
fn u_9_ports_are_a_list_or_any_and_never_bad() {
    assert_eq!(
        accepts("ALLOWED_PORTS", "443, 9443")
            .compile()
            .unwrap()
            .admin
            .ports
            .to_string(),
        "443,9443"
    );
    assert_eq!(
        accepts("ALLOWED_PORTS", "any")
            .compile()
            .unwrap()
            .admin
            .ports
            .to_string(),
        "any"
    );
    refuses(
        "ALLOWED_PORTS",
        &["22", "443,25", "0", "65536", "http", "443,,80"],
    );
}

#[test]
fn section_20_networks_and_servers_are_checked() {
    let config = accepts("DNS_SERVERS", "192.0.2.53, 192.0.2.54:5353");
    assert_eq!(config.compile().unwrap().servers.unwrap().len(), 2);
    let encrypted = "tls://9.9.9.9#dns.quad9.net, https://1.1.1.1/dns-query#cloudflare-dns.com";
    let config = accepts("DNS_SERVERS", encrypted);
    assert_eq!(config.compile().unwrap().servers.unwrap().len(), 2);
    refuses(
        "DNS_SERVERS",
        &[
            "dns.example.org",
            "192.0.2.53,,",
            "[]",
            "tls://dns.quad9.net",
            "192.0.2.53, tls://9.9.9.9#dns.quad9.net",
        ],
    );
    assert_eq!(
        accepts("NAT64_PREFIXES", "64:ff9b::/96")
            .nat64_prefixes
            .len(),
        1
    );
    refuses("NAT64_PREFIXES", &["64:ff9b::/95", "10.0.0.0/8", "x"]);
    assert_eq!(
        accepts("EXTRA_BLOCKED_CIDRS", "203.0.113.7, 161.26.0.0/16")
            .extra_blocked_cidrs
            .len(),
        2
    );
    refuses("EXTRA_BLOCKED_CIDRS", &["161.26.0.1/16", "example.org"]);
    assert_eq!(
        accepts("EXTRA_BLOCKED_HOSTS", "*.corp.example.org")
            .extra_blocked_hosts
            .len(),
        1
    );
    refuses("EXTRA_BLOCKED_HOSTS", &["corp", "*"]);
}

#[test]
fn section_8_6_private_ranges_are_exact_and_private() {
    let config = accepts("PRIVATE_CIDRS", "10.1.0.0/16,fd12:3456::/32");
    assert_eq!(config.private_cidrs.len(), 2);
    assert!(!config.compile().unwrap().admin.private_ranges.is_empty());
    refuses(
        "PRIVATE_CIDRS",
        &[
            "10.1.2.3/16",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "100.64.0.0/10",
            "0.0.0.0/0",
            "8.8.8.0/24",
            "10.0.0.0",
            "::ffff:10.0.0.0/104",
            "files.example.org",
            "fe80::/10",
        ],
    );
}

#[test]
fn section_20_numbers_and_agents_are_checked() {
    assert_eq!(
        accepts("MAX_BYTES_CEILING", "1048576").max_bytes_ceiling,
        ByteSize::mib(1)
    );
    refuses("MAX_BYTES_CEILING", &["0", "-1", "many"]);
    assert_eq!(accepts("MAX_CONCURRENCY", "8").max_concurrency, 8);
    assert_eq!(accepts("MAX_CONCURRENCY_PER_HOST", "2").max_per_host, 2);
    assert_eq!(accepts("MAX_PER_APP", "3").max_per_app, 3);
    refuses("MAX_CONCURRENCY", &["0", "x", "-1"]);
    assert_eq!(
        accepts("USER_AGENT", "acme-fetch/1.0 (+https://acme.example)")
            .user_agent
            .len(),
        38
    );
    refuses(
        "USER_AGENT",
        &[
            &"x".repeat(129),
            "a\r\nHost: evil",
            "caf\u{e9}",
            "tab\there",
        ],
    );
}

#[test]
fn section_20_an_unknown_variable_with_the_prefix_stops_the_start() {
    let error = load(&[("EXTERNAL_URL_FETCH_ENABLE", "true")]).unwrap_err();
    assert!(error.to_string().contains("EXTERNAL_URL_FETCH_ENABLE"));
}

#[test]
fn section_20_two_names_with_different_values_stop_the_start() {
    let two = |flat, nested| {
        load(&[
            ("EXTERNAL_URL_FETCH_ENABLED", flat),
            ("DRAY_EGRESS_FETCHER__ENABLED", nested),
        ])
    };
    assert!(two("true", "false").is_err());
    assert!(two("true", "true").unwrap().enabled);
}

#[test]
fn section_8_4_the_kubernetes_api_is_protected() {
    let config = load(&[("KUBERNETES_SERVICE_HOST", "198.51.100.1")]).unwrap();
    let compiled = config.compile().unwrap();
    assert_eq!(
        compiled.judge.protected,
        ["198.51.100.1/32".parse().unwrap()]
    );
    let named = Config {
        protected: vec!["nats:4222".to_owned(), "8.8.4.0/24".to_owned()],
        ..Config::default()
    };
    let compiled = named.compile().unwrap();
    assert_eq!(compiled.protected_hosts, ["nats:4222"]);
    assert_eq!(compiled.judge.protected.len(), 1);
}

#[test]
fn s_5_the_effective_configuration_hides_secrets() {
    let config = Config {
        audit_key: Some(Secret::new("hunter2")),
        ..Config::default()
    };
    assert!(!serde_json::to_string(&config).unwrap().contains("hunter2"));
}

#[test]
fn s_5_the_effective_configuration_hides_user_info_of_protected_names() {
    let config = Config {
        protected: vec!["nats://user:hunter2@nats:4222".to_owned()],
        kubernetes_api: Some("https://user:hunter2@api:6443".to_owned()),
        ..Config::default()
    };
    let json = serde_json::to_string(&config).unwrap();
    assert!(!json.contains("hunter2"), "{json}");
    assert!(json.contains("nats://nats:4222") && json.contains("https://api:6443"));
}

#[test]
fn every_invalid_setting_is_reported() {
    let config = Config {
        max_redirects: 11,
        allowed_ports: "22".to_owned(),
        max_concurrency: 0,
        user_agent: String::new(),
        ..Config::default()
    };
    let fields: Vec<_> = config
        .validate()
        .into_iter()
        .map(|problem| problem.field)
        .collect();
    assert_eq!(
        fields,
        [
            "allowed_ports",
            "max_redirects",
            "user_agent",
            "max_concurrency"
        ]
    );
}

#[test]
fn i_9_no_setting_opens_loopback_link_local_metadata_or_shared_space() {
    let closed = [
        "127.0.0.0/8",
        "169.254.0.0/16",
        "169.254.169.254/32",
        "100.64.0.0/10",
        "0.0.0.0/8",
        "::1/128",
        "fe80::/10",
    ];
    for network in closed {
        refuses(
            "PRIVATE_CIDRS",
            &[network, &format!("10.0.0.0/16,{network}")],
        );
        refuses("NAT64_PREFIXES", &[network]);
    }
    // All other settings together do not open these.
    let open = Config {
        enabled: true,
        allowed_ports: "any".to_owned(),
        allow_downgrade: true,
        private_cidrs: vec![
            "10.0.0.0/8".to_owned(),
            "172.16.0.0/12".to_owned(),
            "192.168.0.0/16".to_owned(),
            "fc00::/7".to_owned(),
        ],
        nat64_prefixes: vec!["64:ff9b::/96".to_owned(), "64:ff9b:1::/48".to_owned()],
        ..Config::default()
    };
    let judge = dray_guard::Judge::new(open.compile().unwrap().judge);
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "0.0.0.0",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "::ffff:127.0.0.1",
    ] {
        assert!(
            judge.class(address.parse().unwrap()).is_blocked(),
            "{address}"
        );
    }
}
