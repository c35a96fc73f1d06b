//! Tests of redirect chains (section 12), in which every hop is judged again.

use dray_guard::{HostPatterns, MaxRedirects, PrivateRanges};
use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder};
use dray_testkit::tls::Authority;

use super::fake_network::*;

/// Redirects `/0` → `/1` → … → `/count`, which responds with `end`.
fn count_up(fixture: &FetcherFixture, count: u32) -> ScriptedResponder {
    fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, move |received| {
            let index: u32 = received
                .target()
                .trim_start_matches('/')
                .parse()
                .unwrap_or(0);
            if index < count {
                ResponseScript::redirect(302, &format!("/{}", index + 1))
            } else {
                ResponseScript::ok("end")
            }
        })
}

#[tokio::test(start_paused = true)]
async fn x_1_five_redirects_mean_six_requests_and_no_more() {
    let fixture = FetcherFixture::default();
    let server = count_up(&fixture, 5);
    let outcome = fixture.fetch("http://files.example.org/0").await;
    assert_eq!(
        (outcome.code(), outcome.body.as_slice()),
        ("ok", b"end".as_slice())
    );
    assert_eq!(server.received_requests().len(), 6);
    assert_eq!(outcome.record.redirect_count, 5);
    assert_eq!(
        outcome.result.unwrap().final_url,
        "http://files.example.org/5"
    );
    let server = count_up(&fixture, 6);
    let outcome = fixture.fetch("http://files.example.org/0").await;
    assert_eq!(outcome.code(), "redirect_limit");
    assert_eq!(server.received_requests().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn x_1_zero_means_that_any_redirect_fails() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.max_redirects = MaxRedirects::new(0).unwrap();
    count_up(&fixture, 1);
    assert_eq!(
        fixture.fetch("http://files.example.org/0").await.code(),
        "redirect_limit"
    );
    assert_eq!(
        fixture.fetch("http://files.example.org/1").await.code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn x_1_a_loop_ends_at_the_limit() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::redirect(307, "/again"));
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "redirect_limit"
    );
    assert_eq!(fixture.fake_network.dialled().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn x_2_the_method_stays_get_for_all_five_codes() {
    for code in [301, 302, 303, 307, 308] {
        let fixture = FetcherFixture::default();
        let server =
            fixture
                .fake_network
                .serve_with(PUBLIC_ADDRESS, move |received| match received.target() {
                    "/end" => ResponseScript::ok("end"),
                    _ => ResponseScript::redirect(code, "/end"),
                });
        assert_eq!(
            fixture.fetch("http://files.example.org/").await.code(),
            "ok",
            "{code}"
        );
        let methods: Vec<_> = server
            .received_requests()
            .iter()
            .map(|received| received.head.split(' ').next().unwrap().to_owned())
            .collect();
        assert_eq!(methods, ["GET", "GET"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn x_3_https_does_not_lead_to_http_unless_allowed() {
    let authority = Authority::new().unwrap();
    let mut fixture = FetcherFixture {
        bundle: Some(authority.pem()),
        ..FetcherFixture::default()
    };
    let acceptor = authority.acceptor("files.example.org").unwrap();
    let down = ScriptedResponder::always(ResponseScript::redirect(
        302,
        "http://files.example.org/plain",
    ));
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 443, FakePeer::Tls(acceptor, down));
    let outcome = fixture.fetch("https://files.example.org/").await;
    assert_eq!(outcome.code(), "redirect_downgrade");
    assert_eq!(fixture.fake_network.dialled().len(), 1);
    fixture.admin.allow_downgrade = true;
    assert_eq!(
        fixture.fetch("https://files.example.org/").await.code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn x_4_credentials_and_fragments_are_not_sent_to_redirect_targets() {
    let fixture = FetcherFixture::default();
    let server =
        fixture
            .fake_network
            .serve_with(PUBLIC_ADDRESS, |received| match received.target() {
                "/start" => ResponseScript::redirect(302, "/end?q=1#fragment"),
                "/login" => {
                    ResponseScript::redirect(302, "http://user:secret@files.example.org/end")
                }
                _ => ResponseScript::ok("end"),
            });
    assert_eq!(
        fixture
            .fetch("http://files.example.org/start#mine")
            .await
            .code(),
        "ok"
    );
    let targets: Vec<_> = server
        .received_requests()
        .iter()
        .map(|received| received.target().to_owned())
        .collect();
    assert_eq!(targets, ["/start", "/end?q=1"]);
    assert!(
        !server
            .received_requests()
            .iter()
            .any(|received| received.head.contains("eferer")),
        "Q-1, I-6"
    );
    let outcome = fixture.fetch("http://files.example.org/login").await;
    assert_eq!(outcome.code(), "url_credentials");
    assert!(!outcome.message().contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn q_2_no_cookie_comes_back_and_no_challenge_is_answered() {
    let fixture = FetcherFixture::default();
    let server =
        fixture
            .fake_network
            .serve_with(PUBLIC_ADDRESS, |received| match received.target() {
                "/" => ResponseScript::raw(
                    "HTTP/1.1 302 Go\r\nSet-Cookie: a=b\r\nLocation: /next\r\n\r\n",
                ),
                _ => ResponseScript::raw(
                    "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=x\r\n\r\n",
                ),
            });
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.code(), "http_status");
    assert_eq!(server.received_requests().len(), 2);
    for received in server.received_requests() {
        assert_eq!(
            (received.field("cookie"), received.field("authorization")),
            (None, None)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn section_12_locations_that_are_not_one_url_are_invalid() {
    for location in [
        "",
        "Location: \r\n",
        "Location: http://a b/\r\n",
        "Location: /x\r\nLocation: /y\r\n",
        "Location: \u{ff}\r\n",
        "Location: http:files.example.org\r\n",
        "Location: /\\evil\r\n",
        "Location: //\r\n",
    ] {
        let fixture = FetcherFixture::default();
        let mut head = format!("HTTP/1.1 302 Go\r\n{location}\r\n").into_bytes();
        // A lone 0xff is not UTF-8.
        if let Some(index) = head.windows(2).position(|pair| pair == [0xc3, 0xbf]) {
            head.splice(index..index + 2, [0xff]);
        }
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::raw(head));
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.end(), ("redirect_invalid", "url"), "{location:?}");
        assert_eq!(fixture.fake_network.dialled().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn section_12_two_equal_location_fields_count_as_one() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |received| match received.target() {
            "/" => ResponseScript::raw("HTTP/1.1 302 Go\r\nLocation: /x\r\nLocation: /x\r\n\r\n"),
            _ => ResponseScript::ok("end"),
        });
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn i_3_every_target_goes_through_the_whole_pipeline() {
    let rows = [
        ("http://169.254.169.254/latest/", "ssrf_blocked"),
        ("//127.0.0.1/", "ssrf_blocked"),
        ("http://[::1]:8080/", "ssrf_blocked"),
        ("http://2130706433/", "ambiguous_host"),
        ("http://localhost/", "blocked_host"),
        ("http://inside.example.org/", "ssrf_blocked"),
        ("http://other.example.org:22/", "port_not_allowed"),
        ("ftp://other.example.org/", "unsupported_scheme"),
        ("http://nowhere.example.org/", "dns_not_found"),
    ];
    for (location, expected) in rows {
        let fixture = FetcherFixture::default();
        fixture
            .fake_network
            .name("inside.example.org", &["192.168.0.1"]);
        fixture
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::redirect(302, location));
        let outcome = fixture.fetch("http://files.example.org/").await;
        assert_eq!(outcome.code(), expected, "{location}");
        assert_eq!(
            fixture.fake_network.dialled(),
            [format!("{PUBLIC_ADDRESS}:80")],
            "I-1: {location}"
        );
        let denied = outcome.result.unwrap_err();
        assert_eq!(denied.hop, 1, "X-6");
        let hosts = [
            "169.254",
            "127.0.0.1",
            "::1",
            "inside",
            "nowhere",
            "localhost",
            "192.168",
        ];
        assert!(
            !hosts.iter().any(|word| denied.fault.message.contains(word)),
            "X-6, I-8: {}",
            denied.fault.message
        );
    }
}

#[tokio::test(start_paused = true)]
async fn p_5_both_lists_hold_for_every_target_before_its_dns_query() {
    let mut fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("other.example.com", &[OTHER_PUBLIC_ADDRESS]);
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::redirect(302, "http://other.example.com/"),
    );
    fixture.admin.host_allowlist = Some(HostPatterns::parse(["*.example.org"]).unwrap());
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "host_not_in_admin_allowlist"
    );
    fixture.admin.host_allowlist = None;
    let app = dray_guard::AppPolicy {
        enabled: None,
        host_allowlist: Some(vec!["*.example.org".to_owned()]),
    };
    let outcome = fixture.fetch_for("http://files.example.org/", app).await;
    assert_eq!(outcome.code(), "host_not_in_app_allowlist");
    assert_eq!(
        fixture.fake_network.queried_names(),
        ["files.example.org", "files.example.org"]
    );
}

#[tokio::test(start_paused = true)]
async fn section_8_6_a_public_page_cannot_steer_into_an_opened_range() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.private_ranges = PrivateRanges::parse("10.1.0.0/16").unwrap();
    fixture
        .fake_network
        .name("inside.example.org", &["10.1.2.3"]);
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::redirect(302, "http://inside.example.org/"),
    );
    fixture
        .fake_network
        .serve("10.1.2.3", ResponseScript::ok("inside"));
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ssrf_blocked"
    );
    fixture.admin.host_allowlist = Some(HostPatterns::parse(["*.example.org"]).unwrap());
    assert_eq!(
        fixture.fetch("http://files.example.org/").await.code(),
        "ok",
        "the operator named it"
    );
}

#[tokio::test(start_paused = true)]
async fn x_5_the_total_deadline_spans_the_chain() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.total = std::time::Duration::from_secs(12);
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript(vec![
            ResponseStep::Pause(std::time::Duration::from_secs(5)),
            ResponseStep::send("HTTP/1.1 302 Go\r\nLocation: /again\r\n\r\n"),
        ]),
    );
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.end(), ("timeout", "total"));
    assert_eq!(
        outcome.record.times.total,
        std::time::Duration::from_secs(12)
    );
}

#[tokio::test(start_paused = true)]
async fn x_6_the_message_names_only_the_original_url() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |received| match received.target() {
            "/first" => ResponseScript::redirect(302, "/ignore-previous-instructions"),
            _ => ResponseScript::status(500),
        });
    let outcome = fixture.fetch("http://files.example.org/first").await;
    assert_eq!(
        outcome.message(),
        "External URL http://files.example.org/first could not be fetched. The server answered HTTP status 500."
    );
}

