//! Tests of `dray doctor`: its findings on this machine and on a real bus, with exit codes for scripts.

use std::time::Duration;

use dray_store::embedded::EmbeddedS3;
use dray_testkit::nats::{NatsServer, NatsServerOptions};
use serde_json::Value;

use super::{CliHome, line};
use crate::support::shifted_clock;
use crate::support::up::UpServer;

/// The finding about this subject.
#[track_caller]
fn finding<'a>(report: &'a Value, subject: &str) -> &'a Value {
    let findings = report["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["subject"] == subject)
        .unwrap_or_else(|| panic!("no {subject} in {report}"))
}

/// Settings that no other program of the machine makes a problem: a free port for chats, and no container engine.
const OWN_SETTINGS: [&str; 4] = [
    "--set",
    "orchestrator.listen=127.0.0.1:0",
    "--set",
    "sandbox-transfer.kinds=[\"local\"]",
];

#[test]
fn a_machine_with_an_embedded_system_has_no_problem() {
    let home = CliHome::new();
    let output = home.run(&[&["doctor", "--json"], &OWN_SETTINGS[..]].concat());
    let report = line(&output);
    assert_eq!(report["problems"], 0, "{report}");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(finding(&report, "reading")["level"], "good");
    assert_eq!(finding(&report, "bus")["level"], "skipped");
    assert_eq!(finding(&report, "name server")["level"], "skipped");
}

