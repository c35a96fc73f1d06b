//! Large results of tools.

use dray_agent::manifest::feature::{DialFiles, Features, Offload};
use dray_proto::v1::{self, document_source};
use serde_json::json;

use super::fixture::{FilesFixture, call, lock};
use super::reading::inline;
use crate::{Config, TurnStart};

fn offloading(enabled: Option<bool>) -> TurnStart {
    TurnStart {
        features: Features {
            dial_files: Some(DialFiles {
                tool_call_result_offload: Some(Offload {
                    enabled,
                    size_threshold: Some(10),
                    excluded_tools: Some(vec!["quiet".to_owned()]),
                }),
                enabled_tools: None,
            }),
            ..Features::default()
        },
        ..TurnStart::default()
    }
}

#[tokio::test]
async fn a_large_result_is_written_to_a_file_whose_name_the_model_gets() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    let files = fixture.opened(offloading(None));
    assert_eq!(
        files
            .offloader()
            .offload("t", "text/plain", "012345678")
            .await,
        None,
        "below the threshold"
    );
    let text = "0123456789".repeat(1000);
    let offloaded = files
        .offloader()
        .offload("my tool", "text/plain", &text)
        .await
        .unwrap();
    let url = offloaded.attachment.url.unwrap();
    assert!(
        url.starts_with("files/b/appdata/app/offloaded-responses/my_tool-"),
        "{url}"
    );
    assert_eq!(lock(&drive.files)[&url], text);
    let at = url.strip_prefix("files/b/appdata/app/").unwrap();
    assert!(offloaded.notice.contains(at) && offloaded.notice.contains("internal_file_read_lines"));
    assert!(offloaded.notice.len() < 3000);
    for tool in ["quiet", "read_files", "internal_file_read_lines"] {
        assert_eq!(
            files.offloader().offload(tool, "text/plain", &text).await,
            None,
            "{tool}"
        );
    }
    let off = fixture.opened(offloading(Some(false)));
    assert_eq!(
        off.offloader().offload("t", "text/plain", &text).await,
        None
    );
}

#[tokio::test]
async fn a_result_stays_whole_when_its_file_cannot_be_written() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    *lock(&drive.unreported_bytes) = 1;
    let files = fixture.opened(offloading(None));
    assert_eq!(
        files
            .offloader()
            .offload("t", "text/plain", "0123456789")
            .await,
        None
    );
}

#[tokio::test]
async fn without_dial_a_large_result_is_read_back_by_its_key() {
    let mut fixture = FilesFixture::with(Config {
        offload: true,
        ..Config::default()
    })
    .await;
    let requests = fixture
        .serve(|_: &v1::ReadAttachmentRequest| {
            Ok(v1::ReadAttachmentReply {
                output: Some(inline("part")),
                ..v1::ReadAttachmentReply::default()
            })
        })
        .await;
    let files = fixture.turn();
    let text = "é".repeat(30_000);
    let offloaded = files
        .offloader()
        .offload("t", "text/plain", &text)
        .await
        .unwrap();
    let key = offloaded.attachment.rest["key"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        offloaded.notice.contains(&key) && !offloaded.notice.contains("http"),
        "{}",
        offloaded.notice
    );
    let output = call(
        &files,
        "read_attachment",
        json!({"file_path": key, "range": "lines 1-2"}),
    )
    .await
    .unwrap();
    assert_eq!(output.content, "part");
    let source = lock(&requests)[0].1.source.clone().unwrap().source.unwrap();
    let document_source::Source::Claim(claim) = source else {
        panic!("not a claim: {source:?}")
    };
    assert_eq!(claim.artifact.unwrap().size, 60_000);
}
