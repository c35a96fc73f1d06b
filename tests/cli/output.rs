//! Tests of standard output that cannot be written: a full disk is a failure, but a reader that has ended is not.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_bus::{Meta, test_bus};
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, TenantId};

use super::interruption::{end_by, exit_code};
use super::{CliHome, line};

/// Longest time of a publication, on a slow machine.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs a command whose standard output is a full device, and checks that it fails with the reason on standard error.
#[track_caller]
fn check_full(home: &CliHome, arguments: &[&str]) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = home.dray(arguments).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot write to standard output"),
        "{arguments:?}: {errors}"
    );
}

#[test]
fn output_onto_a_full_device_is_a_failure() {
    let home = CliHome::new();
    let directory = home.0.path().join("folder");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("a.txt");
    std::fs::write(&file, "Crane 4 is back at noon.\n").unwrap();
    let file = file.to_str().unwrap();
    let sandbox = format!("local:{}", directory.display());
    check_full(&home, &["read", file]);
    check_full(&home, &["read", "--json", file]);
    check_full(&home, &["classify", file]);
    check_full(&home, &["sandbox", "ls", &sandbox]);
    check_full(&home, &["config", "show"]);
    check_full(&home, &["completions", "bash"]);
    check_full(&home, &["doctor"]);
}

/// Runs a command of whose output only the beginning is read, and checks that it succeeds.
#[track_caller]
fn check_head(home: &CliHome, arguments: &[&str]) {
    let mut command = home.dray(arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut head = [0; 10];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut head).unwrap();
    drop(output);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    assert!(ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
}

#[test]
fn a_reader_that_ends_early_does_not_fail_the_command() {
    let home = CliHome::new();
    check_head(&home, &["completions", "bash"]);
    // Larger than a pipe, so that the command writes after the end of its reader.
    std::fs::write(home.0.path().join("large.bin"), vec![7; 1 << 20]).unwrap();
    let file = home.0.path().join("large.bin").display().to_string();
    let put = line(&home.run(&["artifact", "put", &file, "--json"]));
    let sha256 = put["sha256"].as_str().unwrap();
    check_head(&home, &["artifact", "get", sha256, "-o", "-"]);
    let sandbox = format!("local:{}", home.0.path().display());
    let get = ["sandbox", "get", &sandbox, "large.bin", "-o", "-"];
    check_head(&home, &get);
}

#[tokio::test]
async fn events_end_with_their_reader_and_an_interruption_has_its_exit_code() {
    let server = NatsServer::start();
    let bus = test_bus::connect_provisioned(&server.url()).await;
    let publish = async |number: u32| {
        let meta = Meta::new(
            TenantId::default(),
            Deadline::after(Clock::system().now_ms(), TEST_TIMEOUT),
        );
        let event = v1::ToolCallResolved {
            operation_id: meta.operation.to_string(),
            tool_call_id: number.to_string(),
            ..v1::ToolCallResolved::default()
        };
        bus.publish_event(&meta, &event).await.unwrap();
    };
    publish(1).await;
    let home = CliHome::new();
    let url = server.url();
    let mut command = home.dray(&["events", "tail", "--all", "--nats", &url]);
    let start = |command: &mut Command| {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0; 10]).unwrap();
        (child, output)
    };
    let (mut child, output) = start(&mut command);
    drop(output);
    publish(2).await;
    assert_eq!(exit_code(&mut child).await, Some(0));
    let (mut child, _output) = start(&mut command);
    assert_eq!(end_by("-INT", &mut child).await, Some(130));
}

#[tokio::test]
async fn events_are_those_of_the_named_tenant() {
    let server = NatsServer::start();
    let bus = test_bus::connect_provisioned(&server.url()).await;
    for tenant in ["other", "acme"] {
        let deadline = Deadline::after(Clock::system().now_ms(), TEST_TIMEOUT);
        let meta = Meta::new(TenantId::new(tenant).unwrap(), deadline);
        let event = v1::ToolCallResolved {
            operation_id: meta.operation.to_string(),
            ..v1::ToolCallResolved::default()
        };
        bus.publish_event(&meta, &event).await.unwrap();
    }
    let home = CliHome::new();
    let url = server.url();
    let tail = [
        "events", "tail", "--all", "--count", "1", "--json", "--nats", &url,
    ];
    let first_tenant = |options: &[&str]| {
        let event = line(&home.run(&[&tail[..], options].concat()));
        let subject = event["subject"].as_str().unwrap_or_default();
        subject.rsplit('.').next().unwrap_or_default().to_owned()
    };
    assert_eq!(first_tenant(&[]), "other");
    assert_eq!(first_tenant(&["--tenant", "acme"]), "acme");
}

#[test]
fn a_dry_run_prints_account_policy_limits_and_steps_and_sends_nothing() {
    let home = CliHome::new();
    let (sandbox, cwd) = (home.0.path().join("box"), home.0.path().join("here"));
    for directory in [&sandbox, &cwd] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::write(sandbox.join("a.txt"), "hello").unwrap();
    let mut command = home.dray(&["send", "a.txt", "--from", "local:../box", "--dry-run"]);
    let plan = command.current_dir(&cwd).output().unwrap();
    assert!(plan.status.success(), "{plan:?}");
    let text = String::from_utf8_lossy(&plan.stdout);
    let begins_with = |word: &str| text.lines().any(|line| line.starts_with(word));
    for word in ["to ", "policy ", "limits ", "1 ", "Nothing was sent."] {
        assert!(begins_with(word), "{word}: {text}");
    }
    assert!(text.contains("a.txt") && text.contains("cli:"), "{text}");
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
}
