//! Transfer of files into and out of sandboxes, and of users' files into sandboxes.

use std::sync::{Arc, Mutex};

use dray_agent::message::Attachment;
use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::{Claim, Fault, FaultCode, Period, Sha256Digest};
use serde_json::json;

use super::fixture::{FilesFixture, call, lock, message, named};
use crate::{Config, tools};

/// A sandbox that accepts every file.
async fn takes(
    fixture: &mut FilesFixture,
    alter_receipt: fn(&mut v1::PlacedFile),
) -> super::fixture::ReceivedCalls<v1::PutSandboxFileRequest> {
    fixture
        .serve(move |request: &v1::PutSandboxFileRequest| {
            let artifact = request.claim.clone().unwrap().artifact.unwrap();
            let mut placed = v1::PlacedFile {
                path: [b"/w/".as_slice(), &request.name].concat(),
                size: artifact.size,
                sha256: artifact.sha256.clone(),
                receipt: Some(v1::TransferReceipt {
                    bytes: artifact.size,
                    sha256: artifact.sha256,
                    ..v1::TransferReceipt::default()
                }),
                ..v1::PlacedFile::default()
            };
            alter_receipt(&mut placed);
            Ok(placed)
        })
        .await
}

#[tokio::test]
async fn tools_of_sandboxes_are_offered_only_with_a_sandbox() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    let offered = tools::offered_tools(&fixture.turn(), false).await;
    let names: Vec<_> = offered
        .iter()
        .map(|tool| tool.declaration().name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "send_file",
            "read_attachment",
            "sandbox_list",
            "sandbox_put",
            "sandbox_get"
        ]
    );
    for tool in offered {
        let schema = &tool.declaration().parameters;
        let known = schema["properties"].as_object().unwrap();
        for name in schema["required"].as_array().unwrap() {
            assert!(known.contains_key(name.as_str().unwrap()), "{schema}");
        }
    }
}

#[tokio::test]
async fn a_text_is_put_into_the_sandbox_and_a_repeat_is_the_same_operation() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    let requests = takes(&mut fixture, |_| {}).await;
    let arguments = json!({"path": "out/a.txt", "content": "hello"});
    for _ in 0..2 {
        let output = call(&fixture.turn(), "sandbox_put", arguments.clone())
            .await
            .unwrap();
        assert_eq!(output.content, "/w/a.txt (5 B) is written.");
    }
    let requests = lock(&requests).clone();
    assert_eq!(requests[0].0.operation, requests[1].0.operation);
    let request = &requests[0].1;
    assert_eq!(
        (request.directory.as_slice(), request.collision.as_str()),
        (&b"out"[..], "rename")
    );
    let claim = Claim::try_from(request.claim.clone().unwrap()).unwrap();
    assert_eq!(fixture.read(&claim).await, "hello");
}

#[tokio::test]
async fn a_file_of_dial_is_put_into_the_sandbox_byte_for_byte() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    fixture.bind(false).await;
    let requests = takes(&mut fixture, |_| {}).await;
    lock(&drive.files).insert("files/b/a.bin".to_owned(), vec![7; 300_000].into());
    let arguments = json!({"path": "~/a.bin", "file": "/files/b/a.bin", "overwrite": "true"});
    call(&fixture.turn(), "sandbox_put", arguments)
        .await
        .unwrap();
    let request = lock(&requests)[0].1.clone();
    assert_eq!(request.collision, "overwrite");
    let claim = Claim::try_from(request.claim.unwrap()).unwrap();
    assert_eq!(claim.artifact.sha256, Sha256Digest::of(&vec![7; 300_000]));
}

#[tokio::test]
async fn r_3_a_file_of_dial_over_the_limit_is_an_error_that_the_model_can_correct() {
    let mut fixture = FilesFixture::with(Config {
        upload_limit: dray_types::ByteSize::bytes(3),
        ..Config::default()
    })
    .await;
    let drive = fixture.drive();
    fixture.bind(false).await;
    lock(&drive.files).insert("files/b/a".to_owned(), "abcd".into());
    let failure = call(
        &fixture.turn(),
        "sandbox_put",
        json!({"path": "a", "file": "files/b/a"}),
    )
    .await
    .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "Parameter file is invalid: File size 4 exceeds the limit of 3 bytes."
    );
    let failure = call(
        &fixture.turn(),
        "sandbox_put",
        json!({"path": "a", "file": "files/b/none"}),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(failure, ToolFailure::Parameter { .. }),
        "{failure}"
    );
}

