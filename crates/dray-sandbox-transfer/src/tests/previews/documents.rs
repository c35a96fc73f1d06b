//! Markdown, tables and notebooks as pages.

use std::sync::{Mutex, PoisonError};

use dray_proto::convert::ContentSource;
use dray_proto::v1::document_source::Source;
use dray_types::FaultCode;
use tokio::task::JoinSet;

use super::*;

/// Requests to a fake reader, with the bytes of each document.
type Requests = std::sync::Arc<Mutex<Vec<(v1::ReadAttachmentRequest, Vec<u8>)>>>;

/// A reader that gives every document the same reply.
async fn fake_reader(
    fixture: &TransferFixture,
    tasks: &mut JoinSet<()>,
    reply: Result<v1::ReadAttachmentReply, Fault>,
) -> Requests {
    let subject = dray_proto::contract::call_subject::<v1::ReadAttachmentRequest>();
    let mut responder = fixture
        .bus
        .respond_to(&subject, "file-resolver")
        .await
        .unwrap();
    let requests = Requests::default();
    let (seen, store) = (requests.clone(), fixture.store.clone());
    tasks.spawn(async move {
        while let Some(incoming) = responder.next().await {
            let mut request: v1::ReadAttachmentRequest = incoming.decode().unwrap();
            let content = match request.source.take().unwrap().source.unwrap() {
                Source::Inline(bytes) => bytes.to_vec(),
                Source::Claim(claim) => {
                    assert!(
                        claim.store.contains("cache"),
                        "not a cached object: {claim:?}"
                    );
                    let claim = Claim::try_from(claim).unwrap();
                    let meta = incoming.meta().unwrap();
                    let reader = store.read(&meta.tenant, &claim, meta.deadline).await;
                    reader
                        .unwrap()
                        .read_all(ByteSize::mib(8))
                        .await
                        .unwrap()
                        .to_vec()
                }
                other => panic!("the reader would open {other:?} itself"),
            };
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((request, content));
            incoming.answer(reply.clone()).await;
        }
    });
    requests
}

fn markdown(text: &str) -> v1::ReadAttachmentReply {
    v1::ReadAttachmentReply {
        output: Some(ContentSource::Inline(text.to_owned().into()).into()),
        outcome: "inline".to_owned(),
        warnings: vec!["hidden content dropped: 3 cells".to_owned()],
        ..v1::ReadAttachmentReply::default()
    }
}

