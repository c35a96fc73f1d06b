//! The question before a delivery, as `elicitation/create` of 2025-11-25.

use std::sync::atomic::AtomicUsize;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
};

use super::*;

/// A client whose user answers every question in the same way.
#[derive(Debug)]
struct AnsweringClient {
    confirm: bool,
    asked: Arc<AtomicUsize>,
}

impl ClientHandler for AnsweringClient {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = ClientCapabilities::builder().enable_elicitation().build();
        info
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let request_text = serde_json::to_string(&request).unwrap();
        assert!(request_text.contains("report.txt"), "{request_text}");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let content = json!({"confirm": self.confirm});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }
}

/// Accepts deliveries and counts them.
async fn serve_deliveries(bus: &Bus, accepted: Arc<AtomicUsize>) -> JoinSet<()> {
    let subject = call_subject::<v1::SendFileRequested>();
    let mut service = bus.respond_to(&subject, "platform-delivery").await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(request) = service.next().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let delivery_id = request.meta().unwrap().operation.to_string();
            let reply = v1::DeliveryAccepted {
                delivery_id,
                duplicate: false,
            };
            request.answer(Ok(reply)).await;
        }
    });
    let subject = call_subject::<v1::ShowSessionRequest>();
    let mut sessions = bus.respond_to(&subject, "sandbox-transfer").await.unwrap();
    tasks.spawn(async move {
        while let Some(request) = sessions.next().await {
            request.answer(Ok(v1::Session::default())).await;
        }
    });
    tasks
}

#[tokio::test]
async fn a_session_of_an_earlier_version_asks_the_person_during_the_call() {
    for (confirm, deliveries) in [(true, 1), (false, 0)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = AnsweringClient {
            confirm,
            asked: asked.clone(),
        };
        let options = ServerOptions {
            permissions: Permissions {
                write: false,
                send: true,
            },
            confirm_send: true,
            ..ServerOptions::default()
        };
        let fixture = Box::pin(ServerFixture::with_client(options, client)).await;
        std::fs::write(fixture.directory.path().join("data/report.txt"), "hello").unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let _deliveries = serve_deliveries(&fixture.bus, accepted.clone()).await;
        let ended = Arc::new(AtomicBool::new(true));
        let _outcomes = serve_outcomes(&fixture.bus, ended).await;
        let arguments = json!({"files": ["report.txt"]});
        let result = fixture.call("send_file", arguments).await;
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(accepted.load(Ordering::SeqCst), deliveries, "{result:?}");
        if !confirm {
            assert!(text(&result).contains("declined"), "{}", text(&result));
        }
    }
}
