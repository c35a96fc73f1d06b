//! Tests of every response of sandbox-transfer 6.4.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_sandbox::{Backend as _, BackendCheck, Body, ErrorKind, Follow, Read, Transport, Write};
use serde_json::json;

use super::fixture::{PodFixture, kind};
use crate::fake_server::{FakeContainer, InjectedFault};

fn refuse(code: u16, message: &str) -> InjectedFault {
    InjectedFault::Refuse(code, message.into(), None)
}

#[tokio::test]
async fn a_pod_that_is_not_there_is_gone() {
    let fixture = PodFixture::new().await;
    let address = "kubernetes:agents/none".parse().unwrap();
    assert_eq!(
        kind(fixture.backend.resolve(&address).await),
        ErrorKind::SandboxGone
    );
    let address = "kubernetes:agents/box/other".parse().unwrap();
    assert_eq!(
        kind(fixture.backend.resolve(&address).await),
        ErrorKind::SandboxGone
    );
}

#[tokio::test]
async fn r_1_another_pod_of_the_name_is_never_touched() {
    let fixture = PodFixture::new().await;
    let handle = fixture.handle().await.unwrap();
    let sandbox = fixture.backend.open(&handle).await.unwrap();
    let path = fixture.file("a", b"mine");
    std::fs::rename(fixture.work(), fixture.server.directory().join("old")).unwrap();
    fixture.renew();
    std::fs::write(fixture.work().join("a"), b"theirs").unwrap();
    let before = fixture.count_requests("/exec");
    assert_eq!(
        kind(sandbox.stat(&path, Follow::Yes).await),
        ErrorKind::SandboxGone
    );
    assert_eq!(
        kind(sandbox.remove(&path, false).await),
        ErrorKind::SandboxGone
    );
    assert_eq!(
        kind(fixture.backend.open(&handle).await),
        ErrorKind::SandboxGone
    );
    assert_eq!(fixture.count_requests("/exec"), before);
    assert!(fixture.work().join("a").exists());
}

#[tokio::test]
async fn r_1_a_container_that_was_started_again_is_another_incarnation() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture.server.change("agents", "box", |pod| {
        pod.containers[0].id = "containerd://second".into();
    });
    assert_eq!(kind(sandbox.probe().await), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_pod_that_does_not_run_is_stopped() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture
        .server
        .change("agents", "box", |pod| pod.phase = "Succeeded".into());
    assert_eq!(kind(sandbox.probe().await), ErrorKind::SandboxStopped);
    assert_eq!(kind(fixture.handle().await), ErrorKind::SandboxStopped);
    fixture.server.change("agents", "box", |pod| {
        pod.phase = "Running".into();
        pod.containers[0].state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    });
    assert_eq!(kind(sandbox.probe().await), ErrorKind::SandboxStopped);
}

#[tokio::test]
async fn a_container_that_stops_before_its_command_starts_is_stopped() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    for code in [400, 500] {
        fixture
            .server
            .fail("/exec", 1, refuse(code, "container not running (abc)"));
        assert_eq!(kind(sandbox.probe().await), ErrorKind::SandboxStopped);
    }
    let fault = InjectedFault::NotRun("cannot exec in a stopped container".into());
    fixture.server.fail("/exec", 1, fault);
    assert_eq!(kind(sandbox.probe().await), ErrorKind::SandboxStopped);
}

#[tokio::test]
async fn a_container_that_the_server_does_not_know_is_a_bad_handle() {
    let fixture = PodFixture::new().await;
    let text = "container shell is not valid for pod box";
    fixture.server.fail("/exec", 1, refuse(400, text));
    assert_eq!(kind(fixture.open().await), ErrorKind::Protocol);
}

#[tokio::test]
async fn fresh_credentials_are_tried_once() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture.server.require("second");
    fixture.server.kubeconfig("second").unwrap();
    sandbox.probe().await.unwrap();
    fixture.server.require("third");
    let before = fixture.server.requests().len();
    assert_eq!(kind(sandbox.probe().await), ErrorKind::Auth);
    assert_eq!(fixture.server.requests().len(), before + 2);
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let fixture = PodFixture::new().await;
    let text = "pods \"box\" is forbidden: User \"u\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"agents\"";
    fixture.server.fail("/exec", 1, refuse(403, text));
    let error = fixture.open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(
        error
            .context()
            .contains("the right to create pods/exec is missing"),
        "{error}"
    );
}

