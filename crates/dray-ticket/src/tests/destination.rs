//! Tickets that end in a sandbox or a chat, and those that begin in a sandbox.

mod chats;

use std::sync::{Arc, Mutex};

use dray_bus::{Bus, test_bus};
use dray_proto::contract::call_subject;
use dray_proto::{Call, v1};
use dray_store::ArtifactLabel;
use dray_types::{Fault, FaultCode, OperationId};

use super::{TestEndpoint, TestResponse, noise, send_raw};
use crate::{Principal, TicketDestination, TicketRequest};

/// An endpoint with a bus on which the test handles the calls of other services.
struct DestinationFixture {
    fixture: TestEndpoint,
    bus: Bus,
}

/// Requests that a fake service got, with the ids of their operations.
type ReceivedRequests<C> = Arc<Mutex<Vec<(String, C)>>>;

impl DestinationFixture {
    async fn new() -> Self {
        let clock = dray_types::Clock::system();
        let bus = test_bus::without_streams(&clock);
        let fixture = TestEndpoint::with_bus(bus.clone()).await;
        Self { fixture, bus }
    }

    /// Handles every call of one kind.
    async fn fake<C: Call + Clone + Send + 'static>(
        &self,
        mut respond: impl FnMut(&C) -> Result<C::Reply, Fault> + Send + 'static,
    ) -> ReceivedRequests<C> {
        let received_requests: ReceivedRequests<C> = Arc::default();
        let subject = call_subject::<C>();
        let mut responder = self.bus.respond_to(&subject, "test").await.unwrap();
        let record = received_requests.clone();
        let serving = async move {
            while let Some(incoming) = responder.next().await {
                let request: C = incoming.decode().unwrap();
                let operation = incoming.meta().unwrap().operation.as_str().to_owned();
                record.lock().unwrap().push((operation, request.clone()));
                incoming.answer(respond(&request)).await;
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the runtime of the test"
        )]
        tokio::spawn(serving);
        received_requests
    }

    async fn sandbox_ticket(&self) -> String {
        let destination = TicketDestination::Sandbox {
            directory: "in".to_owned(),
        };
        let request = TicketRequest::upload(1_000_000)
            .name("report.txt")
            .destination(Some(destination));
        self.fixture.issue(request).await
    }

    async fn put(&self, url: &str, bytes: &[u8]) -> TestResponse {
        self.fixture.send(&format!("PUT {url}"), bytes).await
    }

    /// A file of a sandbox, copied into the store as the transfer service does.
    async fn sandbox_file(&self, bytes: &bytes::Bytes, mtime_ns: i64) -> v1::SandboxFile {
        let tenant = Principal::default().tenant;
        let label = ArtifactLabel::new("text/plain", "out.txt");
        let operation = OperationId::mint();
        let stored = self
            .fixture
            .store
            .put(&tenant, &operation, bytes.clone(), label);
        v1::SandboxFile {
            entry: Some(entry(bytes.len(), mtime_ns)),
            claim: Some(stored.await.unwrap().into()),
            ..v1::SandboxFile::default()
        }
    }
}

fn entry(size: usize, mtime_ns: i64) -> v1::SandboxEntry {
    v1::SandboxEntry {
        path: b"out.txt".to_vec(),
        real_path: b"/home/user/out.txt".to_vec(),
        size: size as u64,
        mtime_ns: Some(mtime_ns),
        ..v1::SandboxEntry::default()
    }
}

fn placed_file(request: &v1::PutSandboxFileRequest) -> v1::PlacedFile {
    let claim = request.claim.clone().unwrap();
    v1::PlacedFile {
        path: b"/home/user/in/report.txt".to_vec(),
        size: claim.artifact.map_or(0, |artifact| artifact.size),
        receipt: Some(v1::TransferReceipt {
            integrity: "sha256_after".to_owned(),
            ..v1::TransferReceipt::default()
        }),
        ..v1::PlacedFile::default()
    }
}

