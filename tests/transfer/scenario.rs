//! Tests of the commands of an operator: `dray session`, `dray send`, `dray receipts`, `dray sandbox`, and of an
//! attachment that a user sends.

use dray_platform_telegram::fake_server::{InjectedFault, UserFile};
use dray_testkit::eventually;
use serde_json::Value;

use super::transfer_fixture::{TransferFixture, text};

const PDF_BYTES: &[u8] = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n";
const CSV_BYTES: &[u8] = b"crane,hours\n4,12\n7,31\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_from_the_sandbox_to_the_chat_and_an_attachment_arrives() {
    let fixture = TransferFixture::start().await;
    let _services = fixture.all_up().await;
    let chat = fixture.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    let bound = fixture.ask(&[
        "session",
        "bind",
        "crane",
        "--sandbox",
        &fixture.address(),
        "--chat",
        &to,
    ]);
    assert_eq!(bound["chat"], to.as_str(), "{bound}");
    assert!(
        bound["sandbox"]
            .as_str()
            .unwrap()
            .starts_with(&fixture.address())
    );

    let digest = fixture.write("report.pdf", PDF_BYTES);
    let sent = fixture.ask(&[
        "send",
        "report.pdf",
        "--session",
        "crane",
        "-m",
        "The report",
    ]);
    assert_eq!(sent["success"], true, "{sent}");
    let file = &sent["files"][0];
    assert_eq!(
        (&file["state"], &file["route"]),
        (&"delivered".into(), &"document".into())
    );
    assert_eq!(file["sha256"], digest.to_hex().as_str());
    let messages = fixture.platforms.telegram.visible_messages(chat);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0].text, "The report");
    assert_eq!(
        messages[0].message_id.to_string(),
        file["platform_message_id"]
    );
    assert_eq!(fixture.shown_in(chat, digest), 1);

    check_receipts(&fixture, sent["delivery_id"].as_str().unwrap());
    check_attachment(&fixture, chat).await;
}

/// Checks that receipts report the delivery, as a document and as one line.
fn check_receipts(fixture: &TransferFixture, id: &str) {
    let receipt = fixture.ask(&["receipts", "--session", "crane"]);
    assert_eq!(receipt["delivery_id"], id);
    assert_eq!(
        receipt["files"][0]["transfer"]["integrity"], "sha256",
        "{receipt}"
    );
    let line = fixture.run(&["receipts", id]).stdout;
    let line = String::from_utf8(line).unwrap();
    for part in [
        id,
        "delivered",
        "report.pdf",
        "as document",
        "via direct",
        "telegram",
    ] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(fixture.lines(&["receipts", "--open"]), Vec::<Value>::new());
}

