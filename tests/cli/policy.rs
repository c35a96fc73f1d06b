//! `dray policy explain`: the verdict of a fetch, its steps, and an exit code for scripts.

use std::time::Duration;

use dray_bus::{Meta, test_bus};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, TenantId};
use serde_json::Value;

use super::{CliHome, check, line};

#[test]
fn the_steps_name_the_setting_that_decides_and_where_its_value_comes_from() {
    let home = CliHome::new();
    let url = "https://files.example.org/a.pdf";
    let off = home.run(&["policy", "explain", url, "--json"]);
    assert_eq!(off.status.code(), Some(1), "{off:?}");
    let explained = line(&off);
    assert_eq!(explained["verdict"], "refused");
    assert_eq!(explained["fault"]["detail"], "disabled_by_admin");
    let first = &explained["steps"][0];
    assert_eq!(first["step"], "operator_switch");
    assert_eq!(first["setting"], "egress-fetcher.enabled");
    assert_eq!(first["origin"], "default");
    assert_eq!(explained["steps"].as_array().unwrap().len(), 14);

    let mut enabled = home.dray(&["policy", "explain", url, "--json"]);
    let enabled = enabled
        .env("EXTERNAL_URL_FETCH_ENABLED", "true")
        .output()
        .unwrap();
    assert!(enabled.status.success(), "{enabled:?}");
    let explained = line(&enabled);
    assert_eq!(explained["verdict"], "allowed");
    assert_eq!(explained["complete"], false, "the name was not looked up");
    assert_eq!(
        explained["steps"][0]["origin"],
        "variable EXTERNAL_URL_FETCH_ENABLED"
    );
    assert_eq!(explained["steps"][9]["verdict"], "not_judged");
}

#[test]
fn a_command_with_the_configuration_of_a_running_service_needs_neither_its_proxy_port_nor_its_key()
{
    let home = CliHome::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let listen = format!("egress-fetcher.proxy.listen={listen}");
    let url = "https://files.example.org/a.pdf";
    let enable = "egress-fetcher.enabled=true";
    let explained = home.run(&["policy", "explain", url, "--set", enable, "--set", &listen]);
    assert!(explained.status.success(), "{explained:?}");
    // The service needs the key.
    let checked = home.run(&["config", "check", "--set", &listen]);
    assert!(!checked.status.success(), "{checked:?}");
    let message = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(
        message.contains("egress-fetcher.proxy.token_key"),
        "{message}"
    );
}

#[test]
fn an_app_narrows_the_policy_and_the_fault_equals_that_of_a_fetch() {
    let home = CliHome::new();
    let enable = ["--set", "egress-fetcher.enabled=true"];
    let explain = |arguments: &[&str]| {
        let command: Vec<&str> = ["policy", "explain"]
            .iter()
            .chain(arguments)
            .chain(&enable)
            .copied()
            .collect();
        home.run(&command)
    };
    let url = "https://files.example.org/";
    for (host, code) in [("*.example.org", 0), ("other.example.org", 1)] {
        let explained = explain(&[url, "--allow", host]);
        assert_eq!(explained.status.code(), Some(code), "{explained:?}");
    }
    for url in [
        "http://169.254.169.254/",
        "http://localhost/",
        "file:///etc/passwd",
        "http://a.example:25/",
    ] {
        let explained = explain(&[url, "--json"]);
        assert_eq!(explained.status.code(), Some(1), "{explained:?}");
        let fetched = home.run(&["fetch", url, "--json", enable[0], enable[1]]);
        let mut faults =
            [line(&explained), line(&fetched)].map(|mut output| output["fault"].take());
        for fault in &mut faults {
            // Each call has its own trace.
            fault["trace_id"] = Value::Null;
        }
        assert_eq!(faults[0], faults[1], "{url}");
    }
    let usage = home.run(&["policy", "explain"]);
    check(&usage, 2, "");
}

const POLICY_TEXT: &str = "[[role]]\nname = \"reports\"\ntenants = [\"acme\"]\napps = [\"reporter\"]\n\
                      [[role.rule]]\nname = \"files\"\noutcome = \"allow\"\nhosts = [\"files.example.org\"]\n\
                      ports = [443]\n";

/// A directory with `policy.toml` and `expectations.toml`.
fn policy_directory(expectations: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("policy.toml"), POLICY_TEXT).unwrap();
    std::fs::write(directory.path().join("expectations.toml"), expectations).unwrap();
    directory
}

