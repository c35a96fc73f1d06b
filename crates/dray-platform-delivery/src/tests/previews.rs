//! Files that are sent as links to previews: the message, the sandbox, and the receipt.

use std::sync::{Arc, Mutex};

use dray_bus::Bus;
use dray_platform::{DuplicateProtection, Route};
use dray_proto::v1::{self, PreviewLinkState};
use dray_types::{Fault, FaultCode};
use tokio::task::JoinSet;

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, chat, serve, states};
use super::path::{QueueWorkers, finished_record, request};
use crate::link::LinkPolicy;
use crate::record::FileState;

/// A fake preview service. Ids are `p1`, `p2` …, and links expire after an hour.
#[derive(Clone, Default)]
struct FakePreviews(Arc<Mutex<PreviewState>>);

#[derive(Default)]
struct PreviewState {
    requests: Vec<v1::CreatePreviewRequest>,
    previews: Vec<v1::Preview>,
    /// Faults of the next requests for a preview.
    faults: Vec<Fault>,
    /// Whether requests for lists fail.
    lists_fail: bool,
}

impl FakePreviews {
    async fn start(bus: &Bus, now_ms: u64, tasks: &mut JoinSet<()>) -> Self {
        let fake = Self::default();
        let known = fake.clone();
        serve(bus, tasks, move |request: v1::CreatePreviewRequest| {
            let mut state = known.0.lock().unwrap();
            if !state.faults.is_empty() {
                return Err(state.faults.remove(0));
            }
            let preview = v1::Preview {
                preview_id: format!("p{}", state.previews.len() + 1),
                expires_at_ms: now_ms + 3_600_000,
                delivery_id: request.delivery_id.clone(),
                only_file: request.only_file,
                ..v1::Preview::default()
            };
            state.requests.push(request);
            state.previews.push(preview.clone());
            Ok(v1::CreatedPreview {
                url: format!("https://p.example/v/secret-{}/r.html", preview.preview_id),
                preview: Some(preview),
            })
        })
        .await;
        let known = fake.clone();
        serve(bus, tasks, move |request: v1::ListPreviewsRequest| {
            let state = known.0.lock().unwrap();
            if state.lists_fail {
                return Err(Fault::new(FaultCode::Unavailable, "Not now."));
            }
            let own = state.previews.iter();
            let own = own.filter(|preview| preview.delivery_id == request.delivery_id);
            Ok(v1::ListPreviewsReply {
                previews: own.cloned().collect(),
            })
        })
        .await;
        let known = fake.clone();
        serve(bus, tasks, move |request: v1::RevokePreviewRequest| {
            let mut state = known.0.lock().unwrap();
            let mut previews = state.previews.iter_mut();
            let preview = previews
                .find(|preview| preview.preview_id == request.preview_id)
                .ok_or_else(|| Fault::new(FaultCode::NotFound, "No."))?;
            preview.revoked_at_ms = now_ms + 1;
            Ok(preview.clone())
        })
        .await;
        fake
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut v1::Preview)) {
        let mut state = self.0.lock().unwrap();
        let mut previews = state.previews.iter_mut();
        change(previews.find(|preview| preview.preview_id == id).unwrap());
    }
}

struct PreviewFixture {
    delivery: DeliveryFixture,
    previews: FakePreviews,
    _workers: QueueWorkers,
    _tasks: JoinSet<()>,
}

impl PreviewFixture {
    async fn new(links: LinkPolicy) -> Self {
        Self::with(links, DuplicateProtection::Unknown).await
    }

    async fn with(links: LinkPolicy, ambiguity: DuplicateProtection) -> Self {
        let delivery =
            DeliveryFixture::with(ambiguity, |config| config.preview_links = links).await;
        let mut tasks = JoinSet::new();
        let now_ms = delivery.clock.now_ms();
        let previews = FakePreviews::start(&delivery.bus, now_ms, &mut tasks).await;
        delivery.sandbox.bind(chat("42"));
        delivery.sandbox.put("/w/r.html", "file", None);
        Self {
            _workers: QueueWorkers::start(&delivery),
            delivery,
            previews,
            _tasks: tasks,
        }
    }

    async fn send(&self, id: &str) -> Result<(), Fault> {
        let work = v1::SendFileRequested {
            flags: Some(v1::DeliveryFlags {
                as_preview: true,
                ..v1::DeliveryFlags::default()
            }),
            ..request(&["/w/r.html"])
        };
        let meta = self.delivery.meta(id);
        let accepted = self.delivery.replica.intake.accept(&meta, &work).await;
        accepted.map(drop).map_err(Into::into)
    }

    async fn receipt(&self, id: &str) -> v1::DeliveredFile {
        let request = v1::DeliveryOutcomeRequest {
            delivery_id: id.to_owned(),
            wait_ms: 0,
        };
        let meta = self.delivery.meta("asks");
        let receipts = &self.delivery.replica.receipts;
        let outcome = receipts.outcome(&meta, &request).await.unwrap();
        // The list has the same state.
        let listed = receipts
            .receipts(&meta, &v1::ListReceiptsRequest::default())
            .await
            .unwrap();
        let listed_report = listed
            .reports
            .iter()
            .find(|report| report.delivery_id == id);
        assert_eq!(
            listed_report.unwrap().files[0].preview,
            outcome.files[0].preview
        );
        outcome.files[0].clone()
    }
}

