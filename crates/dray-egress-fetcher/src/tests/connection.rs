//! Tests of connections and TLS over the whole pipeline (section 9).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_guard::{Judge, JudgeConfig};
use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder};
use dray_testkit::tls::{Authority, TlsOffer};
use rustls::version::{TLS12, TLS13};
use tokio::time::Instant;

use super::fake_network::*;
use crate::fetch::Fetcher;

fn hello() -> ScriptedResponder {
    ScriptedResponder::always(ResponseScript::ok("hello"))
}

/// A fixture whose `files.example.org` has TLS with the settings of `offer` and a certificate for `name`.
fn tls_fixture(name: &str, offer: TlsOffer, script: ResponseScript) -> FetcherFixture {
    let authority = Authority::new().unwrap();
    let fixture = FetcherFixture {
        bundle: Some(authority.pem()),
        ..FetcherFixture::default()
    };
    let acceptor = authority.acceptor_with(name, offer).unwrap();
    fixture.fake_network.peer(
        PUBLIC_ADDRESS,
        443,
        FakePeer::Tls(acceptor, ScriptedResponder::always(script)),
    );
    fixture
}

#[tokio::test(start_paused = true)]
async fn t_1_the_next_address_is_tried_after_250_ms() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.name(
        "files.example.org",
        &["93.184.215.1", "93.184.215.2", PUBLIC_ADDRESS],
    );
    fixture
        .fake_network
        .peer("93.184.215.1", 80, FakePeer::Hangs);
    fixture
        .fake_network
        .peer("93.184.215.2", 80, FakePeer::Hangs);
    let started = Instant::now();
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(started.elapsed(), Duration::from_millis(500));
    assert_eq!(
        fixture.fake_network.dialled(),
        ["93.184.215.1:80", "93.184.215.2:80", "93.184.215.14:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn t_1_a_refused_address_is_not_waited_for() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("files.example.org", &["93.184.215.1", PUBLIC_ADDRESS]);
    let started = Instant::now();
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn t_1_the_first_attempt_wins_when_it_connects_after_the_second_one_began() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("files.example.org", &[PUBLIC_ADDRESS, "93.184.215.1"]);
    fixture.fake_network.peer(
        PUBLIC_ADDRESS,
        80,
        FakePeer::Late(Duration::from_millis(400), hello()),
    );
    fixture
        .fake_network
        .peer("93.184.215.1", 80, FakePeer::Hangs);
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.code(), "ok");
    assert_eq!(
        outcome.record.hops[0].chosen.unwrap().to_string(),
        "93.184.215.14:80"
    );
}

#[tokio::test(start_paused = true)]
async fn t_1_one_budget_for_all_addresses() {
    let fixture = FetcherFixture::default();
    let addresses = ["93.184.215.1", "93.184.215.2", "93.184.215.3"];
    fixture.fake_network.name("files.example.org", &addresses);
    for address in addresses {
        fixture.fake_network.peer(address, 80, FakePeer::Hangs);
    }
    let started = Instant::now();
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.end(), ("timeout", "connect"));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn t_2_another_peer_than_the_pinned_one_gets_no_byte() {
    let fixture = FetcherFixture::default();
    for other in ["127.0.0.1:80", "93.184.215.15:80", "93.184.215.14:81"] {
        fixture.fake_network.peer(
            PUBLIC_ADDRESS,
            80,
            FakePeer::Impostor(other.parse().unwrap()),
        );
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.end(), ("internal", "connect"), "{other}");
        assert_eq!(outcome.record.pin_mismatches, 1);
        assert_eq!(outcome.record.hops[0].peer.unwrap().to_string(), other);
    }
}

