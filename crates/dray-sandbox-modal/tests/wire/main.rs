//! Tests of the backend with the fake server: the conformance suite, and behaviour that only Modal has.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod errors;
mod fixture;
mod python;
mod resume;

use dray_sandbox::{Body, ErrorKind, FileKind, Fingerprint, Follow, Read, Transport, Write};
use dray_sandbox_conformance::{CONFORMANCE_CASES, Fixture as _, run_cases};
use dray_sandbox_modal::fake_server::InjectedFault;
use dray_types::Sha256Digest;
use fixture::{ModalFixture, address_of};

/// Parts of the suite, which run concurrently.
const PART_COUNT: usize = 2;

async fn suite(part: usize) {
    let fixture = ModalFixture::new().await;
    let cases: Vec<_> = CONFORMANCE_CASES
        .iter()
        .skip(part)
        .step_by(PART_COUNT)
        .copied()
        .collect();
    let report = run_cases(&fixture, &cases).await.unwrap();
    let root = rustix::process::geteuid().is_root();
    let skipped: Vec<_> = cases
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| root && *name == "access_without_permission_is_refused")
        .collect();
    assert_eq!(report.skipped, skipped);
    assert_eq!(report.passed.len(), cases.len() - skipped.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_the_first_half_of_the_conformance_suite_passes() {
    suite(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_the_second_half_of_the_conformance_suite_passes() {
    suite(1).await;
}

#[tokio::test]
async fn the_file_tool_is_used_before_commands() {
    let fixture = ModalFixture::new().await;
    let sandbox = fixture.open().await;
    let transports = [Transport::Files, Transport::ExecRaw, Transport::ExecBase64];
    assert_eq!(sandbox.transports(&fixture.path("f")), transports);
    assert_eq!(sandbox.probe().await.unwrap().transports, transports);
    assert!(!sandbox.resumes(Transport::Files));
    assert!(sandbox.resumes(Transport::ExecRaw));
}

#[tokio::test]
async fn a_sandbox_of_the_second_version_is_reached_with_its_own_calls() {
    let fixture = ModalFixture::new().await;
    let address = address_of("sb-of-the-second-version");
    fixture.server.run(&address.name);
    let backend = fixture.backend();
    let handle = backend.resolve(&address).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    std::fs::write(fixture.root().join("f"), "x").unwrap();
    assert_eq!(
        sandbox
            .stat(&fixture.path("f"), Follow::No)
            .await
            .unwrap()
            .size,
        1
    );
    assert_eq!(fixture.server.calls("AuthTokenGet"), 1);
    assert_eq!(fixture.server.calls("SandboxGetTaskId"), 0);
    assert_eq!(fixture.server.calls("SandboxGetCommandRouterAccess"), 1);
    // Its token is renewed like that of a router.
    fixture.server.expire();
    assert_eq!(
        sandbox
            .stat(&fixture.path("f"), Follow::No)
            .await
            .unwrap()
            .size,
        1
    );
    assert_eq!(fixture.server.calls("AuthTokenGet"), 2);
}

#[tokio::test]
async fn without_a_shell_the_file_tool_performs_the_operations() {
    let fixture = ModalFixture::new().await;
    fixture.server.arm(InjectedFault::NoShell);
    let sandbox = fixture.open().await;
    let path = fixture.path("new.txt");
    let write = Write {
        transport: Transport::Files,
        path: &path,
        size: 5,
        offset: 0,
        mode: 0o644,
    };
    sandbox
        .write(write, Body::from_bytes(&b"hello"[..]))
        .await
        .unwrap();
    let repeated = sandbox.write(write, Body::from_bytes(&b"other"[..])).await;
    assert_eq!(repeated.unwrap_err().kind(), ErrorKind::Exists);
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    assert_eq!(
        (file.size, file.kind, file.identity),
        (5, FileKind::File, None)
    );
    let read = Read {
        transport: Transport::Files,
        file: &file,
        offset: 0,
    };
    let body = sandbox.read(read).await.unwrap();
    assert_eq!(body.read_all(9).await.unwrap(), b"hello");
    assert_eq!(
        sandbox.fingerprint(&path).await.unwrap(),
        Fingerprint::Sha256(Sha256Digest::of(b"hello"), 5)
    );
    let deep = fixture.path("a").join("b").unwrap();
    sandbox.make_directory(&deep).await.unwrap();
    let listing = sandbox.list(&fixture.path("."), 2, 9).await.unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| entry.path.name())
        .collect();
    assert_eq!(names, [b"a".as_slice(), b"b", b"new.txt"]);
    let refused = sandbox.remove(&fixture.path("a"), false).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::IsDirectory);
    sandbox.remove(&fixture.path("a"), true).await.unwrap();
    sandbox.remove(&path, false).await.unwrap();
    let error = sandbox.stat(&path, Follow::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let renamed = sandbox.rename(&path, &deep, true).await;
    assert_eq!(renamed.unwrap_err().kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn without_a_shell_links_are_resolved_part_by_part() {
    let fixture = ModalFixture::new().await;
    fixture.server.arm(InjectedFault::NoShell);
    let root = fixture.root();
    std::fs::create_dir_all(root.join("real/deep")).unwrap();
    std::fs::write(root.join("real/deep/f"), "12").unwrap();
    for (target, link) in [
        ("real", "one"),
        ("one/deep", "two"),
        ("loop", "loop"),
        ("nowhere", "dangling"),
        ("../../..", "up"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let sandbox = fixture.open().await;
    let through = fixture.path("two").join("f").unwrap();
    let file = sandbox.stat(&through, Follow::Yes).await.unwrap();
    let real = fixture
        .path("real")
        .join("deep")
        .unwrap()
        .join("f")
        .unwrap();
    assert_eq!((file.size, file.real_path), (2, real));
    let link = sandbox
        .stat(&fixture.path("two"), Follow::No)
        .await
        .unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    assert_eq!(link.link_target.as_deref(), Some(b"one/deep".as_slice()));
    for (name, kind) in [("loop", ErrorKind::Loop), ("dangling", ErrorKind::NotFound)] {
        let refused = sandbox.stat(&fixture.path(name), Follow::Yes).await;
        assert_eq!(refused.unwrap_err().kind(), kind, "{name}");
    }
    let up = sandbox
        .stat(&fixture.path("up"), Follow::Yes)
        .await
        .unwrap();
    assert_eq!(up.kind, FileKind::Directory);
    let below = through.join("x").unwrap();
    let refused = sandbox.stat(&below, Follow::No).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotDirectory);
}

#[tokio::test]
async fn without_the_file_tool_commands_are_used() {
    let fixture = ModalFixture::new().await;
    fixture.server.arm(InjectedFault::NoTool);
    std::fs::write(fixture.root().join("f"), "hello").unwrap();
    let sandbox = fixture.open().await;
    let file = sandbox.stat(&fixture.path("f"), Follow::Yes).await.unwrap();
    let mut read = Read {
        transport: Transport::Files,
        file: &file,
        offset: 0,
    };
    let body = sandbox.read(read).await.unwrap().read_all(9).await;
    assert_eq!(body.unwrap_err().kind(), ErrorKind::ToolMissing);
    read.transport = Transport::ExecRaw;
    let body = sandbox.read(read).await.unwrap();
    assert_eq!(body.read_all(9).await.unwrap(), b"hello");
}
