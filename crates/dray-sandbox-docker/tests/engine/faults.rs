//! Tests with responses that no engine should send.

use std::sync::Arc;

use dray_sandbox::{
    Backend as _, Body, Error, ErrorKind, Follow, Metadata, Read, Sandbox, Transport, Write,
};
use dray_sandbox_docker::{Config, DockerBackend};
use dray_types::{Clock, Period, UnreachableCause};

use super::fixture::{address, backend, kind, path};
use super::scripted::{CONTAINER_ID, ScriptedEngine, answer, closing, described, packed};

async fn open(
    version: &str,
    rules: Vec<(&'static str, Vec<u8>)>,
) -> (ScriptedEngine, Result<Arc<dyn Sandbox>, Error>) {
    let engine = ScriptedEngine::start(version, rules).await;
    let config = Config {
        endpoint: format!("http://{}", engine.address),
        response_timeout: Period::secs(3),
        ..Config::default()
    };
    let backend = DockerBackend::new(&config, Clock::system()).unwrap();
    let opened = async {
        let handle = backend.resolve(&address("box")).await?;
        assert_eq!(handle.incarnation, CONTAINER_ID);
        backend.open(&handle).await
    };
    let opened = opened.await;
    (engine, opened)
}

#[tokio::test]
async fn the_error_of_an_engine_that_does_not_run_names_this_cause() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let at_socket = backend(format!("unix://{}", socket.display()));
    let missing = at_socket.resolve(&address("box")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unavailable);
    assert_eq!(
        missing.unreachable_cause(),
        Some(UnreachableCause::NoEngine)
    );
    // An engine that was killed leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let killed = at_socket.resolve(&address("box")).await.unwrap_err();
    assert_eq!(killed.unreachable_cause(), Some(UnreachableCause::NoEngine));
    let unknown = backend("http://engine.invalid:2375".to_owned());
    let unknown = unknown.resolve(&address("box")).await.unwrap_err();
    assert_eq!(
        unknown.unreachable_cause(),
        Some(UnreachableCause::UnknownName)
    );
}

/// Reads `/file` of 5 bytes from an engine that responds to the download with `response`.
async fn download(response: Vec<u8>) -> Result<Vec<u8>, Error> {
    let head_response = answer("200 OK", &described(5, 0o644), b"");
    // A response to HEAD has no body, whatever length it declares.
    let rules = vec![("HEAD ", head_response), ("archive?path=/file", response)];
    let (_engine, sandbox) = open("1.41", rules).await;
    let sandbox = sandbox?;
    let file = sandbox.stat(&path("/file"), Follow::Yes).await?;
    assert_eq!(file.size, 5);
    read(&*sandbox, &file).await
}

async fn read(sandbox: &dyn Sandbox, file: &Metadata) -> Result<Vec<u8>, Error> {
    let read = Read {
        transport: Transport::Archive,
        file,
        offset: 0,
    };
    sandbox.read(read).await?.read_all(1000).await
}

fn download_response(fields: &str, tar: &[u8]) -> Vec<u8> {
    closing(&format!("{}{fields}", described(5, 0o644)), tar)
}

#[tokio::test]
async fn a_correct_response_is_read() {
    let tar = packed("file", b'0', b"12345");
    assert_eq!(
        download(download_response("", &tar)).await.unwrap(),
        b"12345"
    );
}

