//! Uploads: only the announced content is accepted, once, and a claim is returned only after verification.

use std::time::Duration;

use bytes::Bytes;
use dray_types::{Fault, FaultCode, OperationId, Sha256Digest};
use http::{Method, StatusCode};

use super::super::{TestStore, noise, tenant};
use super::{HttpResponse, send};
use crate::{
    ArtifactLabel, ConfirmError, ExpectedUpload, MAX_SINGLE_PUT_BYTES, PresignError, UploadTicket,
};

async fn ticket(fixture: &TestStore, size: u64, sha256: Option<Sha256Digest>) -> UploadTicket {
    let expected = ExpectedUpload {
        size,
        media_type: "text/plain".to_owned(),
        sha256,
    };
    fixture
        .store
        .presign_put(
            &tenant("acme"),
            &OperationId::mint(),
            1,
            expected,
            Duration::from_mins(10),
        )
        .await
        .unwrap()
}

/// Sends the announced fields, with one of them changed or left out.
async fn upload(
    fixture: &TestStore,
    ticket: &UploadTicket,
    change: Option<(&str, &str)>,
    body: Bytes,
) -> HttpResponse {
    let fields: Vec<_> = ticket
        .headers
        .iter()
        .map(|(name, value)| match change {
            Some((changed, to)) if changed == name => (name.as_str(), to),
            _ => (name.as_str(), value.as_str()),
        })
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let to = fixture.endpoint.address();
    send(to, Method::PUT, ticket.url.expose(), &fields, body).await
}

async fn confirm(
    fixture: &TestStore,
    ticket: &UploadTicket,
) -> Result<dray_types::Claim, ConfirmError> {
    let label = ArtifactLabel::new("text/plain", "up.txt");
    fixture
        .store
        .confirm_upload(ticket, label, fixture.deadline())
        .await
}

#[tokio::test]
async fn an_upload_becomes_a_claim_when_it_is_confirmed() {
    let fixture = TestStore::new().await;
    for size in [0, 5, 3 << 20] {
        let bytes = noise(size, 1);
        let digest = Sha256Digest::of(&bytes);
        for announced in [Some(digest), None] {
            let ticket = ticket(&fixture, size as u64, announced).await;
            let answer = upload(&fixture, &ticket, None, bytes.clone()).await;
            assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            let claim = confirm(&fixture, &ticket).await.unwrap();
            assert_eq!(
                (claim.artifact.sha256, claim.artifact.size),
                (digest, size as u64)
            );
            assert!(fixture.read(&tenant("acme"), &claim).await.unwrap() == bytes);
            let repeated = confirm(&fixture, &ticket).await.unwrap_err();
            assert!(matches!(repeated, ConfirmError::NotUploaded));
        }
    }
    let files = fixture.files();
    assert_eq!(files.len(), 3, "nothing stays staged: {files:?}");
}

#[tokio::test]
async fn the_signed_fields_cannot_be_changed_or_left_out() {
    let fixture = TestStore::new().await;
    let digest = Sha256Digest::of(b"hello");
    let ticket = ticket(&fixture, 5, Some(digest)).await;
    let names: Vec<_> = ticket
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for name in [
        "content-length",
        "content-type",
        "if-none-match",
        "x-amz-checksum-sha256",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let hello = || Bytes::from_static(b"hello");
    for change in [
        ("content-type", "text/html"),
        ("content-type", ""),
        ("if-none-match", ""),
        ("x-amz-checksum-sha256", ""),
        (
            "x-amz-checksum-sha256",
            "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        ),
    ] {
        let answer = upload(&fixture, &ticket, Some(change), hello()).await;
        assert_eq!(
            answer.status,
            StatusCode::FORBIDDEN,
            "{change:?} {answer:?}"
        );
    }
    for (length, body) in [("4", "hell"), ("6", "hello!")] {
        let change = Some(("content-length", length));
        let answer = upload(&fixture, &ticket, change, body.into()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{length}");
    }
    for method in [Method::GET, Method::DELETE, Method::POST] {
        let answer = send(
            fixture.endpoint.address(),
            method,
            ticket.url.expose(),
            &[],
            "",
        )
        .await;
        assert_ne!(answer.status, StatusCode::OK);
        assert!(!answer.status.is_success());
    }
    assert_eq!(fixture.files(), Vec::<String>::new());
}

#[tokio::test]
async fn a_ticket_accepts_exactly_the_announced_bytes_once() {
    let fixture = TestStore::new().await;
    let hello = || Bytes::from_static(b"hello");
    let ticket = ticket(&fixture, 5, Some(Sha256Digest::of(b"hello"))).await;

    // Other bytes of the same length do not match the checksum.
    let answer = upload(&fixture, &ticket, None, Bytes::from_static(b"HELLO")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(fixture.files(), Vec::<String>::new());

    // The ticket is valid for one upload.
    assert_eq!(
        upload(&fixture, &ticket, None, hello()).await.status,
        StatusCode::OK
    );
    let answer = upload(&fixture, &ticket, None, hello()).await;
    assert_eq!(answer.status, StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn missing_and_differing_uploads_are_not_claimed() {
    let fixture = TestStore::new().await;
    let none = ticket(&fixture, 5, None).await;
    let error = confirm(&fixture, &none).await.unwrap_err();
    assert!(matches!(error, ConfirmError::NotUploaded));
    assert_eq!(Fault::from(error).code, FaultCode::NotFound);

    // Another writer replaces the object under the staging key.
    let digest = Sha256Digest::of(b"hello");
    for (announced, stored) in [
        (None, "hell"),
        (Some(digest), "HELLO"),
        (Some(digest), "hello!"),
    ] {
        let ticket = ticket(&fixture, 5, announced).await;
        fixture.overwrite(&ticket.key, stored).await;
        let error = confirm(&fixture, &ticket).await.unwrap_err();
        assert!(matches!(error, ConfirmError::Mismatch(_)), "{error:?}");
        assert_eq!(Fault::from(error).code, FaultCode::InvalidArgument);
        assert_eq!(
            fixture.files(),
            Vec::<String>::new(),
            "what is wrong is removed"
        );
    }
}

#[tokio::test]
async fn announcements_that_cannot_be_signed_are_refused() {
    let fixture = TestStore::new().await;
    let presign = async |size, media_type: &str| {
        let expected = ExpectedUpload {
            size,
            media_type: media_type.to_owned(),
            sha256: None,
        };
        fixture
            .store
            .presign_put(
                &tenant("acme"),
                &OperationId::mint(),
                1,
                expected,
                Duration::from_mins(10),
            )
            .await
            .unwrap_err()
    };
    assert!(matches!(
        presign(MAX_SINGLE_PUT_BYTES + 1, "a/b").await,
        PresignError::TooLarge { .. }
    ));
    for wrong in ["", "a\r\nb: c", "naïve/x"] {
        assert!(
            matches!(presign(1, wrong).await, PresignError::MediaType),
            "{wrong}"
        );
    }
}
