//! Tests that every phase of section 14 ends in time, and is reported by its own name.

use std::time::Duration;

use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder};
use tokio::time::Instant;

use super::fake_network::*;
use crate::fetch::FetchJob;
use crate::record::FetchRecord;
use crate::sink::HashingSink;

async fn check(fixture: &FetcherFixture, expected: (&str, &str), seconds: u64) {
    let started = Instant::now();
    let outcome = fixture.fetch("http://files.example.org/").await;
    assert_eq!(outcome.end(), expected);
    assert_eq!(started.elapsed(), Duration::from_secs(seconds));
}

#[tokio::test(start_paused = true)]
async fn section_14_dns_has_three_seconds() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .slow("files.example.org", Duration::from_mins(1));
    check(&fixture, ("timeout", "dns"), 3).await;
}

#[tokio::test(start_paused = true)]
async fn section_14_connecting_has_five_seconds() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Hangs);
    check(&fixture, ("timeout", "connect"), 5).await;
}

#[tokio::test(start_paused = true)]
async fn section_14_tls_has_five_seconds() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 443, FakePeer::Mute);
    let started = Instant::now();
    let outcome = fixture.fetch("https://files.example.org/").await;
    assert_eq!(outcome.end(), ("timeout", "tls"));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn section_14_the_head_has_ten_seconds_for_any_pauses_between_its_parts() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    check(&fixture, ("timeout", "head"), 10).await;
    let drip = (0..100).fold(ResponseScript::raw("HTTP/1.1 200 OK\r\n"), |script, _| {
        script
            .then(ResponseStep::Pause(Duration::from_secs(1)))
            .then(ResponseStep::send("X: y\r\n"))
    });
    fixture.fake_network.serve(PUBLIC_ADDRESS, drip);
    check(&fixture, ("timeout", "head"), 10).await;
    let flood = (0..16).fold(ResponseScript::default(), |script, _| {
        script
            .then(ResponseStep::send("HTTP/1.1 100 Continue\r\n\r\n"))
            .then(ResponseStep::Pause(Duration::from_millis(700)))
    });
    fixture.fake_network.serve(PUBLIC_ADDRESS, flood);
    check(&fixture, ("timeout", "head"), 10).await;
}

#[tokio::test(start_paused = true)]
async fn section_14_the_body_may_be_silent_for_fifteen_seconds() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            .then(ResponseStep::Hold),
    );
    check(&fixture, ("timeout", "body"), 15).await;
}

#[tokio::test(start_paused = true)]
async fn i_5_the_total_timeout_is_a_cap_that_tool_and_deadline_only_shorten() {
    let mut fixture = FetcherFixture::default();
    fixture.settings.floor = 0;
    let endless = (0..1000).fold(
        ResponseScript::raw("HTTP/1.1 200 OK\r\n\r\n"),
        |script, _| {
            script
                .then(ResponseStep::send("x"))
                .then(ResponseStep::Pause(Duration::from_secs(1)))
        },
    );
    fixture.fake_network.serve(PUBLIC_ADDRESS, endless);
    let seconds = Duration::from_secs;
    for (tool, remaining, expected) in [
        (None, seconds(600), 60),
        (Some(seconds(7)), seconds(600), 7),
        (Some(seconds(900)), seconds(600), 60),
        (Some(seconds(90)), seconds(30), 30),
    ] {
        let request = FetchJob {
            tool_timeout: tool,
            remaining,
            ..request("http://files.example.org/")
        };
        let started = Instant::now();
        let outcome = run(&fixture.fetcher(), &request).await;
        assert_eq!(outcome.end(), ("timeout", "total"));
        assert_eq!(started.elapsed(), seconds(expected));
        assert_eq!(
            outcome.message(),
            "External URL http://files.example.org/ timed out."
        );
    }
}

#[tokio::test(start_paused = true)]
async fn section_14_a_passed_deadline_is_answered_without_network_activity() {
    let fixture = FetcherFixture::default();
    let request = FetchJob {
        remaining: Duration::ZERO,
        ..request("http://files.example.org/")
    };
    let outcome = run(&fixture.fetcher(), &request).await;
    assert_eq!(outcome.code(), "deadline_expired");
    assert_eq!(
        (
            fixture.fake_network.queried_names().len(),
            fixture.fake_network.dialled().len()
        ),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn section_14_cancellation_drops_the_connection() {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::raw("HTTP/1.1 200 OK\r\n\r\nabc").then(ResponseStep::Hold),
    );
    let fetcher = fixture.fetcher();
    let request = request("http://files.example.org/");
    let mut record = FetchRecord::default();
    let mut sink = HashingSink::new(Vec::new());
    let fetching = fetcher.fetch(&request, &mut sink, &mut record);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), fetching)
            .await
            .is_err()
    );
    assert_eq!(record.counts.wire, 3, "the record has the bytes so far");
    assert!(record.end.is_none());
    // Every slot is free again.
    for _ in 0..4 {
        fixture.fake_network.peer(
            PUBLIC_ADDRESS,
            80,
            FakePeer::Plain(ScriptedResponder::always(ResponseScript::ok("x"))),
        );
        assert_eq!(run(&fetcher, &request).await.code(), "ok");
    }
}
