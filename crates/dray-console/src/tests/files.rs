//! Tests of the pages of stored files.

use dray_proto::v1::{self, FileState};
use dray_store::ArtifactLabel;
use dray_types::{FaultCode, OperationId, Sha256Digest};

use super::*;

impl ConsoleFixture {
    async fn store_file(&self, tenant: &TenantId, text: &'static str) -> Sha256Digest {
        let label = ArtifactLabel::new("text/html", "page.html");
        let operation = OperationId::mint();
        let put = self.store.put(tenant, &operation, Bytes::from(text), label);
        put.await.unwrap().artifact.sha256
    }

    /// Answers lists of stored files, as file-resolver does.
    async fn list_store(&mut self) {
        let mut responder = self
            .bus
            .respond_to(&call_subject::<v1::ListArtifactsRequest>(), "test")
            .await
            .unwrap();
        let store = self.store.clone();
        self.responders.spawn(async move {
            while let Some(incoming) = responder.next().await {
                let request: v1::ListArtifactsRequest = incoming.decode().unwrap();
                let after: Option<[u8; 32]> = request.after.as_slice().try_into().ok();
                let after = after.map(Sha256Digest::from_bytes);
                let limit = usize::try_from(request.limit).unwrap();
                let page = store.finished(&TenantId::default(), after, limit).await;
                let page = page.unwrap();
                let artifacts = page.objects.iter().map(|object| v1::StoredArtifact {
                    sha256: object.sha256.as_bytes().to_vec(),
                    size: object.bytes,
                    stored_at_ms: object.stored_at_ms,
                    expires_at_ms: object.expires_at_ms,
                });
                let reply = v1::ListArtifactsReply {
                    artifacts: artifacts.collect(),
                    truncated: page.truncated,
                };
                incoming.answer(Ok(reply)).await;
            }
        });
    }

    /// Answers lists of receipts with one delivery of a file with this digest.
    async fn deliver_file(&mut self, digest: Sha256Digest) {
        self.respond::<v1::ListReceiptsRequest>(move |request| {
            let is_selected = request.sha256.is_empty() || request.sha256 == digest.as_bytes();
            let mut file = v1::DeliveredFile {
                name: "<b>page</b>.html".to_owned(),
                media_type: "text/html".to_owned(),
                sha256: digest.as_bytes().to_vec(),
                ..v1::DeliveredFile::default()
            };
            file.set_file_state(FileState::Delivered);
            let report = v1::DeliveryReport {
                delivery_id: "d-1".to_owned(),
                files: vec![file],
                finished: true,
                ..v1::DeliveryReport::default()
            };
            Ok(v1::ListReceiptsReply {
                reports: is_selected.then_some(report).into_iter().collect(),
                truncated: !request.sha256.is_empty() && request.after.is_empty(),
                next: if request.sha256.is_empty() || !request.after.is_empty() {
                    String::new()
                } else {
                    "7.d-1".to_owned()
                },
            })
        })
        .await;
    }
}

#[tokio::test]
async fn files_of_the_tenant_are_listed_in_pages_with_labels_from_records_alone() {
    let mut console = ConsoleFixture::new().await;
    console.list_store().await;
    let own = TenantId::default();
    let delivered = console.store_file(&own, "<p>held</p>").await;
    let unnamed = console.store_file(&own, "content of no delivery").await;
    let other = TenantId::new("other").unwrap();
    let foreign = console.store_file(&other, "private").await;
    console.deliver_file(delivered).await;
    let login = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/files", Some(&login)).await;
    let body = &page.body;
    assert!(
        body.contains(&delivered.to_hex()) && body.contains(&unnamed.to_hex()),
        "{body}"
    );
    assert!(!body.contains(&foreign.to_hex()), "{body}");
    assert!(body.contains("&lt;b&gt;page&lt;/b&gt;.html"), "{body}");
    assert_eq!(
        body.matches("no recent delivery or client names it")
            .count(),
        1
    );
    let rest = format!("/files?after={}", delivered.max(unnamed).to_hex());
    let page = console.get(&rest, Some(&login)).await;
    assert!(page.body.contains("No stored files."), "{page:?}");
    let found = format!("/files?digest=sha256:{}", delivered.to_hex());
    let found = console.get(&found, Some(&login)).await;
    assert_eq!(found.status, 303);
    let page_path = format!("/files/{}", delivered.to_hex());
    assert_eq!(found.header("location"), Some(page_path.as_str()));
    let wrong = console.get("/files?digest=abc", Some(&login)).await;
    assert!(wrong.body.contains("64 hexadecimal digits"), "{wrong:?}");
}

