//! Tests of the calls that the service takes over the bus.

use std::time::Duration;

use dray_bus::{EventFilter, Meta};
use dray_proto::v1::ApprovalChoice;
use dray_service::{Host, RunningHost, Settings};
use dray_types::{Deadline, Period, Sha256Digest, TenantId};

use super::parts::caller_records;
use super::*;
use crate::approvals::{ApprovalAudits, AskedChat, NewApproval};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CLIENT_PRINCIPAL: &str = "client:a";

/// A host whose orchestrator serves the tenant `globex`.
async fn start_host(directory: &std::path::Path) -> RunningHost {
    let settings = Settings::embedded(directory)
        .set("orchestrator.tenant", "globex")
        .set("orchestrator.listen", "127.0.0.1:0");
    let host = Host::new(settings).with::<Orchestrator>();
    host.start().await.unwrap()
}

/// Has the orchestrator of a tenant keep a question for its chat `ops`, and returns the id.
async fn ask_chat(cx: &ServiceContext, tenant: &TenantId) -> String {
    let audits = ApprovalAudits::new(cx.bus.clone(), tenant.clone(), cx.clock.clone());
    let times = (Duration::from_mins(1), Period::secs(40));
    let records = caller_records(cx, tenant);
    let store = ApprovalStore::new(records, audits, times, cx.tasks.clone());
    let mut approval = NewApproval::new("order", &Sha256Digest::of(b"order"));
    let expires_ms = store.expires_ms();
    approval.chat = Some(AskedChat {
        name: "ops".to_owned(),
        expires_ms,
    });
    let kept = store.keep_question(CLIENT_PRINCIPAL, None, &approval, expires_ms);
    kept.await.unwrap();
    approval.id
}

/// Presses *Refuse* in the chat of a tenant.
async fn press(cx: &ServiceContext, tenant: &TenantId, id: &str) -> v1::DecideInChatReply {
    let mut request = v1::DecideInChatRequest {
        question_id: id.to_owned(),
        chat: "ops".to_owned(),
        sender: "7".to_owned(),
        sender_name: "Ada".to_owned(),
        ..v1::DecideInChatRequest::default()
    };
    request.set_choice(ApprovalChoice::Refused);
    let deadline = Deadline::after(cx.clock.now_ms(), CALL_TIMEOUT);
    let meta = Meta::new(tenant.clone(), deadline);
    cx.bus.call(&meta, &request).await.unwrap()
}

#[tokio::test]
async fn an_orchestrator_records_a_decision_about_the_agents_of_another_tenant_for_that_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let host = start_host(directory.path()).await;
    let cx = host.context();
    let acme = TenantId::new("acme").unwrap();
    let globex = TenantId::new("globex").unwrap();
    let filter = EventFilter::new("dray.audit.approval.v1.decided.*").from_start();
    let mut audit = cx.bus.events(filter).await.unwrap();
    let id = ask_chat(cx, &acme).await;
    // The question of one tenant is unknown in a chat of the other one with the same name.
    let foreign = press(cx, &globex, &id).await;
    assert!(
        !foreign.recorded && foreign.outcome.is_empty(),
        "{foreign:?}"
    );
    let decided = press(cx, &acme, &id).await;
    assert!(decided.recorded, "{decided:?}");
    assert!(decided.outcome.starts_with("Refused by Ada"), "{decided:?}");
    let event = tokio::time::timeout(CALL_TIMEOUT, audit.next()).await;
    let event = event.unwrap().unwrap();
    assert_eq!(event.subject.rsplit('.').next(), Some("acme"));
}