#[test]
fn an_explanation_names_the_rule_and_line_that_decide_for_tenant_and_app() {
    let home = CliHome::new();
    let directory = policy_directory("");
    let path = directory.path().join("policy.toml");
    let policy = format!("egress-fetcher.policy_path={}", path.display());
    let explain = |tenant: &str, app: &str| {
        let url = "https://files.example.org/a.pdf";
        home.run(&[
            "policy",
            "explain",
            url,
            "--json",
            "--tenant",
            tenant,
            "--app",
            app,
            "--set",
            "egress-fetcher.enabled=true",
            "--set",
            &policy,
        ])
    };
    for (tenant, app, code, rule) in [
        ("acme", "reporter", 0, "reports/files (policy.toml:5)"),
        ("acme", "other", 1, "default"),
        ("umbrella", "reporter", 1, "default"),
    ] {
        let explained = explain(tenant, app);
        assert_eq!(explained.status.code(), Some(code), "{explained:?}");
        let explained = line(&explained);
        assert_eq!(explained["rules_digest"].as_str().unwrap().len(), 64);
        let steps = explained["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["step"] == "policy_rules");
        assert_eq!(step.unwrap()["decided_by"], rule);
    }
}

#[test]
fn an_explanation_for_a_client_certificate_uses_its_roles() {
    let home = CliHome::new();
    let directory = policy_directory("");
    let path = directory.path().join("policy.toml");
    let text = POLICY_TEXT.replacen(
        "name = \"reports\"",
        "name = \"reports\"\ncertificates = [\"a.example.org\"]",
        1,
    );
    std::fs::write(&path, text).unwrap();
    let policy = format!("egress-fetcher.policy_path={}", path.display());
    for (certificate, code) in [("a.example.org", 0), ("b.example.org", 1)] {
        let explained = home.run(&[
            "policy",
            "explain",
            "https://files.example.org/a.pdf",
            "--tenant",
            "acme",
            "--app",
            "reporter",
            "--certificate",
            certificate,
            "--set",
            "egress-fetcher.enabled=true",
            "--set",
            &policy,
        ]);
        assert_eq!(explained.status.code(), Some(code), "{explained:?}");
    }
}

#[test]
fn a_table_of_expectations_decides_the_exit_code() {
    let home = CliHome::new();
    let met = "[[expect]]\nurl = \"https://files.example.org/\"\ntenant = \"acme\"\napp = \"reporter\"\n\
               outcome = \"allow\"\nrule = \"reports/files\"\n";
    let unmet = "[[expect]]\nurl = \"http://files.example.org/\"\ntenant = \"acme\"\napp = \"reporter\"\n\
                 outcome = \"allow\"\n";
    for (text, code, failed) in [(met.to_owned(), 0, 0), (format!("{met}{unmet}"), 1, 1)] {
        let directory = policy_directory(&text);
        let [table, policy] = ["expectations.toml", "policy.toml"]
            .map(|name| directory.path().join(name).display().to_string());
        let tested = home.run(&["policy", "test", &table, "--policy", &policy, "--json"]);
        assert_eq!(tested.status.code(), Some(code), "{tested:?}");
        assert_eq!(line(&tested)["failed"], failed);
    }
    let directory = policy_directory("[[expect]]\nurl = \"x\"\noutcome = \"maybe\"\n");
    std::fs::write(directory.path().join("policy.toml"), "default = \"maybe\"").unwrap();
    let [table, policy] = ["expectations.toml", "policy.toml"]
        .map(|name| directory.path().join(name).display().to_string());
    let broken = home.run(&["policy", "test", &table, "--policy", &policy]);
    assert_eq!(broken.status.code(), Some(78), "{broken:?}");
    let message = String::from_utf8_lossy(&broken.stderr);
    assert!(
        message.contains("policy.toml:1: \"maybe\" is not an outcome"),
        "{message}"
    );
    let broken = home.run(&["policy", "test", &table, "--policy", &table]);
    assert_eq!(broken.status.code(), Some(78), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_of_two_policies_and_a_report_are_read_from_the_audit_stream() {
    let nats = NatsServer::start();
    let bus = test_bus::connect_provisioned(&nats.url()).await;
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(30));
    let meta = Meta::new(TenantId::new("acme").unwrap(), deadline);
    for (host, app) in [
        ("files", "reporter"),
        ("files", "other"),
        ("more", "reporter"),
    ] {
        let event = v1::EgressAudit {
            url_scheme: "https".to_owned(),
            url_host: format!("{host}.example.org"),
            url_port: 443,
            verdict: "allow".to_owned(),
            tenant_id: "acme".to_owned(),
            app_id: app.to_owned(),
            time_ms: Clock::system().now_ms(),
            ..v1::EgressAudit::default()
        };
        bus.publish_audit(&meta, &event).await.unwrap();
    }
    let home = CliHome::new();
    let directory = policy_directory("");
    let policy = directory.path().join("policy.toml").display().to_string();
    let url = nats.url();
    let read = |command: &[&str], extra: &[&str]| {
        let end = ["--nats", &url, "--json"];
        line(&home.run(&[command, &end, extra].concat()))
    };
    let compare = |extra: &[&str]| read(&["policy", "diff", "none", &policy], extra);
    let report = compare(&["--since", "7d"]);
    assert_eq!(
        (&report["judged"], &report["changed"]),
        (&3.into(), &2.into()),
        "{report}"
    );
    let change = &report["changes"][0];
    assert_eq!(
        (&change["new"], &change["new_rule"]),
        (&"deny".into(), &"default".into())
    );
    // The start of the command takes longer than the millisecond after which the events are too old.
    assert_eq!(compare(&["--since", "1ms"])["judged"], 0);
    let verdicts = &read(&["egress", "report"], &[])["verdicts"];
    assert_eq!(verdicts[0]["tenant"], "acme", "{verdicts}");
    assert_eq!(verdicts[0]["requests"], 3, "{verdicts}");
    let of_other = read(&["egress", "report"], &["--tenant", "other"]);
    assert_eq!(of_other["verdicts"], serde_json::json!([]));
    assert_eq!(compare(&["--tenant", "acme"])["judged"], 3);
    assert_eq!(compare(&["--tenant", "other"])["judged"], 0);
}