#[tokio::test]
async fn a_file_shows_its_deliveries_and_only_a_login_that_may_act_downloads_it() {
    let mut console = ConsoleFixture::new().await;
    console.list_store().await;
    let own = TenantId::default();
    let digest = console.store_file(&own, "<script>alert(1)</script>").await;
    console.deliver_file(digest).await;
    let placed = v1::UploadPlaced {
        upload: Some(v1::Upload {
            path: "uploads/page.html".to_owned().into(),
            receipt: Some(v1::TransferReceipt {
                sha256: digest.as_bytes().to_vec(),
                ..v1::TransferReceipt::default()
            }),
            ..v1::Upload::default()
        }),
        ..v1::UploadPlaced::default()
    };
    console.publish("op-upload", &placed).await;
    let page_path = format!("/files/{}", digest.to_hex());
    let read_only_login = console.log_in(ConsoleRole::Look).await;
    let page = console
        .wait_for(&page_path, &read_only_login, "op-upload")
        .await;
    assert!(page.body.contains("href=\"/operations/d-1\""), "{page:?}");
    assert!(!page.body.contains("/content"), "{page:?}");
    let next = format!("href=\"{page_path}?after=7.d-1&amp;back=\" rel=\"next\"");
    assert!(page.body.contains(&next), "{page:?}");
    let rest = format!("{page_path}?after=7.d-1");
    let rest = console.get(&rest, Some(&read_only_login)).await;
    assert!(rest.body.contains("First page"), "{rest:?}");
    assert!(!rest.body.contains("rel=\"next\""), "{rest:?}");
    let content = format!("{page_path}/content");
    assert_eq!(
        console.post(&content, &read_only_login, "").await.status,
        403
    );
    let login = console.log_in(ConsoleRole::Act).await;
    let downloaded = console.post(&content, &login, "").await;
    assert_eq!(downloaded.status, 200);
    assert_eq!(downloaded.body, "<script>alert(1)</script>");
    let disposition = downloaded.header("content-disposition").unwrap();
    assert!(disposition.starts_with("attachment"), "{disposition}");
    assert_eq!(
        downloaded.header("content-type"),
        Some("application/octet-stream")
    );
    assert!(
        downloaded
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
}

#[tokio::test]
async fn a_file_that_is_not_stored_and_unavailable_services_are_reported() {
    let mut console = ConsoleFixture::new().await;
    let digest = Sha256Digest::of(b"unknown");
    let page_path = format!("/files/{}", digest.to_hex());
    console
        .respond::<v1::ListReceiptsRequest>(|_| {
            Err(Fault::new(FaultCode::Unavailable, "The records are away."))
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console.get(&page_path, Some(&login)).await;
    assert!(
        page.body.contains("The store does not respond."),
        "{page:?}"
    );
    assert!(page.body.contains("The records are away."), "{page:?}");
    assert!(!page.body.contains("No delivery on record"), "{page:?}");
    console.list_store().await;
    let page = console.get(&page_path, Some(&login)).await;
    assert!(
        page.body.contains("not among the finished content"),
        "{page:?}"
    );
    let missing = console
        .post(&format!("{page_path}/content"), &login, "")
        .await;
    assert!(
        missing.body.contains("The store does not have this file."),
        "{missing:?}"
    );
    let foreign = TenantId::new("other").unwrap();
    let foreign = console.store_file(&foreign, "private").await;
    let refused = format!("/files/{}/content", foreign.to_hex());
    let refused = console.post(&refused, &login, "").await;
    assert!(!refused.body.contains("private"), "{refused:?}");
}

#[tokio::test]
async fn a_file_shows_the_clients_that_keep_it_until_when_and_their_name_of_it() {
    let mut console = ConsoleFixture::new().await;
    console.list_store().await;
    let kept = console
        .store_file(&TenantId::default(), "made by an agent")
        .await;
    let digest = kept.as_bytes().to_vec();
    let login = console.log_in(ConsoleRole::Look).await;
    let page_path = format!("/files/{}", kept.to_hex());
    let without = console.get(&page_path, Some(&login)).await;
    assert!(
        without.body.contains("No orchestrator is on the bus"),
        "{without:?}"
    );
    let holder = v1::FileHolder {
        sha256: digest.clone(),
        file_id: "file-0123".to_owned(),
        principal: "client:<b>web</b>".to_owned(),
        name: "<i>report</i>.html".to_owned(),
        media_type: "text/html".to_owned(),
        purpose: "assistants_output".to_owned(),
        size: 16,
        created_at_ms: 1_800_000_000_000,
        expires_at_ms: 1_800_003_600_000,
    };
    console
        .respond::<v1::ListFileHoldersRequest>(move |request| {
            let is_wanted = request.sha256.contains(&digest);
            Ok(v1::ListFileHoldersReply {
                holders: is_wanted.then(|| holder.clone()).into_iter().collect(),
                truncated: false,
            })
        })
        .await;
    let page = console.get(&page_path, Some(&login)).await;
    for part in [
        "client:&lt;b&gt;web&lt;/b&gt;",
        "&lt;i&gt;report&lt;/i&gt;.html",
        "file-0123",
        "made by an agent in a response",
        "2027-01-15 08:00:00",
        "2027-01-15 09:00:00",
    ] {
        assert!(page.body.contains(part), "{part}: {page:?}");
    }
    let list = console.get("/files", Some(&login)).await;
    assert!(
        list.body.contains("&lt;i&gt;report&lt;/i&gt;.html"),
        "{list:?}"
    );
    // Content that left the store is still known by the client that keeps it.
    let other = Sha256Digest::of(b"unknown");
    let other = format!("/files/{}", other.to_hex());
    let other = console.get(&other, Some(&login)).await;
    assert!(
        other
            .body
            .contains("No client of an agent keeps this file."),
        "{other:?}"
    );
}
