//! Containers without a shell.

use std::sync::Arc;

use dray_sandbox::{
    Backend as _, Body, Error, ErrorKind, Follow, Sandbox, SandboxPath, Transport, Write,
};
use dray_types::Period;
use serde_json::json;

use super::fixture::{PodFixture, kind, read};
use crate::Config;
use crate::ephemeral::MAX_HELPERS;
use crate::fake_server::{FakeContainer, InjectedFault};

const HELPER_IMAGE: &str = "registry/tools:1";

/// A pod `agents/bare` with a container without a shell.
async fn bare(image: bool) -> PodFixture {
    bare_within(image, Config::default().ephemeral_timeout).await
}

/// Like [`bare`], with this time limit for the start of a helper.
async fn bare_within(image: bool, timeout: Period) -> PodFixture {
    let fixture = PodFixture::configured(|config| {
        config.ephemeral_image = image.then(|| HELPER_IMAGE.to_owned());
        config.ephemeral_timeout = timeout;
    })
    .await;
    let mut container = FakeContainer::new("app").without_shell();
    container.security = json!({
        "runAsUser": 1000,
        "privileged": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    container.root = fixture.server.directory().join("bare");
    std::fs::create_dir(&container.root).unwrap();
    fixture
        .server
        .create("agents", "bare", vec![container])
        .unwrap();
    fixture
}

async fn open(fixture: &PodFixture) -> Result<Arc<dyn Sandbox>, Error> {
    let handle = fixture
        .backend
        .resolve(&"kubernetes:agents/bare".parse()?)
        .await?;
    fixture.backend.open(&handle).await
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::new(text).unwrap()
}

#[tokio::test]
async fn r_9_files_of_a_container_without_a_shell_pass_through_its_helper() {
    let fixture = bare(true).await;
    let sandbox = open(&fixture).await.unwrap();
    let target = path("/data/note.txt");
    sandbox.make_directory(&path("/data")).await.unwrap();
    let write = Write {
        transport: Transport::ExecRaw,
        path: &target,
        size: 5,
        offset: 0,
        mode: 0o644,
    };
    sandbox
        .write(write, Body::from_bytes("hello"))
        .await
        .unwrap();
    let root = fixture.server.directory().join("bare");
    assert_eq!(std::fs::read(root.join("data/note.txt")).unwrap(), b"hello");
    // An absolute link of the container starts at the root of the container.
    std::os::unix::fs::symlink("/data/note.txt", root.join("link")).unwrap();
    let link = path("/link");
    assert_eq!(read(sandbox.as_ref(), &link).await.unwrap(), b"hello");
    let metadata = sandbox.stat(&link, Follow::Yes).await.unwrap();
    assert_eq!((&metadata.path, &metadata.real_path), (&link, &target));
}

#[tokio::test]
async fn r_9_a_helper_has_the_user_of_its_container_and_nothing_more() {
    let fixture = bare(true).await;
    open(&fixture).await.unwrap();
    fixture.server.change("agents", "bare", |pod| {
        let helper = pod.ephemeral.first().unwrap();
        assert_eq!(helper.target.as_deref(), Some("app"));
        assert_eq!(helper.image, HELPER_IMAGE);
        assert_eq!(
            helper.security,
            json!({
                "runAsUser": 1000,
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
    });
    // A second open uses the same helper.
    open(&fixture).await.unwrap();
    fixture
        .server
        .change("agents", "bare", |pod| assert_eq!(pod.ephemeral.len(), 1));
    assert_eq!(fixture.count_requests("PATCH "), 1);
}

#[tokio::test]
async fn r_9_without_a_helper_image_no_helper_is_added() {
    let fixture = bare(false).await;
    assert_eq!(kind(open(&fixture).await), ErrorKind::ToolMissing);
    assert_eq!(fixture.count_requests("PATCH "), 0);
}

#[tokio::test]
async fn r_9_shared_process_namespaces_get_no_helper() {
    let fixture = bare(true).await;
    fixture
        .server
        .change("agents", "bare", |pod| pod.shares_processes = true);
    assert_eq!(kind(open(&fixture).await), ErrorKind::ToolMissing);
    assert_eq!(fixture.count_requests("PATCH "), 0);
}

#[tokio::test]
async fn r_9_opening_ends_when_a_helper_does_not_start() {
    let long = Config::default().ephemeral_timeout;
    for (state, timeout, expected) in [
        (
            json!({"waiting": {"reason": "ContainerCreating"}}),
            Period::millis(600),
            ErrorKind::Timeout,
        ),
        (
            json!({"waiting": {"reason": "ImagePullBackOff"}}),
            long,
            ErrorKind::ToolMissing,
        ),
        (
            json!({"terminated": {"reason": "Error"}}),
            long,
            ErrorKind::ToolMissing,
        ),
    ] {
        let fixture = bare_within(true, timeout).await;
        let what = state.to_string();
        fixture
            .server
            .change("agents", "bare", |pod| pod.ephemeral_state = state);
        assert_eq!(kind(open(&fixture).await), expected, "{what}");
    }
}

#[tokio::test]
async fn r_9_helpers_that_end_are_replaced_a_limited_number_of_times() {
    let fixture = bare(true).await;
    fixture.server.change("agents", "bare", |pod| {
        pod.ephemeral_state = json!({"terminated": {"reason": "Error"}});
    });
    for _ in 0..MAX_HELPERS + 2 {
        assert_eq!(kind(open(&fixture).await), ErrorKind::ToolMissing);
    }
    assert_eq!(fixture.count_requests("PATCH "), MAX_HELPERS);
}

#[tokio::test]
async fn r_9_a_shell_that_is_killed_is_not_a_missing_one() {
    let fixture = bare(true).await;
    // As when the container has no memory left.
    fixture.server.fail("/exec", 1, InjectedFault::Exit(137));
    assert_eq!(kind(open(&fixture).await), ErrorKind::Unavailable);
    assert_eq!(fixture.count_requests("PATCH "), 0);
}

#[tokio::test]
async fn r_9_the_error_names_the_missing_right_to_add_a_helper() {
    let fixture = bare(true).await;
    let text = "pods \"bare\" is forbidden: User \"u\" cannot patch resource \"pods/ephemeralcontainers\" in API group \"\"";
    fixture
        .server
        .fail("PATCH ", 1, InjectedFault::Refuse(403, text.into(), None));
    let error = open(&fixture).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(
        error
            .context()
            .contains("patch pods/ephemeralcontainers is missing"),
        "{error}"
    );
}