#[tokio::test]
async fn a_write_that_the_sandbox_does_not_confirm_is_not_reported_as_done() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    takes(&mut fixture, |placed| placed.size = 1).await;
    let arguments = json!({"path": "a.txt", "content": "hello"});
    let failure = call(&fixture.turn(), "sandbox_put", arguments)
        .await
        .unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("The sandbox did not confirm"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_short_text_comes_as_it_is_and_anything_else_as_a_file() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture.holds("/w/a.txt", b"hello", |_| {}).await;
    let output = call(&fixture.turn(), "sandbox_get", json!({"path": "/w/a.txt"}))
        .await
        .unwrap();
    assert_eq!(
        (output.content.as_str(), output.attachments.len()),
        ("hello", 0)
    );
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .holds("/w/a.png", b"\x89PNG\r\n\x1a\n\0", |_| {})
        .await;
    let output = call(&fixture.turn(), "sandbox_get", json!({"path": "/w/a.png"}))
        .await
        .unwrap();
    assert!(
        output
            .content
            .starts_with("a.png (image/png, 9 B) is kept as artifact/"),
        "{}",
        output.content
    );
    assert_eq!(output.attachments.len(), 1);
}

#[tokio::test]
async fn a_directory_is_listed_in_lines() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    let requests = fixture
        .serve(|_: &v1::ListSandboxRequest| {
            let entry = |path: &str, kind: v1::SandboxEntryKind| v1::SandboxEntry {
                path: path.into(),
                kind_code: kind.into(),
                size: 2048,
                ..v1::SandboxEntry::default()
            };
            Ok(v1::ListSandboxReply {
                entries: vec![
                    entry("/w/a.txt", v1::SandboxEntryKind::File),
                    entry("/w/d", v1::SandboxEntryKind::Directory),
                    entry("/w/l", v1::SandboxEntryKind::Symlink),
                ],
                truncated: true,
                denied: 2,
                offset: 0,
            })
        })
        .await;
    let output = call(&fixture.turn(), "sandbox_list", json!({"depth": 99}))
        .await
        .unwrap();
    assert!(
        output
            .content
            .starts_with("/w/a.txt (2.0 KB)\n/w/d/\n/w/l (symlink)\nLeft out, because policy refuses them: 2.\nThe listing is incomplete"),
        "{}",
        output.content
    );
    let requests = lock(&requests);
    assert_eq!(
        (requests[0].1.path.as_slice(), requests[0].1.depth),
        (&b"."[..], 8)
    );
}

#[tokio::test]
async fn a_turn_continues_without_the_sandbox_service_and_does_not_ask_again_immediately() {
    let fixture = FilesFixture::with(Config {
        call_timeout: Period::secs(2),
        ..Config::default()
    })
    .await;
    assert!(!fixture.turn().session.has_sandbox().await);
    assert!(fixture.services.sessions_are_absent());
    assert!(
        tools::offered_tools(&fixture.turn(), false)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_damaged_session_record_does_not_stop_requests_for_other_sessions() {
    let mut fixture = FilesFixture::new().await;
    fixture
        .serve(|_: &v1::ShowSessionRequest| {
            let fault = Fault::new(FaultCode::Unavailable, "The record cannot be read.");
            Err(fault.detail("invalid_session_record"))
        })
        .await;
    assert!(!fixture.turn().session.has_sandbox().await);
    assert!(!fixture.services.sessions_are_absent());
}

#[tokio::test]
async fn a_fault_of_the_sandbox_is_reported_with_its_own_message() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .serve(|_: &v1::ListSandboxRequest| {
            Err(
                Fault::new(FaultCode::Denied, "This directory is not allowed.")
                    .advice("List the working directory."),
            )
        })
        .await;
    let failure = call(&fixture.turn(), "sandbox_list", json!({"path": "/etc"}))
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "This directory is not allowed. List the working directory."
    );
}

