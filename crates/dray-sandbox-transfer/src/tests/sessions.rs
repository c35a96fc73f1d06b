//! Sessions: bound to incarnations, scoped by tenant.

use super::*;
use crate::error::Error;
use crate::sessions::{SESSION_BUCKET, Sessions, session_key};

#[tokio::test]
async fn r_1_a_session_is_bound_to_the_incarnation_not_to_the_name() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::write(path.join("a"), "first").unwrap();
    fixture.bind("s1", &sandbox, None).await;
    let request = v1::GetSandboxFileRequest {
        sandbox: Some(session("s1")),
        path: b"a".to_vec(),
        ..v1::GetSandboxFileRequest::default()
    };
    assert!(fixture.ask(&request).await.is_ok());
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("a"), "somebody else's").unwrap();
    let fault = fixture.ask(&request).await.unwrap_err();
    assert_eq!(fault.detail, "sandbox_gone", "{fault:?}");
    fixture.end().await;
}

#[tokio::test]
async fn a_session_without_a_sandbox_gets_no_default_and_other_tenants_do_not_find_it() {
    let fixture = TransferFixture::new().await;
    let (_, sandbox) = fixture.sandbox("one");
    fixture.bind("s1", &sandbox, None).await;
    let probe = v1::ProbeSandboxRequest {
        sandbox: Some(session("s1")),
    };
    assert!(fixture.ask(&probe).await.is_ok());
    assert_eq!(
        fixture.ask_as("other", &probe).await.unwrap_err().detail,
        "no_session"
    );
    let unbind = v1::UnbindSessionRequest {
        session: "s1".to_owned(),
        sandbox_only: true,
    };
    assert!(fixture.ask(&unbind).await.unwrap().found);
    assert_eq!(fixture.ask(&probe).await.unwrap_err().detail, "no_sandbox");
    assert!(!fixture.ask(&unbind).await.unwrap().found);
    let forget = v1::UnbindSessionRequest {
        sandbox_only: false,
        ..unbind
    };
    assert!(fixture.ask(&forget).await.unwrap().found);
    assert_eq!(fixture.ask(&probe).await.unwrap_err().detail, "no_session");
    fixture.end().await;
}

#[tokio::test]
async fn a_chat_finds_its_session_and_a_thread_that_of_its_chat() {
    let fixture = TransferFixture::new().await;
    fixture.bind("whole", "", Some(chat("1", ""))).await;
    fixture.bind("topic", "", Some(chat("1", "7"))).await;
    let find = |thread: &str| v1::FindSessionRequest {
        chat: Some(chat("1", thread)),
    };
    assert_eq!(fixture.ask(&find("7")).await.unwrap().session, "topic");
    assert_eq!(fixture.ask(&find("8")).await.unwrap().session, "whole");
    assert_eq!(fixture.ask(&find("")).await.unwrap().session, "whole");
    assert_eq!(
        fixture.ask_as("other", &find("")).await.unwrap_err().detail,
        "no_session"
    );
    fixture.bind("whole", "", Some(chat("2", ""))).await;
    assert_eq!(
        fixture.ask(&find("8")).await.unwrap_err().detail,
        "no_session"
    );
    fixture.bind("late", "", Some(chat("2", ""))).await;
    let second = v1::FindSessionRequest {
        chat: Some(chat("2", "")),
    };
    assert_eq!(fixture.ask(&second).await.unwrap().session, "late");
    fixture.end().await;
}

