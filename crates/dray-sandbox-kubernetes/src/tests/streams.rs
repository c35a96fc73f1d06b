//! Tests of streams that break, stall, or carry wrong or excessive data.

use std::sync::Arc;

use dray_sandbox::{Backend as _, Body, Error, ErrorKind, Follow, Read, Sandbox, Transport, Write};
use dray_sandbox_exec::Exec as _;
use dray_testkit::eventually;
use dray_types::Period;
use futures_util::{StreamExt as _, stream};

use super::fixture::{PodFixture, kind, read};
use crate::Config;
use crate::cluster::Cluster;
use crate::exec::{PodContainer, PodExec};
use crate::fake_server::InjectedFault;
use crate::target::Target;

const FILE_BYTES: usize = 300_000;

/// A sandbox with a file, and the result of reading the file with this fault.
async fn with_file(fault: InjectedFault) -> (PodFixture, Result<Vec<u8>, Error>) {
    // The timeout is short only where the test waits for it: then pings are three times as frequent, and responses to
    // them do not count as output.
    let idle = match fault {
        InjectedFault::Silence | InjectedFault::Linger => 3,
        _ => 60,
    };
    let fixture = PodFixture::configured(|config| config.idle_timeout = Period::secs(idle)).await;
    let sandbox = fixture.open().await.unwrap();
    let path = fixture.file("a", &content());
    fixture.server.fail("send()", 1, fault);
    let result = read(sandbox.as_ref(), &path).await;
    // The next read is complete in every case.
    assert!(read(sandbox.as_ref(), &path).await.unwrap() == content());
    (fixture, result)
}

fn content() -> Vec<u8> {
    (0..FILE_BYTES)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect()
}

