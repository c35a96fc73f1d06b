//! Large results of tools.

use dray_agent::manifest::feature::{DialFiles, Features, Offload};
use dray_proto::v1::{self, document_source};
use serde_json::json;

use super::fixture::{FilesFixture, call, lock, run};
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
    for tool in [
        "quiet",
        "read_files",
        "internal_file_read_lines",
        "internal_skills_read_skill",
        "internal_attachments_available_context",
        "internal_attachments_get_content",
    ] {
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
async fn a_large_result_of_one_line_is_read_back_by_following_the_advice() {
    let mut fixture = FilesFixture::new().await;
    fixture.drive();
    let files = fixture.opened(offloading(None));
    let result = json!({"text": "é".repeat(60_000)}).to_string();
    let offloader = files.offloader();
    let offloaded = offloader.offload("t", "application/json", &result).await;
    let notice = offloaded.unwrap().notice;
    let (_, location) = notice.split_once(" is kept as ").unwrap();
    let (path, advice) = location.split_once("; read parts of it with ").unwrap();
    let tool_name = advice.split('.').next().unwrap();
    let tools = crate::dial_files::offered_tools(&files);
    let tool = tools
        .iter()
        .find(|tool| tool.declaration().name == tool_name);
    let (mut read, mut arguments) = (String::new(), json!({ "path": path }));
    loop {
        let output = run(tool.unwrap(), &files, arguments).await.unwrap();
        let mut lines = output.content.lines();
        read.push_str(lines.next().unwrap().strip_prefix("1\t").unwrap());
        let Some(advice) = lines.next() else { break };
        let (_, next) = advice.split_once("continue with start ").unwrap();
        let (start, byte) = next.split_once(" and start_byte ").unwrap();
        arguments = json!({"path": path, "start": start, "start_byte": byte.trim_end_matches('.')});
    }
    assert!(read == result, "{} of {} bytes", read.len(), result.len());
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