#[tokio::test]
async fn a_preview_is_sent_instead_of_the_file_and_the_receipt_counts_its_openings() {
    let fixture = PreviewFixture::new(LinkPolicy::Auto).await;
    fixture.send("d1").await.unwrap();
    let record = finished_record(&fixture.delivery, "d1").await;
    assert_eq!(states(&record), [FileState::DeliveredAsPreview]);
    assert!(record.success);
    let messages = fixture.delivery.fake.visible_messages();
    assert_eq!((messages.len(), messages[0].route), (1, Route::Link));
    assert!(
        messages[0].text.contains("r.html, viewable until")
            && messages[0]
                .text
                .ends_with("https://p.example/v/secret-p1/r.html"),
        "{}",
        messages[0].text
    );
    let requests = fixture.previews.0.lock().unwrap().requests.clone();
    assert!(
        requests[0].only_file && requests[0].delivery_id == "d1",
        "{requests:?}"
    );
    // Nothing was copied, and no record has the secret.
    assert!(record.files[0].claim.is_none() && record.files[0].sha256.is_empty());
    assert!(!format!("{record:?}").contains("secret"), "{record:?}");
    let reported = fixture.receipt("d1").await;
    assert_eq!(reported.file_state(), v1::FileState::DeliveredAsPreview);
    let preview = reported.preview.unwrap();
    assert_eq!(preview.preview_ids, ["p1"]);
    assert_eq!((preview.counts_known, preview.opened_count), (true, 0));
    assert_eq!(preview.state(), PreviewLinkState::Open);
    fixture.previews.change("p1", |preview| {
        (preview.opened_count, preview.opened_at_ms) = (3, 77);
        (preview.scanned_count, preview.scanned_at_ms) = (1, 66);
    });
    let preview = fixture.receipt("d1").await.preview.unwrap();
    assert_eq!((preview.opened_count, preview.first_opened_at_ms), (3, 77));
    assert_eq!(
        (preview.scanned_count, preview.first_scanned_at_ms),
        (1, 66)
    );
    fixture
        .previews
        .change("p1", |preview| preview.revoked_at_ms = 99);
    let preview = fixture.receipt("d1").await.preview.unwrap();
    assert_eq!(
        (preview.state(), preview.revoked_at_ms),
        (PreviewLinkState::Revoked, 99)
    );
    // Without a response the count is unknown, not zero.
    fixture.previews.0.lock().unwrap().lists_fail = true;
    let preview = fixture.receipt("d1").await.preview.unwrap();
    assert!(!preview.counts_known);
    assert_eq!(preview.state(), PreviewLinkState::Unspecified);
}

#[tokio::test]
async fn previews_are_refused_unless_the_operator_allows_them() {
    let fixture = PreviewFixture::new(LinkPolicy::Never).await;
    fixture.send("d1").await.unwrap();
    let record = finished_record(&fixture.delivery, "d1").await;
    assert_eq!(states(&record), [FileState::Rejected]);
    assert!(fixture.delivery.fake.visible_messages().is_empty());
    assert!(fixture.previews.0.lock().unwrap().requests.is_empty());
}

#[tokio::test]
async fn a_refused_or_unavailable_preview_is_tried_again_only_where_it_may_pass() {
    let fixture = PreviewFixture::new(LinkPolicy::Always).await;
    let away = Fault::new(FaultCode::Unavailable, "Restarting.");
    fixture.previews.0.lock().unwrap().faults = vec![away];
    fixture.send("d1").await.unwrap();
    let record = finished_record(&fixture.delivery, "d1").await;
    assert_eq!(states(&record), [FileState::DeliveredAsPreview]);
    let denied = Fault::new(FaultCode::Denied, "Policy keeps it inside.");
    fixture.previews.0.lock().unwrap().faults = vec![denied];
    fixture.send("d2").await.unwrap();
    let record = finished_record(&fixture.delivery, "d2").await;
    assert_eq!(states(&record), [FileState::Rejected]);
    let shown = fixture.delivery.fake.visible_messages();
    assert!(
        !shown
            .iter()
            .any(|message| message.text.contains("secret-p2"))
    );
}

#[tokio::test]
async fn the_link_of_an_attempt_that_was_not_shown_is_revoked() {
    let fixture = PreviewFixture::new(LinkPolicy::Always).await;
    fixture
        .delivery
        .fake
        .script([FakeAction::Refuse(dray_platform::ErrorKind::Transient)]);
    fixture.send("d1").await.unwrap();
    let record = finished_record(&fixture.delivery, "d1").await;
    assert_eq!(states(&record), [FileState::DeliveredAsPreview]);
    let previews = fixture.previews.0.lock().unwrap().previews.clone();
    let revoked: Vec<_> = previews
        .iter()
        .map(|preview| preview.revoked_at_ms > 0)
        .collect();
    assert_eq!(revoked, [true, false]);
    let preview = fixture.receipt("d1").await.preview.unwrap();
    assert_eq!(preview.preview_ids, ["p1", "p2"]);
    assert_eq!(preview.state(), PreviewLinkState::Open);
}
