//! Tests of the limits of section 15 over the whole pipeline.

use std::time::Duration;

use dray_guard::{AllowedPorts, RequestKind};
use dray_testkit::http::{ResponseScript, ResponseStep};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::fake_network::*;
use crate::fetch::FetchJob;
use crate::limits::AdmissionLimits;
use crate::record::FetchRecord;

/// Adds a server that takes ten seconds for every response.
fn slow(fixture: &FetcherFixture) {
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript(vec![
            ResponseStep::Pause(Duration::from_secs(9)),
            ResponseStep::send("HTTP/1.1 200 OK\r\n\r\n"),
            ResponseStep::Pause(Duration::from_secs(1)),
        ]),
    );
}

/// Starts all requests together. Returns the seconds after which each ended, and its code.
async fn together(fixture: &FetcherFixture, requests: &[FetchJob]) -> Vec<(u64, &'static str)> {
    let fetcher = fixture.fetcher();
    let started = Instant::now();
    join_all(requests.iter().map(async |request| {
        let code = run(&fetcher, request).await.code();
        (started.elapsed().as_secs(), code)
    }))
    .await
}

#[tokio::test(start_paused = true)]
async fn section_15_four_at_a_time_per_host() {
    let fixture = FetcherFixture::default();
    slow(&fixture);
    let requests = vec![request("http://files.example.org/"); 6];
    let mut ended = together(&fixture, &requests).await;
    ended.sort_unstable();
    assert_eq!(
        ended,
        [
            (10, "ok"),
            (10, "ok"),
            (10, "ok"),
            (10, "ok"),
            (20, "ok"),
            (20, "ok")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn section_15_eight_at_a_time_per_address_under_all_names() {
    let fixture = FetcherFixture::default();
    slow(&fixture);
    let requests: Vec<_> = (0..9)
        .map(|index| {
            fixture
                .fake_network
                .name(&format!("h{index}.example.org"), &[PUBLIC_ADDRESS]);
            request(&format!("http://h{index}.example.org/"))
        })
        .collect();
    let ended = together(&fixture, &requests).await;
    assert_eq!(
        ended.iter().filter(|(seconds, _)| *seconds == 10).count(),
        8
    );
    assert_eq!(
        ended.iter().filter(|(seconds, _)| *seconds == 20).count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn section_15_two_tenants_with_a_slow_host_do_not_delay_a_third() {
    let fixture = FetcherFixture::default();
    slow(&fixture);
    fixture
        .fake_network
        .name("fast.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .serve(OTHER_PUBLIC_ADDRESS, ResponseScript::ok("fast"));
    let from = |tenant: &str, url: &str| FetchJob {
        tenant: tenant.to_owned(),
        ..request(url)
    };
    let mut requests = Vec::new();
    for tenant in ["one", "two"] {
        requests.extend(vec![from(tenant, "http://files.example.org/"); 32]);
    }
    requests.push(from("one", "http://fast.example.org/"));
    requests.push(from("three", "http://fast.example.org/"));
    requests.push(from("three", "http://files.example.org/"));
    let ended = together(&fixture, &requests).await;
    let [same_tenant, other_tenant, same_host] = ended.last_chunk().unwrap();
    assert_eq!(*same_tenant, (0, "ok"));
    assert_eq!(*other_tenant, (0, "ok"));
    assert_eq!(*same_host, (20, "ok"), "after the four that were first");
}

#[tokio::test(start_paused = true)]
async fn section_15_slow_hosts_of_two_tenants_leave_room_for_a_third() {
    let fixture = FetcherFixture::default();
    slow(&fixture);
    let mut requests = Vec::new();
    for tenant in ["one", "two"] {
        for index in 0..32_u8 {
            let name = format!("h{tenant}{index}.example.org");
            let address = format!(
                "93.184.{}.{index}",
                tenant.len() + usize::from(tenant == "two")
            );
            fixture.fake_network.name(&name, &[&address]);
            fixture.fake_network.peer(&address, 80, FakePeer::Mute);
            requests.push(FetchJob {
                tenant: tenant.to_owned(),
                app: index.to_string(),
                ..request(&format!("http://{name}/"))
            });
        }
    }
    fixture
        .fake_network
        .name("fast.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .serve(OTHER_PUBLIC_ADDRESS, ResponseScript::ok("fast"));
    requests.push(FetchJob {
        tenant: "three".to_owned(),
        ..request("http://fast.example.org/")
    });
    let ended = together(&fixture, &requests).await;
    assert_eq!(*ended.last().unwrap(), (0, "ok"));
}

#[tokio::test(start_paused = true)]
async fn section_15_an_app_has_its_own_slots() {
    let fixture = FetcherFixture {
        sizes: AdmissionLimits {
            per_app: 1,
            ..AdmissionLimits::default()
        },
        ..FetcherFixture::default()
    };
    slow(&fixture);
    let other = FetchJob {
        app: "other".to_owned(),
        ..request("http://files.example.org/")
    };
    let ended = together(
        &fixture,
        &[
            request("http://files.example.org/"),
            request("http://files.example.org/"),
            other,
        ],
    )
    .await;
    assert_eq!(
        ended
            .iter()
            .map(|(seconds, _)| *seconds)
            .collect::<Vec<_>>(),
        [10, 20, 10]
    );
}

#[tokio::test(start_paused = true)]
async fn section_15_the_queue_is_bounded_and_so_is_waiting() {
    let fixture = FetcherFixture {
        sizes: AdmissionLimits {
            per_host: 1,
            queue: 1,
            ..AdmissionLimits::default()
        },
        ..FetcherFixture::default()
    };
    slow(&fixture);
    let hurried = FetchJob {
        tool_timeout: Some(Duration::from_secs(3)),
        ..request("http://files.example.org/")
    };
    let ended = together(
        &fixture,
        &[
            request("http://files.example.org/"),
            hurried,
            request("http://files.example.org/"),
        ],
    )
    .await;
    assert_eq!(ended, [(10, "ok"), (3, "timeout"), (0, "overloaded")]);
}

#[tokio::test(start_paused = true)]
async fn section_15_a_dead_host_is_refused_for_a_while() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    let fetcher = fixture.fetcher();
    let request = request("http://files.example.org/");
    for _ in 0..5 {
        assert_eq!(run(&fetcher, &request).await.code(), "connect_failed");
    }
    let outcome = run(&fetcher, &request).await;
    assert_eq!(outcome.code(), "overloaded");
    assert_eq!(
        outcome.message(),
        "External URL fetching is busy; try again shortly."
    );
    assert_eq!(
        fixture.fake_network.dialled().len(),
        5 * 3,
        "a fetch counts once"
    );
    tokio::time::advance(Duration::from_secs(30)).await;
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::ok("back"));
    assert_eq!(run(&fetcher, &request).await.code(), "ok");
}

#[tokio::test(start_paused = true)]
async fn section_15_a_caller_with_little_time_does_not_open_the_breaker() {
    let fixture = FetcherFixture::default();
    slow(&fixture);
    let fetcher = fixture.fetcher();
    let hurried = FetchJob {
        tool_timeout: Some(Duration::from_secs(1)),
        ..request("http://files.example.org/")
    };
    for _ in 0..6 {
        assert_eq!(run(&fetcher, &hurried).await.end(), ("timeout", "total"));
    }
    assert_eq!(
        run(&fetcher, &request("http://files.example.org/"))
            .await
            .code(),
        "ok"
    );
}

#[tokio::test(start_paused = true)]
async fn section_15_a_host_that_is_silent_is_refused_for_a_while() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let fetcher = fixture.fetcher();
    let request = request("http://files.example.org/");
    for _ in 0..5 {
        assert_eq!(run(&fetcher, &request).await.end(), ("timeout", "head"));
    }
    assert_eq!(run(&fetcher, &request).await.code(), "overloaded");
    assert_eq!(fixture.fake_network.dialled().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn section_15_slow_responses_to_one_tenant_refuse_no_other_tenant_and_no_connection() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        if request.target() == "/slow" {
            ResponseScript(vec![ResponseStep::Hold])
        } else {
            ResponseScript::ok("hello")
        }
    });
    let fetcher = fixture.fetcher();
    let job_of = |tenant: &str, path: &str| FetchJob {
        tenant: tenant.to_owned(),
        ..request(&format!("http://files.example.org{path}"))
    };
    for _ in 0..5 {
        let outcome = run(&fetcher, &job_of("acme", "/slow")).await;
        assert_eq!(outcome.end(), ("timeout", "head"));
    }
    for (tenant, code) in [("acme", "overloaded"), ("umbrella", "ok")] {
        let outcome = run(&fetcher, &job_of(tenant, "/quick")).await;
        assert_eq!(outcome.code(), code, "{tenant}");
        let tunnel = FetchJob {
            kind: RequestKind::Tunnel,
            ..job_of(tenant, "/")
        };
        let (ports, mut record) = (AllowedPorts::any(), FetchRecord::default());
        let opened = fetcher
            .open_connection(&tunnel, &ports, fetcher.limits(), &mut record)
            .await;
        assert!(opened.is_ok(), "{tenant}: {opened:?}");
    }
}
