//! Tests of links: how they end, their limits, what they may show, and their audit events.

use dray_bus::topology::AUDIT_STREAM;
use dray_bus::{EventFilter, Topology};
use dray_proto::v1::PreviewAction;
use dray_testkit::eventually;
use dray_types::FaultCode;

use super::*;

#[tokio::test]
async fn links_that_ended_or_were_never_made_are_not_found() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("links");
    std::fs::write(root.join("a.txt"), "shown").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let short = fixture
        .try_preview("acme", session("s1"), "a.txt", 1)
        .await
        .unwrap();
    let short = Link::new(short);
    let link = fixture.preview(session("s1"), "a.txt").await;
    assert_eq!(link.get("p", "a.txt").await.text(), "shown");
    // The forged links have another secret, another record, or a part of a link.
    let other = if link.token.ends_with('A') { 'B' } else { 'A' };
    let forged = format!("{}{other}", &link.token[..63]);
    for token in [
        forged.as_str(),
        &link.token[1..],
        &link.token[..32],
        "",
        "..",
        "%2e",
    ] {
        let target = format!("/p/{token}/a.txt");
        let refused = request(&link.origin, "GET", &target, &[]).await;
        assert_eq!(refused.status, 404, "{token}");
    }
    // Another tenant sees and ends nothing, even with the same names.
    let list = list_of("");
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(session("s1")),
        preview_id: link.preview.preview_id.clone(),
    };
    assert!(
        fixture
            .ask_as("other", &list)
            .await
            .unwrap()
            .previews
            .is_empty()
    );
    assert_eq!(
        fixture.ask_as("other", &revoke).await.unwrap_err().detail,
        "no_preview"
    );
    let listed = fixture.ask(&list).await.unwrap().previews;
    assert!(
        listed[0].opened_at_ms > 0,
        "the opening is recorded: {listed:?}"
    );
    fixture.ask(&revoke).await.unwrap();
    let revoked = link.get("p", "a.txt").await;
    assert_eq!(revoked.status, 404);
    eventually("the end of the short link", async || {
        (short.get("p", "a.txt").await.status == 404).then_some(())
    })
    .await;
    let ended = short.get("p", "a.txt").await;
    assert_eq!(revoked.text(), ended.text(), "one response for all of them");
    // An ended preview is in no list.
    assert!(fixture.ask(&list).await.unwrap().previews.is_empty());
    fixture.end().await;
}

#[tokio::test]
async fn a_revocation_ends_a_file_that_is_being_sent() {
    const FILE_BYTES: u64 = 256 << 20;
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("revoked");
    let video = std::fs::File::create(root.join("video.mp4")).unwrap();
    // The file has no content on disk: only its length matters here.
    video.set_len(FILE_BYTES).unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let link = fixture.preview(session("s1"), "video.mp4").await;
    let target = format!("/p/{}/video.mp4", link.token);
    let mut stream = connect(&link.origin).await;
    let head = request_head(&link.origin, "GET", &target, &[]);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut chunk = vec![0; 1 << 20];
    assert!(stream.read(&mut chunk).await.unwrap() > 0);
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(session("s1")),
        preview_id: link.preview.preview_id.clone(),
    };
    fixture.ask(&revoke).await.unwrap();
    let mut received = 0;
    let reading = async {
        // A connection that breaks is reported as an end or as an error.
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            received += count as u64;
        }
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, reading)
        .await
        .unwrap();
    assert!(
        received < FILE_BYTES / 2,
        "{received} bytes came after the revocation"
    );
    fixture.end().await;
}

