//! Tests of deliveries of files to a user, and of tags in answers.

use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::{Fault, FaultCode, Period, Sha256Digest};
use serde_json::{Value, json};

use super::fixture::{FilesFixture, PDF_BYTES, call, lock};
use crate::Config;
use crate::media::MediaTagFilter;

fn unchanged_receipt(_: &mut v1::TransferReceipt) {}

fn delivered_report(id: &str, bytes: &[u8]) -> v1::DeliveryReport {
    v1::DeliveryReport {
        delivery_id: id.to_owned(),
        finished: true,
        success: true,
        result_json: r#"{"success":true}"#.to_owned(),
        files: vec![v1::DeliveredFile {
            path: b"/w/a.pdf".to_vec(),
            name: "a.pdf".to_owned(),
            size: bytes.len() as u64,
            sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
            state_code: v1::FileState::Delivered.into(),
            ..v1::DeliveredFile::default()
        }],
        ..v1::DeliveryReport::default()
    }
}

async fn serve_platform(
    fixture: &mut FilesFixture,
    report: fn(&str) -> v1::DeliveryReport,
) -> super::fixture::ReceivedCalls<v1::SendFileRequested> {
    serve_outcome(fixture, move |id| Ok(report(id))).await
}

async fn serve_outcome(
    fixture: &mut FilesFixture,
    outcome: impl Fn(&str) -> Result<v1::DeliveryReport, Fault> + Send + 'static,
) -> super::fixture::ReceivedCalls<v1::SendFileRequested> {
    let requests = fixture
        .serve(|_: &v1::SendFileRequested| {
            Ok(v1::DeliveryAccepted {
                delivery_id: "d".to_owned(),
                duplicate: false,
            })
        })
        .await;
    fixture
        .serve(move |request: &v1::DeliveryOutcomeRequest| outcome(&request.delivery_id))
        .await;
    requests
}

#[tokio::test]
async fn the_agent_reads_that_an_attached_file_contains_a_token() {
    let mut fixture = FilesFixture::new().await;
    let _drive = fixture.drive();
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, |receipt| {
            "token:GitHub".clone_into(&mut receipt.content_warning);
        })
        .await;
    let files = fixture.turn();
    let output = call(&files, "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap();
    let result: Value = serde_json::from_str(&output.content).unwrap();
    assert_eq!(result["files"][0]["content_warning"], "token:GitHub");
}

#[tokio::test]
async fn without_a_chat_the_answer_gets_the_file_with_its_digest() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, unchanged_receipt)
        .await;
    let files = fixture.turn();
    let output = call(&files, "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap();
    let result: Value = serde_json::from_str(&output.content).unwrap();
    assert_eq!(result["success"], true);
    assert_eq!(result["files"][0]["state"], "delivered");
    assert_eq!(
        result["files"][0]["sha256"],
        Sha256Digest::of(PDF_BYTES).to_hex()
    );
    assert_eq!(
        output.attachments[0].kind.as_deref(),
        Some("application/pdf")
    );
    let url = output.attachments[0].url.clone().unwrap();
    assert_eq!(lock(&drive.files)[&url], PDF_BYTES);
    // The model repeats its call: the same file is not stored twice.
    let repeated = call(&files, "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap();
    assert_eq!(repeated.attachments, output.attachments);
    assert_eq!(lock(&drive.files).len(), 1);
}

#[tokio::test]
async fn a_copy_with_a_wrong_receipt_is_not_reported_as_delivered() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, |receipt| receipt.bytes += 1)
        .await;
    let failure = call(&fixture.turn(), "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap_err();
    let result: Value = serde_json::from_str(&failure.to_string()).unwrap();
    assert_eq!(result["success"], false);
    assert_eq!(result["files"][0]["state"], "failed");
}

#[tokio::test]
async fn a_missing_file_does_not_stop_the_others() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, unchanged_receipt)
        .await;
    let arguments = json!({"paths": ["/w/none", "/w/a.pdf"]});
    let output = call(&fixture.turn(), "send_file", arguments).await.unwrap();
    let result: Value = serde_json::from_str(&output.content).unwrap();
    assert_eq!(result["success"], false);
    assert_eq!(
        result["files"][0]["error"]["message"],
        "The file does not exist."
    );
    assert_eq!(result["files"][1]["state"], "delivered_as_link");
    assert!(
        !output.content.contains("http"),
        "no link in the text: {}",
        output.content
    );
    assert_eq!(output.attachments.len(), 1);
}