#[tokio::test]
async fn r_5_a_response_that_ends_early_is_truncated_even_with_a_clean_close() {
    let tar = packed("file", b'0', b"12345");
    for length in [0, 100, 512, 515, 517, 1000, 1024, 1500, 2047] {
        let error = download(download_response("", &tar[..length]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{length}");
    }
}

#[tokio::test]
async fn compressed_bytes_that_were_not_requested_are_refused() {
    let tar = packed("file", b'0', b"12345");
    for encoding in ["gzip", "deflate", "GZIP"] {
        let error = download(download_response(
            &format!("Content-Encoding: {encoding}\r\n"),
            &tar,
        ))
        .await;
        assert_eq!(kind(error), ErrorKind::Protocol, "{encoding}");
    }
    let plain = download(download_response("Content-Encoding: identity\r\n", &tar)).await;
    assert_eq!(plain.unwrap(), b"12345");
}

#[tokio::test]
async fn an_archive_of_something_else_is_refused() {
    let two = [
        &packed("file", b'0', b"12345")[..1024],
        &packed("more", b'0', b""),
    ]
    .concat();
    for (what, tar, expected) in [
        (
            "another name",
            packed("elif", b'0', b"12345"),
            ErrorKind::Protocol,
        ),
        ("a link", packed("file", b'2', b""), ErrorKind::NotRegular),
        ("a device", packed("file", b'3', b""), ErrorKind::NotRegular),
        (
            "a directory",
            packed("file", b'5', b""),
            ErrorKind::IsDirectory,
        ),
        (
            "a short one",
            packed("file", b'0', b"1234"),
            ErrorKind::ChangedDuringTransfer,
        ),
        (
            "a long one",
            packed("file", b'0', b"123456"),
            ErrorKind::ChangedDuringTransfer,
        ),
        ("two of them", two, ErrorKind::Protocol),
        ("nothing", vec![0; 1024], ErrorKind::ChangedDuringTransfer),
        ("garbage", vec![b'?'; 2048], ErrorKind::Protocol),
    ] {
        assert_eq!(
            kind(download(download_response("", &tar)).await),
            expected,
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_download_without_a_description_is_refused() {
    let tar = packed("file", b'0', b"12345");
    assert_eq!(kind(download(closing("", &tar)).await), ErrorKind::Protocol);
}

#[tokio::test]
async fn an_endless_refusal_is_cut() {
    let refusal = answer("500 Internal Server Error", "", &vec![b'x'; 1 << 20]);
    assert_eq!(kind(download(refusal).await), ErrorKind::Protocol);
}

#[tokio::test]
async fn an_engine_that_never_answers_is_timed_out() {
    assert_eq!(kind(download(Vec::new()).await), ErrorKind::Timeout);
}

#[tokio::test]
async fn the_older_of_two_versions_is_spoken() {
    for (theirs, expected) in [("1.41", "/v1.41/"), ("1.44", "/v1.44/"), ("9.99", "/v1.5")] {
        let (engine, sandbox) = open(theirs, Vec::new()).await;
        assert!(sandbox.is_ok());
        let requests = engine.received_requests();
        assert!(requests[0].starts_with("GET /_ping "));
        assert!(requests.len() > 2);
        for head in &requests[1..] {
            let target = head.split(' ').nth(1).unwrap();
            assert!(target.starts_with(expected), "{target}");
        }
    }
}

#[tokio::test]
async fn a_version_that_is_too_old_or_unknown_is_a_protocol_error() {
    for version in ["1.12", "new", ""] {
        let (_engine, sandbox) = open(version, Vec::new()).await;
        assert_eq!(kind(sandbox), ErrorKind::Protocol, "{version}");
    }
}

#[tokio::test]
async fn archives_are_requested_and_sent_without_compression() {
    let (engine, sandbox) = open("1.41", Vec::new()).await;
    let sandbox = sandbox.unwrap();
    let at = path("/file");
    let write = Write {
        transport: Transport::Archive,
        path: &at,
        size: 5,
        offset: 0,
        mode: 0o644,
    };
    let written = sandbox.write(write, Body::from_bytes(&b"12345"[..])).await;
    assert_eq!(kind(written), ErrorKind::NotFound);
    let requests = engine.received_requests();
    let put = requests
        .iter()
        .find(|head| head.starts_with("PUT "))
        .unwrap();
    let put = put.to_ascii_lowercase();
    assert!(put.contains("content-type: application/x-tar\r\n"));
    assert!(put.contains("transfer-encoding: chunked\r\n"));
    assert!(!put.contains("content-encoding"));
    let asked = requests.iter().filter(|head| head.contains("/archive?"));
    assert!(asked.into_iter().all(|head| {
        head.to_ascii_lowercase()
            .contains("accept-encoding: identity")
    }));
}