#[tokio::test]
async fn r_8_output_that_was_not_flushed_is_truncated_despite_success() {
    for kept in [0, 1, 100, FILE_BYTES / 2, FILE_BYTES, FILE_BYTES + 60] {
        let (_fixture, got) = with_file(InjectedFault::Short(kept)).await;
        let kind = kind(got);
        // Before the first mark no bytes count as a response.
        let expected = if kept < 100 {
            ErrorKind::Protocol
        } else {
            ErrorKind::Truncated
        };
        assert_eq!(kind, expected, "{kept}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_unavailable() {
    for kept in [1, FILE_BYTES / 2] {
        let (_fixture, got) = with_file(InjectedFault::Cut(kept)).await;
        assert_eq!(kind(got), ErrorKind::Unavailable, "{kept}");
    }
}

#[tokio::test]
async fn a_stream_without_a_status_is_unavailable() {
    let (_fixture, got) = with_file(InjectedFault::NoStatus).await;
    assert_eq!(kind(got), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let (_fixture, got) = with_file(InjectedFault::Silence).await;
    assert_eq!(kind(got), ErrorKind::Timeout);
}

#[tokio::test]
async fn responses_outside_the_protocol_are_refused() {
    for fault in [
        InjectedFault::Text,
        InjectedFault::Huge(2 << 20),
        InjectedFault::Foreign,
    ] {
        let (_fixture, got) = with_file(fault.clone()).await;
        assert_eq!(kind(got), ErrorKind::Protocol, "{fault:?}");
    }
}

#[tokio::test]
async fn a_status_may_come_twice_or_before_the_output() {
    for fault in [InjectedFault::Twice, InjectedFault::Early] {
        let (_fixture, got) = with_file(fault.clone()).await;
        assert!(got.unwrap() == content(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_stream_that_stays_open_after_the_status_counts_as_ended() {
    let (_fixture, got) = with_file(InjectedFault::Linger).await;
    assert!(got.unwrap() == content());
}

fn new_file(path: &dray_sandbox::SandboxPath, size: usize) -> Write<'_> {
    Write {
        transport: Transport::ExecRaw,
        path,
        size: size as u64,
        offset: 0,
        mode: 0o644,
    }
}

#[tokio::test]
async fn a_server_that_reads_no_input_is_abandoned() {
    let fixture = PodFixture::configured(|config| config.idle_timeout = Period::secs(3)).await;
    let sandbox = fixture.open().await.unwrap();
    fixture
        .server
        .fail("command=raw", 1, InjectedFault::Silence);
    let path = fixture.path("a");
    // More than all buffers between the two sides hold.
    let chunk = bytes::Bytes::from(vec![0; 1 << 20]);
    let body = Body::new(stream::repeat(chunk).take(256).map(Ok));
    let written = sandbox.write(new_file(&path, 256 << 20), body).await;
    assert_eq!(kind(written), ErrorKind::Timeout);
    sandbox.probe().await.unwrap();
}

#[tokio::test]
async fn stdin_ends_in_both_versions() {
    for version in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        let fixture = PodFixture::new().await;
        fixture.server.speak(&[version]);
        let sandbox = fixture.open().await.unwrap();
        let path = fixture.path("a");
        let body = Body::from_bytes(content());
        sandbox
            .write(new_file(&path, FILE_BYTES), body)
            .await
            .unwrap();
        assert!(std::fs::read(fixture.work().join("a")).unwrap() == content());
        // With v4 the command gets the length; with v5 it reads to the end.
        let counted = fixture.count_requests(&format!("command=raw&command={FILE_BYTES}"));
        assert_eq!(counted, usize::from(version.starts_with("v4")), "{version}");
    }
}

#[tokio::test]
async fn a_server_that_becomes_older_is_noticed() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    fixture.server.speak(&["v4.channel.k8s.io"]);
    let path = fixture.path("a");
    let body = || Body::from_bytes(content());
    let written = sandbox.write(new_file(&path, FILE_BYTES), body()).await;
    assert_eq!(kind(written), ErrorKind::Unavailable);
    let path = fixture.path("b");
    sandbox
        .write(new_file(&path, FILE_BYTES), body())
        .await
        .unwrap();
    assert!(std::fs::read(fixture.work().join("b")).unwrap() == content());
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    eventually("a condition", async || holds().then_some(())).await;
}

/// Whether a process of this host has this among its arguments.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|argument| argument == word.as_bytes())
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_dropped_leaves_no_process() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    let path = fixture.path("dropped");
    let word = path.to_text().unwrap().to_owned();
    let body = Body::new(stream::iter([Ok("first".into())]).chain(stream::pending()));
    let writing = sandbox.write(new_file(&path, FILE_BYTES), body);
    tokio::select! {
        _ = writing => panic!("a write whose body has no end must not end"),
        () = until(|| runs(&word) && fixture.work().join("dropped").exists()) => {}
    }
    // Closing a stream ends no process of the fake server, so the command was killed.
    until(|| !runs(&word)).await;
    sandbox.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_fails_ends_the_command() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    let path = fixture.path("failing");
    let word = path.to_text().unwrap().to_owned();
    let failure = Err(Error::new(ErrorKind::Corrupted, "the source"));
    let body = Body::new(stream::iter([Ok("first".into()), failure]));
    assert_eq!(
        kind(sandbox.write(new_file(&path, FILE_BYTES), body).await),
        ErrorKind::Corrupted
    );
    until(|| !runs(&word)).await;
}

/// Opens the channel for commands alone.
async fn exec(fixture: &PodFixture) -> PodExec {
    let handle = fixture.handle().await.unwrap();
    let config = Config {
        kubeconfig: Some(fixture.server.kubeconfig("first").unwrap()),
        idle_timeout: Period::secs(3),
        ..Config::default()
    };
    let container_ref = PodContainer {
        cluster: Arc::new(Cluster::new(config)),
        target: Target::parse(&handle.address).unwrap(),
        container: "shell".into(),
        incarnation: handle.incarnation,
    };
    PodExec::open(Arc::new(container_ref), "shell")
        .await
        .unwrap()
}

#[tokio::test]
async fn a_quiet_command_is_not_given_up_while_the_server_answers_pings() {
    let fixture = PodFixture::new().await;
    let words = ["sleep", "5"].map(|word| word.as_bytes().to_vec()).to_vec();
    let running = exec(&fixture).await.run(words, None).await.unwrap();
    assert_eq!(running.stdout.read_all(0).await.unwrap(), b"");
    assert_eq!(running.end.await.unwrap().status, 0);
}

#[tokio::test]
async fn status_and_the_end_of_stderr_come_back() {
    let fixture = PodFixture::new().await;
    let script = "head -c 9000 /dev/zero | tr '\\0' x >&2; echo wrong >&2; echo out; exit 3";
    let words = ["sh", "-c", script]
        .map(|word| word.as_bytes().to_vec())
        .to_vec();
    let running = exec(&fixture).await.run(words, None).await.unwrap();
    assert_eq!(running.stdout.read_all(10).await.unwrap(), b"out\n");
    let exit = running.end.await.unwrap();
    assert_eq!((exit.status, exit.stderr.len()), (3, 4096));
    assert!(exit.stderr.ends_with("xwrong\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_stream_did_not_open_is_ended() {
    let fixture = PodFixture::new().await;
    let exec = exec(&fixture).await;
    fixture
        .server
        .fail("command=cat; :", 1, InjectedFault::Foreign);
    let word = fixture.path("never-fed").to_text().unwrap().to_owned();
    let words = ["sh", "-c", "cat; :", "sh", &word];
    let words = words.map(|word| word.as_bytes().to_vec()).to_vec();
    let stdin = Body::new(stream::pending());
    assert_eq!(
        kind(exec.run(words, Some(stdin)).await),
        ErrorKind::Protocol
    );
    until(|| !runs(&word)).await;
}

#[tokio::test]
async fn a_path_that_fits_no_request_is_refused_before_it_is_sent() {
    let fixture = PodFixture::new().await;
    let exec = exec(&fixture).await;
    let before = fixture.server.requests().len();
    let words = vec![b"true".to_vec(), vec![b' '; 30_000]];
    assert_eq!(kind(exec.run(words, None).await), ErrorKind::ToolMissing);
    assert_eq!(fixture.server.requests().len(), before);
}

#[tokio::test]
async fn a_repeated_read_continues_where_it_was_cut() {
    let fixture = PodFixture::new().await;
    let sandbox = fixture.open().await.unwrap();
    let path = fixture.file("a", &content());
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    let from = |offset| Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset,
    };
    fixture
        .server
        .fail("send()", 1, InjectedFault::Cut(FILE_BYTES / 2));
    let mut body = sandbox.read(from(0)).await.unwrap();
    let mut got = Vec::new();
    let error = loop {
        match body.next().await.unwrap() {
            Ok(chunk) => got.extend_from_slice(&chunk),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!got.is_empty() && got.len() < FILE_BYTES);
    let rest = sandbox.read(from(got.len() as u64)).await.unwrap();
    got.extend(rest.read_all(FILE_BYTES).await.unwrap());
    assert!(got == content());
}

#[tokio::test]
async fn an_empty_file_is_written_and_read() {
    let fixture = PodFixture::new().await;
    let sandbox: Arc<dyn Sandbox> = fixture
        .backend
        .open(&fixture.handle().await.unwrap())
        .await
        .unwrap();
    let path = fixture.path("empty");
    sandbox
        .write(new_file(&path, 0), Body::from_bytes(""))
        .await
        .unwrap();
    assert_eq!(read(sandbox.as_ref(), &path).await.unwrap(), b"");
}