#[tokio::test]
async fn an_upload_ends_in_the_sandbox_with_a_receipt() {
    let fixture = DestinationFixture::new().await;
    let received_requests = fixture
        .fake::<v1::PutSandboxFileRequest>(|request| Ok(placed_file(request)))
        .await;
    let url = fixture.sandbox_ticket().await;
    let response = fixture.put(&url, b"some text").await;
    assert_eq!(response.status, 201, "{response:?}");
    let document = response.json();
    assert_eq!(document["size"], 9);
    assert_eq!(document["receipt"]["kind"], "sandbox");
    assert_eq!(
        document["receipt"]["path"],
        "sandbox:/home/user/in/report.txt"
    );
    assert_eq!(document["receipt"]["integrity"], "sha256_after");
    let received_requests = received_requests.lock().unwrap();
    let (_, request) = &received_requests[0];
    assert_eq!(
        (request.directory.as_slice(), request.name.as_slice()),
        (&b"in"[..], &b"report.txt"[..])
    );
    let session = Principal::default().session.as_str().to_owned();
    let expected = v1::sandbox_ref::Sandbox::Session(session);
    assert_eq!(request.sandbox.clone().unwrap().sandbox, Some(expected));
}

#[tokio::test]
async fn a_failed_destination_keeps_the_content_and_is_tried_again_as_the_same_operation() {
    let fixture = DestinationFixture::new().await;
    let mut attempts = 0;
    let received_requests = fixture
        .fake::<v1::PutSandboxFileRequest>(move |request| {
            attempts += 1;
            match attempts {
                1 => Err(
                    Fault::new(FaultCode::NotFound, "No sandbox belongs to this session.")
                        .detail("no_sandbox"),
                ),
                _ => Ok(placed_file(request)),
            }
        })
        .await;
    let url = fixture.sandbox_ticket().await;
    let bytes = noise(50_000);
    let failed = fixture.put(&url, &bytes).await;
    assert_eq!(
        (failed.status, failed.problem().as_str()),
        (502, "destination-failed")
    );
    let document = failed.json();
    assert_eq!(document["fault_detail"], "no_sandbox");
    assert_eq!(document["retryable"], false);
    assert_eq!(document["size"], 50_000);
    assert!(fixture.fixture.is_stored(&bytes).await);
    // Another body does not replace the stored one.
    let other_response = fixture.put(&url, b"other").await;
    assert_eq!(
        (other_response.status, other_response.problem().as_str()),
        (409, "content-stored")
    );
    let repeated = fixture.fixture.send_empty(&format!("POST {url}")).await;
    assert_eq!(repeated.status, 201, "{repeated:?}");
    assert_eq!(repeated.json()["receipt"]["kind"], "sandbox");
    {
        let received_requests = received_requests.lock().unwrap();
        assert_eq!(received_requests.len(), 2);
        assert_eq!(received_requests[0].0, received_requests[1].0);
        assert_eq!(document["operation_id"], received_requests[0].0);
    }
    let used = fixture.fixture.send_empty(&format!("POST {url}")).await;
    assert_eq!((used.status, used.problem().as_str()), (410, "ticket-used"));
}

#[tokio::test]
async fn a_restart_between_the_store_and_the_destination_loses_nothing() {
    let fixture = DestinationFixture::new().await;
    let url = fixture.sandbox_ticket().await;
    // The sandbox service does not exist yet.
    let failed = fixture.put(&url, b"some text").await;
    assert_eq!(
        (failed.status, failed.problem().as_str()),
        (503, "destination-failed")
    );
    fixture
        .fake::<v1::PutSandboxFileRequest>(|request| Ok(placed_file(request)))
        .await;
    let (address, _stop) = fixture.fixture.replica_with_bus(fixture.bus.clone()).await;
    // A tus client that continues after the failure requests the offset, and the response shows that the upload has
    // ended.
    let head = format!("HEAD {url}\r\ntus-resumable: 1.0.0\r\n");
    let state = send_raw(address, head.trim_end(), b"").await;
    assert_eq!(
        (state.status, state.field("upload-offset")),
        (200, Some("9"))
    );
    let status_document = fixture
        .fixture
        .send_empty(&format!("GET {url}"))
        .await
        .json();
    assert_eq!(status_document["state"], "complete");
    assert_eq!(status_document["receipt"]["kind"], "sandbox");
}

#[tokio::test]
async fn a_ticket_cannot_be_revoked_while_its_content_is_brought_to_the_sandbox() {
    let fixture = DestinationFixture::new().await;
    let subject = call_subject::<v1::PutSandboxFileRequest>();
    let mut responder = fixture.bus.respond_to(&subject, "test").await.unwrap();
    let url = fixture.sandbox_ticket().await;
    let serving = async {
        let incoming = responder.next().await.unwrap();
        let request: v1::PutSandboxFileRequest = incoming.decode().unwrap();
        let refused = fixture.fixture.send_empty(&format!("DELETE {url}")).await;
        let reply: Result<v1::PlacedFile, Fault> = Ok(placed_file(&request));
        incoming.answer(reply).await;
        refused
    };
    let (response, refused) = tokio::join!(fixture.put(&url, b"some text"), serving);
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (409, "ticket-in-use")
    );
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.json()["receipt"]["kind"], "sandbox");
}

