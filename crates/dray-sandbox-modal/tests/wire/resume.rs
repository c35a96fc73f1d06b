//! tests that no byte is lost or repeated when connections break.

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind, Follow, Read, Transport, Write};
use dray_sandbox_modal::fake_server::InjectedFault;
use futures_util::stream;
use tonic::Code;

use super::fixture::ModalFixture;

/// Bytes without a pattern.
fn bytes(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..size)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

fn pieces(bytes: &[u8]) -> Body {
    let pieces: Vec<Result<Bytes, Error>> = bytes
        .chunks(100_000)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    Body::new(stream::iter(pieces))
}

async fn read(fixture: &ModalFixture, transport: Transport) -> Result<Vec<u8>, Error> {
    let sandbox = fixture.open().await;
    let file = sandbox.stat(&fixture.path("f"), Follow::Yes).await.unwrap();
    let read = Read {
        transport,
        file: &file,
        offset: 0,
    };
    sandbox.read(read).await?.read_all(16 << 20).await
}

async fn write(fixture: &ModalFixture, transport: Transport, content: &[u8]) -> Result<(), Error> {
    let sandbox = fixture.open().await;
    let path = fixture.path("f");
    let write = Write {
        transport,
        path: &path,
        size: content.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    sandbox.write(write, pieces(content)).await
}

#[tokio::test]
async fn r_10_a_read_continues_where_its_stream_was_cut() {
    let fixture = ModalFixture::new().await;
    let content = bytes(3 << 20);
    std::fs::write(fixture.root().join("f"), &content).unwrap();
    for transport in [Transport::Files, Transport::ExecRaw, Transport::ExecBase64] {
        let opened = fixture.server.calls("TaskExecStdioRead");
        let started = fixture.server.calls("TaskExecStart");
        // Other output of a command is shorter than this, so the cut is always in the content.
        for at in [200_001, 1 << 20, 2_500_000] {
            fixture.server.arm(InjectedFault::CutOutput(at));
        }
        assert_eq!(
            read(&fixture, transport).await.unwrap(),
            content,
            "{transport:?}"
        );
        let streams = fixture.server.calls("TaskExecStdioRead") - opened;
        let commands = fixture.server.calls("TaskExecStart") - started;
        // Two streams for each command, three more for the cuts: no command ran twice.
        assert_eq!(streams, commands * 2 + 3, "{transport:?}");
    }
}

#[tokio::test]
async fn r_10_a_write_continues_where_its_stream_was_cut() {
    let fixture = ModalFixture::new().await;
    let content = bytes(3 << 20);
    for transport in [Transport::Files, Transport::ExecRaw, Transport::ExecBase64] {
        for at in [1, 300_000, 2_000_003] {
            fixture.server.arm(InjectedFault::CutInput(at));
        }
        let asked = fixture.server.calls("TaskExecStdinStatus");
        write(&fixture, transport, &content).await.unwrap();
        assert_eq!(
            std::fs::read(fixture.root().join("f")).unwrap(),
            content,
            "{transport:?}"
        );
        assert_eq!(fixture.server.calls("TaskExecStdinStatus") - asked, 3);
        std::fs::remove_file(fixture.root().join("f")).unwrap();
    }
}

#[tokio::test]
async fn r_10_a_lost_response_to_a_complete_input_does_not_fail_the_command() {
    let fixture = ModalFixture::new().await;
    fixture.server.arm(InjectedFault::LoseInputAnswer);
    write(&fixture, Transport::Files, b"hello").await.unwrap();
    assert_eq!(std::fs::read(fixture.root().join("f")).unwrap(), b"hello");
}

#[tokio::test]
async fn r_10_an_input_that_was_closed_before_the_exit_is_known_does_not_fail_the_command() {
    let fixture = ModalFixture::new().await;
    fixture.server.arm(InjectedFault::ClosedInput);
    fixture.server.arm(InjectedFault::LateExit);
    write(&fixture, Transport::ExecRaw, b"hello").await.unwrap();
    assert_eq!(std::fs::read(fixture.root().join("f")).unwrap(), b"hello");
}

#[tokio::test]
async fn r_10_a_start_whose_response_was_lost_starts_once() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), "x").unwrap();
    for (method, times) in [
        ("TaskExecStart", 2),
        ("TaskExecWait", 3),
        ("TaskExecStdioRead", 2),
    ] {
        fixture.server.arm(InjectedFault::Refuse {
            method,
            code: Code::Unavailable,
            times,
        });
        assert_eq!(
            read(&fixture, Transport::Files).await.unwrap(),
            b"x",
            "{method}"
        );
    }
}

#[tokio::test]
async fn r_10_an_expired_credential_is_renewed_in_the_middle() {
    let fixture = ModalFixture::new().await;
    let content = bytes(1 << 20);
    std::fs::write(fixture.root().join("f"), &content).unwrap();
    let sandbox = fixture.open().await;
    let file = sandbox.stat(&fixture.path("f"), Follow::Yes).await.unwrap();
    fixture.server.arm(InjectedFault::CutOutput(500_000));
    let read = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let mut body = sandbox.read(read).await.unwrap();
    let first = body.next().await.unwrap().unwrap();
    fixture.server.expire();
    let rest = body.read_all(16 << 20).await.unwrap();
    assert_eq!([first.to_vec(), rest].concat(), content);
    assert_eq!(fixture.server.calls("TaskGetCommandRouterAccess"), 2);
}

#[tokio::test]
async fn an_output_that_ends_too_early_is_truncated() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), bytes(400_000)).unwrap();
    fixture.server.arm(InjectedFault::ShortOutput(300_000));
    let short = read(&fixture, Transport::Files).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Truncated);
    fixture.server.arm(InjectedFault::ShortOutput(300_000));
    let short = read(&fixture, Transport::ExecRaw).await.unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Truncated);
}

#[tokio::test]
async fn a_stream_that_always_breaks_is_a_failure() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), bytes(400_000)).unwrap();
    for _ in 0..10 {
        fixture.server.arm(InjectedFault::CutOutput(300_000));
    }
    let broken = read(&fixture, Transport::Files).await.unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::Unavailable);
}