#[tokio::test]
async fn with_a_chat_a_repeated_call_is_the_same_delivery() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(true).await;
    let requests = serve_platform(&mut fixture, |id| delivered_report(id, PDF_BYTES)).await;
    for _ in 0..2 {
        let output = call(
            &fixture.turn(),
            "send_file",
            json!({"path": "/w/a.pdf", "message": "Here"}),
        )
        .await;
        assert_eq!(output.unwrap().content, r#"{"success":true}"#);
    }
    let requests = lock(&requests);
    assert_eq!(requests[0].0.operation, requests[1].0.operation);
    assert_eq!(requests[0].1.paths, [b"/w/a.pdf".to_vec()]);
    assert_eq!(
        (requests[0].1.message.as_str(), requests[0].1.turn.as_str()),
        ("Here", "t1")
    );
}

#[tokio::test]
async fn a_delivery_without_a_digest_is_not_reported_as_delivered() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(true).await;
    serve_platform(&mut fixture, |id| {
        let mut report = delivered_report(id, PDF_BYTES);
        report.files[0].sha256.clear();
        report
    })
    .await;
    let failure = call(&fixture.turn(), "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("The delivery cannot be proved for a.pdf"),
        "{failure}"
    );
}

#[tokio::test]
async fn the_outcome_of_other_files_is_no_success_of_these() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(true).await;
    serve_platform(&mut fixture, |id| delivered_report(id, PDF_BYTES)).await;
    let files = fixture.turn();
    let failure = call(&files, "send_file", json!({"path": "/w/b.pdf"}))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().starts_with("These files were not sent"),
        "{failure}"
    );
    assert!(!files.delivery.sent.has(b"/w/b.pdf"));
}

#[tokio::test]
async fn a_platform_service_that_is_down_is_reported_in_a_sentence() {
    let mut fixture = FilesFixture::with(Config {
        call_timeout: Period::secs(2),
        ..Config::default()
    })
    .await;
    fixture.bind(true).await;
    let failure = call(&fixture.turn(), "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "The service that delivers files is not reachable at the moment; try again later."
    );
}

#[tokio::test]
async fn an_empty_message_is_an_error_of_the_model() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    let failure = call(&fixture.turn(), "send_file", json!({"path": " "}))
        .await
        .unwrap_err();
    assert!(
        matches!(failure, ToolFailure::Parameter { .. }),
        "{failure}"
    );
}

/// Passes an answer in chunks of this many bytes.
async fn stream_text(media: &mut MediaTagFilter, text: &str, size: usize) -> String {
    let mut shown = String::new();
    for chunk in text.as_bytes().chunks(size) {
        shown.push_str(&media.push(str::from_utf8(chunk).unwrap()).await);
    }
    shown
}

#[tokio::test]
async fn an_incomplete_tag_is_never_shown_and_its_file_is_attached_for_any_chunks() {
    for size in [1, 3, 7, 100] {
        let mut fixture = FilesFixture::new().await;
        fixture.bind(false).await;
        fixture
            .holds("/w/a.pdf", PDF_BYTES, unchanged_receipt)
            .await;
        let files = fixture.turn();
        let mut media = MediaTagFilter::new(&files).await.unwrap();
        let mut shown = stream_text(&mut media, "Here it is:\nMEDIA:/w/a.pdf\nBye", size).await;
        assert!(!shown.contains("MEDIA"), "{shown}");
        let rest = media.finish().await;
        shown.push_str(&rest.text);
        assert!(
            !shown.contains("MEDIA") && shown.ends_with("Bye"),
            "{size}: {shown:?}"
        );
        assert_eq!(rest.attachments.len(), 1, "{size}");
    }
}

#[tokio::test]
async fn a_file_that_the_tool_sent_in_this_turn_is_not_sent_again_by_a_tag() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, unchanged_receipt)
        .await;
    let files = fixture.turn();
    call(&files, "send_file", json!({"path": "/w/a.pdf"}))
        .await
        .unwrap();
    let mut media = MediaTagFilter::new(&files).await.unwrap();
    stream_text(&mut media, "MEDIA:/w/a.pdf", 100).await;
    let rest = media.finish().await;
    assert_eq!((rest.text.as_str(), rest.attachments), ("", Vec::new()));
}