/// Responds to `Settle`: reports the uploads with these operation ids, but only in a later response.
async fn settles(fixture: &mut FilesFixture, ids: Vec<(String, &'static str)>) {
    let waits = std::sync::atomic::AtomicU32::new(2);
    fixture
        .serve(move |_: &v1::SettleUploadsRequest| {
            use std::sync::atomic::Ordering;
            if waits
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
            {
                return Ok(v1::SettleUploadsReply {
                    waiting: true,
                    ..v1::SettleUploadsReply::default()
                });
            }
            let uploads = ids.iter().map(|(id, line)| v1::Upload {
                operation_id: id.clone(),
                context_line: (*line).to_owned(),
                ..v1::Upload::default()
            });
            Ok(v1::SettleUploadsReply {
                uploads: uploads.collect(),
                waiting: false,
            })
        })
        .await;
}

#[tokio::test]
async fn uploads_are_in_the_sandbox_before_the_turn_continues() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    fixture.bind(false).await;
    lock(&drive.files).insert("files/b/a.csv".to_owned(), "a,b".into());
    let files = fixture.turn();
    let id = |position: u32, bytes: &[u8]| {
        let digest = Sha256Digest::of(bytes).to_hex();
        files
            .scope
            .operation(&format!("upload/{position}/{digest}"))
            .to_string()
    };
    let ids = vec![
        (
            id(0, b"a,b"),
            "[User uploaded: a.csv (3 B) at /w/uploads/a.csv]",
        ),
        (
            id(1, b"text"),
            "[User uploaded: note.txt (4 B) at /w/uploads/note.txt]",
        ),
    ];
    settles(&mut fixture, ids.clone()).await;
    let note = Attachment {
        kind: Some("text/plain".to_owned()),
        title: Some("note.txt".to_owned()),
        data: Some("text".to_owned()),
        ..Attachment::default()
    };
    let message = message("look", vec![named("a.csv", "files/b/a.csv"), note]);
    let lines = files.uploads().place_uploads(&message).await;
    assert_eq!(lines, [ids[0].1, ids[1].1]);
}

#[tokio::test]
async fn uploads_are_acknowledged_when_the_turn_ends_and_not_before() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    fixture
        .serve(move |request: &v1::SettleUploadsRequest| {
            let mut requests = lock(&seen);
            requests.push(request.clone());
            // The first reply is lost; every later one has the upload, until it is acknowledged.
            if requests.len() == 1 {
                return Err(Fault::new(FaultCode::Unavailable, "The reply was lost."));
            }
            let upload = v1::Upload {
                operation_id: "op-chat".to_owned(),
                context_line: "[User uploaded: b.csv (3 B) at /w/uploads/b.csv]".to_owned(),
                ..v1::Upload::default()
            };
            Ok(v1::SettleUploadsReply {
                uploads: vec![upload],
                waiting: false,
            })
        })
        .await;
    let (files, last) = (fixture.turn(), fixture.turn());
    let lines = files
        .uploads()
        .place_uploads(&message("look", Vec::new()))
        .await;
    assert_eq!(lines, ["[User uploaded: b.csv (3 B) at /w/uploads/b.csv]"]);
    let placed = lock(&requests).clone();
    assert_eq!(placed.len(), 2);
    for request in placed {
        assert!(request.acknowledges && request.acknowledged.is_empty());
    }
    // Another agent ends the turn.
    last.uploads().take_over(&files.uploads());
    files.uploads().acknowledge().await;
    assert_eq!(lock(&requests).len(), 2);
    last.uploads().acknowledge().await;
    assert_eq!(lock(&requests)[2].acknowledged, ["op-chat"]);
    fixture.turn().uploads().acknowledge().await;
    assert_eq!(lock(&requests).len(), 3);
}

#[tokio::test]
async fn an_upload_that_takes_too_long_is_reported() {
    let mut fixture = FilesFixture::with(Config {
        upload_wait: Period::millis(200),
        ..Config::default()
    })
    .await;
    fixture.bind(false).await;
    settles(&mut fixture, Vec::new()).await;
    let files = fixture.turn();
    let message = message("look", vec![named("a.csv", "data:text/csv,a")]);
    let lines = files.uploads().place_uploads(&message).await;
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].starts_with(
            "[User uploaded: a.csv (unknown size) — not available: it is not in the sandbox yet"
        ),
        "{}",
        lines[0]
    );
}

#[tokio::test]
async fn without_a_sandbox_no_file_is_uploaded() {
    let fixture = FilesFixture::with(Config {
        sessions: false,
        ..Config::default()
    })
    .await;
    let message = message("look", vec![named("a.csv", "data:text/csv,a")]);
    assert!(
        fixture
            .turn()
            .uploads()
            .place_uploads(&message)
            .await
            .is_empty()
    );
}
