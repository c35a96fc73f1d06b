//! Delivers files of an agent's sandbox to a person, and a file of the person back. Every step checks the other side.

use std::path::Path;

use dray_bus::Meta;
use dray_platform_telegram::fake_server::{StoredMessage, UserFile};
use dray_proto::v1::{self, DeliveryErrorKind, FileState};
use dray_types::{Fault, OperationId, Sha256Digest};
use prost::Message as _;
use serde_json::{Value, json};

use crate::commands::receipts;
use crate::demo::StepReporter;
use crate::demo::files::{PIXEL_PNG, one_line_pdf};
use crate::demo::scenario::{check_claim, untrue_claim_failure};
use crate::demo::system::{DemoSystem, late_event_failure, next_event};
use crate::outcome::CommandFailure;

/// Session that the demo binds to a sandbox and a chat.
const DEMO_SESSION: &str = "demo";
/// The turn of the agent in which everything is sent.
const DEMO_TURN: &str = "turn-1";
/// Content of a table that the agent leaves in its sandbox.
const TABLE_CONTENT: &[u8] = b"day,containers\nmonday,412\ntuesday,398\n";
/// Content of `.env`, which must never leave.
const SECRET_CONTENT: &[u8] = b"TOKEN=this-never-leaves\n";
/// Longest wait of one request for an outcome, in milliseconds.
const WAIT_MS: u64 = 20_000;

/// Sends files, repeats the request, sends tagged files, copies files, and receives a file. Returns the report of the
/// first delivery.
pub(crate) async fn run_chapter(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<v1::DeliveryReport, CommandFailure> {
    fill_sandbox(&system.sandbox)
        .map_err(CommandFailure::local("cannot write the files of the demo"))?;
    let chat = system.telegram.chat();
    let (meta, sent) = send_files(system, reporter, chat).await?;
    send_again(system, reporter, &meta, &sent, chat).await?;
    send_tagged_text(system, reporter, chat).await?;
    copy_to_directory(system, reporter).await?;
    receive_message(system, reporter, chat).await?;
    Ok(sent)
}

/// Writes the files that an agent might leave, one of which is a secret.
fn fill_sandbox(sandbox: &Path) -> std::io::Result<()> {
    let files: [(&str, &[u8]); 4] = [
        ("report.pdf", &one_line_pdf("Crane 4 is back at noon.")),
        ("data.csv", TABLE_CONTENT),
        ("chart.png", PIXEL_PNG),
        (".env", SECRET_CONTENT),
    ];
    files
        .iter()
        .try_for_each(|(name, bytes)| std::fs::write(sandbox.join(name), bytes))
}

/// Checks that two files arrived, and that the others have the right reasons.
fn check_outcomes(report: &v1::DeliveryReport) -> Result<(), CommandFailure> {
    let files = report.files.iter();
    let states: Vec<_> = files.map(v1::DeliveredFile::file_state).collect();
    let (arrived, refused) = (FileState::Delivered, FileState::Rejected);
    check_claim(
        states == [arrived, arrived, refused, refused],
        "what can be sent is sent, and nothing else",
    )?;
    let files = report.files.iter();
    let kinds: Vec<_> = files.map(v1::DeliveredFile::failure).collect();
    let (forbidden, missing) = (DeliveryErrorKind::Forbidden, DeliveryErrorKind::NotFound);
    check_claim(
        kinds == [None, None, Some(forbidden), Some(missing)],
        "the reasons are reported",
    )
}

async fn send_files(
    system: &DemoSystem,
    reporter: &StepReporter,
    chat: i64,
) -> Result<(Meta, v1::DeliveryReport), CommandFailure> {
    reporter.chapter("6. An agent sends files of its sandbox. Each file gets a receipt.");
    let session = bind_session(system, chat).await?;
    let handle = session.sandbox.unwrap_or_default();
    reporter.line(
        "session",
        &format!(
            "{DEMO_SESSION}: {}:{} and telegram:{chat}",
            handle.backend, handle.name
        ),
    );
    reporter.line(
        "asked",
        "send_file(report.pdf, data.csv, .env, missing.txt)",
    );
    // The operation is kept, because the next chapter repeats it.
    let meta = system.meta().with_operation(OperationId::mint());
    let accepted = system
        .bus()
        .call(&meta, &send_file_request())
        .await
        .map_err(Fault::from)?;
    let report = wait_for_outcome(system, &accepted.delivery_id).await?;
    for line in receipts::report_lines(&report) {
        reporter.line("receipt", &line);
    }
    check_outcomes(&report)?;
    show_chat(system, reporter, chat)?;
    reporter.fact("delivered", &tool_result(&report)?);
    Ok((meta, report))
}

/// Checks the chat of the person: the two unchanged files, and the reasons for the missing ones.
fn show_chat(
    system: &DemoSystem,
    reporter: &StepReporter,
    chat: i64,
) -> Result<(), CommandFailure> {
    let messages = system.telegram.visible_messages(chat);
    for shown in &messages {
        reporter.line("in chat", &chat_line(shown));
    }
    for name in ["report.pdf", "data.csv"] {
        check_claim(
            digests_by_name(&messages, name) == [digest_on_disk(&system.sandbox.join(name))?],
            "the chat has each file once, with the bytes of the sandbox",
        )?;
    }
    // The file is found by its content, because it could have been sent under another name.
    let secret = Sha256Digest::of(SECRET_CONTENT);
    let leaked = messages
        .iter()
        .filter_map(|shown| shown.file.as_ref())
        .any(|file| file.sha256 == secret);
    check_claim(!leaked, "the secret stays")?;
    check_claim(
        messages
            .iter()
            .any(|shown| shown.text.contains("missing.txt")),
        "the user gets a report of the missing files",
    )?;
    reporter.line(
        "checked",
        "both files have in the chat the SHA-256 that they have in the sandbox",
    );
    Ok(())
}

async fn bind_session(system: &DemoSystem, chat: i64) -> Result<v1::Session, CommandFailure> {
    let bind = v1::BindSessionRequest {
        session: DEMO_SESSION.to_owned(),
        sandbox: format!("local:{}", system.sandbox.display()),
        chat: Some(v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: chat.to_string(),
            ..v1::ChatTarget::default()
        }),
        ..v1::BindSessionRequest::default()
    };
    system.ask(&bind).await
}