/// A report about one file in this state.
fn report_in(id: &str, state: v1::FileState) -> v1::DeliveryReport {
    let mut report = delivered_report(id, PDF_BYTES);
    report.success = false;
    report.files[0].state_code = state.into();
    report
}

/// Sends a file by the tool, then names it in a tag; returns how many deliveries were requested.
async fn send_then_tag(outcome: fn(&str) -> Result<v1::DeliveryReport, Fault>) -> usize {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(true).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, unchanged_receipt)
        .await;
    let requests = serve_outcome(&mut fixture, outcome).await;
    let files = fixture.turn();
    // The failure of a delivery is a failure of the tool, too.
    let _ = call(&files, "send_file", json!({"path": "/w/a.pdf"})).await;
    let mut media = MediaTagFilter::new(&files).await.unwrap();
    stream_text(&mut media, "MEDIA:/w/a.pdf", 100).await;
    media.finish().await;
    let requests = lock(&requests);
    requests.len()
}

#[tokio::test]
async fn a_file_whose_delivery_may_have_arrived_is_not_sent_again_by_a_tag() {
    let unknown = |id: &str| Ok(report_in(id, v1::FileState::Unknown));
    assert_eq!(send_then_tag(unknown).await, 1);
    // The outcome is not learned, and the delivery continues.
    let pending = |_: &str| Err(Fault::new(FaultCode::Unavailable, "Not now."));
    assert_eq!(send_then_tag(pending).await, 1);
}

#[tokio::test]
async fn a_file_whose_delivery_failed_is_sent_by_a_tag() {
    for outcome in [
        |id: &str| Ok(report_in(id, v1::FileState::Failed)),
        |id: &str| Ok(report_in(id, v1::FileState::Rejected)),
    ] {
        assert_eq!(send_then_tag(outcome).await, 2);
    }
}

#[tokio::test]
async fn empty_tags_and_unavailable_files_are_reported() {
    let mut fixture = FilesFixture::new().await;
    fixture.bind(false).await;
    fixture
        .holds("/w/a.pdf", PDF_BYTES, |receipt| {
            receipt.error = "changed".to_owned();
        })
        .await;
    let files = fixture.turn();
    let mut media = MediaTagFilter::new(&files).await.unwrap();
    stream_text(&mut media, "MEDIA:/w/none.pdf", 100).await;
    let rest = media.finish().await;
    assert!(
        rest.text.contains("Could not be attached: none.pdf."),
        "{}",
        rest.text
    );
    let mut media = MediaTagFilter::new(&files).await.unwrap();
    stream_text(&mut media, "MEDIA:/w/a.pdf", 100).await;
    let rest = media.finish().await;
    assert!(
        rest.text.contains("Could not be attached: a.pdf."),
        "{}",
        rest.text
    );
    assert_eq!(rest.attachments, []);
}

#[tokio::test]
async fn an_unavailable_sandbox_service_is_reported_in_the_answer() {
    let mut fixture = FilesFixture::with(Config {
        call_timeout: Period::secs(2),
        ..Config::default()
    })
    .await;
    fixture.bind(false).await;
    let files = fixture.turn();
    let mut media = MediaTagFilter::new(&files).await.unwrap();
    let shown = stream_text(&mut media, "Done.\nMEDIA:/w/a.pdf\n", 100).await;
    let rest = media.finish().await;
    let all = format!("{shown}{}", rest.text);
    assert!(all.starts_with("Done."), "{all}");
    assert!(
        all.contains("The sandbox service is not reachable at the moment; try again later."),
        "{all}"
    );
}

#[tokio::test]
async fn answers_of_sessions_without_a_sandbox_are_not_held_back() {
    let mut fixture = FilesFixture::new().await;
    fixture
        .serve(|_: &v1::ShowSessionRequest| {
            Err(Fault::new(
                FaultCode::NotFound,
                "The session does not exist.",
            ))
        })
        .await;
    assert!(MediaTagFilter::new(&fixture.turn()).await.is_none());
}
