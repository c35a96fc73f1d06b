//! Tests of actions: resends and restarts of dead letters, with their audit events.

use std::sync::{Arc, Mutex};

use dray_bus::work::{WorkDelivery, WorkFailure, WorkHandler, WorkSettings};
use dray_bus::{EventFilter, EventStream, Meta, WorkCompleted, test_bus};
use dray_proto::v1::{self, ConsoleAction, ConsoleStage};
use dray_types::FaultCode;

use super::*;

/// The audit events of consoles, from the first one.
pub(super) struct AuditTrail(EventStream);

impl AuditTrail {
    pub(super) async fn open(console: &ConsoleFixture) -> Self {
        let filter = EventFilter::new("dray.audit.console.>").from_start();
        Self(console.bus.events(filter).await.unwrap())
    }

    /// The operation and the content of the next event that is not a login.
    pub(super) async fn next(&mut self) -> (String, v1::ConsoleAudit) {
        let reading = async {
            loop {
                let event = self.0.next().await.unwrap();
                let audit: v1::ConsoleAudit = event.decode().unwrap();
                if audit.action() != ConsoleAction::Login {
                    let operation = event.headers.get("Dray-Operation").unwrap();
                    return (operation.to_owned(), audit);
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap()
    }
}

/// Fails all work with a transient error, so that it is given up after its attempts.
struct FailingHandler;

impl WorkHandler<v1::ToolCallRequested> for FailingHandler {
    async fn handle(
        &self,
        _: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let fault = Fault::new(FaultCode::Unavailable, "The store does not respond.");
        Err(fault.retry_after(Duration::ZERO).into())
    }
}

/// Publishes a tool call of a tenant whose work is given up, and waits for its dead letter.
async fn dead_letter(console: &ConsoleFixture, tenant: &TenantId, operation: &str) -> u64 {
    let worker = console.bus.clone();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let mut working = JoinSet::new();
    working.spawn(async move {
        let settings = WorkSettings {
            attempts: 1,
            ..WorkSettings::default()
        };
        let worked = worker.work("file-resolver", settings, FailingHandler, stopped);
        worked.await.unwrap();
    });
    let deadline = Deadline::after(console.clock.now_ms(), TEST_TIMEOUT);
    let meta = Meta::new(tenant.clone(), deadline).with_operation(operation.parse().unwrap());
    let work = v1::ToolCallRequested {
        tool: "send".to_owned(),
        tool_call_id: "https://me:pw@host.example/file?sig=5ec2e7".to_owned(),
        ..v1::ToolCallRequested::default()
    };
    console.bus.publish_work(&meta, &work).await.unwrap();
    let waiting = async {
        loop {
            let letters = console.bus.dead_letters().list(1, 10).await.unwrap();
            if let Some(letter) = letters.iter().find(|letter| letter.operation == operation) {
                return letter.sequence;
            }
            tokio::task::yield_now().await;
        }
    };
    let sequence = tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
    // Without a worker, restarted work stays in the stream, so that a second start is possible.
    stop.cancel();
    working.join_next().await.unwrap().unwrap();
    sequence
}

#[tokio::test]
async fn a_resend_is_recorded_before_and_after_and_leads_to_the_new_delivery() {
    let mut console = ConsoleFixture::new().await;
    let resend_requests = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&resend_requests);
    console
        .respond::<v1::ResendRequest>(move |request| {
            let id = request.delivery_id.clone();
            requests.lock().unwrap().push(request);
            match id.as_str() {
                "d-1" => Ok(v1::DeliveryAccepted {
                    delivery_id: "d-2".to_owned(),
                    duplicate: false,
                }),
                _ => Err(Fault::new(FaultCode::Denied, "Nothing is left to send.")
                    .detail("nothing_to_resend")),
            }
        })
        .await;
    let mut trail = AuditTrail::open(&console).await;
    let login = console.log_in(ConsoleRole::Act).await;
    let operation = OperationId::mint();
    let fields = format!("delivery=d-1&operation={operation}");
    let response = console.post("/deliveries/resend", &login, &fields).await;
    assert_eq!(response.status, 303, "{response:?}");
    assert_eq!(response.header("location"), Some("/operations/d-2"));
    assert!(!resend_requests.lock().unwrap()[0].all);
    let (begun_by, begun) = trail.next().await;
    let (done_by, done) = trail.next().await;
    assert_eq!((&begun_by, &done_by), (&operation.to_string(), &begun_by));
    assert_eq!(
        (begun.stage(), done.stage()),
        (ConsoleStage::Begun, ConsoleStage::Done)
    );
    assert_eq!(
        (begun.action(), begun.target.as_str()),
        (ConsoleAction::Resend, "d-1")
    );
    assert_eq!((begun.role.as_str(), begun.login.len()), ("act", 16));
    assert!(!login.cookie.contains(&begun.login));
    let refused = console
        .post("/deliveries/resend", &login, "delivery=d-9")
        .await;
    assert!(
        refused.body.contains("Nothing is left to send."),
        "{refused:?}"
    );
    trail.next().await;
    let (_, failed) = trail.next().await;
    assert_eq!(failed.stage(), ConsoleStage::Failed);
    assert_eq!(failed.failure, "denied/nothing_to_resend");
}

#[tokio::test]
async fn a_resend_whose_form_was_sent_before_leads_to_the_first_delivery() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ResendRequest>(|_| {
            Ok(v1::DeliveryAccepted {
                delivery_id: "d-3".to_owned(),
                duplicate: true,
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let repeated = console
        .post("/deliveries/resend", &login, "delivery=d-1")
        .await;
    assert_eq!(repeated.status, 200, "{repeated:?}");
    for part in ["nothing was sent a second time", "href=\"/operations/d-3\""] {
        assert!(repeated.body.contains(part), "{repeated:?}");
    }
}

#[tokio::test]
async fn an_action_whose_browser_leaves_ends_and_is_recorded() {
    let console = ConsoleFixture::new().await;
    let subject = call_subject::<v1::ResendRequest>();
    let mut service = console.bus.respond_to(&subject, "test").await.unwrap();
    let mut trail = AuditTrail::open(&console).await;
    let login = console.log_in(ConsoleRole::Act).await;
    let (token, operation) = (&login.form_token, OperationId::mint());
    let body = format!("csrf={token}&delivery=d-1&operation={operation}");
    let origin = format!("Origin: {}\r\n", console.base_url);
    let form = console.form_request("/deliveries/resend", &login, &origin, &body);
    let mut browser = console.connect().await;
    browser.write_all(form.as_bytes()).await.unwrap();
    let called = tokio::time::timeout(TEST_TIMEOUT, service.next()).await;
    let called = called.unwrap().unwrap();
    drop(browser);
    // The server notices the end of that connection before it answers on a later one.
    console.get("/status", Some(&login)).await;
    let accepted = v1::DeliveryAccepted {
        delivery_id: "d-2".to_owned(),
        duplicate: false,
    };
    called.answer(Ok(accepted)).await;
    assert_eq!(trail.next().await.1.stage(), ConsoleStage::Begun);
    let (done_by, done) = trail.next().await;
    assert_eq!(done.stage(), ConsoleStage::Done);
    assert_eq!(done_by, operation.to_string());
}

#[tokio::test]
async fn an_action_that_cannot_be_recorded_is_not_done() {
    let clock = Clock::system();
    // On a bus without streams calls work, and no audit event can be stored.
    let bus_without_streams = test_bus::without_streams(&clock);
    let mut console = ConsoleFixture::start_on(bus_without_streams, ConsoleFixture::acting()).await;
    let resend_count = Arc::new(Mutex::new(0));
    let count = Arc::clone(&resend_count);
    console
        .respond::<v1::ResendRequest>(move |_| {
            *count.lock().unwrap() += 1;
            Ok(v1::DeliveryAccepted::default())
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let refused = console
        .post("/deliveries/resend", &login, "delivery=d-1")
        .await;
    assert!(
        refused.body.contains("Nothing was done: the audit event"),
        "{refused:?}"
    );
    assert_eq!(*resend_count.lock().unwrap(), 0);
}

#[tokio::test]
async fn dead_letters_are_shown_without_secrets_planned_and_started_once() {
    let console = ConsoleFixture::new().await;
    let sequence = dead_letter(&console, &TenantId::default(), "op-dead").await;
    let login = console.log_in(ConsoleRole::Act).await;
    let list = console.get("/letters", Some(&login)).await;
    assert!(
        list.body.contains("The store does not respond."),
        "{list:?}"
    );
    let shown = console
        .get(&format!("/letters/{sequence}"), Some(&login))
        .await;
    assert!(
        shown.body.contains("https://host.example/file"),
        "{shown:?}"
    );
    assert!(!shown.body.contains("5ec2e7") && !shown.body.contains("pw@"));
    let plan = format!("letter={sequence}&mode=plan");
    let planned = console.post("/letters/redrive", &login, &plan).await;
    assert!(
        planned.body.contains("would be started again"),
        "{planned:?}"
    );
    assert!(
        console
            .get("/letters", Some(&login))
            .await
            .body
            .contains("op-dead")
    );
    let mut trail = AuditTrail::open(&console).await;
    let start = format!("letter={sequence}&letter=4711&mode=start");
    let started = console.post("/letters/redrive", &login, &start).await;
    assert!(started.body.contains("was started again."), "{started:?}");
    assert!(
        started.body.contains("The dead letter 4711 does not exist"),
        "{started:?}"
    );
    let (operation, begun) = trail.next().await;
    assert_eq!(
        (operation.as_str(), begun.stage()),
        ("op-dead", ConsoleStage::Begun)
    );
    assert_eq!(begun.target, format!("dead letter {sequence}"));
    assert_eq!(trail.next().await.1.stage(), ConsoleStage::Done);
    // The work is in the stream again: a second start is recognised.
    let repeated = console.post("/letters/redrive", &login, &start).await;
    assert!(
        repeated.body.contains("started again before"),
        "{repeated:?}"
    );
}

#[tokio::test]
async fn a_dead_letter_of_another_tenant_is_not_found() {
    let console = ConsoleFixture::new().await;
    let acme = TenantId::new("acme").unwrap();
    let sequence = dead_letter(&console, &acme, "op-acme").await;
    let login = console.log_in(ConsoleRole::Act).await;
    let list = console.get("/letters?state=all", Some(&login)).await;
    assert!(list.body.contains("No dead letters."), "{list:?}");
    let shown = console
        .get(&format!("/letters/{sequence}"), Some(&login))
        .await;
    assert!(
        shown.body.contains("does not exist for this tenant"),
        "{shown:?}"
    );
    assert!(!shown.body.contains("op-acme"));
    let start = format!("letter={sequence}&mode=start");
    let refused = console.post("/letters/redrive", &login, &start).await;
    assert!(
        refused.body.contains("does not exist for this tenant"),
        "{refused:?}"
    );
    let states = console.bus.dead_letters().list(1, 10).await.unwrap();
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].state.as_str(), "open");
}