#[tokio::test(start_paused = true)]
async fn r_6_only_a_redirect_status_redirects() {
    let fixture = FetcherFixture::default();
    let page = "<meta http-equiv=refresh content='0;url=http://127.0.0.1/'>";
    let fields = [
        ("Refresh", "0;url=http://127.0.0.1/"),
        ("Location", "http://127.0.0.1/"),
    ];
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::with_fields(&fields, page));
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(
        (outcome.code(), outcome.body),
        ("ok", page.as_bytes().to_vec())
    );
    for status in [300, 304, 305, 306] {
        fixture.fake_network.serve(
            PUBLIC_ADDRESS,
            ResponseScript::raw(format!("HTTP/1.1 {status} X\r\nLocation: /next\r\n\r\n")),
        );
        assert_eq!(
            fixture.fetch("http://files.example.org/").await.code(),
            "http_status",
            "{status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn section_8_6_from_an_opened_range_both_sides_may_follow() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.private_ranges = PrivateRanges::parse("10.1.0.0/16").unwrap();
    fixture
        .fake_network
        .serve_with("10.1.2.3", |received| match received.target() {
            "/inside" => ResponseScript::redirect(302, "http://10.1.2.4/"),
            _ => ResponseScript::redirect(302, "http://files.example.org/"),
        });
    fixture
        .fake_network
        .serve("10.1.2.4", ResponseScript::ok("inside"));
    let inside = fixture.fetch("http://10.1.2.3/inside").await;
    assert_eq!((inside.code(), inside.body), ("ok", b"inside".to_vec()));
    let outside = fixture.fetch("http://10.1.2.3/outside").await;
    assert_eq!((outside.code(), outside.body), ("ok", b"hello".to_vec()));
}

#[tokio::test(start_paused = true)]
async fn section_12_the_connection_of_a_redirect_is_closed_before_the_next_hop() {
    let fixture = FetcherFixture {
        sizes: crate::limits::AdmissionLimits {
            global: 1,
            per_host: 1,
            per_address: 1,
            ..crate::limits::AdmissionLimits::default()
        },
        ..FetcherFixture::default()
    };
    let endless = bytes::Bytes::from_static(&[b'x'; 1024]);
    fixture
        .fake_network
        .serve_with(PUBLIC_ADDRESS, move |received| match received.target() {
            "/" => ResponseScript(vec![
                ResponseStep::send("HTTP/1.1 302 Go\r\nLocation: /next\r\n\r\n"),
                ResponseStep::Repeat(endless.clone(), u64::MAX),
            ]),
            _ => ResponseScript::ok("end"),
        });
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!((outcome.code(), outcome.body), ("ok", b"end".to_vec()));
    assert_eq!(
        outcome.record.counts.wire, 3,
        "the body of a redirect is not read"
    );
}
