//! Directories of sandboxes, and downloads and uploads of their files.

use std::sync::{Arc, Mutex};

use dray_proto::v1::{self, SandboxEntryKind};
use dray_store::ArtifactLabel;
use dray_types::{ByteSize, Claim, FaultCode, OperationId};

use super::*;

fn entry(path: &str, kind: SandboxEntryKind) -> v1::SandboxEntry {
    v1::SandboxEntry {
        path: path.as_bytes().to_vec(),
        size: 3,
        kind_code: kind.into(),
        ..v1::SandboxEntry::default()
    }
}

/// The page with the form that sends a file of a session.
const SEND_PAGE: &str = "/sandboxes/send?session=chat-1&path=%2Fwork%2Fa%26b.txt";

/// A console beside a session with a chat. Returns the requests of delivery that arrive.
async fn console_with_chat() -> (ConsoleFixture, Arc<Mutex<Vec<v1::SendFileRequested>>>) {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ShowSessionRequest>(|request| {
            let chat = (request.session == "chat-1").then(|| v1::ChatTarget {
                platform: "telegram".to_owned(),
                chat: "42".to_owned(),
                ..v1::ChatTarget::default()
            });
            Ok(v1::Session {
                session: request.session,
                chat,
                ..v1::Session::default()
            })
        })
        .await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&received);
    console
        .respond::<v1::SendFileRequested>(move |request| {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            Ok(v1::DeliveryAccepted {
                delivery_id: "d-1".to_owned(),
                duplicate: requests.len() > 1,
            })
        })
        .await;
    (console, received)
}