#[tokio::test(start_paused = true)]
async fn t_2_an_address_that_was_blocked_meanwhile_gets_no_byte() {
    let fixture = FetcherFixture::default();
    let server = hello();
    let late = FakePeer::Late(Duration::from_secs(1), server.clone());
    fixture.fake_network.peer(PUBLIC_ADDRESS, 80, late);
    let fetcher = fixture.fetcher();
    let request = request("http://files.example.org/");
    let (outcome, ()) = tokio::join!(run(&fetcher, &request), async {
        // paused clock: while the connection is under way
        tokio::time::sleep(Duration::from_millis(500)).await;
        let own = vec![PUBLIC_ADDRESS.parse().unwrap()];
        fetcher.set_judge(fetcher.judge().with_own_addresses(own));
    });
    assert_eq!(outcome.end(), ("ssrf_blocked", "connect"));
    assert_eq!(server.received_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn t_2_a_connection_to_this_machine_gets_no_byte() {
    let fixture = FetcherFixture::default();
    let server = hello();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Itself(server.clone()));
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.end(), ("ssrf_blocked", "connect"));
    assert_eq!(server.received_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn i_1_an_address_that_was_added_after_the_start_is_not_dialled() {
    let fixture = FetcherFixture::default();
    let own = Arc::new(Mutex::new(Vec::new()));
    let interfaces = Arc::clone(&own);
    let fetcher = fixture
        .fetcher()
        .with_interfaces(move || Ok(interfaces.lock().unwrap().clone()));
    let request = request("http://files.example.org/");
    assert_eq!(run(&fetcher, &request).await.code(), "ok");
    own.lock().unwrap().push(PUBLIC_ADDRESS.parse().unwrap());
    assert_eq!(run(&fetcher, &request).await.end(), ("ssrf_blocked", "dns"));
    assert_eq!(fixture.fake_network.dialled().len(), 1);
    own.lock().unwrap().clear();
    assert_eq!(run(&fetcher, &request).await.code(), "ok");
}

#[tokio::test(start_paused = true)]
async fn i_1_a_judge_that_is_set_while_the_interfaces_are_read_stays_in_force() {
    let fixture = FetcherFixture::default();
    let setting: Arc<Mutex<std::sync::Weak<Fetcher>>> = Arc::default();
    let weak = Arc::clone(&setting);
    let fetcher = fixture.fetcher().with_interfaces(move || {
        // The refresh of the protected names ends during the first read, which finds a new address too.
        if let Some(fetcher) = std::mem::take(&mut *weak.lock().unwrap()).upgrade() {
            let config = JudgeConfig {
                protected: vec![format!("{PUBLIC_ADDRESS}/32").parse().unwrap()],
                ..fetcher.judge().config().clone()
            };
            fetcher.set_judge(Judge::new(config));
        }
        Ok(vec!["203.0.113.9".parse().unwrap()])
    });
    let fetcher = Arc::new(fetcher);
    *setting.lock().unwrap() = Arc::downgrade(&fetcher);
    let request = request("http://files.example.org/");
    for _ in 0..2 {
        assert_eq!(run(&fetcher, &request).await.end(), ("ssrf_blocked", "dns"));
    }
    assert_eq!(fixture.fake_network.dialled().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn i_4_interfaces_that_cannot_be_read_refuse_the_fetch() {
    let fixture = FetcherFixture::default();
    let fetcher = fixture
        .fetcher()
        .with_interfaces(|| Err(std::io::Error::other("no /proc")));
    let outcome = run(&fetcher, &request("http://files.example.org/")).await;
    assert_eq!(outcome.code(), "internal");
    assert_eq!(fixture.fake_network.dialled().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn t_4_every_hop_has_a_connection_of_its_own() {
    let fixture = FetcherFixture::default();
    let server =
        fixture
            .fake_network
            .serve_with(PUBLIC_ADDRESS, |received| match received.target() {
                "/" => ResponseScript::redirect(302, "/next"),
                _ => ResponseScript::with_fields(
                    &[("Alt-Svc", "h3=\":443\""), ("Connection", "keep-alive")],
                    "end",
                ),
            });
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
    assert_eq!(fixture.fake_network.dialled().len(), 4);
    assert!(
        server
            .received_requests()
            .iter()
            .all(|received| received.field("connection") == Some("close"))
    );
}

#[tokio::test(start_paused = true)]
async fn t_5_tls_1_2_and_1_3_with_a_certificate_for_the_url_host() {
    for version in [&TLS12, &TLS13] {
        let offer = TlsOffer {
            versions: vec![version],
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..TlsOffer::default()
        };
        let fixture = FetcherFixture {
            // The fake server has HTTP/1.1 alone, although it offers HTTP/2 too.
            http2: false,
            ..tls_fixture("files.example.org", offer, ResponseScript::ok("secret"))
        };
        let outcome = fixture.fetch("https://files.example.org/").await;
        assert_eq!((outcome.code(), outcome.body), ("ok", b"secret".to_vec()));
        let session = outcome.record.hops[0].tls.clone().unwrap();
        let expected = if version == &TLS12 {
            "TLSv1.2"
        } else {
            "TLSv1.3"
        };
        assert_eq!(session.version, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn t_5_a_wrong_expired_or_unknown_certificate_is_refused() {
    let other = tls_fixture(
        "other.example.org",
        TlsOffer::default(),
        ResponseScript::ok("x"),
    );
    assert_eq!(
        other.fetch("https://files.example.org/").await.end(),
        ("tls_error", "tls")
    );
    let expired = TlsOffer {
        expired: true,
        ..TlsOffer::default()
    };
    let expired = tls_fixture("files.example.org", expired, ResponseScript::ok("x"));
    assert_eq!(
        expired.fetch("https://files.example.org/").await.end(),
        ("tls_error", "tls")
    );
    let mut unknown = tls_fixture(
        "files.example.org",
        TlsOffer::default(),
        ResponseScript::ok("x"),
    );
    unknown.bundle = None;
    assert_eq!(
        unknown.fetch("https://files.example.org/").await.end(),
        ("tls_error", "tls")
    );
}

#[tokio::test(start_paused = true)]
async fn t_5_a_literal_address_needs_a_certificate_for_the_address() {
    let named = tls_fixture(
        "files.example.org",
        TlsOffer::default(),
        ResponseScript::ok("x"),
    );
    assert_eq!(
        named.fetch("https://93.184.215.14/").await.code(),
        "tls_error"
    );
    let literal = tls_fixture(PUBLIC_ADDRESS, TlsOffer::default(), ResponseScript::ok("x"));
    assert_eq!(literal.fetch("https://93.184.215.14/").await.code(), "ok");
}

#[tokio::test(start_paused = true)]
async fn t_5_the_root_dot_is_neither_sent_nor_verified() {
    let fixture = tls_fixture(
        "files.example.org",
        TlsOffer::default(),
        ResponseScript::ok("x"),
    );
    assert_eq!(
        fixture.fetch("https://files.example.org./").await.code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn t_5_a_server_that_speaks_no_tls_is_a_tls_error_or_a_closed_connection() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 443, FakePeer::Plain(hello()));
    let outcome = fixture.fetch("https://files.example.org/").await;
    assert!(
        ["tls_error", "timeout"].contains(&outcome.code()),
        "{}",
        outcome.code()
    );
    assert_eq!(outcome.end().1, "tls");
}

#[tokio::test(start_paused = true)]
async fn b_3_a_close_delimited_body_over_tls_needs_close_notify() {
    let body = "HTTP/1.1 200 OK\r\n\r\nhalf of the body";
    let fixture = tls_fixture(
        "files.example.org",
        TlsOffer::default(),
        ResponseScript::raw(body),
    );
    let outcome = fixture.fetch("https://files.example.org/").await;
    assert_eq!(outcome.code(), "ok");
    assert!(outcome.result.unwrap().length_verified);
    let without_close_notify = ResponseScript::raw(body).then(ResponseStep::Drop);
    let fixture = tls_fixture(
        "files.example.org",
        TlsOffer::default(),
        without_close_notify,
    );
    assert_eq!(
        fixture.fetch("https://files.example.org/").await.end(),
        ("truncated", "body")
    );
}

#[tokio::test(start_paused = true)]
async fn q_1_the_host_field_has_the_port_only_when_it_is_not_the_default() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve(PUBLIC_V6, ResponseScript::ok("six"));
    let rows = [
        (
            "http://files.example.org/",
            PUBLIC_ADDRESS,
            80,
            "files.example.org",
        ),
        (
            "http://files.example.org:80/",
            PUBLIC_ADDRESS,
            80,
            "files.example.org",
        ),
        (
            "http://FILES.example.org.:8080/",
            PUBLIC_ADDRESS,
            8080,
            "files.example.org:8080",
        ),
        (
            "http://[2606:4700::1111]/",
            PUBLIC_V6,
            80,
            "[2606:4700::1111]",
        ),
        (
            "http://[2606:4700:0:0::1111]:8000/",
            PUBLIC_V6,
            8000,
            "[2606:4700::1111]:8000",
        ),
    ];
    for (url, address, port, expected) in rows {
        let server = hello();
        fixture
            .fake_network
            .peer(address, port, FakePeer::Plain(server.clone()));
        assert_eq!(fixture.fetch(url).await.code(), "ok", "{url}");
        assert_eq!(
            server.received_requests()[0].field("host"),
            Some(expected),
            "{url}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn q_3_the_request_comes_from_the_canonical_url_only() {
    let fixture = FetcherFixture::default();
    let server = fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("x"));
    fixture
        .fetch("http://files.example.org/a/../b%20c/\u{e9}?q=http://127.0.0.1/%0d%0aX:y#frag")
        .await;
    assert_eq!(
        server.received_requests()[0].target(),
        "/b%20c/%C3%A9?q=http://127.0.0.1/%0d%0aX:y",
        "U-12: encoded CR LF stays encoded, a blocked address in a query is data"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bug_in_a_fetch_does_not_end_the_process() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Panics);
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.code(), "internal");
    assert!(outcome.result.unwrap_err().fault.is_retryable());
}
