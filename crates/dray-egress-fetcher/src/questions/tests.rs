//! Questions over a bus in memory, with a clock that the tests move.

use dray_bus::Topology;
use dray_guard::Caller;
use dray_service::telemetry::InstrumentCatalogue;

use super::list::{MAX_LIST_BYTES, MAX_LISTED_SESSIONS};
use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

struct QuestionFixture {
    store: QuestionStore,
    clock: Clock,
}

impl QuestionFixture {
    async fn new() -> Self {
        let fixture = Self::without_streams();
        let topology = Topology::new(1, 1 << 30);
        fixture.store.bus.apply_topology(&topology).await.unwrap();
        fixture
    }

    fn without_streams() -> Self {
        let clock = Clock::manual(NOW_MS);
        let meter = InstrumentCatalogue::new().meter();
        let bus = Bus::in_process(clock.clone(), &meter);
        let settings = QuestionSettings {
            wait_time: Duration::from_hours(1),
            answer_time: Duration::from_hours(2),
            max_per_session: 3,
        };
        let metrics = EgressMetrics::new(&meter);
        Self {
            store: QuestionStore::new(&bus, clock.clone(), settings, metrics),
            clock,
        }
    }

    async fn consult(&self, session: &str, host: &str, port: u16) -> HostAnswer {
        self.store.consult(&question(session, host, port)).await
    }

