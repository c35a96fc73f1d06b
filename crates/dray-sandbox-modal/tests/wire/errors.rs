//! Tests of errors of the provider.

use std::error::Error as _;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::{
    Backend as _, BackendCheck, Body, ErrorKind, Follow, Read, SandboxPath, Transport, Write,
};
use dray_sandbox_conformance::Fixture as _;
use dray_sandbox_modal::fake_server::{FakeServer, InjectedFault};
use dray_sandbox_modal::{Config, ModalBackend};
use dray_types::{Clock, Secret};
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::oneshot;
use tonic::Code;

use super::fixture::{ModalFixture, SANDBOX_ID, address_of, config};

#[tokio::test]
async fn every_refusal_has_its_kind() {
    let fixture = ModalFixture::new().await;
    let sandbox = fixture.open().await;
    for (code, kind) in [
        (Code::FailedPrecondition, ErrorKind::SandboxStopped),
        (Code::NotFound, ErrorKind::SandboxGone),
        (Code::PermissionDenied, ErrorKind::Auth),
        (Code::Unauthenticated, ErrorKind::Auth),
        (Code::ResourceExhausted, ErrorKind::Protocol),
        (Code::DeadlineExceeded, ErrorKind::Timeout),
        (Code::Unavailable, ErrorKind::Unavailable),
    ] {
        let times = 6;
        fixture.server.arm(InjectedFault::Refuse {
            method: "TaskExecStart",
            code,
            times,
        });
        let before = fixture.server.calls("TaskExecStart");
        let refused = sandbox.stat(&fixture.path("f"), Follow::No).await;
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), kind, "{code:?}");
        assert!(error.source().is_some(), "{code:?} has no cause");
        let expected = match code {
            Code::DeadlineExceeded | Code::Unavailable => times,
            // The request is sent once with the old credential and once with a new one.
            Code::Unauthenticated => 2,
            _ => 1,
        };
        assert_eq!(
            fixture.server.calls("TaskExecStart") - before,
            expected,
            "{code:?}"
        );
        // Uses up the rest of the fault.
        for _ in expected..times {
            let _ = fixture.server.take_refusal("TaskExecStart");
        }
    }
}

#[tokio::test]
async fn a_wait_that_times_out_immediately_is_repeated_a_limited_number_of_times() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), "x").unwrap();
    let sandbox = fixture.open().await;
    let file = sandbox.stat(&fixture.path("f"), Follow::Yes).await.unwrap();
    fixture.server.arm(InjectedFault::Refuse {
        method: "TaskExecWait",
        code: Code::DeadlineExceeded,
        times: 6,
    });
    let read = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let body = sandbox.read(read).await.unwrap();
    // The end of a read needs the status of its command.
    let refused = body.read_all(10).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_short_delay_is_waited_for_and_a_long_one_is_reported() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), "x").unwrap();
    let sandbox = fixture.open().await;
    let throttle = |seconds| InjectedFault::Throttle {
        method: "TaskExecStart",
        seconds,
    };
    fixture.server.arm(throttle(0.1));
    assert!(sandbox.stat(&fixture.path("f"), Follow::No).await.is_ok());
    fixture.server.arm(throttle(90.0));
    let error = sandbox
        .stat(&fixture.path("f"), Follow::No)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(error.retry_after(), Some(Duration::from_secs(90)));
}