/// The operation that the page of a file puts into its form.
async fn operation_of_form(console: &ConsoleFixture, login: &Login) -> String {
    let page = console.get(SEND_PAGE, Some(login)).await;
    assert!(page.body.contains("Send to telegram:42"), "{page:?}");
    assert!(page.body.contains("/work/a&amp;b.txt"), "{page:?}");
    let (_, rest) = page.body.split_once("name=\"operation\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn send_form(operation: &str) -> String {
    format!(
        "session=chat-1&path=%2Fwork%2Fa%26b.txt&message=Here&as_document=1&operation={operation}"
    )
}

#[tokio::test]
async fn a_file_is_sent_to_the_chat_of_its_session_once_however_often_its_form_is_sent() {
    let (console, received) = console_with_chat().await;
    let audits = dray_bus::EventFilter::new("dray.audit.console.>").from_start();
    let mut trail = console.bus.events(audits).await.unwrap();
    let login = console.log_in(ConsoleRole::Act).await;
    let operation = operation_of_form(&console, &login).await;
    let form = send_form(&operation);
    let sent = console.post("/sandboxes/send", &login, &form).await;
    assert_eq!(sent.status, 303, "{sent:?}");
    assert_eq!(sent.header("location"), Some("/operations/d-1"));
    // A person who went back and changed the message must not take the first delivery for a second one.
    let repeated = console.post("/sandboxes/send", &login, &form).await;
    assert_eq!(repeated.status, 200, "{repeated:?}");
    for part in ["nothing was sent a second time", "href=\"/operations/d-1\""] {
        assert!(repeated.body.contains(part), "{repeated:?}");
    }
    let request = received.lock().unwrap().drain(..).next().unwrap();
    assert_eq!(request.paths, [b"/work/a&b.txt".to_vec()]);
    assert_eq!(
        (request.session.as_str(), request.message.as_str()),
        ("chat-1", "Here")
    );
    assert!(request.flags.unwrap().as_document);
    // The audit event has the operation of the delivery, which the form repeats.
    let event = loop {
        let event = trail.next().await.unwrap();
        let audit: v1::ConsoleAudit = event.decode().unwrap();
        if audit.action() == v1::ConsoleAction::SandboxSend {
            break event;
        }
    };
    assert_eq!(
        event.headers.get("Dray-Operation"),
        Some(operation.as_str())
    );
    // Another page of the same file has an operation of its own.
    assert_ne!(operation_of_form(&console, &login).await, operation);
}

#[tokio::test]
async fn a_file_is_not_sent_without_the_right_a_chat_or_a_complete_form() {
    let (console, received) = console_with_chat().await;
    let login = console.log_in(ConsoleRole::Act).await;
    let operation = operation_of_form(&console, &login).await;
    let looking = console.log_in(ConsoleRole::Look).await;
    assert_eq!(console.get(SEND_PAGE, Some(&looking)).await.status, 403);
    let form = send_form(&operation);
    let forbidden = console.post("/sandboxes/send", &looking, &form).await;
    assert_eq!(forbidden.status, 403);
    for (query, status) in [
        ("session=none&path=a", 404),
        ("sandbox=docker:web&path=a", 400),
        ("session=chat-1", 400),
    ] {
        let path = format!("/sandboxes/send?{query}");
        let page = console.get(&path, Some(&login)).await;
        assert_eq!(page.status, status, "{query}");
    }
    let long_message = "a".repeat(4_001);
    for form in [
        "session=chat-1&path=a&operation=",
        &format!("session=chat-1&path=a&operation={operation}&message={long_message}"),
    ] {
        let refused = console.post("/sandboxes/send", &login, form).await;
        assert!([400, 413].contains(&refused.status), "{refused:?}");
    }
    assert!(received.lock().unwrap().is_empty());
}

fn file_form(token: &str, file_name: &str, content: &str) -> String {
    let fields = [("csrf", token), ("session", "chat-1"), ("path", "/work")];
    multipart_form(&fields, &[(file_name, content)])
}

async fn put(console: &ConsoleFixture, login: &Login, form: &str) -> TestResponse {
    console.post_multipart("/sandboxes/put", login, form).await
}

#[tokio::test]
async fn a_directory_is_browsed_and_names_of_files_are_text() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ListSandboxRequest>(|request| match request.path.as_slice() {
            b"/work" => Ok(v1::ListSandboxReply {
                entries: vec![
                    entry("/work/sub", SandboxEntryKind::Directory),
                    entry("/work/<script>alert(1)", SandboxEntryKind::File),
                ],
                truncated: false,
                denied: 2,
                offset: request.offset,
            }),
            _ => Err(Fault::new(FaultCode::Denied, "The path may not be used.")),
        })
        .await;
    console
        .respond::<v1::ShowSessionRequest>(|request| {
            Ok(v1::Session {
                session: request.session,
                working_directory: b"/work".to_vec(),
                ..v1::Session::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console
        .get("/sandboxes?session=chat-1&path=/work", Some(&login))
        .await;
    assert!(
        page.body
            .contains("href=\"/sandboxes?session=chat-1&amp;path=%2Fwork%2Fsub\"")
    );
    assert!(page.body.contains("&lt;script&gt;") && !page.body.contains("<script>alert"));
    assert!(page.body.contains("data-drop"), "{page:?}");
    assert!(
        page.body.contains("policy of transfers refuses them: 2."),
        "{page:?}"
    );
    let refused = console
        .get("/sandboxes?session=chat-1&path=/etc", Some(&login))
        .await;
    assert!(refused.body.contains("The directory cannot be listed."));
    assert!(
        refused.body.contains("sandbox-transfer.policy.roots"),
        "{refused:?}"
    );
    let read_only_login = console.log_in(ConsoleRole::Look).await;
    let page = console
        .get(
            "/sandboxes?session=chat-1&path=/work",
            Some(&read_only_login),
        )
        .await;
    assert!(!page.body.contains("data-drop") && !page.body.contains("/sandboxes/file"));
}

/// Follows the links from a page to the last one, and counts the occurrences of a text on all of them.
async fn count_on_pages(
    console: &ConsoleFixture,
    login: &Login,
    path: &str,
    text: &str,
) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut path = Some(path.to_owned());
    while let Some(next) = path {
        let page = console.get(&next, Some(login)).await;
        assert_eq!(page.status, 200, "{page:?}");
        counts.push(page.body.matches(text).count());
        path = page.link("next");
    }
    counts
}

#[tokio::test]
async fn a_large_directory_is_browsed_to_its_end_without_a_script() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ListSandboxRequest>(|request| {
            // One part is shorter than its limit, as when long names fill a message.
            let limit = if request.offset == 500 {
                100
            } else {
                request.limit
            };
            let end = (request.offset + limit).min(1_201);
            let names = request.offset.min(end)..end;
            let entries = names
                .map(|number| entry(&format!("/work/file-{number:04}"), SandboxEntryKind::File));
            Ok(v1::ListSandboxReply {
                entries: entries.collect(),
                // The service lists no more than this, and says that the directory is larger.
                truncated: true,
                denied: 0,
                offset: request.offset,
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Look).await;
    let path = "/sandboxes?sandbox=docker:web&path=/work";
    let counts = count_on_pages(&console, &login, path, "file-").await;
    assert_eq!(counts, [500, 100, 500, 101, 0]);
    let second = format!("{path}&after=500");
    let second = console.get(&second, Some(&login)).await;
    assert!(second.body.contains("501 to 600, by name"), "{second:?}");
    assert!(second.body.contains("First page"), "{second:?}");
    let first = "/sandboxes?sandbox=docker%3Aweb&path=%2Fwork";
    assert_eq!(second.link("prev").as_deref(), Some(first));
    let third = console
        .get(&format!("{path}&after=600"), Some(&login))
        .await;
    let expected = format!("{first}&after=100");
    assert_eq!(third.link("prev"), Some(expected));
    let last = format!("{path}&after=1201");
    let last = console.get(&last, Some(&login)).await;
    assert!(
        last.body.contains("a listing ends after 10,000"),
        "{last:?}"
    );
    let wrong = format!("{path}&after=-1");
    assert_eq!(console.get(&wrong, Some(&login)).await.status, 400);
}

#[tokio::test]
async fn all_sessions_of_the_index_are_listed_in_pages() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    for number in 0..120 {
        let event = v1::DeliveryProgressed {
            session: format!("chat-{number:03}"),
            ..v1::DeliveryProgressed::default()
        };
        console.publish(&format!("op-{number}"), &event).await;
    }
    console.wait_for("/sandboxes", &login, "of 120").await;
    let counts = count_on_pages(&console, &login, "/sandboxes", ">chat-").await;
    assert_eq!(counts, [50, 50, 20]);
}

#[tokio::test]
async fn a_file_of_a_sandbox_is_always_a_download() {
    let mut console = ConsoleFixture::new().await;
    let content = Bytes::from_static(b"<script>alert(1)</script>");
    let label = ArtifactLabel::new("text/html", "p\u{e4}ge.html");
    let operation = OperationId::mint();
    let tenant = TenantId::default();
    let stored = console.store.put(&tenant, &operation, content, label).await;
    let claim = stored.unwrap();
    console
        .respond::<v1::GetSandboxFileRequest>(move |_| {
            Ok(v1::SandboxFile {
                claim: Some(claim.clone().into()),
                ..v1::SandboxFile::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let file = console
        .post(
            "/sandboxes/file",
            &login,
            "session=chat-1&path=/work/page.html",
        )
        .await;
    assert_eq!(
        (file.status, file.body.as_str()),
        (200, "<script>alert(1)</script>")
    );
    assert_eq!(
        file.header("content-type"),
        Some("application/octet-stream")
    );
    let disposition = file.header("content-disposition");
    assert_eq!(
        disposition,
        Some("attachment; filename*=UTF-8''p%C3%A4ge.html")
    );
    assert_eq!(
        file.header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );
}

#[tokio::test]
async fn a_file_is_uploaded_through_the_store_into_the_sandbox() {
    let mut console = ConsoleFixture::new().await;
    let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
    console
        .respond::<v1::PutSandboxFileRequest>(move |request| {
            sender.send(request).unwrap();
            Ok(v1::PlacedFile {
                path: b"/work/notes.txt".to_vec(),
                size: 5,
                sha256: vec![1; 32],
                ..v1::PlacedFile::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let form = file_form(&login.form_token, "notes.txt", "hello");
    let page = put(&console, &login, &form).await;
    assert!(
        page.body
            .contains("<strong>/work/notes.txt</strong> is in the sandbox"),
        "{page:?}"
    );
    let request = requests.recv().await.unwrap();
    assert_eq!(request.name, b"notes.txt");
    assert_eq!(
        (request.directory.as_slice(), request.collision.as_str()),
        (&b"/work"[..], "rename")
    );
    let claim = Claim::try_from(request.claim.unwrap()).unwrap();
    let deadline = Deadline::after(console.clock.now_ms(), TEST_TIMEOUT);
    let reader = console
        .store
        .read(&TenantId::default(), &claim, deadline)
        .await
        .unwrap();
    let stored = reader.read_all(ByteSize::bytes(100)).await.unwrap();
    assert_eq!(stored, Bytes::from_static(b"hello"));
    let forged = put(&console, &login, &file_form("forged", "a", "b")).await;
    assert_eq!(forged.status, 403, "{forged:?}");
    let nameless = put(&console, &login, &file_form(&login.form_token, "", "b")).await;
    assert!(nameless.body.contains("No file was chosen"), "{nameless:?}");
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_file_over_the_limit_is_refused_while_it_arrives() {
    let settings = ConsoleSettings {
        max_upload_bytes: 1000,
        ..ConsoleFixture::acting()
    };
    let console = ConsoleFixture::with(settings).await;
    let login = console.log_in(ConsoleRole::Act).await;
    let form = file_form(&login.form_token, "big.txt", &"x".repeat(1001));
    let refused = put(&console, &login, &form).await;
    assert!(
        refused.body.contains("more than the 1000 bytes"),
        "{refused:?}"
    );
}