#[test]
fn a_wrong_configuration_is_a_finding_with_its_remedy() {
    let home = CliHome::new();
    let output = home.run(&["doctor", "--set", "limits.calls=0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("problem  configuration: "), "{text}");
    assert!(text.contains("limits.calls"), "{text}");
    assert!(text.contains("do: "), "{text}");
}

#[test]
fn an_address_in_use_is_a_problem_unless_a_system_runs_on_this_machine() {
    let home = CliHome::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("grpc.listen={}", other.local_addr().unwrap());
    let output = home.run(&["doctor", "--json", "--set", &taken]);
    let report = line(&output);
    let is_grpc = |finding: &&Value| finding["text"].as_str().unwrap().contains("`grpc.listen`");
    let found = report["findings"].as_array().unwrap();
    let listener = found.iter().find(is_grpc).unwrap();
    assert_eq!(listener["level"], "problem", "{report}");
    assert_eq!(output.status.code(), Some(1), "{report}");

    let up = UpServer::start(home.0.path(), &[], "health and metrics: http://");
    let health = format!("http.listen={}", up.url.trim_end_matches("/ready"));
    let report = line(&home.run(&["doctor", "--json", "--set", &taken, "--set", &health]));
    let found = report["findings"].as_array().unwrap();
    let listener = found.iter().find(is_grpc).unwrap();
    assert_eq!(listener["level"], "skipped", "{report}");
}

#[test]
fn an_unreachable_bus_and_a_bus_without_streams_are_distinguished() {
    let home = CliHome::new();
    let options = ["doctor", "--json", "--timeout", "3", "--nats"];
    let run = |url: &str| {
        let output = home.run(&[&options[..], &[url]].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        line(&output)
    };
    // Port 1 is reserved (RFC 6335), so no server listens there.
    let report = run("nats://127.0.0.1:1");
    assert_eq!(finding(&report, "bus")["level"], "problem", "{report}");

    let nats = NatsServer::start();
    let report = run(&nats.url());
    let bus = finding(&report, "bus");
    assert_eq!(bus["level"], "problem", "{report}");
    let text = bus["text"].as_str().unwrap();
    assert!(text.contains("are not on the server yet"), "{report}");
    let advice = bus["advice"].as_str().unwrap();
    assert!(advice.contains("dray topology apply"), "{report}");

    let applied = home.run(&["topology", "apply", "--nats", &nats.url()]);
    assert!(applied.status.success(), "{applied:?}");
    let report = run(&nats.url());
    assert_eq!(finding(&report, "bus")["level"], "good", "{report}");
    assert_eq!(finding(&report, "streams")["level"], "good", "{report}");
    let clock = finding(&report, "clock of the bus");
    assert_eq!(clock["level"], "good", "{report}");
    for name in ["egress-fetcher", "orchestrator"] {
        let service = finding(&report, name);
        assert_eq!(service["level"], "problem", "{report}");
        let advice = service["advice"].as_str().unwrap();
        let start = format!("dray up --only {name}");
        assert!(advice.contains(&start), "{report}");
    }
    let sweeper = finding(&report, "sweeper");
    assert_eq!(sweeper["level"], "skipped", "{report}");
}

#[test]
fn a_bus_without_jetstream_is_one_finding() {
    let home = CliHome::new();
    let nats = NatsServerOptions::default()
        .config("accounts: { PLAIN: { users: [{ user: plain, password: plain }] } }")
        .config("no_auth_user: plain")
        .start();
    let nats_url = nats.url();
    let examine = ["doctor", "--json", "--timeout", "5", "--nats", &nats_url];
    let output = home.run(&[&examine[..], &OWN_SETTINGS].concat());
    let report = line(&output);
    assert_eq!(report["problems"], 1, "{report}");
    let bus = finding(&report, "bus");
    assert_eq!(bus["level"], "problem", "{report}");
    let advice = bus["advice"].as_str().unwrap();
    assert!(advice.contains("nats-server -js"), "{report}");
    let applied = home.run(&["topology", "apply", "--nats", &nats.url()]);
    let errors = String::from_utf8_lossy(&applied.stderr);
    assert!(errors.contains("nats-server -js"), "{errors}");
    assert_eq!(
        finding(&report, "streams and services")["level"],
        "skipped",
        "{report}"
    );
}

#[test]
fn a_password_in_a_url_is_refused_with_the_settings_that_replace_it() {
    let home = CliHome::new();
    let output = home.run(&["doctor", "--json", "--nats", "nats://me:secret@127.0.0.1:1"]);
    let report = line(&output);
    let text = finding(&report, "bus")["text"].as_str().unwrap();
    assert!(text.contains("bus.nats.password"), "{report}");
    assert!(!report.to_string().contains("secret"), "{report}");
}

#[test]
fn an_error_does_not_repeat_its_cause_and_counts_as_one_problem() {
    let home = CliHome::new();
    let output = home.run(&["doctor", "--timeout", "3", "--nats", "nats://127.0.0.1:1"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
    assert!(text.contains("1 problem, 0 warnings"), "{text}");
}

#[test]
fn accounts_and_backends_are_checked_only_on_request_and_by_their_services() {
    let home = CliHome::new();
    let nats = NatsServer::start();
    let url = nats.url();
    let applied = home.run(&["topology", "apply", "--nats", &url]);
    assert!(applied.status.success(), "{applied:?}");
    let options = [
        "--nats",
        &url,
        "--console",
        "127.0.0.1:0",
        "--set",
        "platform-delivery.cli=true",
        "--set",
        "sandbox-transfer.kinds=[\"local\"]",
    ];
    let _up = UpServer::start(home.0.path(), &options, "console: ");
    let doctor = ["doctor", "--json", "--nats", &url];
    let report = line(&home.run(&doctor));
    let findings = report["findings"].as_array().unwrap();
    let is_account = |finding: &&Value| finding["subject"].as_str().unwrap().starts_with("account");
    assert_eq!(findings.iter().filter(is_account).count(), 0, "{report}");
    assert_eq!(
        finding(&report, "orchestrator")["level"],
        "good",
        "{report}"
    );
    let report = line(&home.run(&[&doctor[..], &["--accounts"]].concat()));
    let findings = report["findings"].as_array().unwrap();
    let account = findings.iter().find(is_account).unwrap();
    assert_eq!(account["level"], "good", "{report}");
    assert_eq!(
        finding(&report, "backend local")["level"],
        "skipped",
        "{report}"
    );
}

#[test]
fn a_check_of_accounts_without_a_running_system_names_what_it_needs() {
    let home = CliHome::new();
    let report = line(&home.run(&["doctor", "--json", "--accounts"]));
    let skipped = finding(&report, "accounts");
    assert_eq!(skipped["level"], "skipped", "{report}");
    assert!(
        skipped["text"].as_str().unwrap().contains("--nats"),
        "{report}"
    );
}

#[tokio::test]
async fn a_store_with_another_clock_is_a_finding_before_it_refuses_requests() {
    let home = CliHome::new();
    let (_store, options) = EmbeddedS3::start(&home.0.path().join("store"))
        .await
        .unwrap();
    let server = options.endpoint.trim_start_matches("http://");
    let proxy = |minutes: u64| {
        let behind = Duration::from_mins(minutes);
        let address = shifted_clock::start(server.parse().unwrap(), behind);
        format!("http://{address}")
    };
    for (endpoint, level) in [
        (options.endpoint.clone(), "good"),
        (proxy(2), "warning"),
        (proxy(20), "problem"),
        // Port 1 is reserved (RFC 6335), so no server listens there.
        ("http://127.0.0.1:1".to_owned(), "skipped"),
    ] {
        let mut doctor = home.dray(&["doctor", "--json", "--s3", &endpoint]);
        doctor
            .args(OWN_SETTINGS)
            .env("DRAY_STORE__S3__BUCKET", &options.bucket)
            .env("DRAY_STORE__S3__ACCESS_KEY", options.access_key.expose())
            .env("DRAY_STORE__S3__SECRET_KEY", options.secret_key.expose());
        let output = tokio::task::spawn_blocking(move || doctor.output().unwrap())
            .await
            .unwrap();
        let report = line(&output);
        let clock = finding(&report, "clock of the store");
        assert_eq!(clock["level"], level, "{endpoint}: {report}");
        let text = clock["text"].as_str().unwrap();
        assert_eq!(
            text.contains("S3 refuses"),
            level == "warning" || level == "problem",
            "{text}"
        );
    }
}

#[test]
fn addresses_that_only_flags_name_are_checked_as_well() {
    let home = CliHome::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    for flag in ["--console", "--tickets", "--mcp"] {
        let report = line(&home.run(&["doctor", "--json", flag, &taken]));
        let findings = report["findings"].as_array().unwrap();
        let named = format!("{taken} (`{flag}`) is in use");
        let listener = findings
            .iter()
            .find(|finding| finding["text"].as_str().unwrap().contains(&named))
            .unwrap_or_else(|| panic!("no {named} in {report}"));
        // A system on the default address of this machine would use it by intent.
        assert_ne!(listener["level"], "good", "{report}");
    }
}