#[tokio::test]
async fn bindings_that_make_no_sense_are_refused() {
    let fixture = TransferFixture::new().await;
    let check = async |change: fn(&mut v1::BindSessionRequest)| {
        let mut request = v1::BindSessionRequest {
            session: "s".to_owned(),
            ..v1::BindSessionRequest::default()
        };
        change(&mut request);
        let fault = fixture.ask(&request).await.unwrap_err();
        assert_eq!(
            fault.code,
            dray_types::FaultCode::InvalidArgument,
            "{fault:?}"
        );
    };
    check(|request| request.session.clear()).await;
    check(|request| request.session = "x".repeat(129)).await;
    check(|request| request.session = "a\nb".to_owned()).await;
    check(|request| request.sandbox = "docker".to_owned()).await;
    check(|request| request.working_directory = b"relative".to_vec()).await;
    check(|request| request.roots = vec![b"relative".to_vec()]).await;
    check(|request| {
        request.chat = Some(v1::ChatTarget {
            platform: "Tele gram".to_owned(),
            ..v1::ChatTarget::default()
        });
    })
    .await;
    // A platform alone, as from a text without a colon.
    check(|request| request.chat = Some(chat("", ""))).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_record_that_cannot_be_decoded_is_not_overwritten() {
    let fixture = TransferFixture::new().await;
    let records = fixture.bus.key_value(SESSION_BUCKET);
    let key = session_key(&TenantId::new("acme").unwrap(), "s1");
    // Field 2 with an invalid length, as after a partial write.
    let damaged = Bytes::from_static(&[0x12, 0xff]);
    records.create(&key, damaged.clone()).await.unwrap();
    let bind = v1::BindSessionRequest {
        session: "s1".to_owned(),
        chat: Some(chat("1", "")),
        ..v1::BindSessionRequest::default()
    };
    let show = v1::ShowSessionRequest {
        session: "s1".to_owned(),
    };
    assert_eq!(
        fixture.ask(&bind).await.unwrap_err().detail,
        "invalid_session_record"
    );
    assert_eq!(
        fixture.ask(&show).await.unwrap_err().detail,
        "invalid_session_record"
    );
    let record = records.get(&key).await.unwrap().unwrap();
    assert_eq!(record.value, damaged);
    // An operator removes it and binds the session again.
    let forget = v1::UnbindSessionRequest {
        session: "s1".to_owned(),
        sandbox_only: false,
    };
    assert!(fixture.ask(&forget).await.unwrap().found);
    assert!(fixture.ask(&bind).await.is_ok());
    fixture.end().await;
}

/// The records on a bus that forgets as NATS does, at a time that the test sets.
struct AgingSessions {
    clock: Clock,
    sessions: Sessions,
    tenant: TenantId,
    chat: v1::ChatTarget,
}

impl AgingSessions {
    async fn new() -> Self {
        let clock = Clock::manual(1_700_000_000_000);
        let bus = test_bus::in_process(&clock).await;
        Self {
            sessions: Sessions::new(&bus, clock.clone()),
            clock,
            tenant: TenantId::new("acme").unwrap(),
            chat: chat("1", ""),
        }
    }

    fn wait_days(&self, days: u64) {
        self.clock.advance(Duration::from_hours(24 * days));
    }

    async fn bind(&self, session: &str) {
        let change = |session: &mut v1::Session| session.chat = Some(self.chat.clone());
        let changed = self.sessions.change(&self.tenant, session, change);
        changed.await.unwrap();
    }

    async fn find(&self) -> Result<String, Error> {
        let found = self.sessions.find(&self.tenant, &self.chat).await;
        found.map(|session| session.session)
    }
}

#[tokio::test]
async fn a_session_that_is_used_does_not_expire() {
    let aging = AgingSessions::new().await;
    aging.bind("s1").await;
    for _ in 0..8 {
        aging.wait_days(30);
        assert_eq!(aging.find().await.unwrap(), "s1", "people write to it");
    }
    for _ in 0..8 {
        aging.wait_days(30);
        let shown = aging.sessions.show(&aging.tenant, "s1").await;
        assert!(shown.is_ok(), "agents use it");
    }
    assert_eq!(aging.find().await.unwrap(), "s1");
    aging.wait_days(91);
    let unused = aging.find().await;
    assert!(matches!(unused, Err(Error::NoChat)), "{unused:?}");
}

#[tokio::test]
async fn a_chat_that_is_bound_again_is_found_ninety_days_after_the_first_binding() {
    let aging = AgingSessions::new().await;
    aging.bind("s1").await;
    aging.wait_days(60);
    aging.bind("s1").await;
    aging.wait_days(40);
    assert_eq!(aging.find().await.unwrap(), "s1");
}

#[tokio::test]
async fn the_use_of_a_session_does_not_take_its_chat_back() {
    let aging = AgingSessions::new().await;
    aging.bind("old").await;
    aging.bind("new").await;
    aging.wait_days(50);
    aging.sessions.show(&aging.tenant, "old").await.unwrap();
    assert_eq!(aging.find().await.unwrap(), "new");
}