#[tokio::test]
async fn markdown_is_a_page_without_scripts_whose_links_stay_in_the_preview() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("notes");
    std::fs::create_dir_all(root.join("www/docs")).unwrap();
    std::fs::write(root.join("secret.md"), "ESCAPED").unwrap();
    std::os::unix::fs::symlink("../secret.md", root.join("www/link.md")).unwrap();
    let text = "# Report\n\n<script>alert(1)</script>\n\n![chart](../pic.png) [next](b.md) [out](../../x.md)\n\n\
                | a | b |\n|---|---|\n| 1 | 2 |\n";
    std::fs::write(root.join("www/docs/a.md"), text).unwrap();
    let link = fixture.preview(address(&sandbox), "www").await;
    let token = &link.token;
    // No reader is running.
    let page = link.get("d", "docs/a.md").await;
    assert_eq!(
        (page.status, page.field("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("sandbox ") && policy.contains("default-src 'none'"),
        "{policy}"
    );
    for granted in [
        "allow-scripts",
        "allow-same-origin",
        "allow-forms",
        "script-src",
    ] {
        assert!(!policy.contains(granted), "{policy}");
    }
    let html = page.text();
    for part in [
        "<h1 id=\"report\">Report</h1>".to_owned(),
        "&lt;script&gt;".to_owned(),
        "<td>2</td>".to_owned(),
        format!("<img src=\"/p/{token}/pic.png\" alt=\"chart\">"),
        format!("<a href=\"/v/{token}/docs/b.md\" target=\"_top\">next</a> out"),
    ] {
        assert!(html.contains(&part), "{part}: {html}");
    }
    assert!(!html.contains("<script"), "{html}");
    let around = link.get("v", "docs/a.md").await.text();
    for part in [
        format!("<iframe id=\"content\" src=\"/d/{token}/docs/a.md\""),
        format!("href=\"/p/{token}/docs/a.md\">File as it is"),
    ] {
        assert!(around.contains(&part), "{part}: {around}");
    }
    let raw = link.get("p", "docs/a.md").await;
    assert_eq!(
        (raw.text().as_str(), raw.field("content-type")),
        (text, Some("text/markdown; charset=utf-8"))
    );
    let escaped = link.get("d", "link.md").await;
    assert_eq!(escaped.status, 403);
    assert!(!escaped.text().contains("ESCAPED"));
    for (rest, status) in [("docs/", 404), ("none.md", 404), ("../secret.md", 404)] {
        assert_eq!(link.get("d", rest).await.status, status, "{rest}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn a_long_markdown_file_is_shown_up_to_a_limit() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("long");
    let text = format!("FIRST\n\n{}LAST", "word word word\n\n".repeat(100_000));
    std::fs::write(root.join("a.md"), text).unwrap();
    let link = fixture.preview(address(&sandbox), "a.md").await;
    let page = link.get("d", "a.md").await;
    let html = page.text();
    assert!(html.contains("FIRST") && !html.contains("LAST"));
    assert!(html.contains("Only the first 512"), "{}", &html[..1000]);
    assert!(html.len() < 5 << 20, "{}", html.len());
    fixture.end().await;
}

#[tokio::test]
async fn tables_and_notebooks_are_read_here_and_converted_by_the_reader() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("tables");
    let large = "a,b\n".repeat(50_000);
    std::fs::write(root.join("small.csv"), "a,b\n1,2\n").unwrap();
    std::fs::write(root.join("large.csv"), &large).unwrap();
    for name in ["book.xlsx", "book.ods", "run.ipynb", "t.tsv"] {
        std::fs::write(root.join(name), name).unwrap();
    }
    let link = fixture.preview(address(&sandbox), ".").await;
    let mut tasks = JoinSet::new();
    let reply = markdown("| a |\n|---|\n| <b>1 |\n");
    let requests = fake_reader(&fixture, &mut tasks, Ok(reply)).await;
    let expected = [
        ("small.csv", "a,b\n1,2\n"),
        ("large.csv", large.as_str()),
        ("book.xlsx", "book.xlsx"),
        ("book.ods", "book.ods"),
        ("run.ipynb", "run.ipynb"),
        ("t.tsv", "t.tsv"),
    ];
    for (name, content) in expected {
        let page = link.get("d", name).await;
        let html = page.text();
        assert_eq!(page.status, 200, "{name}: {html}");
        assert!(html.contains("<td>&lt;b&gt;1</td>"), "{name}: {html}");
        assert!(
            html.contains("hidden content dropped: 3 cells"),
            "{name}: {html}"
        );
        let (request, bytes) = requests.lock().unwrap().pop().unwrap();
        assert!(request.plain && request.name == name, "{request:?}");
        assert!(bytes == content.as_bytes(), "{name}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn a_page_says_when_the_reader_is_away_or_refuses_and_offers_the_file() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("away");
    std::fs::write(root.join("a.csv"), "a,b\n").unwrap();
    let link = fixture.preview(address(&sandbox), "a.csv").await;
    let raw = format!(
        "<a href=\"/p/{}/a.csv\" target=\"_top\">Open the file as it is</a>",
        link.token
    );
    let away = link.get("d", "a.csv").await;
    let html = away.text();
    assert_eq!(away.status, 503, "{html}");
    assert!(
        html.contains("does not respond right now") && html.contains(&raw),
        "{html}"
    );
    assert_eq!(link.get("p", "a.csv").await.text(), "a,b\n");
    for (reply, sentence) in [
        (
            Err(Fault::new(
                FaultCode::Denied,
                "Reading <documents> is switched off here.",
            )),
            "Reading &lt;documents&gt; is switched off here.",
        ),
        (
            Ok(v1::ReadAttachmentReply {
                outcome: "hint".to_owned(),
                ..markdown("The file needs a password.")
            }),
            "The file needs a password.",
        ),
    ] {
        let mut tasks = JoinSet::new();
        fake_reader(&fixture, &mut tasks, reply).await;
        let refused = link.get("d", "a.csv").await.text();
        assert!(
            refused.contains(sentence) && refused.contains(&raw),
            "{refused}"
        );
        tasks.shutdown().await;
    }
    fixture.end().await;
}