#[tokio::test]
async fn a_sandbox_that_is_terminated_meanwhile_is_gone() {
    let fixture = ModalFixture::new().await;
    std::fs::write(fixture.root().join("f"), vec![7; 2 << 20]).unwrap();
    let sandbox = fixture.open().await;
    let file = sandbox.stat(&fixture.path("f"), Follow::Yes).await.unwrap();
    let read = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let mut body = sandbox.read(read).await.unwrap();
    body.next().await.unwrap().unwrap();
    fixture.server.terminate(SANDBOX_ID);
    let mut last = None;
    while let Some(chunk) = body.next().await {
        last = chunk.err();
    }
    assert_eq!(last.unwrap().kind(), ErrorKind::SandboxGone);
    let error = sandbox.stat(&fixture.path("f"), Follow::No).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::SandboxGone);
    let resolved = fixture.backend().resolve(&fixture.address()).await;
    assert_eq!(resolved.unwrap_err().kind(), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_never_shown() {
    let fixture = ModalFixture::new().await;
    for (secret, token_id) in [("as-wrong", "ak-fake"), ("as-fake", "")] {
        let config = Config {
            token_id: token_id.to_owned(),
            token_secret: Secret::new(secret),
            ..config(fixture.server.url())
        };
        let backend = ModalBackend::new(&config, Clock::system()).unwrap();
        let error = backend.resolve(&fixture.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
        let shown = format!("{error} {error:?} {backend:?}");
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_closed_port_is_unavailable() {
    let url = format!("http://{}", dray_testkit::port::unassigned_address());
    let fixture = ModalFixture::new().await;
    let backend = ModalBackend::new(&config(&url), Clock::system()).unwrap();
    let error = backend.resolve(&fixture.address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_dropped_transfer_ends_its_command() {
    let fixture = ModalFixture::new().await;
    let sandbox = fixture.open().await;
    for transport in sandbox.transports(&fixture.path("f")) {
        let path = fixture.path(transport.as_str());
        let write = Write {
            transport,
            path: &path,
            size: 200_000,
            offset: 0,
            mode: 0o644,
        };
        let (reached, waiting) = oneshot::channel();
        let stuck = stream::once(async move {
            let _ = reached.send(());
            pending().await
        });
        let begin = stream::iter([Ok(Bytes::from(vec![7; 100_000]))]);
        let body = Body::new(begin.chain(stuck));
        tokio::select! {
            ended = sandbox.write(write, body) => panic!("it ended: {ended:?}"),
            _ = waiting => {}
        }
        assert!(fixture.server.running() > 0, "{transport:?}");
        // The next command waits until the dropped ones have been ended.
        assert!(sandbox.probe().await.is_ok());
        assert_eq!(fixture.server.running(), 0, "{transport:?}");
    }
}

#[tokio::test]
async fn over_tls_only_the_named_authority_is_trusted_and_no_router_without_tls() {
    let directory = tempfile::tempdir().unwrap();
    let key_pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (key_pair.cert.pem(), key_pair.signing_key.serialize_pem());
    let server = FakeServer::start_tls(directory.path(), &certificate, &key)
        .await
        .unwrap();
    server.run(SANDBOX_ID);
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, &certificate).unwrap();
    let trusting = Config {
        ca_file: Some(ca_file.clone().into()),
        ..config(server.url())
    };
    let backend = ModalBackend::new(&trusting, Clock::system()).unwrap();
    let handle = backend.resolve(&address_of(SANDBOX_ID)).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let path = SandboxPath::new(ca_file.as_os_str().as_encoded_bytes()).unwrap();
    let found = sandbox.stat(&path, Follow::No).await.unwrap();
    assert_eq!(found.size, certificate.len() as u64);
    let public = ModalBackend::new(&config(server.url()), Clock::system()).unwrap();
    let refused = public.resolve(&address_of(SANDBOX_ID)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    server.arm(InjectedFault::PlainRouter);
    let calls = server.calls("TaskExecStart");
    let refused = backend.open(&handle).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Protocol);
    assert_eq!(server.calls("TaskExecStart"), calls);
}

#[tokio::test]
async fn a_check_asks_for_a_credential_each_time() {
    let fixture = ModalFixture::new().await;
    let backend = fixture.backend();
    for _ in 0..2 {
        let ready = backend.check().await.unwrap();
        assert!(matches!(ready, BackendCheck::Ready(_)), "{ready:?}");
    }
    assert_eq!(fixture.server.calls("AuthTokenGet"), 2);
}
