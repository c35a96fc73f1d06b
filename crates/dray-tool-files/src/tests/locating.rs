//! Tests of the places where documents are found.

use dray_agent::manifest::feature::{DialFiles, Features};
use dray_proto::v1::{self, document_source};
use serde_json::json;

use super::fixture::{FilesFixture, call, lock};
use super::reading::inline;
use crate::{Config, TurnStart};

#[tokio::test]
async fn a_document_is_read_from_any_location_and_its_frame_stays_complete() {
    let mut fixture = FilesFixture::with(Config {
        always_read: true,
        ..Config::default()
    })
    .await;
    fixture.drive();
    fixture.bind(false).await;
    let requests = fixture
        .serve(|_: &v1::ReadAttachmentRequest| {
            Ok(v1::ReadAttachmentReply {
                output: Some(inline("--BEGIN 1--\ntext\n--END 1--")),
                outcome: "inline".to_owned(),
                ..v1::ReadAttachmentReply::default()
            })
        })
        .await;
    let files = fixture.turn();
    for path in [
        "https://dial.example/v1/files/b/a.pdf",
        "https://e.example/a.pdf",
        "/w/a.pdf",
    ] {
        let output = call(
            &files,
            "read_attachment",
            json!({"file_path": path, "find": "x"}),
        )
        .await
        .unwrap();
        assert_eq!(output.content, "--BEGIN 1--\ntext\n--END 1--");
    }
    let sources: Vec<_> = lock(&requests)
        .iter()
        .map(|(_, request)| {
            (
                request.find.clone(),
                request.source.clone().unwrap().source.unwrap(),
            )
        })
        .collect();
    assert!(
        matches!(&sources[0].1, document_source::Source::Url(url) if url == "files/b/a.pdf"),
        "{sources:?}"
    );
    assert!(
        matches!(&sources[1].1, document_source::Source::Url(url) if url == "https://e.example/a.pdf")
    );
    assert!(
        matches!(&sources[2].1, document_source::Source::Sandbox(place) if place.path == b"/w/a.pdf")
    );
    assert_eq!(sources[0].0, "x");
}

#[tokio::test]
async fn a_path_below_files_is_one_of_the_sandbox_where_dial_has_no_such_file() {
    for has_dial in [false, true] {
        let mut fixture = FilesFixture::new().await;
        if has_dial {
            let drive = fixture.drive();
            lock(&drive.files).insert("files/b/known.pdf".to_owned(), "%PDF".into());
        }
        fixture.bind(false).await;
        fixture.holds("files/b/a.pdf", b"abc", |_| {}).await;
        let requests = fixture
            .serve(|_: &v1::ReadAttachmentRequest| {
                Ok(v1::ReadAttachmentReply {
                    output: Some(inline("text")),
                    ..v1::ReadAttachmentReply::default()
                })
            })
            .await;
        let files = fixture.turn();
        let source = async |path: &str| {
            let read = call(&files, "read_attachment", json!({"file_path": path})).await;
            assert_eq!(read.unwrap().content, "text");
            let requests = lock(&requests);
            let source = requests.last().unwrap().1.source.clone().unwrap();
            source.source.unwrap()
        };
        assert!(
            matches!(source("files/b/a.pdf").await, document_source::Source::Sandbox(place) if place.path == b"files/b/a.pdf")
        );
        if has_dial {
            for path in ["files/b/known.pdf", "files/b/none.pdf"] {
                assert!(
                    matches!(source(path).await, document_source::Source::Url(url) if url == path),
                    "{path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_path_of_the_app_s_files_is_read_with_a_sandbox_and_without() {
    for has_sandbox in [false, true] {
        let mut fixture = FilesFixture::with(Config {
            always_read: true,
            ..Config::default()
        })
        .await;
        let drive = fixture.drive();
        let url = "files/b/appdata/app/notes/a.pdf";
        lock(&drive.files).insert(url.to_owned(), "%PDF".into());
        if has_sandbox {
            fixture.bind(false).await;
            fixture.holds("notes/b.pdf", b"abc", |_| {}).await;
        }
        let requests = fixture
            .serve(|_: &v1::ReadAttachmentRequest| {
                Ok(v1::ReadAttachmentReply {
                    output: Some(inline("text")),
                    ..v1::ReadAttachmentReply::default()
                })
            })
            .await;
        let features = Features {
            dial_files: Some(DialFiles::default()),
            ..Features::default()
        };
        let files = fixture.opened(TurnStart {
            features,
            ..TurnStart::default()
        });
        let read = async |path: &str| {
            let read = call(&files, "read_attachment", json!({"file_path": path})).await;
            let requests = lock(&requests);
            read.map(|_| requests.last().unwrap().1.source.clone().unwrap().source)
        };
        assert!(
            matches!(read("notes/a.pdf").await.unwrap(), Some(document_source::Source::Url(found)) if found == url)
        );
        let of_sandbox = read("notes/b.pdf").await;
        if has_sandbox {
            assert!(matches!(
                of_sandbox.unwrap(),
                Some(document_source::Source::Sandbox(_))
            ));
        } else {
            assert!(of_sandbox.is_err());
        }
    }
}