#[tokio::test]
async fn a_session_has_a_quota_and_another_sandbox_is_not_shown_under_its_link() {
    let settings = [WITH_PREVIEWS[0], ("sandbox-transfer.preview.max_open", "2")];
    let fixture = TransferFixture::with(&settings).await;
    let (first, sandbox) = fixture.sandbox("first");
    std::fs::write(first.join("a.txt"), "first").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let mut events = fixture
        .bus
        .events(EventFilter::new("dray.audit.preview.v1.changed.*"))
        .await
        .unwrap();
    let link = fixture.preview(session("s1"), "a.txt").await;
    fixture.preview(session("s1"), ".").await;
    let third = fixture
        .try_preview("acme", session("s1"), "a.txt", 0)
        .await
        .unwrap_err();
    assert_eq!(
        (third.code, third.detail.as_str()),
        (FaultCode::RateLimited, "too_many_previews")
    );
    assert!(
        fixture
            .try_preview("acme", address(&sandbox), "a.txt", 0)
            .await
            .is_ok(),
        "its own quota"
    );
    assert_eq!(link.get("p", "a.txt").await.text(), "first");
    // The refused preview was not made, so no event reports it.
    let expected = [
        PreviewAction::Created,
        PreviewAction::Created,
        PreviewAction::Created,
        PreviewAction::Opened,
    ];
    for action in expected {
        let audit: v1::PreviewAudit = events.next().await.unwrap().decode().unwrap();
        assert_eq!(audit.action(), action, "{audit:?}");
    }
    // The name now means another incarnation, whose files the preview must not show.
    std::fs::rename(&first, first.with_extension("old")).unwrap();
    std::fs::create_dir(&first).unwrap();
    std::fs::write(first.join("a.txt"), "second").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let response = link.get("p", "a.txt").await;
    assert!(
        response.status == 410 || response.status == 503,
        "{} {}",
        response.status,
        response.text()
    );
    eventually("the end of the preview", async || {
        (link.get("p", "a.txt").await.status == 410).then_some(())
    })
    .await;
    fixture.end().await;
}

#[tokio::test]
async fn links_of_deliveries_have_a_quota_of_their_own() {
    let settings = [
        WITH_PREVIEWS[0],
        ("sandbox-transfer.preview.max_open", "1"),
        ("sandbox-transfer.preview.max_open_delivered", "2"),
    ];
    let fixture = TransferFixture::with(&settings).await;
    let (root, sandbox) = fixture.sandbox("quota");
    std::fs::write(root.join("a.txt"), "a").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let delivered = |number: u32| v1::CreatePreviewRequest {
        sandbox: Some(session("s1")),
        path: b"a.txt".to_vec(),
        delivery_id: format!("d-{number}"),
        ..v1::CreatePreviewRequest::default()
    };
    for number in 0..2 {
        fixture.ask(&delivered(number)).await.unwrap();
    }
    let refused = fixture.ask(&delivered(2)).await.unwrap_err();
    assert_eq!(refused.detail, "too_many_previews");
    // Links that were sent to a chat do not count towards the limit of the person who looks.
    let own = || fixture.try_preview("acme", session("s1"), "a.txt", 0);
    assert!(own().await.is_ok());
    assert_eq!(own().await.unwrap_err().detail, "too_many_previews");
    fixture.end().await;
}

#[tokio::test]
async fn links_of_a_busy_session_can_still_be_opened_and_revoked() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("busy");
    let directory = format!("{}/{}", "d".repeat(150), "e".repeat(150));
    std::fs::create_dir_all(root.join(&directory)).unwrap();
    std::fs::write(root.join(&directory).join("a.txt"), "shown").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let request = |number: u32| v1::CreatePreviewRequest {
        sandbox: Some(session("s1")),
        path: format!("{directory}/a.txt").into_bytes(),
        delivery_id: format!("d-{number}"),
        ..v1::CreatePreviewRequest::default()
    };
    for number in 0..170 {
        let created = fixture.ask(&request(number)).await;
        let link = Link::new(created.unwrap_or_else(|fault| panic!("{number}: {fault:?}")));
        assert_eq!(link.get("v", "a.txt").await.status, 200, "{number}");
        let revoke = v1::RevokePreviewRequest {
            sandbox: Some(session("s1")),
            preview_id: link.preview.preview_id.clone(),
        };
        fixture.ask(&revoke).await.unwrap();
        assert_eq!(link.get("v", "a.txt").await.status, 404, "{number}");
    }
    // The counts of an ended link stay for its receipt.
    let ended = fixture.ask(&list_of("d-160")).await.unwrap().previews;
    assert_eq!(ended[0].opened_count, 1, "{ended:?}");
    fixture.end().await;
}

#[tokio::test]
async fn open_links_with_long_paths_are_refused_before_their_record_is_full() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("long");
    let directory = ["f".repeat(250).as_str(); 10].join("/");
    std::fs::create_dir_all(root.join(&directory)).unwrap();
    std::fs::write(root.join(&directory).join("a.txt"), "shown").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let mut links = Vec::new();
    let refused = loop {
        let request = v1::CreatePreviewRequest {
            sandbox: Some(session("s1")),
            path: format!("{directory}/a.txt").into_bytes(),
            delivery_id: format!("d-{}", links.len()),
            ..v1::CreatePreviewRequest::default()
        };
        match fixture.ask(&request).await {
            Ok(created) => links.push(Link::new(created)),
            Err(fault) => break fault,
        }
    };
    assert_eq!(refused.detail, "too_many_previews");
    for link in links {
        assert_eq!(link.get("v", "a.txt").await.status, 200);
        let revoke = v1::RevokePreviewRequest {
            sandbox: Some(session("s1")),
            preview_id: link.preview.preview_id.clone(),
        };
        fixture.ask(&revoke).await.unwrap();
    }
    fixture.end().await;
}