/// The call of the tool `send_file`: two files, a secret, and one that does not exist.
fn send_file_request() -> v1::SendFileRequested {
    let paths = ["report.pdf", "data.csv", ".env", "missing.txt"];
    v1::SendFileRequested {
        session: DEMO_SESSION.to_owned(),
        paths: paths.map(|path| path.as_bytes().to_vec()).to_vec(),
        message: "The figures of this week".to_owned(),
        turn: DEMO_TURN.to_owned(),
        ..v1::SendFileRequested::default()
    }
}

async fn send_again(
    system: &DemoSystem,
    reporter: &StepReporter,
    meta: &Meta,
    sent: &v1::DeliveryReport,
    chat: i64,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "7. The same delivery is requested again, as after a crash. Nothing is sent a second time.",
    );
    let before = visible_request_count(system);
    // The request has the same envelope, and so the same operation, as a redelivered message would have.
    let accepted = system
        .bus()
        .call(meta, &send_file_request())
        .await
        .map_err(Fault::from)?;
    let report = wait_for_outcome(system, &accepted.delivery_id).await?;
    check_claim(accepted.duplicate, "the repeat is recognised as one")?;
    check_claim(report == *sent, "both requests have the same receipt")?;
    // Deliveries to a chat keep their order: once this one has ended, the repeat would have been visible.
    let probe = v1::SendFileRequested {
        session: DEMO_SESSION.to_owned(),
        paths: vec![b"data.csv".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let accepted = system.ask(&probe).await?;
    wait_for_outcome(system, &accepted.delivery_id).await?;
    check_claim(
        visible_request_count(system) == before + 1,
        "only the other delivery was sent",
    )?;
    check_claim(
        digests_by_name(&system.telegram.visible_messages(chat), "report.pdf").len() == 1,
        "the report is in the chat once",
    )?;
    reporter.line("id", &report.delivery_id);
    reporter.line(
        "sent",
        &format!("{before} requests before, {before} after, and one more for another delivery"),
    );
    reporter.fact(
        "repeated",
        &json!({ "delivery_id": report.delivery_id, "duplicate": true }),
    );
    Ok(())
}

async fn send_tagged_text(
    system: &DemoSystem,
    reporter: &StepReporter,
    chat: i64,
) -> Result<(), CommandFailure> {
    reporter.chapter(
        "8. Files that an agent names in its answer are sent, too, unless its tool has sent them.",
    );
    let directory = system.sandbox.display();
    let text = format!(
        "All done. MEDIA:{directory}/report.pdf\nThe chart: MEDIA:{directory}/chart.png\n\
         MEDIA:{directory}/lost.txt"
    );
    let request = v1::SendTextRequested {
        session: DEMO_SESSION.to_owned(),
        text,
        turn: DEMO_TURN.to_owned(),
        ..v1::SendTextRequested::default()
    };
    let reply = system.ask(&request).await?;
    reporter.line(
        "answer",
        "All done. MEDIA:…/report.pdf ⏎ The chart: MEDIA:…/chart.png ⏎ MEDIA:…/lost.txt",
    );
    let report = wait_for_outcome(system, &reply.delivery_id).await?;
    for line in receipts::report_lines(&report) {
        reporter.line("receipt", &line);
    }
    let messages = system.telegram.visible_messages(chat);
    check_claim(
        digests_by_name(&messages, "report.pdf").len() == 1,
        "what the tool sent is not sent again",
    )?;
    check_claim(
        messages
            .iter()
            .filter_map(|shown| shown.file.as_ref())
            .any(|file| file.sha256 == Sha256Digest::of(PIXEL_PNG)),
        "the chart is in the chat",
    )?;
    check_claim(
        reply.notices == ["lost.txt"],
        "a tag without a file is reported",
    )?;
    check_claim(!reply.text.contains("MEDIA:"), "no tag is shown")?;
    reporter.line("shown", &reply.text.replace('\n', " ⏎ "));
    reporter.line("missing", &reply.notices.join(", "));
    reporter.fact(
        "answered",
        &json!({ "text": reply.text, "notices": reply.notices, "delivery": tool_result(&report)? }),
    );
    Ok(())
}

async fn copy_to_directory(
    system: &DemoSystem,
    reporter: &StepReporter,
) -> Result<(), CommandFailure> {
    reporter.chapter("9. On the command line, a delivery copies files into a directory.");
    let request = v1::SendFileRequested {
        session: DEMO_SESSION.to_owned(),
        paths: vec![b"report.pdf".to_vec()],
        target: Some(v1::ChatTarget {
            platform: "cli".to_owned(),
            chat: system.downloads.to_string_lossy().into_owned(),
            ..v1::ChatTarget::default()
        }),
        ..v1::SendFileRequested::default()
    };
    let accepted = system.ask(&request).await?;
    let report = wait_for_outcome(system, &accepted.delivery_id).await?;
    for line in receipts::report_lines(&report) {
        reporter.line("receipt", &line);
    }
    check_claim(report.success, "the file is copied")?;
    check_claim(
        digest_on_disk(&system.downloads.join("report.pdf"))?
            == digest_on_disk(&system.sandbox.join("report.pdf"))?,
        "the copy has the bytes of the sandbox",
    )?;
    reporter.fact("copied", &tool_result(&report)?);
    Ok(())
}

async fn receive_message(
    system: &DemoSystem,
    reporter: &StepReporter,
    chat: i64,
) -> Result<(), CommandFailure> {
    reporter
        .chapter("10. A user's attachment is in the sandbox before the agent's next tool call.");
    let mut placed = system.events("dray.event.sandbox.v1.placed.*").await?;
    // 42 KiB, the size in the specification's example of a context line.
    let bytes: Vec<u8> = TABLE_CONTENT.iter().copied().cycle().take(43_008).collect();
    let attached = UserFile::new("document", "ports.csv", bytes.clone());
    system
        .telegram
        .user_writes(chat, "Please add these.", Some(attached));
    reporter.line("user", "Please add these.  + ports.csv");
    // The event arrives before a request of the agent, because the upload was placed automatically.
    let event = next_event(&mut placed).await?;
    let event = v1::UploadPlaced::decode(event.payload).map_err(|_| Fault::internal())?;
    let upload = event.upload.unwrap_or_default();
    check_claim(upload.state == "placed", "the file is placed immediately")?;
    let settle = v1::SettleUploadsRequest {
        session: DEMO_SESSION.to_owned(),
        ..v1::SettleUploadsRequest::default()
    };
    let settled = system.ask(&settle).await?;
    let lines: Vec<_> = settled
        .uploads
        .iter()
        .map(|upload| upload.context_line.as_str())
        .collect();
    let path = system.sandbox.join("uploads").join("ports.csv");
    let expected = format!("[User uploaded: ports.csv (42 KB) at {}]", path.display());
    check_claim(
        lines == [expected.as_str()],
        "the agent sees exactly this line",
    )?;
    check_claim(
        digest_on_disk(&path)? == Sha256Digest::of(&bytes),
        "the file in the sandbox is that of the user",
    )?;
    // A line that was handed over is not handed over again.
    check_claim(
        system.ask(&settle).await?.uploads.is_empty(),
        "the agent gets one report",
    )?;
    let receipt = upload.receipt.unwrap_or_default();
    reporter.line("agent", &expected);
    reporter.line(
        "checked",
        &format!(
            "SHA-256 of the user's file, read back in the sandbox (integrity {})",
            receipt.integrity
        ),
    );
    reporter.fact("received", &json!({ "context_line": expected }));
    Ok(())
}

/// Waits for the end of a delivery.
async fn wait_for_outcome(
    system: &DemoSystem,
    delivery_id: &str,
) -> Result<v1::DeliveryReport, CommandFailure> {
    let request = v1::DeliveryOutcomeRequest {
        delivery_id: delivery_id.to_owned(),
        wait_ms: WAIT_MS,
    };
    let report = system.ask(&request).await?;
    if report.finished {
        Ok(report)
    } else {
        Err(late_event_failure("A delivery did not end."))
    }
}

/// The result of the tool as the agent sees it: JSON.
fn tool_result(report: &v1::DeliveryReport) -> Result<Value, CommandFailure> {
    serde_json::from_str(&report.result_json)
        .map_err(|_| untrue_claim_failure("the result is JSON"))
}

fn digest_on_disk(path: &Path) -> Result<Sha256Digest, CommandFailure> {
    std::fs::read(path)
        .map(|bytes| Sha256Digest::of(&bytes))
        .map_err(CommandFailure::local("a file is not where it should be"))
}

/// Digests of the files with this name that the chat shows.
fn digests_by_name(seen: &[StoredMessage], name: &str) -> Vec<Sha256Digest> {
    seen.iter()
        .filter_map(|shown| shown.file.as_ref())
        .filter(|file| file.name.as_deref() == Some(name))
        .map(|file| file.sha256)
        .collect()
}

/// Number of requests until now that made something visible.
fn visible_request_count(system: &DemoSystem) -> usize {
    let requests = system.telegram.requests();
    requests
        .iter()
        .filter(|method| method.starts_with("send") && *method != "sendChatAction")
        .count()
}

/// A message on one line, as shown to the person.
fn chat_line(shown: &StoredMessage) -> String {
    let file = shown.file.as_ref().map(|file| {
        format!(
            "[{}: {}, {} bytes]  ",
            file.kind,
            file.name.as_deref().unwrap_or("no name"),
            file.size
        )
    });
    let line = format!("{}{}", file.unwrap_or_default(), shown.text);
    line.trim_end().to_owned()
}