async fn check_attachment(fixture: &TransferFixture, chat: i64) {
    let attached = UserFile::new("document", "figures.csv", CSV_BYTES);
    fixture
        .platforms
        .telegram
        .user_writes(chat, "For the report", Some(attached));
    let upload = eventually("the upload", async || {
        let mut uploads = fixture.lines(&["session", "uploads", "crane"]);
        uploads.retain(|upload| upload["state"] != "waiting");
        uploads.pop()
    })
    .await;
    assert_eq!(upload["state"], "placed", "{upload}");
    let path = fixture.sandbox().join("uploads/figures.csv");
    assert_eq!(upload["path"], text(&path));
    assert_eq!(std::fs::read(&path).unwrap(), CSV_BYTES);
    let line = upload["context_line"].as_str().unwrap();
    assert!(line.starts_with("[User uploaded: figures.csv"), "{line}");
    // A person has seen the upload, and the agent has not: it stays listed.
    assert_eq!(fixture.lines(&["session", "uploads", "crane"]), [upload]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_copies_files_into_and_out_of_a_sandbox() {
    let fixture = TransferFixture::start().await;
    let _transfer = fixture.up("sandbox-transfer").await;
    let address = fixture.address();
    std::fs::write(fixture.working_directory().join("in.csv"), CSV_BYTES).unwrap();
    let uploaded = fixture.ask(&["sandbox", "put", "in.csv", &address, "data"]);
    let path = fixture.sandbox().join("data/in.csv");
    assert_eq!(uploaded["path"], text(&path), "{uploaded}");
    assert_eq!(std::fs::read(&path).unwrap(), CSV_BYTES);
    let repeated = fixture.ask(&["sandbox", "put", "in.csv", &address, "data"]);
    assert_eq!(
        (&repeated["existed"], &repeated["path"]),
        (&true.into(), &uploaded["path"])
    );

    let stat = fixture.ask(&["sandbox", "stat", &address, "data/in.csv"]);
    assert_eq!(
        (&stat["kind"], &stat["size"]),
        (&"file".into(), &CSV_BYTES.len().into())
    );
    let listed = fixture.ask(&["sandbox", "ls", &address, "data"]);
    assert_eq!(listed["entries"][0]["path"], text(&path), "{listed}");
    let downloaded = fixture.ask(&["sandbox", "get", &address, "data/in.csv", "-o", "out.csv"]);
    assert_eq!(downloaded["sha256"], uploaded["sha256"]);
    assert_eq!(downloaded["receipt"]["integrity"], "sha256", "{downloaded}");
    assert_eq!(
        std::fs::read(fixture.working_directory().join("out.csv")).unwrap(),
        CSV_BYTES
    );

    for number in 0..50 {
        let directory = fixture
            .working_directory()
            .join(format!("tree/d{number}/e"));
        std::fs::create_dir_all(directory).unwrap();
    }
    let copied = fixture.ask(&["sandbox", "put", "tree", &address, "."]);
    assert_eq!(copied["directories"], 101, "{copied}");
    assert!(fixture.sandbox().join("tree/d49/e").is_dir());

    let fault = fixture.ask_failing(&["sandbox", "get", &address, "data/none.csv"]);
    assert_eq!(fault["fault"]["code"], "not_found", "{fault}");
    let outside = fixture.ask_failing(&["sandbox", "stat", "local:/etc", "passwd"]);
    assert!(
        !outside.to_string().contains(text(&fixture.sandbox())),
        "{outside}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_delivery_id_sent_repeatedly_and_concurrently_makes_one_message() {
    let fixture = TransferFixture::start().await;
    let _services = fixture.all_up().await;
    let chat = fixture.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    std::fs::write(fixture.working_directory().join("report.pdf"), PDF_BYTES).unwrap();
    let arguments = [
        "deliver",
        "report.pdf",
        "--to",
        &to,
        "--delivery-id",
        "d-1",
        "--json",
    ];
    let running: Vec<_> = (0..3)
        .map(|_| {
            let mut command = fixture.command(&arguments);
            command
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut results = Vec::new();
    for command in running {
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        results.push(output.stdout);
    }
    results.push(fixture.run(&arguments).stdout);
    assert!(
        results.iter().all(|result| *result == results[0]),
        "{results:?}"
    );
    assert_eq!(fixture.platforms.telegram.visible_messages(chat).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_is_reported_as_unknown_and_sent_again_only_by_command() {
    let fixture = TransferFixture::start().await;
    let _services = fixture.all_up().await;
    let chat = fixture.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    let digest = fixture.write("report.pdf", PDF_BYTES);
    fixture
        .platforms
        .telegram
        .script(InjectedFault::LoseResponse);
    let arguments = [
        "send",
        "report.pdf",
        "--from",
        &fixture.address(),
        "--to",
        &to,
    ];
    let result = fixture.ask_failing(&arguments);
    assert_eq!(result["files"][0]["state"], "unknown", "{result}");
    assert_eq!(fixture.shown_in(chat, digest), 1, "the message was shown");
    let id = result["delivery_id"].as_str().unwrap();
    let open = fixture.ask(&["receipts", "--open"]);
    assert_eq!(open["delivery_id"], id);
    assert!(
        open["notice"]
            .as_str()
            .unwrap()
            .contains("May have been delivered: report.pdf")
    );

    let second_result = fixture.ask(&["resend", id]);
    assert_eq!(
        second_result["files"][0]["state"], "delivered",
        "{second_result}"
    );
    assert_ne!(second_result["delivery_id"], id);
    assert_eq!(
        fixture.shown_in(chat, digest),
        2,
        "the operator asked for it"
    );
    let repeated = fixture.ask_failing(&["resend", second_result["delivery_id"].as_str().unwrap()]);
    assert!(repeated["fault"].is_object(), "{repeated}");
}