#[tokio::test]
async fn files_that_the_policy_refuses_are_not_previewed() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("policy");
    std::fs::write(root.join("server.pem"), "-----BEGIN PRIVATE KEY-----\nx\n").unwrap();
    std::fs::write(root.join("a.txt"), "fine").unwrap();
    let link = fixture.preview(address(&sandbox), ".").await;
    assert_eq!(link.get("p", "server.pem").await.status, 403);
    let page = link.get("v", "server.pem").await.text();
    assert!(!page.contains("PRIVATE"), "{page}");
    assert_eq!(link.get("p", "a.txt").await.status, 200);
    for (path, detail) in [
        ("/etc/passwd", "denied_path"),
        (".env", "denied_path"),
        ("none", "not_found"),
    ] {
        let refused = fixture
            .try_preview("acme", address(&sandbox), path, 0)
            .await
            .unwrap_err();
        assert_eq!(refused.detail, detail, "{path}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn without_an_address_there_are_no_previews_and_each_change_is_an_audit_event() {
    let fixture = TransferFixture::new().await;
    let (_, sandbox) = fixture.sandbox("none");
    let refused = fixture
        .try_preview("acme", address(&sandbox), ".", 0)
        .await
        .unwrap_err();
    assert_eq!(refused.detail, "no_previews");
    fixture.end().await;

    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("audit");
    std::fs::write(root.join("a.txt"), "x").unwrap();
    let mut events = fixture
        .bus
        .events(EventFilter::new("dray.audit.preview.v1.changed.*"))
        .await
        .unwrap();
    let link = fixture.preview(address(&sandbox), "a.txt").await;
    // A HEAD request comes from a program and does not count as a person's view.
    link.send("HEAD", "p", "a.txt", &[]).await;
    link.get("v", "a.txt").await;
    link.get("p", "a.txt").await;
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(address(&sandbox)),
        preview_id: link.preview.preview_id.clone(),
    };
    fixture.ask(&revoke).await.unwrap();
    let mut actions = Vec::new();
    while actions.len() < 3 {
        let audit: v1::PreviewAudit = events.next().await.unwrap().decode().unwrap();
        let text = format!("{audit:?}");
        assert!(!text.contains(&link.token), "the link is in an audit event");
        actions.push(audit.action());
    }
    assert_eq!(
        actions,
        [
            PreviewAction::Created,
            PreviewAction::Opened,
            PreviewAction::Revoked
        ]
    );
    fixture.end().await;
}

/// Lets the stream of audit events take messages of at most this many bytes.
async fn limit_audit_messages(fixture: &TransferFixture, bytes: Option<u32>) {
    let mut topology = Topology::default();
    for stream in &mut topology.streams {
        if stream.name == AUDIT_STREAM
            && let Some(bytes) = bytes
        {
            stream.max_message_size = bytes;
        }
    }
    test_bus::provision(&fixture.bus, &topology).await;
}

#[tokio::test]
async fn a_page_is_not_shown_until_the_event_of_its_first_view_is_stored() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("unreported");
    std::fs::write(root.join("a.txt"), "shown").unwrap();
    let link = fixture.preview(address(&sandbox), "a.txt").await;
    let mut events = fixture
        .bus
        .events(EventFilter::new("dray.audit.preview.v1.changed.*"))
        .await
        .unwrap();
    limit_audit_messages(&fixture, Some(1)).await;
    for area in ["v", "v", "p", "p"] {
        assert_eq!(link.get(area, "a.txt").await.status, 503, "{area}");
    }
    limit_audit_messages(&fixture, None).await;
    for area in ["v", "p", "v"] {
        assert_eq!(link.get(area, "a.txt").await.status, 200, "{area}");
    }
    limit_audit_messages(&fixture, Some(1)).await;
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(address(&sandbox)),
        preview_id: link.preview.preview_id.clone(),
    };
    fixture.ask(&revoke).await.unwrap_err();
    assert_eq!(link.get("v", "a.txt").await.status, 404);
    limit_audit_messages(&fixture, None).await;
    fixture.ask(&revoke).await.unwrap();
    assert_eq!(fixture.ask(&revoke).await.unwrap_err().detail, "no_preview");
    for action in [PreviewAction::Opened, PreviewAction::Revoked] {
        let audit: v1::PreviewAudit = events.next().await.unwrap().decode().unwrap();
        assert_eq!(audit.action(), action, "{audit:?}");
    }
    fixture.end().await;
}

