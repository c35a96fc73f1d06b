//! Programs that callers run.

use dray_bus::Topology;
use dray_bus::events::{EventFilter, EventStream, ObservedEvent};
use dray_proto::v1::{SandboxCommandStage, SandboxCommandState};
use dray_testkit::eventually;
use dray_types::FaultCode;
use prost::Message as _;
use tokio::task::JoinSet;

use super::*;

pub(super) const ALLOW_ACME: (&str, &str) = (
    "sandbox-transfer.commands.allow",
    r#"[{"tenants": ["acme"], "sandboxes": ["local:*/boxes/open*"]}]"#,
);

pub(super) fn exec<W: AsRef<[u8]>>(sandbox: v1::SandboxRef, argv: &[W]) -> v1::ExecSandboxRequest {
    v1::ExecSandboxRequest {
        sandbox: Some(sandbox),
        argv: argv.iter().map(|word| word.as_ref().to_vec()).collect(),
        ..v1::ExecSandboxRequest::default()
    }
}

pub(super) fn script(sandbox: &str, script: &str) -> v1::ExecSandboxRequest {
    exec(address(sandbox), &["sh", "-c", script])
}

pub(super) fn audit(event: &ObservedEvent) -> v1::SandboxCommandAudit {
    event.decode().unwrap()
}

pub(super) async fn audits(fixture: &TransferFixture) -> EventStream {
    let filter = EventFilter::new("dray.audit.sandbox.v1.executed.acme");
    fixture.bus.events(filter).await.unwrap()
}

#[tokio::test]
async fn programs_are_off_until_an_operator_allows_them() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("open");
    let mut events = audits(&fixture).await;
    let refused = fixture.ask(&script(&sandbox, "touch ran")).await;
    assert_eq!(refused.unwrap_err().detail, "command_denied");
    assert!(!path.join("ran").exists());
    let event = audit(&events.next().await.unwrap());
    assert_eq!(event.stage(), SandboxCommandStage::Refused);
    assert_eq!(event.argv[2], b"touch ran");
    fixture.end().await;
}

#[tokio::test]
async fn a_rule_is_for_its_tenants_and_sandboxes_alone() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (_, open) = fixture.sandbox("open-1");
    let (_, closed) = fixture.sandbox("closed");
    assert!(fixture.ask(&script(&open, "exit 0")).await.is_ok());
    let other_sandbox = fixture.ask(&script(&closed, "exit 0")).await;
    assert_eq!(other_sandbox.unwrap_err().detail, "command_denied");
    let other_tenant = fixture.ask_as("beta", &script(&open, "exit 0")).await;
    assert_eq!(other_tenant.unwrap_err().detail, "command_denied");
    // A binding names the sandbox, so a session is judged by the same rule.
    fixture.bind("s1", &closed, None).await;
    let bound = fixture.ask(&exec(session("s1"), &["true"])).await;
    assert_eq!(bound.unwrap_err().detail, "command_denied");
    fixture.end().await;
}

#[tokio::test]
async fn a_program_gets_input_and_variables_and_returns_output_and_status() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let mut request = script(&sandbox, "pwd; cat; printf %s \"$SECRET\" >&2; exit 3");
    request.input = b"from outside\n".to_vec();
    request.environment = vec![v1::EnvironmentVariable {
        name: "SECRET".to_owned(),
        value: b"two words".to_vec(),
    }];
    let mut events = audits(&fixture).await;
    let reply = fixture.ask(&request).await.unwrap();
    assert_eq!(
        (reply.state(), reply.exit_code, reply.signal),
        (SandboxCommandState::Exited, 3, 0)
    );
    let stdout = reply.stdout.unwrap();
    let expected = format!("{}\nfrom outside\n", path.display());
    assert_eq!(stdout.head, expected.as_bytes());
    assert_eq!(
        (stdout.size, stdout.truncated),
        (expected.len() as u64, false)
    );
    assert!(stdout.claim.is_none());
    assert_eq!(reply.stderr.unwrap().head, b"two words");
    let started = audit(&events.next().await.unwrap());
    assert_eq!(started.stage(), SandboxCommandStage::Started);
    assert_eq!(started.environment_names, ["SECRET"]);
    assert_eq!(started.input_size, 13);
    assert_eq!(started.working_directory, raw(&path));
    let ended = audit(&events.next().await.unwrap());
    assert_eq!(ended.stage(), SandboxCommandStage::Ended);
    assert_eq!(
        (ended.state(), ended.exit_code),
        (SandboxCommandState::Exited, 3)
    );
    assert_eq!((ended.stdout_size, ended.stderr_size), (stdout.size, 9));
    assert_eq!(ended.operation_id, started.operation_id);
    for event in [started, ended] {
        let text = event.encode_to_vec();
        let holds = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        assert!(holds(b"SECRET") && !holds(b"two words") && !holds(b"from outside"));
    }
    fixture.end().await;
}

