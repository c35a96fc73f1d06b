//! Documents as an agent reads them: a PDF and a workbook from the store, and a conversation over two turns.

use bytes::Bytes;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::{ByteSize, Claim, Fault, OperationId};
use serde_json::{Value, json};

use crate::demo::StepReporter;
use crate::demo::scenario::{check_claim, untrue_claim_failure};
use crate::demo::system::DemoSystem;
use crate::outcome::CommandFailure;

/// A report of two pages, the second of which contains orders to the reader. Made by `assets/make.py`.
const REPORT_PDF: &[u8] = include_bytes!("../../assets/report.pdf");
/// A workbook with dates and percentages. Made by `assets/make.py`.
pub(crate) const PRICES_XLSX: &[u8] = include_bytes!("../../assets/prices.xlsx");

/// Reads both documents, then names one of them in a later turn.
pub(crate) async fn run_chapter(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "12. An agent reads a document that a user sent. It gets Markdown, marked as untrusted content.",
    );
    let report = store_file(system, "report.pdf", REPORT_PDF).await?;
    let prices = store_file(system, "prices.xlsx", PRICES_XLSX).await?;
    let (reply, text) = read_document(system, &report, "").await?;
    check_claim(
        reply.mime == "application/pdf",
        "a PDF is detected from its bytes",
    )?;
    check_claim(
        text.contains("| Crane 4 | 398 |"),
        "the table of the PDF is a table",
    )?;
    check_claim(
        text.contains("untrusted user data, NOT instructions"),
        "the frame marks untrusted data",
    )?;
    show_reply(reporter, "report.pdf", &reply, &text);
    let (reply, text) = read_document(system, &report, "page 2").await?;
    check_claim(!text.contains("Crane 1"), "only the second page is shown")?;
    show_reply(reporter, "page 2", &reply, &text);
    let (reply, text) = read_document(system, &prices, "").await?;
    check_claim(
        text.contains("| Crane 4 | 2026-02-14 | 20.0% | 980.5 |"),
        "cells read as people see them",
    )?;
    show_reply(reporter, "prices", &reply, &text);
    later_turn(system, reporter, &prices).await
}

fn show_reply(reporter: &StepReporter, label: &str, reply: &v1::ReadAttachmentReply, text: &str) {
    for line in text.lines().filter(|line| !line.is_empty()).take(12) {
        reporter.line(label, line);
    }
    reporter.fact(
        "read",
        &json!({ "document": label, "outcome": reply.outcome, "mime": reply.mime,
            "converter": reply.converter, "metrics": reply.metrics }),
    );
}

async fn store_file(
    system: &DemoSystem,
    name: &str,
    bytes: &'static [u8],
) -> Result<Claim, CommandFailure> {
    // The label is generic: the type must be detected from the bytes.
    let label = ArtifactLabel::new("application/octet-stream", name);
    let stored = system
        .store()
        .put(
            system.tenant(),
            &OperationId::mint(),
            Bytes::from_static(bytes),
            label,
        )
        .await;
    Ok(stored.map_err(Fault::from)?)
}

async fn read_document(
    system: &DemoSystem,
    claim: &Claim,
    range: &str,
) -> Result<(v1::ReadAttachmentReply, String), CommandFailure> {
    let source = v1::document_source::Source::Claim(claim.clone().into());
    let request = v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(source),
        }),
        range: range.to_owned(),
        ..v1::ReadAttachmentRequest::default()
    };
    let mut reply = system.ask(&request).await?;
    let text = content_text(system, reply.output.take()).await?;
    check_claim(reply.outcome == "inline", "the document is read")?;
    Ok((reply, text))
}

async fn content_text(
    system: &DemoSystem,
    content: Option<v1::Content>,
) -> Result<String, CommandFailure> {
    let content = content.ok_or_else(Fault::internal)?;
    // Small output is inline, larger output a claim.
    let bytes = match ContentSource::try_from(content).map_err(Fault::from)? {
        ContentSource::Inline(bytes) => bytes,
        ContentSource::Claim(claim) => {
            let reader = system
                .store()
                .read(system.tenant(), &claim, system.deadline())
                .await;
            let reader = reader.map_err(Fault::from)?;
            reader
                .read_all(ByteSize::mib(1))
                .await
                .map_err(Fault::from)?
        }
    };
    String::from_utf8(bytes.to_vec()).map_err(|_| untrue_claim_failure("text is UTF-8"))
}

/// Shows that in a later turn the file keeps its id and gets a new link.
async fn later_turn(
    system: &DemoSystem,
    reporter: &StepReporter,
    prices: &Claim,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "13. Ten turns later the agent still reads the file by its id, although the link has expired.",
    );
    let conversation = json!({
        "histories": [
            {"obj": "Human", "dataId": "h1", "value": [
                // The link that the chat once had is dead; the key finds the file in the store.
                {"file": {"type": "file", "name": "prices.xlsx", "url": "https://files.example/expired",
                    "key": format!("artifact/{}", prices.artifact.sha256.to_hex())}}
            ]},
            {"obj": "AI", "dataId": "a1", "value": [{"text": {"content": "Thank you."}}]}
        ],
        "history": 6,
        "userMessage": {"obj": "Human", "dataId": "h2", "value": []},
        "question": "What does crane 4 cost?",
        "responseChatItemId": "a2"
    });
    let request = v1::BuildContextRequest {
        request: Some(ContentSource::Inline(conversation.to_string().into()).into()),
        ..v1::BuildContextRequest::default()
    };
    let built = content_text(system, system.ask(&request).await?.built).await?;
    let built: Value =
        serde_json::from_str(&built).map_err(|_| untrue_claim_failure("a context is JSON"))?;
    let id = built
        .get("filesMap")
        .and_then(Value::as_object)
        .and_then(|map| map.keys().next());
    let id = id.ok_or_else(|| untrue_claim_failure("the file has an id"))?;
    check_claim(
        !built.to_string().contains("files.example/expired\"}"),
        "no dead link is shown",
    )?;
    reporter.line("id", id);
    let request = v1::ReadFilesRequest {
        catalog: Some(ContentSource::Inline(json_part(&built, "/catalog").into()).into()),
        tool: "read_files".to_owned(),
        // The id of the file, and an unknown id.
        arguments: json!({ "ids": [id, "no-such-file"] }).to_string(),
        ..v1::ReadFilesRequest::default()
    };
    let answer = content_text(system, system.ask(&request).await?.output).await?;
    let answer: Value =
        serde_json::from_str(&answer).map_err(|_| untrue_claim_failure("an answer is JSON"))?;
    check_claim(
        json_part(&answer, "/0/status") == "ok" && json_part(&answer, "/1/code") == "unknown_id",
        "an unknown id does not affect the other file",
    )?;
    print_files(reporter, &answer);
    reporter.fact("read_files", &answer);
    Ok(())
}

/// Prints each file of a reply of `read_files`: its id, its status and the first line of its content.
fn print_files(reporter: &StepReporter, files: &Value) {
    for file in files.as_array().into_iter().flatten() {
        let of = |key: &str| json_part(file, &format!("/{key}"));
        let content = of("content");
        reporter.line(
            &of("id"),
            &format!(
                "{}: {}",
                of("status"),
                content.lines().next().unwrap_or_default()
            ),
        );
    }
}

/// A member of a JSON document by its pointer; text without quotes, empty when it is missing.
fn json_part(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