#[tokio::test]
async fn an_upload_ends_after_a_renewal_that_was_written_although_it_failed() {
    let fixture = DestinationFixture::new().await;
    let subject = call_subject::<v1::PutSandboxFileRequest>();
    let mut responder = fixture.bus.respond_to(&subject, "test").await.unwrap();
    let url = fixture.sandbox_ticket().await;
    let secret = url.rsplit('/').next().unwrap();
    let service = &fixture.fixture.service;
    let serving = async {
        let incoming = responder.next().await.unwrap();
        let request: v1::PutSandboxFileRequest = incoming.decode().unwrap();
        // The lease stays with the same request, and the revision is later, as after such a renewal.
        let mut ticket = service.find(secret).await.unwrap();
        service.save(&mut ticket).await.unwrap();
        let reply: Result<v1::PlacedFile, Fault> = Ok(placed_file(&request));
        incoming.answer(reply).await;
    };
    let (response, ()) = tokio::join!(fixture.put(&url, b"some text"), serving);
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.json()["receipt"]["kind"], "sandbox");
    // A ticket that another request took is not ended by the former holder.
    let other = fixture.sandbox_ticket().await;
    let secret = other.rsplit('/').next().unwrap();
    let serving = async {
        let incoming = responder.next().await.unwrap();
        let request: v1::PutSandboxFileRequest = incoming.decode().unwrap();
        let mut ticket = service.find(secret).await.unwrap();
        ticket.record.lease.as_mut().unwrap().holder = "another".to_owned();
        service.save(&mut ticket).await.unwrap();
        let reply: Result<v1::PlacedFile, Fault> = Ok(placed_file(&request));
        incoming.answer(reply).await;
    };
    let (response, ()) = tokio::join!(fixture.put(&other, b"some text"), serving);
    assert_eq!(response.problem(), "upload-superseded");
}

#[tokio::test]
async fn a_ticket_for_a_directory_that_policy_denies_is_refused() {
    let fixture = DestinationFixture::new().await;
    fixture
        .fake::<v1::StatSandboxRequest>(|request| match request.path.as_slice() {
            b"/etc" => {
                Err(Fault::new(FaultCode::Denied, "This path is outside.").detail("outside_root"))
            }
            b"new" => {
                Err(Fault::new(FaultCode::NotFound, "It does not exist.").detail("not_found"))
            }
            _ => Err(Fault::new(FaultCode::Unavailable, "Not now.").detail("unavailable")),
        })
        .await;
    let service = &fixture.fixture.service;
    let issue = |directory: &str| {
        let destination = TicketDestination::Sandbox {
            directory: directory.to_owned(),
        };
        let request = TicketRequest::upload(100).destination(Some(destination));
        async move { service.issue(&Principal::default(), request).await }
    };
    let refused = issue("/etc").await.unwrap_err();
    assert_eq!(
        (refused.status().as_u16(), refused.name()),
        (403, "directory-denied")
    );
    let fault = Fault::from(refused);
    assert_eq!(fault.detail, "outside_root");
    // The ticket is not refused for a directory that may be usable at the time of the upload.
    for directory in ["new", "elsewhere", ""] {
        assert!(issue(directory).await.is_ok(), "{directory}");
    }
}

