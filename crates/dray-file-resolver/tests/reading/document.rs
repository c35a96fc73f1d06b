//! `ReadAttachment`: all sources, and failures.

use dray_proto::v1;
use dray_proto::v1::document_source::Source;
use dray_types::{Fault, FaultCode, Sha256Digest};

use crate::fixture::{ReadingFixture, lock};

const TABLE_CSV: &str = "name,amount\nada,0012\ngrace,1e5\n";
const TABLE_MARKDOWN: &str = "| name | amount |\n|---|---|\n| ada | 0012 |\n| grace | 1e5 |\n";

fn of(source: Source, name: &str) -> v1::ReadAttachmentRequest {
    v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(source),
        }),
        name: name.to_owned(),
        ..v1::ReadAttachmentRequest::default()
    }
}

async fn output(
    fixture: &ReadingFixture,
    request: &v1::ReadAttachmentRequest,
) -> (v1::ReadAttachmentReply, String) {
    let mut reply = fixture.ask(request).await.unwrap();
    let output = fixture.read(reply.output.take()).await;
    (reply, output)
}

/// The body of a framed output; also checks the nonce.
fn body(output: &str) -> &str {
    let (_, rest) = output.split_once("\n--BEGIN ").unwrap();
    let (nonce, rest) = rest.split_once("--\n").unwrap();
    assert!(nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()));
    rest.strip_suffix(&format!("\n--END {nonce}--")).unwrap()
}

#[tokio::test]
async fn a_stored_file_is_read_framed_and_converted_once() {
    let fixture = ReadingFixture::new().await;
    let claim = fixture.put("people.csv", TABLE_CSV).await;
    let request = of(Source::Claim(claim.clone().into()), "");
    let (reply, output_) = output(&fixture, &request).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("inline", "")
    );
    assert_eq!(
        (reply.kind.as_str(), reply.mime.as_str()),
        ("text", "text/csv")
    );
    assert!(output_.starts_with(
        "[Read attachment: people.csv (text/csv), converted to Markdown] -- content between"
    ));
    assert_eq!(body(&output_).trim_end(), TABLE_MARKDOWN.trim_end());
    let (_, repeated) = output(&fixture, &request).await;
    assert_eq!(body(&repeated), body(&output_));
    assert_ne!(repeated, output_, "every frame has a nonce of its own");
    assert_eq!(fixture.conversions(), 1);
}

#[tokio::test]
async fn a_conversion_that_is_no_longer_stored_is_made_again() {
    let fixture = ReadingFixture::new().await;
    let claim = fixture.put("people.csv", TABLE_CSV).await;
    let request = of(Source::Claim(claim.into()), "");
    output(&fixture, &request).await;
    let key_value = fixture.bus.key_value("dray_conversions");
    let places = key_value.list("", 10).await.unwrap();
    let (key, entry) = places.entries.first().unwrap();
    let nowhere = v1::Claim::default();
    let place = bytes::Bytes::from(prost::Message::encode_to_vec(&nowhere));
    key_value.update(key, place, entry.revision).await.unwrap();
    let (reply, _) = output(&fixture, &request).await;
    assert_eq!(
        (reply.outcome.as_str(), fixture.conversions()),
        ("inline", 2)
    );
    output(&fixture, &request).await;
    assert_eq!(fixture.conversions(), 2, "the new place is remembered");
}

#[tokio::test]
async fn files_of_the_workspace_are_read_by_path_and_others_refused() {
    let fixture = ReadingFixture::new().await;
    let workspace = fixture.directory.path().join("workspace");
    std::fs::write(workspace.join("a.csv"), TABLE_CSV).unwrap();
    let (reply, text) = output(&fixture, &of(Source::Path("a.csv".into()), "")).await;
    assert_eq!(reply.outcome, "inline");
    assert_eq!(body(&text).trim_end(), TABLE_MARKDOWN.trim_end());
    let (reply, text) = output(&fixture, &of(Source::Path("../s3".into()), "")).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("refuse", "outside_workspace")
    );
    assert!(
        text.starts_with("Error: refusing to access '../s3' — outside "),
        "{text}"
    );
    let (reply, _) = output(&fixture, &of(Source::Path("none.csv".into()), "")).await;
    assert_eq!(reply.error_code, "not_found");
}

#[tokio::test]
async fn files_of_sandboxes_come_through_sandbox_transfer() {
    let fixture = ReadingFixture::new().await;
    let claim = fixture.put("out.csv", TABLE_CSV).await;
    lock(&fixture.sandbox).insert("/work/out.csv".into(), Ok(claim));
    let denied = Fault::new(FaultCode::Denied, "The path is protected.").detail("denied");
    lock(&fixture.sandbox).insert("/etc/shadow".into(), Err(denied));
    let down = Fault::new(FaultCode::Unavailable, "The sandbox does not respond.");
    lock(&fixture.sandbox).insert("/slow".into(), Err(down));
    let at = |path: &str| {
        of(
            Source::Sandbox(v1::SandboxPath {
                sandbox: None,
                path: path.into(),
            }),
            path,
        )
    };
    let (reply, _) = output(&fixture, &at("/work/out.csv")).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.mime.as_str()),
        ("inline", "text/csv")
    );
    let (reply, text) = output(&fixture, &at("/etc/shadow")).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("refuse", "unreadable")
    );
    assert_eq!(
        text,
        "Error: cannot read /etc/shadow: The path is protected. Attachments must be regular files inside the workspace, under the size cap."
    );
    let fault = fixture.ask(&at("/slow")).await.unwrap_err();
    assert_eq!(
        fault.code,
        FaultCode::Unavailable,
        "a sandbox that is down is not the document's fault"
    );
}