#[tokio::test]
async fn a_transient_fault_is_unavailable() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    for fault in [
        refuse(500, "error dialing backend: dial tcp: no route to host"),
        InjectedFault::Page(502),
        InjectedFault::Page(503),
        InjectedFault::Break,
        InjectedFault::NotRun("error dialing backend: EOF".into()),
    ] {
        // A newly opened sandbox has no shell yet.
        let sandbox = fixture.open().await.unwrap();
        fixture.server.fail("/exec", 1, fault.clone());
        assert_eq!(
            kind(sandbox.probe().await),
            ErrorKind::Unavailable,
            "{fault:?}"
        );
        sandbox.probe().await.unwrap();
    }
    drop(fixture.server);
    assert_eq!(kind(sandbox.probe().await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_busy_server_reports_when_to_retry() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture.server.fail(
        "/exec",
        1,
        InjectedFault::Refuse(429, "too many requests".into(), Some(7)),
    );
    let error = sandbox.probe().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_shell_that_cannot_be_started_is_missing() {
    let fixture = PodFixture::new().await;
    for code in [126, 127] {
        fixture.server.fail("/exec", 1, InjectedFault::Exit(code));
        assert_eq!(kind(fixture.open().await), ErrorKind::ToolMissing);
    }
    let sandbox = fixture.open().await.unwrap();
    fixture.server.fail("/exec", 1, InjectedFault::Exit(127));
    assert_eq!(kind(sandbox.probe().await), ErrorKind::ToolMissing);
    let bare = FakeContainer::new("shell").without_shell();
    fixture.server.create("agents", "bare", vec![bare]).unwrap();
    let address = "kubernetes:agents/bare".parse().unwrap();
    let handle = fixture.backend.resolve(&address).await.unwrap();
    let error = fixture.backend.open(&handle).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ToolMissing);
    assert!(error.context().contains("ephemeral"), "{error}");
}

#[tokio::test]
async fn a_killed_command_is_gone_only_with_its_container() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture.server.fail("/exec", 1, InjectedFault::Exit(137));
    assert_eq!(kind(sandbox.probe().await), ErrorKind::Unavailable);
    for (reason, state) in [
        ("Evicted", json!({"running": {}})),
        ("", json!({"terminated": {"reason": "OOMKilled"}})),
    ] {
        let fixture = PodFixture::new().await;
        let sandbox = fixture.open().await.unwrap();
        let path = fixture.file("a", &vec![b'x'; 1 << 20]);
        let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
        fixture.server.fail("send()", 1, InjectedFault::Exit(137));
        let reading = Read {
            transport: Transport::ExecRaw,
            file: &file,
            offset: 0,
        };
        // The server applies the change after it started the command.
        fixture.server.after("send()", move |pod| {
            pod.reason = reason.into();
            pod.containers[0].state = state;
        });
        let read = async { sandbox.read(reading).await?.read_all(2 << 20).await };
        assert_eq!(kind(read.await), ErrorKind::SandboxGone, "{reason}");
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_as_no_space() {
    let fixture = PodFixture::new().await;
    // Fake programs of the container, which write to a full disk.
    let tools = fixture.server.directory().join("tools");
    std::fs::create_dir(&tools).unwrap();
    install(&tools.join("cat"), "#!/bin/sh\nexec /bin/cat >/dev/full\n");
    let search_path = format!("{}:{}", tools.display(), crate::fake_server::SEARCH_PATH);
    fixture.server.change("agents", "box", |pod| {
        pod.containers[0].search_path = search_path;
    });
    let sandbox = fixture.open().await.unwrap();
    let path = fixture.path("a");
    let write = Write {
        transport: Transport::ExecRaw,
        path: &path,
        size: 4,
        offset: 0,
        mode: 0o644,
    };
    let written = sandbox.write(write, Body::from_bytes("full")).await;
    assert_eq!(kind(written), ErrorKind::NoSpace);
}

/// Another process writes the file: if this process had it open for writing, a concurrent fork of another test would
/// make the program busy (ETXTBSY).
fn install(path: &Path, text: &str) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(install.wait().unwrap().success());
}

#[tokio::test]
async fn only_allowed_namespaces_are_asked() {
    let fixture = PodFixture::configured(|config| config.namespaces = vec!["others".into()]).await;
    assert_eq!(kind(fixture.handle().await), ErrorKind::Auth);
    assert_eq!(fixture.server.requests(), [] as [String; 0]);
}

#[tokio::test]
async fn a_pod_with_several_containers_needs_a_name_or_a_default() {
    let fixture = PodFixture::new().await;
    let two = vec![FakeContainer::new("one"), FakeContainer::new("two")];
    fixture.server.create("agents", "pair", two).unwrap();
    let address = "kubernetes:agents/pair".parse().unwrap();
    assert_eq!(
        kind(fixture.backend.resolve(&address).await),
        ErrorKind::InvalidName
    );
    fixture.server.change("agents", "pair", |pod| {
        pod.default_container = Some("two".into());
    });
    let handle = fixture.backend.resolve(&address).await.unwrap();
    assert!(handle.incarnation.contains("/two/"), "{handle}");
}

#[tokio::test]
async fn an_unusable_cluster_is_not_reported_as_a_sandbox_that_is_gone() {
    let missing =
        PodFixture::configured(|config| config.kubeconfig = Some("/nonexistent/kubeconfig".into()))
            .await;
    assert_eq!(kind(missing.handle().await), ErrorKind::Auth);
    let context = PodFixture::configured(|config| config.context = Some("other".into())).await;
    assert_eq!(kind(context.handle().await), ErrorKind::Auth);
}

#[tokio::test]
async fn a_check_names_the_right_that_is_missing() {
    let fixture = PodFixture::new().await;
    let ready = fixture.backend.check().await.unwrap();
    assert!(matches!(ready, BackendCheck::Ready(_)), "{ready:?}");
    fixture.server.forbid("create pods/exec");
    let refused = fixture.backend.check().await.unwrap();
    assert!(
        matches!(&refused, BackendCheck::Refused(reason) if reason.contains("`create` pods/exec")),
        "{refused:?}"
    );
    fixture.server.require("another-token");
    assert_eq!(kind(fixture.backend.check().await), ErrorKind::Auth);
}
