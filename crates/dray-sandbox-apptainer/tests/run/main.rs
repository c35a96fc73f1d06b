//! Tests of the backend with a fake program: the conformance suite, and what is special to Apptainer.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod fixture;

use std::path::PathBuf;

use dray_sandbox::{
    Address, Backend as _, Body, ErrorKind, Follow, Handle, Read, Transport, Write,
};
use dray_sandbox_apptainer::{ApptainerBackend, Config, Exchange};
use dray_sandbox_conformance::{Fixture as _, run_all};
use fixture::InstanceFixture;

async fn conforms(fixture: InstanceFixture) {
    let report = run_all(&fixture).await.unwrap();
    let skipped: &[&str] = if rustix::process::geteuid().is_root() {
        &["access_without_permission_is_refused"]
    } else {
        &[]
    };
    assert_eq!(report.skipped, skipped);
}

#[tokio::test]
async fn r_17_an_instance_passes_the_conformance_suite() {
    conforms(InstanceFixture::new()).await;
}

#[tokio::test]
async fn r_17_an_instance_with_an_exchange_directory_passes_the_conformance_suite() {
    conforms(InstanceFixture::new().with_exchange()).await;
}

#[tokio::test]
async fn only_the_exchange_directory_is_used_directly() {
    let fixture = InstanceFixture::new().with_exchange();
    let sandbox = fixture.open().await;
    let inside = fixture.path("f");
    assert_eq!(
        sandbox.transports(&inside),
        [Transport::Direct, Transport::ExecRaw, Transport::ExecBase64]
    );
    assert_eq!(
        sandbox.probe().await.unwrap().transports[0],
        Transport::Direct
    );
    let outside = fixture.elsewhere("f");
    assert_eq!(sandbox.transports(&outside)[0], Transport::ExecRaw);
    let write = Write {
        transport: Transport::Direct,
        path: &outside,
        size: 1,
        offset: 0,
        mode: 0o644,
    };
    let refused = sandbox.write(write, Body::from_bytes(&b"x"[..])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn a_directory_with_another_content_in_the_instance_is_not_used() {
    let fixture = InstanceFixture::new().with_exchange();
    let backend = ApptainerBackend::new(Config {
        exchange: Some(Exchange {
            host: fixture.root(),
            container: "/tmp".to_owned(),
        }),
        ..fixture.config()
    });
    let handle = backend.resolve(&fixture.address()).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    assert_eq!(
        sandbox.transports(&fixture.path("f"))[0],
        Transport::ExecRaw
    );
    assert_eq!(
        sandbox.probe().await.unwrap().transports[0],
        Transport::ExecRaw
    );
}

#[tokio::test]
async fn a_directory_bound_elsewhere_is_found_on_this_host() {
    let Some(fixture) = InstanceFixture::new().with_exchange().bound() else {
        return;
    };
    let sandbox = fixture.open().await;
    let path = fixture.path("f");
    assert!(!PathBuf::from(path.to_text().unwrap()).exists());
    let write = Write {
        transport: sandbox.transports(&path)[0],
        path: &path,
        size: 5,
        offset: 0,
        mode: 0o644,
    };
    assert_eq!(write.transport, Transport::Direct);
    sandbox
        .write(write, Body::from_bytes(&b"hello"[..]))
        .await
        .unwrap();
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    assert_eq!((file.size, &file.real_path), (5, &path));
    for transport in sandbox.transports(&path) {
        let read = Read {
            transport,
            file: &file,
            offset: 0,
        };
        let body = sandbox.read(read).await.unwrap();
        assert_eq!(body.read_all(10).await.unwrap(), b"hello");
    }
}

#[tokio::test]
async fn links_out_of_the_exchange_directory_are_followed_in_the_instance_only() {
    let fixture = InstanceFixture::new().with_exchange();
    let secret = fixture.root().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::os::unix::fs::symlink(&secret, fixture.root().join("box").join("link")).unwrap();
    let sandbox = fixture.open().await;
    let link = fixture.path("link");
    let file = sandbox.stat(&link, Follow::Yes).await.unwrap();
    assert_eq!(sandbox.transports(&file.real_path)[0], Transport::ExecRaw);
    // The state is that of a link which was created after `stat`.
    let mut stale = file.clone();
    stale.real_path = link;
    let read = Read {
        transport: Transport::Direct,
        file: &stale,
        offset: 0,
    };
    let body = match sandbox.read(read).await {
        Ok(body) => body.read_all(100).await,
        Err(error) => Err(error),
    };
    assert!(body.is_err(), "{body:?}");
}

#[tokio::test]
async fn r_1_another_instance_of_the_same_name_is_another_sandbox() {
    let fixture = InstanceFixture::new();
    let backend = fixture.backend();
    let handle = backend.resolve(&fixture.address()).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    fixture.restart();
    let error = sandbox
        .stat(&fixture.path("f"), Follow::No)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
    assert_eq!(
        backend.open(&handle).await.unwrap_err().kind(),
        ErrorKind::SandboxGone
    );
    let new = backend.resolve(&fixture.address()).await.unwrap();
    assert_ne!(new, handle);
    let lie = Handle {
        incarnation: "1-1".to_owned(),
        ..new
    };
    assert_eq!(
        backend.open(&lie).await.unwrap_err().kind(),
        ErrorKind::SandboxGone
    );
}

#[tokio::test]
async fn an_instance_that_apptainer_no_longer_lists_counts_as_ended() {
    let fixture = InstanceFixture::new();
    let sandbox = fixture.open().await;
    // The process still runs, but Apptainer no longer lists the name.
    let state = fixture.root().join("state/instances");
    std::fs::rename(state.join("box"), state.join("other")).unwrap();
    let error = sandbox
        .stat(&fixture.path("f"), Follow::No)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone, "{error}");
    std::fs::rename(state.join("other"), state.join("box")).unwrap();
}

#[tokio::test]
async fn names_that_no_instance_can_have_are_refused() {
    let backend = InstanceFixture::new().backend();
    for name in ["--json", "../box", "a b"] {
        let address = Address {
            backend: "apptainer".to_owned(),
            name: name.to_owned(),
        };
        let error = backend.resolve(&address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name}");
    }
}

#[tokio::test]
async fn a_program_that_fails_is_unavailable_and_nonsense_is_reported() {
    for (program, kind) in [
        ("/no/such/apptainer", ErrorKind::Unavailable),
        ("false", ErrorKind::Unavailable),
        ("echo", ErrorKind::Protocol),
    ] {
        let backend = ApptainerBackend::new(Config {
            program: program.to_owned(),
            ..Config::default()
        });
        let error = backend
            .resolve(&"apptainer:box".parse().unwrap())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{program}: {error}");
    }
}

#[tokio::test]
async fn commands_run_in_the_given_directory() {
    let fixture = InstanceFixture::new();
    let probe = fixture.open().await.probe().await.unwrap();
    assert_eq!(probe.working_directory, probe.home);
    let directory = fixture.root().canonicalize().unwrap().display().to_string();
    let backend = ApptainerBackend::new(Config {
        working_directory: Some(directory.clone()),
        ..fixture.config()
    });
    let handle = backend.resolve(&fixture.address()).await.unwrap();
    let probe = backend.open(&handle).await.unwrap().probe().await.unwrap();
    assert_eq!(probe.working_directory.to_string(), directory);
}

#[tokio::test]
async fn copies_by_commands_have_the_digests_and_the_state_of_the_commands() {
    let fixture = InstanceFixture::new().with_exchange();
    let sandbox = fixture.open().await;
    let bytes = b"content".as_slice();
    let path = fixture.path("f");
    let write = Write {
        transport: Transport::ExecRaw,
        path: &path,
        size: bytes.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    let body = || Body::from_bytes(bytes);
    let digest = sandbox.write_with_digest(write, body()).await.unwrap();
    assert_eq!(digest, Some(sandbox.fingerprint(&path).await.unwrap()));
    let before = sandbox.state(&path).await.unwrap();
    assert_eq!(sandbox.state(&path).await.unwrap(), before);
    let direct = fixture.path("g");
    let write = Write {
        transport: Transport::Direct,
        path: &direct,
        ..write
    };
    // This process writes into the exchange directory, and no command sees the bytes.
    assert_eq!(
        sandbox.write_with_digest(write, body()).await.unwrap(),
        None
    );
    let file = sandbox.stat(&direct, Follow::Yes).await.unwrap();
    let read = Read {
        transport: Transport::Direct,
        file: &file,
        offset: 0,
    };
    assert!(!sandbox.reads_with_digest(&read));
    let (body, digest) = sandbox.read_with_digest(read).await.unwrap();
    assert_eq!(body.read_all(bytes.len()).await.unwrap(), bytes);
    assert!(digest.await.is_err());
}
