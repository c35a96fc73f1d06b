//! The round trip as an operator sees it: `dray session`, `dray send`, `dray receipts`, `dray sandbox`, and an
//! attachment of the user on its way in.

use dray_platform_telegram::fake_server::{InjectedFault, UserFile};
use dray_testkit::eventually;
use serde_json::Value;

use super::rig::{TransferFixture, text};

const PDF_BYTES: &[u8] = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n";
const CSV_BYTES: &[u8] = b"crane,hours\n4,12\n7,31\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_from_the_sandbox_to_the_chat_and_an_attachment_arrives() {
    let rig = TransferFixture::start().await;
    let _services = rig.all_up().await;
    let chat = rig.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    let bound = rig.ask(&[
        "session",
        "bind",
        "crane",
        "--sandbox",
        &rig.address(),
        "--chat",
        &to,
    ]);
    assert_eq!(bound["chat"], to.as_str(), "{bound}");
    assert!(
        bound["sandbox"]
            .as_str()
            .unwrap()
            .starts_with(&rig.address())
    );

    let digest = rig.write("report.pdf", PDF_BYTES);
    let sent = rig.ask(&[
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
    let messages = rig.platforms.telegram.visible_messages(chat);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0].text, "The report");
    assert_eq!(
        messages[0].message_id.to_string(),
        file["platform_message_id"]
    );
    assert_eq!(rig.shown_in(chat, digest), 1);

    one_line_reports_it(&rig, sent["delivery_id"].as_str().unwrap());
    attachment_comes_back(&rig, chat).await;
}

/// Receipts report the same, as a document and as one line.
fn one_line_reports_it(rig: &TransferFixture, id: &str) {
    let receipt = rig.ask(&["receipts", "--session", "crane"]);
    assert_eq!(receipt["delivery_id"], id);
    assert_eq!(
        receipt["files"][0]["transfer"]["integrity"], "sha256",
        "{receipt}"
    );
    let line = rig.run(&["receipts", id]).stdout;
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
    assert_eq!(rig.lines(&["receipts", "--open"]), Vec::<Value>::new());
}

async fn attachment_comes_back(rig: &TransferFixture, chat: i64) {
    let attached = UserFile::new("document", "figures.csv", CSV_BYTES);
    rig.platforms
        .telegram
        .user_writes(chat, "For the report", Some(attached));
    let upload = eventually("the upload", async || {
        let mut uploads = rig.lines(&["session", "uploads", "crane"]);
        uploads.retain(|upload| upload["state"] != "waiting");
        uploads.pop()
    })
    .await;
    assert_eq!(upload["state"], "placed", "{upload}");
    let path = rig.sandbox().join("uploads/figures.csv");
    assert_eq!(upload["path"], text(&path));
    assert_eq!(std::fs::read(&path).unwrap(), CSV_BYTES);
    let line = upload["context_line"].as_str().unwrap();
    assert!(line.starts_with("[User uploaded: figures.csv"), "{line}");
    assert_eq!(
        rig.lines(&["session", "uploads", "crane"]),
        Vec::<Value>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_copies_files_into_and_out_of_a_sandbox() {
    let rig = TransferFixture::start().await;
    let _transfer = rig.up("sandbox-transfer").await;
    let address = rig.address();
    std::fs::write(rig.here().join("in.csv"), CSV_BYTES).unwrap();
    let put = rig.ask(&["sandbox", "put", "in.csv", &address, "data"]);
    let path = rig.sandbox().join("data/in.csv");
    assert_eq!(put["path"], text(&path), "{put}");
    assert_eq!(std::fs::read(&path).unwrap(), CSV_BYTES);
    let again = rig.ask(&["sandbox", "put", "in.csv", &address, "data"]);
    assert_eq!(
        (&again["existed"], &again["path"]),
        (&true.into(), &put["path"])
    );

    let stat = rig.ask(&["sandbox", "stat", &address, "data/in.csv"]);
    assert_eq!(
        (&stat["kind"], &stat["size"]),
        (&"file".into(), &CSV_BYTES.len().into())
    );
    let listed = rig.ask(&["sandbox", "ls", &address, "data"]);
    assert_eq!(listed["entries"][0]["path"], text(&path), "{listed}");
    let received = rig.ask(&["sandbox", "get", &address, "data/in.csv", "-o", "out.csv"]);
    assert_eq!(received["sha256"], put["sha256"]);
    assert_eq!(received["receipt"]["integrity"], "sha256", "{received}");
    assert_eq!(
        std::fs::read(rig.here().join("out.csv")).unwrap(),
        CSV_BYTES
    );

    let fault = rig.fails(&["sandbox", "get", &address, "data/none.csv"]);
    assert_eq!(fault["fault"]["code"], "not_found", "{fault}");
    let outside = rig.fails(&["sandbox", "stat", "local:/etc", "passwd"]);
    assert!(
        !outside.to_string().contains(text(&rig.sandbox())),
        "{outside}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_delivery_id_sent_repeatedly_and_concurrently_is_one_message() {
    let rig = TransferFixture::start().await;
    let _services = rig.all_up().await;
    let chat = rig.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    std::fs::write(rig.here().join("report.pdf"), PDF_BYTES).unwrap();
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
            let mut command = rig.command(&arguments);
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
    results.push(rig.run(&arguments).stdout);
    assert!(
        results.iter().all(|result| *result == results[0]),
        "{results:?}"
    );
    assert_eq!(rig.platforms.telegram.visible_messages(chat).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_response_is_reported_as_unknown_and_sent_again_only_by_command() {
    let rig = TransferFixture::start().await;
    let _services = rig.all_up().await;
    let chat = rig.platforms.telegram.chat();
    let to = format!("telegram:{chat}");
    let digest = rig.write("report.pdf", PDF_BYTES);
    rig.platforms.telegram.script(InjectedFault::LoseAnswer);
    let arguments = ["send", "report.pdf", "--from", &rig.address(), "--to", &to];
    let result = rig.fails(&arguments);
    assert_eq!(result["files"][0]["state"], "unknown", "{result}");
    assert_eq!(rig.shown_in(chat, digest), 1, "it was shown all the same");
    let id = result["delivery_id"].as_str().unwrap();
    let open = rig.ask(&["receipts", "--open"]);
    assert_eq!(open["delivery_id"], id);
    assert!(
        open["notice"]
            .as_str()
            .unwrap()
            .contains("May have been delivered: report.pdf")
    );

    let again = rig.ask(&["resend", id]);
    assert_eq!(again["files"][0]["state"], "delivered", "{again}");
    assert_ne!(again["delivery_id"], id);
    assert_eq!(rig.shown_in(chat, digest), 2, "the operator asked for it");
    let nothing = rig.fails(&["resend", again["delivery_id"].as_str().unwrap()]);
    assert!(nothing["fault"].is_object(), "{nothing}");
}