#[tokio::test]
async fn files_of_dial_and_of_the_web_are_read_by_url() {
    let fixture = ReadingFixture::new().await;
    fixture.core.put("b/people.csv", TABLE_CSV, "text/csv");
    let mut request = of(Source::Url("files/b/people.csv".into()), "");
    request.credentials = Some(v1::DialCredentials {
        api_key: "key".into(),
        authorization: String::new(),
    });
    let (reply, _) = output(&fixture, &request).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.path.as_str()),
        ("inline", "people.csv")
    );
    let bytes = b"<h1>Hi</h1><p>there";
    let page = v1::FetchReply {
        content: Some(v1::Content {
            body: Some(v1::content::Body::Inline(bytes.to_vec().into())),
        }),
        sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
        size: bytes.len() as u64,
        ..v1::FetchReply::default()
    };
    lock(&fixture.outside).insert("https://a.example/page".into(), Ok(page));
    let (reply, text) = output(
        &fixture,
        &of(Source::Url("https://a.example/page".into()), ""),
    )
    .await;
    assert_eq!(reply.mime, "text/html");
    assert_eq!(body(&text).trim_end(), "# Hi\n\nthere");
    let blocked = Fault::new(FaultCode::Denied, "Request to private network not allowed.")
        .detail("ssrf_blocked");
    lock(&fixture.outside).insert("http://169.254.169.254/".into(), Err(blocked));
    let (reply, _) = output(
        &fixture,
        &of(Source::Url("http://169.254.169.254/".into()), ""),
    )
    .await;
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("refuse", "unreadable")
    );
    let (reply, _) = output(&fixture, &of(Source::Url("ftp://x/".into()), "")).await;
    assert_eq!(reply.outcome, "refuse");
}

#[tokio::test]
async fn a_file_above_the_limit_is_refused_before_it_is_read() {
    let fixture = ReadingFixture::with(&[("file-resolver.reading.max_file_size", "1KiB")]).await;
    let claim = fixture.put("big.txt", vec![b'x'; 2048]).await;
    let (reply, text) = output(&fixture, &of(Source::Claim(claim.into()), "")).await;
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("refuse", "too_large")
    );
    assert!(
        text.contains("exceeds max_file_bytes (2048 > 1024)"),
        "{text}"
    );
    assert_eq!(fixture.conversions(), 0);
}

#[tokio::test]
async fn a_large_document_without_a_model_is_an_excerpt_by_claim() {
    let fixture = ReadingFixture::new().await;
    let text: String = (0..20_000).fold(String::new(), |text, number| {
        text + &format!("line {number}\n")
    });
    let claim = fixture.put("long.txt", text).await;
    let reply = fixture
        .ask(&of(Source::Claim(claim.into()), ""))
        .await
        .unwrap();
    assert_eq!(
        (reply.outcome.as_str(), reply.error_code.as_str()),
        ("inline", "summary_failed")
    );
    assert!(reply.truncated);
    let body_ = reply.output.clone().unwrap().body;
    assert!(
        matches!(body_, Some(v1::content::Body::Claim(_))),
        "80 kB do not fit a message"
    );
    let shown = fixture.read(reply.output).await;
    assert!(shown.contains("bytes left out here)_") && shown.ends_with("--"));
}

#[tokio::test]
async fn reading_can_be_switched_off_and_another_tenants_files_stay_theirs() {
    let fixture = ReadingFixture::with(&[("file-resolver.reading.enabled", "false")]).await;
    let claim = fixture.put("a.csv", TABLE_CSV).await;
    let fault = fixture
        .ask(&of(Source::Claim(claim.into()), ""))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "reading_disabled");
    let fixture = ReadingFixture::new().await;
    let mut claim = v1::Claim::from(fixture.put("a.csv", TABLE_CSV).await);
    claim.artifact.as_mut().unwrap().tenant = "other".into();
    let fault = fixture.ask(&of(Source::Claim(claim), "")).await;
    assert!(fault.is_err() || fault.unwrap().outcome == "refuse");
}

#[tokio::test]
async fn people_get_plain_markdown_of_bytes_that_the_request_has() {
    let fixture = ReadingFixture::new().await;
    let long = TABLE_CSV.repeat(200);
    let mut request = of(Source::Inline(long.clone().into()), "people.csv");
    request.plain = true;
    // Neither a budget nor a summary applies: the text is not cut, and no model is called.
    request.inline_budget_bytes = 10;
    request.summarize = true;
    let (reply, text) = output(&fixture, &request).await;
    assert_eq!((reply.outcome.as_str(), reply.truncated), ("inline", false));
    assert!(
        text.starts_with("| name | amount |\n|---|---|\n| ada"),
        "{text}"
    );
    assert_eq!(text.matches("grace").count(), 200);
    let mut request = of(Source::Inline("\u{0}\u{1}\u{2}".into()), "noise.bin");
    request.plain = true;
    let (reply, text) = output(&fixture, &request).await;
    assert_eq!(reply.outcome, "refuse", "{text}");
    let large = vec![b'a'; 64 * 1024 + 1];
    let refused = fixture
        .ask(&of(Source::Inline(large.into()), "a.txt"))
        .await;
    assert_eq!(refused.unwrap_err().code, FaultCode::InvalidArgument);
}