    async fn waiting(&self, session: &str, host: &str) -> QuestionId {
        match self.consult(session, host, 443).await {
            HostAnswer::Waiting(id) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn answer(&self, id: QuestionId, is_allowed: bool, minutes: Option<u64>) {
        let given_answer = GivenAnswer {
            is_allowed,
            valid_for: minutes.map(Duration::from_mins),
            principal: "ops".to_owned(),
            only_waiting: false,
        };
        self.store
            .answer(&self.meta("acme"), id, &given_answer)
            .await
            .unwrap();
    }

    fn meta(&self, tenant: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(30));
        Meta::new(TenantId::new(tenant).unwrap(), deadline)
    }

    async fn listed(&self, tenant: &str, all: bool) -> Vec<String> {
        let tenant = TenantId::new(tenant).unwrap();
        let listed = self.store.list(&tenant, all, None).await.unwrap();
        assert_eq!(listed.next, None);
        listed
            .questions
            .into_iter()
            .map(|question| question.host)
            .collect()
    }
}

fn question(session: &str, host: &str, port: u16) -> HostQuestion {
    HostQuestion {
        caller: Caller {
            tenant: "acme".to_owned(),
            session: session.to_owned(),
            app: "reporter".to_owned(),
            ..Caller::default()
        },
        host: host.to_owned(),
        port,
        rule: "analysts/others (policy.toml:9)".to_owned(),
        may_ask: true,
    }
}

fn is_allowed(answer: HostAnswer) -> bool {
    matches!(answer, HostAnswer::Allowed { .. })
}

#[tokio::test]
async fn a_host_is_asked_about_once_and_the_answer_holds_for_session_host_and_port_alone() {
    let fixture = QuestionFixture::new().await;
    let id = fixture.waiting("chat-1", "a.example.org").await;
    assert_eq!(fixture.waiting("chat-1", "a.example.org").await, id);
    assert_eq!(fixture.listed("acme", false).await, ["a.example.org"]);
    assert_eq!(fixture.listed("beta", true).await, [""; 0]);
    fixture.answer(id, true, None).await;
    assert!(is_allowed(
        fixture.consult("chat-1", "a.example.org", 443).await
    ));
    assert_eq!(fixture.listed("acme", false).await, [""; 0]);
    assert_eq!(fixture.listed("acme", true).await, ["a.example.org"]);
    for (session, host, port) in [
        ("chat-2", "a.example.org", 443),
        ("chat-1", "b.a.example.org", 443),
        ("chat-1", "a.example.org", 80),
    ] {
        let other = fixture.consult(session, host, port).await;
        assert!(matches!(other, HostAnswer::Waiting(other) if other != id));
    }
}

#[tokio::test]
async fn an_answer_ends_after_its_time_which_the_configuration_limits() {
    let fixture = QuestionFixture::new().await;
    for (minutes, longest) in [(Some(10), 10), (None, 120), (Some(9999), 120)] {
        let id = fixture.waiting("chat-1", "a.example.org").await;
        fixture.answer(id, true, minutes).await;
        let valid_for = Duration::from_mins(longest);
        let held = fixture.consult("chat-1", "a.example.org", 443).await;
        assert_eq!(held, HostAnswer::Allowed { id, valid_for });
        fixture.clock.advance(valid_for);
        // The question is asked again, under another id: an old answer to the first question does not count for it.
        assert_ne!(fixture.waiting("chat-1", "a.example.org").await, id);
        let late = GivenAnswer {
            is_allowed: true,
            valid_for: None,
            principal: "ops".to_owned(),
            only_waiting: false,
        };
        let late = fixture.store.answer(&fixture.meta("acme"), id, &late).await;
        assert!(matches!(late, Err(QuestionError::Gone)), "{late:?}");
        fixture.clock.advance(Duration::from_hours(1));
    }
}

#[tokio::test]
async fn a_denial_holds_without_a_further_question_and_an_answer_can_be_taken_back() {
    let fixture = QuestionFixture::new().await;
    let id = fixture.waiting("chat-1", "a.example.org").await;
    fixture.answer(id, false, None).await;
    let denied = fixture.consult("chat-1", "a.example.org", 443).await;
    assert_eq!(denied, HostAnswer::Denied(id));
    fixture.answer(id, true, None).await;
    assert!(is_allowed(
        fixture.consult("chat-1", "a.example.org", 443).await
    ));
    fixture.answer(id, false, None).await;
    let denied = fixture.consult("chat-1", "a.example.org", 443).await;
    assert_eq!(denied, HostAnswer::Denied(id));
}

#[tokio::test]
async fn of_concurrent_answers_to_a_waiting_question_one_holds_and_the_others_learn_it() {
    let fixture = QuestionFixture::new().await;
    let id = fixture.waiting("chat-1", "a.example.org").await;
    let meta = fixture.meta("acme");
    let answering = ["ada", "ben", "cleo"].map(|principal| {
        let given = GivenAnswer {
            is_allowed: principal == "ada",
            valid_for: None,
            principal: principal.to_owned(),
            only_waiting: true,
        };
        let (store, meta) = (&fixture.store, &meta);
        async move { store.answer(meta, id, &given).await }
    });
    let answers = futures_util::future::join_all(answering).await;
    let accepted: Vec<_> = answers
        .iter()
        .filter_map(|result| result.as_ref().ok())
        .collect();
    let [accepted] = accepted.as_slice() else {
        panic!("{answers:?}");
    };
    let refused = |result: &&Result<_, _>| matches!(result, Err(QuestionError::Answered));
    assert_eq!(answers.iter().filter(refused).count(), 2);
    let tenant = TenantId::new("acme").unwrap();
    let listed = fixture.store.list(&tenant, true, None).await.unwrap();
    assert_eq!(listed.questions[0].answered_by, accepted.answered_by);
}

#[tokio::test]
async fn a_session_has_a_limited_number_of_questions_and_another_session_its_own() {
    let fixture = QuestionFixture::new().await;
    for host in ["a.example.org", "b.example.org", "c.example.org"] {
        fixture.waiting("chat-1", host).await;
    }
    let further = fixture.consult("chat-1", "d.example.org", 443).await;
    assert_eq!(further, HostAnswer::NotAsked);
    fixture.waiting("chat-1", "a.example.org").await;
    fixture.waiting("chat-2", "d.example.org").await;
    fixture.clock.advance(Duration::from_hours(1));
    fixture.waiting("chat-1", "d.example.org").await;
}

#[tokio::test]
async fn concurrent_requests_ask_one_question() {
    let fixture = QuestionFixture::new().await;
    let asking = (0..8).map(|_| fixture.waiting("chat-1", "a.example.org"));
    let ids = futures_util::future::join_all(asking).await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(fixture.listed("acme", false).await, ["a.example.org"]);
}

#[tokio::test]
async fn sessions_whose_questions_ended_hide_no_session_with_a_question() {
    let fixture = QuestionFixture::new().await;
    // The oldest record counts longer than the ones after it.
    let held = fixture.waiting("held", "held.example.org").await;
    fixture.answer(held, true, None).await;
    for number in 0..=MAX_LISTED_SESSIONS {
        let session = format!("old-{number}");
        fixture.waiting(&session, "old.example.org").await;
    }
    fixture.clock.advance(Duration::from_hours(1));
    fixture.waiting("new", "new.example.org").await;
    let all = fixture.listed("acme", true).await;
    assert_eq!(all, ["held.example.org", "new.example.org"]);
    assert_eq!(fixture.listed("acme", false).await, ["new.example.org"]);
    fixture.clock.advance(Duration::from_hours(1));
    assert_eq!(fixture.listed("acme", true).await, [""; 0]);
    // A session before the start of the next list asks again.
    fixture.waiting("old-0", "again.example.org").await;
    assert_eq!(fixture.listed("acme", true).await, ["again.example.org"]);
}

#[tokio::test]
async fn a_clock_that_is_ahead_for_a_moment_hides_no_question() {
    let mut fixture = QuestionFixture::new().await;
    fixture.waiting("old", "old.example.org").await;
    fixture.clock.advance(Duration::from_hours(1));
    fixture.waiting("new", "new.example.org").await;
    fixture.clock.advance(Duration::from_mins(58));
    assert_eq!(fixture.listed("acme", false).await, ["new.example.org"]);
    // One step is shorter than the time for which a start is used, and one is longer.
    for ahead in [Duration::from_mins(3), Duration::from_hours(24)] {
        let ahead_ms = fixture.clock.now_ms() + dray_types::whole_millis(ahead);
        fixture.store.clock = Clock::manual(ahead_ms);
        assert_eq!(fixture.listed("acme", false).await, [""; 0]);
        fixture.store.clock = fixture.clock.clone();
        assert_eq!(fixture.listed("acme", false).await, ["new.example.org"]);
    }
}

/// The parts of the list of all questions, as a caller reads them one after the other.
async fn all_parts(fixture: &QuestionFixture) -> Vec<Vec<v1::EgressQuestion>> {
    let tenant = TenantId::new("acme").unwrap();
    let mut parts = Vec::new();
    let mut after = None;
    loop {
        let listed = fixture.store.list(&tenant, false, after).await.unwrap();
        parts.push(listed.questions);
        after = listed.next;
        if after.is_none() {
            return parts;
        }
    }
}

#[tokio::test]
async fn a_list_of_more_sessions_than_its_limit_continues_in_a_next_part() {
    let fixture = QuestionFixture::new().await;
    for number in 0..=MAX_LISTED_SESSIONS {
        let session = format!("chat-{number}");
        fixture.waiting(&session, "a.example.org").await;
    }
    let parts = all_parts(&fixture).await;
    let sizes: Vec<_> = parts.iter().map(Vec::len).collect();
    assert_eq!(sizes, [MAX_LISTED_SESSIONS, 1]);
    assert_eq!(parts[1][0].session, format!("chat-{MAX_LISTED_SESSIONS}"));
}

#[tokio::test]
async fn each_part_of_a_list_of_long_questions_fits_into_a_message() {
    let fixture = QuestionFixture::new().await;
    let labels = vec!["a".repeat(60); 3].join(".");
    for number in 0..MAX_LISTED_SESSIONS {
        let session = format!("chat-{number}-{}", "s".repeat(100));
        for host in ["one", "two", "three"] {
            fixture.waiting(&session, &format!("{host}.{labels}")).await;
        }
    }
    let parts = all_parts(&fixture).await;
    assert!(parts.len() > 1);
    let mut ids: Vec<_> = parts
        .iter()
        .flatten()
        .map(|question| question.id.as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3 * MAX_LISTED_SESSIONS);
    for part in &parts {
        let size: usize = part.iter().map(prost::Message::encoded_len).sum();
        assert!(size <= MAX_LIST_BYTES, "{size} bytes");
    }
}

#[tokio::test]
async fn another_tenant_answers_no_question() {
    let fixture = QuestionFixture::new().await;
    let id = fixture.waiting("chat-1", "a.example.org").await;
    let given_answer = GivenAnswer {
        is_allowed: true,
        valid_for: None,
        principal: "ops".to_owned(),
        only_waiting: false,
    };
    let answered = fixture
        .store
        .answer(&fixture.meta("beta"), id, &given_answer)
        .await;
    assert!(matches!(answered, Err(QuestionError::Gone)), "{answered:?}");
    assert_eq!(fixture.waiting("chat-1", "a.example.org").await, id);
}

#[tokio::test]
async fn records_that_cannot_be_used_answer_nothing() {
    let away = QuestionFixture::without_streams();
    let answer = away.consult("chat-1", "a.example.org", 443).await;
    assert_eq!(answer, HostAnswer::NotAsked);

    let fixture = QuestionFixture::new().await;
    let tenant = TenantId::new("acme").unwrap();
    let key = SessionKey::of_session(&tenant, "chat-1");
    let keys = &fixture.store.keys;
    let garbage = Bytes::from_static(b"not a record");
    let revision = keys.create(&key.text, garbage).await.unwrap();
    let answer = fixture.consult("chat-1", "a.example.org", 443).await;
    assert_eq!(answer, HostAnswer::NotAsked);
    // A record of another session, whose digest would have to be the same.
    let other = SessionQuestions {
        session: "chat-2".to_owned(),
        questions: Vec::new(),
    };
    let other = serde_json::to_vec(&other).unwrap().into();
    keys.update(&key.text, other, revision).await.unwrap();
    let answer = fixture.consult("chat-1", "a.example.org", 443).await;
    assert_eq!(answer, HostAnswer::NotAsked);
}

#[test]
fn an_answer_is_allow_or_deny_and_has_a_name() {
    let request = |answer, principal: &str| {
        let mut request = v1::AnswerEgressQuestionRequest {
            principal: principal.to_owned(),
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(answer);
        GivenAnswer::of_request(&request)
    };
    assert!(request(EgressAnswer::Allow, "ops").unwrap().is_allowed);
    assert!(!request(EgressAnswer::Deny, "Ada (ops)").unwrap().is_allowed);
    let long = "x".repeat(129);
    for (answer, principal) in [
        (EgressAnswer::Unspecified, "ops"),
        (EgressAnswer::Allow, ""),
        (EgressAnswer::Allow, "a\nb"),
        (EgressAnswer::Allow, long.as_str()),
    ] {
        let refused = request(answer, principal);
        assert!(matches!(refused, Err(QuestionError::InvalidAnswer(_))));
    }
}
