//! Tests of the live page and its stream.

use dray_proto::v1;
use tokio::io::BufReader;

use super::*;
use crate::streams::MAX_LOGIN_STREAMS;

/// The stream of live rows of a browser.
struct LiveStream(BufReader<TcpStream>);

impl LiveStream {
    async fn open(console: &ConsoleFixture, login: &Login, query: &str, fields: &str) -> Self {
        let (host, cookie) = (console.address, &login.cookie);
        let mut connection = console.connect().await;
        let request = format!(
            "GET /live/events?{query} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n{fields}\r\n"
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        Self(BufReader::new(connection))
    }

    /// Reads until the stream contains `text`, and returns all that was read.
    async fn read_until(&mut self, text: &str) -> String {
        let mut received = String::new();
        let reading = async {
            let mut chunk = [0; 8192];
            while !received.contains(text) {
                let count = self.0.read(&mut chunk).await.unwrap();
                assert!(count > 0, "the stream ended before {text:?}: {received}");
                received.push_str(&String::from_utf8_lossy(&chunk[..count]));
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap();
        received
    }
}

/// The status of a request for a stream, which stays open.
async fn stream_status(stream: &mut LiveStream) -> String {
    let head = stream.read_until("\r\n").await;
    head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn one_login_cannot_take_the_streams_of_all_people() {
    let console = ConsoleFixture::new().await;
    let greedy = console.log_in(ConsoleRole::Look).await;
    let other = console.log_in(ConsoleRole::Look).await;
    let mut open = Vec::new();
    for _ in 0..MAX_LOGIN_STREAMS {
        let mut stream = LiveStream::open(&console, &greedy, "", "").await;
        assert_eq!(stream_status(&mut stream).await, "200");
        open.push(stream);
    }
    let mut further = LiveStream::open(&console, &greedy, "", "").await;
    assert_eq!(stream_status(&mut further).await, "503");
    let mut stream = LiveStream::open(&console, &other, "", "").await;
    assert_eq!(stream_status(&mut stream).await, "200");
    // The end of a stream makes room, as soon as the console notices it.
    open.pop();
    let waiting = async {
        loop {
            let mut stream = LiveStream::open(&console, &greedy, "", "").await;
            if stream_status(&mut stream).await == "200" {
                return;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
}

fn progress(name: &str) -> v1::DeliveryProgressed {
    v1::DeliveryProgressed {
        name: name.to_owned(),
        stage_code: v1::DeliveryStage::Fetching.into(),
        ..v1::DeliveryProgressed::default()
    }
}

/// Publishes one of many events of the operation `op-1`.
async fn publish_part(console: &ConsoleFixture, number: usize) {
    let deadline = Deadline::after(console.clock.now_ms(), TEST_TIMEOUT);
    let meta =
        dray_bus::Meta::new(TenantId::default(), deadline).with_operation("op-1".parse().unwrap());
    let event = progress(&format!("file-{number:03}"));
    let part = number.to_string();
    let published = console.bus.publish_event_part(&meta, &part, &event).await;
    published.unwrap();
}

#[tokio::test]
async fn every_event_of_the_index_is_reached_by_links_without_a_script() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    for number in 0..250 {
        let operation = format!("op-{number}");
        console.publish(&operation, &progress("walked")).await;
    }
    let newest = "/live?service=platform-delivery&outcome=working";
    let mut path = newest.to_owned();
    console.wait_for(&path, &login, ">op-249<").await;
    let mut operations = Vec::new();
    let mut pages = Vec::new();
    loop {
        let page = console.get(&path, Some(&login)).await;
        pages.push(path);
        let links = page.body.split("href=\"/operations/").skip(1);
        operations.extend(links.map(|link| link.split('"').next().unwrap().to_owned()));
        let Some(next) = page.link("next") else {
            break;
        };
        path = next;
    }
    let expected: Vec<_> = (0..250)
        .rev()
        .map(|number| format!("op-{number}"))
        .collect();
    assert_eq!(operations, expected);
    // Two links lead over the older pages. The last page links back, and to the newest events; the second page has no
    // link back, because the live page has no position.
    assert_eq!(pages.len(), 3);
    let last = console.get(&pages[2], Some(&login)).await;
    assert_eq!(last.link("prev").as_ref(), Some(&pages[1]));
    assert!(last.body.contains("Newest events"), "{last:?}");
    let second = console.get(&pages[1], Some(&login)).await;
    assert_eq!(second.link("prev"), None);
    let wrong = console.get("/live?before=x", Some(&login)).await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn the_events_of_an_operation_say_how_long_after_the_first_one_they_happened() {
    let clock = Clock::manual(Clock::system().now_ms());
    let bus = test_bus::in_process(&clock).await;
    let settings = ConsoleFixture::acting();
    let console = ConsoleFixture::start_with_clock(bus, settings, None, clock.clone()).await;
    let login = console.log_in(ConsoleRole::Look).await;
    for number in 0..3 {
        publish_part(&console, number).await;
        clock.advance(Duration::from_millis(1_250));
    }
    let page = console
        .wait_for("/operations/op-1", &login, "file-002")
        .await;
    let cells = page.body.split("<td data-label=\"After\">").skip(1);
    let times: Vec<_> = cells.map(|cell| cell.split('<').next().unwrap()).collect();
    assert_eq!(times, ["0 ms", "1.2 s", "2.5 s"], "{page:?}");
}

#[tokio::test]
async fn an_operation_with_many_events_is_shown_in_parts() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    for number in 0..501 {
        publish_part(&console, number).await;
    }
    let path = "/operations/op-1?after=500";
    let last = console
        .wait_for(path, &login, "Delivery fetching file-500")
        .await;
    assert!(!last.body.contains("file-499"), "{last:?}");
    assert!(
        last.body.contains("href=\"/operations/op-1\" rel=\"prev\""),
        "{last:?}"
    );
    let first = console.get("/operations/op-1", Some(&login)).await;
    assert!(first.body.contains("1 to 500 of 501"), "{first:?}");
    assert!(first.body.contains("file-499") && !first.body.contains("file-500"));
    assert!(
        first
            .body
            .contains("href=\"/operations/op-1?after=500\" rel=\"next\"")
    );
}

#[tokio::test]
async fn rows_are_sent_live_and_a_reconnect_continues_after_the_last_row() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    console.publish("op-1", &progress("first")).await;
    let mut stream = LiveStream::open(&console, &login, "after=0", "").await;
    let received = stream.read_until("Delivery fetching first").await;
    assert!(received.contains("event: rows") || received.contains("event:rows"));
    console.publish("op-2", &progress("second")).await;
    let received = stream.read_until("Delivery fetching second").await;
    assert!(!received.contains("Delivery fetching first"), "{received}");
    let id = received
        .lines()
        .filter_map(|line| line.strip_prefix("id:"))
        .next_back()
        .unwrap()
        .trim()
        .to_owned();
    drop(stream);
    // Events while no browser reads are not lost.
    console.publish("op-3", &progress("third")).await;
    let last_event_id = format!("Last-Event-ID: {id}\r\n");
    let mut stream = LiveStream::open(&console, &login, "after=0", &last_event_id).await;
    let received = stream.read_until("Delivery fetching third").await;
    assert!(!received.contains("Delivery fetching second"), "{received}");
}

#[tokio::test]
async fn a_filter_applies_to_the_page_and_to_the_stream() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    console.publish("op-1", &progress("one")).await;
    console.publish("op-2", &progress("two")).await;
    console
        .wait_for("/live", &login, "Delivery fetching two")
        .await;
    let page = console.get("/live?operation=op-1", Some(&login)).await;
    assert!(page.body.contains("Delivery fetching one"));
    assert!(!page.body.contains("Delivery fetching two"));
    let page = console.get("/live?outcome=done", Some(&login)).await;
    assert!(!page.body.contains("Delivery fetching"));
    let mut stream = LiveStream::open(&console, &login, "after=0&operation=op-2", "").await;
    let received = stream.read_until("Delivery fetching two").await;
    assert!(!received.contains("Delivery fetching one"), "{received}");
}

#[tokio::test]
async fn rows_that_left_the_index_are_counted() {
    let console = ConsoleFixture::with(ConsoleSettings {
        max_events: 5,
        ..ConsoleSettings::default()
    })
    .await;
    let login = console.log_in(ConsoleRole::Look).await;
    for number in 0..20 {
        let operation = format!("op-{number}");
        console
            .publish(&operation, &progress(&format!("file{number}.")))
            .await;
    }
    let page = console.wait_for("/live", &login, "file19.").await;
    assert!(page.body.contains("older ones left out."), "{page:?}");
    let mut stream = LiveStream::open(&console, &login, "after=0", "").await;
    let received = stream.read_until("file19.").await;
    assert!(!received.contains("file14."), "{received}");
    let gap = received.split_once("gap").unwrap().1;
    let (_, count) = gap.split_once("data:").unwrap();
    let count = count.lines().next().unwrap().trim();
    // The login is an event in the index too, and may be one of the newest.
    let count: u64 = count.parse().unwrap();
    assert!((15..=16).contains(&count), "{count} in {received}");
    let page = console.get("/operations/op-1", Some(&login)).await;
    assert!(page.body.contains("older ones left it"), "{page:?}");
}

#[tokio::test]
async fn an_event_of_another_tenant_is_neither_on_the_live_page_nor_in_the_index() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let acme = TenantId::new("acme").unwrap();
    console
        .publish_as(&acme, "op-acme", &progress("foreign"))
        .await;
    console.publish("op-own", &progress("own")).await;
    let page = console
        .wait_for("/live", &login, "Delivery fetching own")
        .await;
    assert!(!page.body.contains("foreign"), "{page:?}");
    let page = console.get("/operations/op-acme", Some(&login)).await;
    assert!(page.body.contains("No event of this operation"), "{page:?}");
}

#[tokio::test]
async fn a_logout_ends_the_stream_of_that_login() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    console.publish("op-1", &progress("first")).await;
    let mut stream = LiveStream::open(&console, &login, "after=0", "").await;
    stream.read_until("Delivery fetching first").await;
    console.post("/logout", &login, "").await;
    console.publish("op-2", &progress("second")).await;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, stream.0.read_to_end(&mut rest)).await;
    ended.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("second"));
}

#[tokio::test]
async fn charts_count_the_events_of_the_last_hour() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let rejected = v1::ToolCallRejected::default();
    console.publish("op-1", &rejected).await;
    console
        .wait_for(
            "/live/charts",
            &login,
            "Failures and refusals: 1 in the last hour",
        )
        .await;
}

#[tokio::test]
async fn a_page_that_selects_beginnings_learns_of_ends_that_its_filter_leaves_out() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let begun = v1::TurnBegun::default();
    console.publish("turn-1", &begun).await;
    let query = "service=orchestrator&outcome=working&after=0";
    let mut stream = LiveStream::open(&console, &login, query, "").await;
    let rows = stream.read_until("data-begun=\"turn-1\"").await;
    assert!(rows.contains("no end seen"), "{rows}");
    let ended = v1::TurnEnded {
        outcome: v1::TurnOutcome::Finished.into(),
        ..v1::TurnEnded::default()
    };
    console.publish("turn-1", &ended).await;
    let message = stream.read_until("[\"turn-1\"]").await;
    assert!(message.contains("event: ended"), "{message}");
    assert!(!message.contains("data-ended"), "{message}");
}