#[tokio::test]
async fn refused_content_reaches_no_destination() {
    let fixture = DestinationFixture::new().await;
    let received_requests = fixture
        .fake::<v1::PutSandboxFileRequest>(|request| Ok(placed_file(request)))
        .await;
    let destination = TicketDestination::Sandbox {
        directory: String::new(),
    };
    let request = TicketRequest::upload(100)
        .media_type(Some("image/png".to_owned()))
        .destination(Some(destination));
    let url = fixture.fixture.issue(request).await;
    let refused = fixture.put(&url, b"no picture").await;
    assert_eq!(
        (refused.status, refused.problem().as_str()),
        (415, "wrong-type")
    );
    assert!(!fixture.fixture.is_stored(b"no picture").await);
    assert!(received_requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_ticket_with_a_destination_is_refused_without_a_bus() {
    let fixture = TestEndpoint::new().await;
    let destination = TicketDestination::Chat {
        message: String::new(),
    };
    let request = TicketRequest::upload(1).destination(Some(destination));
    let refused = fixture.service.issue(&Principal::default(), request).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_download_of_a_sandbox_file_has_its_content() {
    let fixture = DestinationFixture::new().await;
    let bytes = noise(300_000);
    let file = fixture.sandbox_file(&bytes, 5).await;
    fixture
        .fake::<v1::GetSandboxFileRequest>(move |_| Ok(file.clone()))
        .await;
    fixture
        .fake::<v1::StatSandboxRequest>(|_| Ok(entry(300_000, 5)))
        .await;
    let service = &fixture.fixture.service;
    let ticket = service
        .issue_sandbox_download(&Principal::default(), "out.txt", |request| request)
        .await
        .unwrap();
    let response = fixture
        .fixture
        .send_empty(&format!("GET {}", ticket.url("")))
        .await;
    assert_eq!(response.status, 200);
    assert!(response.body == bytes);
    let disposition = response.field("content-disposition").unwrap();
    assert!(disposition.contains("out.txt"), "{disposition}");
}

#[tokio::test]
async fn a_download_fails_when_the_file_changed_before_it() {
    // The modification time changes, or it is set back, which only `ctime` shows.
    let touched = v1::SandboxEntry {
        change_marker: "1:7 2000".to_owned(),
        ..entry(1_000, 5)
    };
    for later in [entry(1_000, 6), touched] {
        let fixture = DestinationFixture::new().await;
        let file = fixture.sandbox_file(&noise(1_000), 5).await;
        fixture
            .fake::<v1::GetSandboxFileRequest>(move |_| Ok(file.clone()))
            .await;
        let mut stat_count = 0;
        let received_requests = fixture
            .fake::<v1::StatSandboxRequest>(move |_| {
                stat_count += 1;
                // The metadata are the same before and after the copy.
                Ok(if stat_count <= 2 {
                    entry(1_000, 5)
                } else {
                    later.clone()
                })
            })
            .await;
        let service = &fixture.fixture.service;
        let ticket = service
            .issue_sandbox_download(&Principal::default(), "out.txt", |request| request)
            .await
            .unwrap();
        let url = ticket.url("");
        let response = fixture.fixture.send_empty(&format!("GET {url}")).await;
        assert_eq!(
            (response.status, response.problem().as_str()),
            (410, "source-changed")
        );
        assert!(
            received_requests
                .lock()
                .unwrap()
                .iter()
                .all(|(_, request)| request.with_change_marker)
        );
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_copied_gets_no_ticket() {
    let fixture = DestinationFixture::new().await;
    let file = fixture.sandbox_file(&noise(1_000), 5).await;
    fixture
        .fake::<v1::GetSandboxFileRequest>(move |_| Ok(file.clone()))
        .await;
    let mut stat_count = 0;
    fixture
        .fake::<v1::StatSandboxRequest>(move |_| {
            stat_count += 1;
            Ok(v1::SandboxEntry {
                change_marker: format!("1:7 {stat_count}"),
                ..entry(1_000, 5)
            })
        })
        .await;
    let refused = fixture
        .fixture
        .service
        .issue_sandbox_download(&Principal::default(), "out.txt", |request| request)
        .await;
    let fault = Fault::from(refused.unwrap_err());
    assert_eq!(fault.detail, "changed_while_copied");
}

#[tokio::test]
async fn a_download_breaks_when_the_file_changes_while_it_is_sent() {
    let fixture = DestinationFixture::new().await;
    let bytes = noise(300_000);
    let file = fixture.sandbox_file(&bytes, 5).await;
    fixture
        .fake::<v1::GetSandboxFileRequest>(move |_| Ok(file.clone()))
        .await;
    let mut stat_count = 0;
    fixture
        .fake::<v1::StatSandboxRequest>(move |_| {
            stat_count += 1;
            match stat_count {
                // The metadata are read before and after the copy, and before the response.
                1..=3 => Ok(entry(300_000, 5)),
                _ => Err(Fault::new(FaultCode::NotFound, "The file is gone.")),
            }
        })
        .await;
    let service = &fixture.fixture.service;
    let ticket = service
        .issue_sandbox_download(&Principal::default(), "out.txt", |request| request)
        .await
        .unwrap();
    let response = fixture
        .fixture
        .send_empty(&format!("GET {}", ticket.url("")))
        .await;
    // The length was announced and the connection ends earlier, so no client treats the response as complete.
    assert_eq!(response.field("content-length"), Some("300000"));
    assert!(response.body.len() < bytes.len());
    assert!(bytes.starts_with(&response.body));
}