#[tokio::test]
async fn long_output_and_long_input_go_through_the_store() {
    let limits = ("sandbox-transfer.commands.max_output", "300KiB");
    let fixture = TransferFixture::with(&[ALLOW_ACME, limits]).await;
    let (_, sandbox) = fixture.sandbox("open");
    let content: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let mut request = exec(address(&sandbox), &["cat"]);
    request.input_claim = Some(fixture.store("input", &content).await);
    let stdout = fixture.ask(&request).await.unwrap().stdout.unwrap();
    assert_eq!((stdout.size, stdout.truncated), (200_000, false));
    assert_eq!(stdout.head, content[..32 << 10]);
    assert_eq!(fixture.read(stdout.claim.unwrap()).await, content);
    // The limit does not end the program.
    let endless = script(&sandbox, "head -c 1000000 /dev/zero; exit 5");
    let reply = fixture.ask(&endless).await.unwrap();
    let stdout = reply.stdout.unwrap();
    assert_eq!(
        (reply.exit_code, stdout.size, stdout.truncated),
        (5, 300 << 10, true)
    );
    assert_eq!(fixture.read(stdout.claim.unwrap()).await.len(), 300 << 10);
    let smaller = v1::ExecSandboxRequest {
        max_output_bytes: 10,
        ..endless
    };
    let stdout = fixture.ask(&smaller).await.unwrap().stdout.unwrap();
    assert_eq!((stdout.head.len(), stdout.truncated), (10, true));
    fixture.end().await;
}

#[tokio::test]
async fn a_directory_outside_of_the_roots_is_refused() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    std::fs::create_dir(path.join("inner")).unwrap();
    std::os::unix::fs::symlink("/usr", path.join("link")).unwrap();
    for (directory, detail) in [
        ("/usr", "outside_root"),
        ("link", "outside_root"),
        ("../open-other", "outside_root"),
        ("missing", "not_found"),
    ] {
        let mut request = script(&sandbox, "touch ran");
        request.working_directory = directory.as_bytes().to_vec();
        let refused = fixture.ask(&request).await.unwrap_err();
        assert_eq!(refused.detail, detail, "{directory}");
    }
    let mut request = script(&sandbox, "pwd -P");
    request.working_directory = b"inner".to_vec();
    let reply = fixture.ask(&request).await.unwrap();
    let expected = format!("{}\n", path.join("inner").display());
    assert_eq!(reply.stdout.unwrap().head, expected.as_bytes());
    fixture.end().await;
}

/// A script that starts a child in a separate session, and writes the process numbers of both.
pub(super) const CHILDREN_SCRIPT: &str =
    "setsid sleep 300 & echo $! >pids.new; echo $$ >>pids.new; echo begun; mv pids.new pids; wait";