/// Headers of a browser.
const BROWSER_HEADERS: [(&str, &str); 1] = [(
    "user-agent",
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
)];
/// Headers of the program by which a chat platform previews links.
const LINK_PREVIEW: [(&str, &str); 1] = [("user-agent", "TelegramBot (like TwitterBot)")];

/// The session's open previews, or those of a delivery.
fn list_of(delivery_id: &str) -> v1::ListPreviewsRequest {
    v1::ListPreviewsRequest {
        sandbox: Some(session("s1")),
        delivery_id: delivery_id.to_owned(),
    }
}

/// Checks that the link shows only `report.html`, for every form of URL.
async fn assert_shows_only(link: &Link) {
    for (area, rest) in [
        ("p", "secret.txt"),
        ("v", "secret.txt"),
        ("d", "secret.txt"),
        ("v", ""),
        ("p", ""),
        ("z", ""),
        ("z", "report.html"),
        ("p", "sub/deep.txt"),
        ("p", "report.html/../secret.txt"),
        ("p", "./report.html"),
        ("p", "report%2Ehtml/"),
    ] {
        let refused = link.get(area, rest).await;
        assert_eq!(refused.status, 404, "/{area}/{rest}");
        assert!(!refused.text().contains("deep"), "/{area}/{rest}");
    }
}

#[tokio::test]
async fn the_preview_of_a_delivery_shows_its_file_alone_and_keeps_what_happened_to_it() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("delivered");
    std::fs::create_dir(root.join("sub")).unwrap();
    for name in ["report.html", "secret.txt", "sub/deep.txt"] {
        std::fs::write(root.join(name), name).unwrap();
    }
    fixture.bind("s1", &sandbox, None).await;
    let request = v1::CreatePreviewRequest {
        sandbox: Some(session("s1")),
        path: b"report.html".to_vec(),
        only_file: true,
        delivery_id: "d-1".to_owned(),
        ..v1::CreatePreviewRequest::default()
    };
    let link = Link::new(fixture.ask_as("acme", &request).await.unwrap());
    assert_shows_only(&link).await;
    let listed = async || fixture.ask(&list_of("d-1")).await.unwrap().previews;
    let untouched = listed().await;
    assert_eq!(
        (untouched[0].opened_count, untouched[0].scanned_count),
        (0, 0)
    );
    // The platform requests the page first, and the person later. The page and the files that it loads count as one
    // opening.
    let page = link.send("GET", "v", "report.html", &LINK_PREVIEW).await;
    assert_eq!(page.status, 200);
    link.send("GET", "v", "report.html", &LINK_PREVIEW).await;
    let scanned = listed().await;
    assert_eq!((scanned[0].opened_count, scanned[0].scanned_count), (0, 1));
    assert!(scanned[0].scanned_at_ms > 0 && scanned[0].opened_at_ms == 0);
    let page = link.send("GET", "v", "report.html", &BROWSER_HEADERS).await;
    assert!(!page.text().contains(">Directory<"), "{}", page.text());
    let file = link.send("GET", "p", "report.html", &BROWSER_HEADERS).await;
    assert_eq!(file.text(), "report.html");
    link.send("HEAD", "v", "report.html", &BROWSER_HEADERS)
        .await;
    let opened = listed().await;
    assert_eq!((opened[0].opened_count, opened[0].scanned_count), (1, 1));
    // After its end it is listed for the receipt, and its link opens nothing.
    let revoke = v1::RevokePreviewRequest {
        sandbox: Some(session("s1")),
        preview_id: link.preview.preview_id.clone(),
    };
    fixture.ask(&revoke).await.unwrap();
    assert_eq!(link.get("p", "report.html").await.status, 404);
    let kept = listed().await;
    assert!(
        kept[0].revoked_at_ms > 0 && kept[0].opened_count == 1,
        "{kept:?}"
    );
    assert_eq!(fixture.ask(&revoke).await.unwrap_err().detail, "no_preview");
    assert!(fixture.ask(&list_of("")).await.unwrap().previews.is_empty());
    fixture.end().await;
}
