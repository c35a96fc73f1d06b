//! Tests of commands whose user of the bus lacks a permission that the command needs.

use dray_store::embedded::EmbeddedS3;
use dray_testkit::nats::NatsServerOptions;

use super::{CliHome, check, line};

/// Configuration of a server with one user, who may not publish on the subjects of the services.
const NARROW_ACCOUNTS: &str = r#"
authorization {
  users = [
    {
      user: "narrow", password: "pw"
      permissions: {
        publish: { allow: ["$JS.API.>", "dray.other.>"] }
        subscribe: { allow: ["_INBOX_dray.>"] }
      }
    }
  ]
}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_bus_names_the_subject_and_the_list_it_belongs_to() {
    let server = NatsServerOptions::default().config(NARROW_ACCOUNTS).start();
    let url = server.url();
    let home = CliHome::new();
    let identity = [
        "--set",
        "bus.nats.user=narrow",
        "--set",
        "bus.nats.password=pw",
    ];
    let directory = tempfile::tempdir().unwrap();
    let (_store, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let access_key = format!("store.s3.access_key={}", options.access_key.expose());
    let secret_key = format!("store.s3.secret_key={}", options.secret_key.expose());
    let store = [
        "--s3",
        &options.endpoint,
        "--set",
        &access_key,
        "--set",
        &secret_key,
    ];
    for (arguments, subject) in [
        (
            &["fetch", "http://example.org/"][..],
            "dray.egress.v1.fetch",
        ),
        (
            &["resolve", "--arguments", r#"{"a":"file:url::http://x/"}"#],
            "dray.file.v1.resolve",
        ),
        (&["sandbox", "ls", "docker:web"], "dray.sandbox.v1.list"),
    ] {
        let mut command = home.dray(arguments);
        command
            .args(["--nats", &url, "--json"])
            .args(identity)
            .args(store);
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let fault = &line(&refused)["fault"];
        assert_eq!(fault["detail"], "bus_permission", "{fault}");
        assert_eq!(fault["code"], "denied");
        for text in ["message", "advice"] {
            assert!(fault[text].as_str().unwrap().contains(subject), "{fault}");
        }
    }
    let mut command = home.dray(&["sandbox", "ls", "docker:web"]);
    let refused = command
        .args(["--nats", &url])
        .args(identity)
        .output()
        .unwrap();
    check(&refused, 1, "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("accounts.conf"));
}

#[test]
fn a_wrong_password_is_reported_as_a_refused_identity() {
    let server = NatsServerOptions::default().config(NARROW_ACCOUNTS).start();
    let home = CliHome::new();
    let mut command = home.dray(&["sandbox", "ls", "docker:web", "--nats", &server.url()]);
    command.args(["--set", "bus.nats.user=narrow"]);
    command.args(["--set", "bus.nats.password=another"]);
    let refused = command.output().unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        text.contains("The server runs and refuses this identity"),
        "{text}"
    );
    assert!(
        !text.contains("another"),
        "the password is not shown: {text}"
    );
}

/// Configuration of a server whose user gets replies for one name of the connection.
const NAMED_ACCOUNTS: &str = r#"
authorization {
  users = [
    { user: "named", password: "pw", permissions: { publish: ">", subscribe: "_INBOX_named.>" } }
  ]
}"#;

#[test]
fn a_wrong_name_of_the_connection_is_the_reason_why_no_reply_comes() {
    let server = NatsServerOptions::default().config(NAMED_ACCOUNTS).start();
    let url = server.url();
    let home = CliHome::new();
    let options = [
        "--nats",
        &url,
        "--set",
        "bus.nats.user=named",
        "--set",
        "bus.nats.password=pw",
        "--set",
        "bus.nats.name=wrong",
        "--json",
    ];
    for command in [["session", "show", "s1"].as_slice(), &["dlq", "list"]] {
        let refused = home.run(&[command, &options].concat());
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let fault = &line(&refused)["fault"];
        assert_eq!(fault["detail"], "bus_permission", "{fault}");
        let text = |name: &str| fault[name].as_str().unwrap_or_default().to_owned();
        assert!(text("message").contains("`_INBOX_wrong."), "{fault}");
        assert!(text("advice").contains("bus.nats.name"), "{fault}");
    }
    let findings = home.run(&[&["doctor"][..], &options].concat());
    let findings = String::from_utf8_lossy(&findings.stdout).into_owned();
    assert!(findings.contains("bus.nats.name"), "{findings}");
}