/// Waits until none of the processes of [`CHILDREN_SCRIPT`] runs.
pub(super) async fn processes_end(root: &Path) {
    let pids = std::fs::read_to_string(root.join("pids")).unwrap();
    for pid in pids.lines() {
        eventually("the end of a process", async || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (stat.is_empty() || stat.contains(") Z ")).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_program_that_takes_too_long_ends_with_its_children_and_keeps_its_output() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let mut request = script(&sandbox, &format!("echo wrong >&2; {CHILDREN_SCRIPT}"));
    request.timeout_ms = 1500;
    let reply = fixture.ask(&request).await.unwrap();
    assert_eq!(
        (reply.state(), reply.exit_code, reply.signal),
        (SandboxCommandState::TimedOut, 137, 9)
    );
    assert_eq!(reply.stdout.unwrap().head, b"begun\n");
    assert_eq!(reply.stderr.unwrap().head, b"wrong\n");
    processes_end(&path).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_program_ends_with_its_call() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let mut events = audits(&fixture).await;
    let (bus, meta) = (fixture.bus.clone(), fixture.meta("acme"));
    let mut call = JoinSet::new();
    call.spawn(async move { bus.call(&meta, &script(&sandbox, CHILDREN_SCRIPT)).await });
    eventually("the program", async || {
        path.join("pids").exists().then_some(())
    })
    .await;
    call.abort_all();
    processes_end(&path).await;
    let stages = [events.next().await.unwrap(), events.next().await.unwrap()];
    let [started, ended] = stages.map(|event| audit(&event));
    assert_eq!(started.stage(), SandboxCommandStage::Started);
    assert_eq!(
        (ended.stage(), ended.state()),
        (SandboxCommandStage::Ended, SandboxCommandState::Cancelled)
    );
    fixture.end().await;
}

#[tokio::test]
async fn an_operation_runs_its_program_once() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let request = script(&sandbox, "echo ran >>log");
    let meta = fixture.meta("acme");
    fixture.bus.call(&meta, &request).await.unwrap();
    let repeated: Fault = fixture.bus.call(&meta, &request).await.unwrap_err().into();
    assert_eq!(repeated.detail, "command_repeated");
    assert!(!repeated.is_retryable());
    assert_eq!(std::fs::read_to_string(path.join("log")).unwrap(), "ran\n");
    fixture.end().await;
}

#[tokio::test]
async fn an_operation_whose_event_was_not_stored_runs_its_program_when_it_is_repeated() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    let request = script(&sandbox, "echo ran >>log");
    let meta = fixture.meta("acme");
    let mut full = Topology::default();
    for stream in &mut full.streams {
        if stream
            .subjects
            .iter()
            .any(|subject| subject == "dray.audit.>")
        {
            stream.max_bytes = 1;
        }
    }
    fixture.bus.apply_topology(&full).await.unwrap();
    let refused: Fault = fixture
        .bus
        .call_once(&meta, &request)
        .await
        .unwrap_err()
        .into();
    assert_eq!(refused.detail, "stream_full");
    assert!(refused.is_retryable() && !path.join("log").exists());
    fixture
        .bus
        .apply_topology(&Topology::default())
        .await
        .unwrap();
    fixture.bus.call_once(&meta, &request).await.unwrap();
    let repeated: Fault = fixture
        .bus
        .call_once(&meta, &request)
        .await
        .unwrap_err()
        .into();
    assert_eq!(repeated.detail, "command_repeated");
    assert_eq!(std::fs::read_to_string(path.join("log")).unwrap(), "ran\n");
    fixture.end().await;
}

#[tokio::test]
async fn a_program_that_cannot_run_has_its_own_fault() {
    let fixture = TransferFixture::with(&[ALLOW_ACME]).await;
    let (path, sandbox) = fixture.sandbox("open");
    std::fs::write(path.join("plain"), "echo no").unwrap();
    let target = || address(&sandbox);
    for (request, detail) in [
        (exec(target(), &["no-such-program"]), "program_not_found"),
        (exec(target(), &["./plain"]), "program_not_executable"),
        (exec(target(), &["-c"]), "invalid_command"),
        (exec(target(), &["echo", "a\0b"]), "invalid_command"),
        (
            exec(target(), &["echo", &"x".repeat(70_000)]),
            "command_too_large",
        ),
    ] {
        let fault = fixture.ask(&request).await.unwrap_err();
        assert!(fault.detail.contains(detail), "{fault:?}");
        assert!(!fault.is_retryable(), "{fault:?}");
    }
    let none: [&str; 0] = [];
    let empty = fixture.ask(&exec(target(), &none)).await.unwrap_err();
    assert_eq!(empty.code, FaultCode::InvalidArgument);
    fixture.end().await;
}
