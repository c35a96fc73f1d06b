//! Concurrent fetches of one host: who requests its robots.txt, and who waits.

use super::*;

#[tokio::test(start_paused = true)]
async fn concurrent_fetches_of_an_app_share_one_request_for_a_robots_txt() {
    let (fixture, server) = served(RobotsMode::Obey, ResponseScript::ok(RULES));
    let fetcher = fixture.fetcher();
    let (open, private) = (request("http://files.example.org/b"), request(FILE_URL));
    let (first, second, refused) = tokio::join!(
        run(&fetcher, &open),
        run(&fetcher, &open),
        run(&fetcher, &private),
    );
    let codes = [first.code(), second.code(), refused.code()];
    assert_eq!(codes, ["ok", "ok", "robots_denied"]);
    assert_eq!(requests(&server), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn one_of_the_waiting_fetches_makes_the_next_request_when_the_first_is_cancelled() {
    let silent = ResponseScript(vec![ResponseStep::Hold]);
    let (fixture, server) = served(RobotsMode::Report, silent);
    let fetcher = fixture.fetcher();
    let job = request(FILE_URL);
    // paused clock: cancelled while its request for the robots.txt waits
    let cancelled = tokio::time::timeout(Duration::from_secs(1), run(&fetcher, &job));
    let (cancelled, second, third) =
        tokio::join!(cancelled, run(&fetcher, &job), run(&fetcher, &job));
    assert!(cancelled.is_err());
    assert_eq!((second.code(), third.code()), ("ok", "ok"));
    assert_eq!(requests(&server), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn no_app_waits_for_the_request_of_another_app_that_gets_no_slot() {
    let (mut fixture, _server) = served(RobotsMode::Obey, ResponseScript::status(404));
    fixture.sizes.per_app = 1;
    let network = &fixture.fake_network;
    network.name("slow.example.org", &[OTHER_PUBLIC_ADDRESS]);
    network.serve_with(OTHER_PUBLIC_ADDRESS, slow_file);
    let fetcher = fixture.fetcher();
    let (slow, queued) = (request("http://slow.example.org/"), request(FILE_URL));
    let other = FetchJob {
        app: "other".to_owned(),
        ..request(FILE_URL)
    };
    let (slow, queued, elapsed) = tokio::join!(
        run(&fetcher, &slow),
        async {
            // paused clock: the first fetch holds the only slot of the app
            tokio::time::sleep(Duration::from_secs(1)).await;
            run(&fetcher, &queued).await
        },
        async {
            // paused clock: the other fetch of the first app waits already
            tokio::time::sleep(Duration::from_secs(2)).await;
            let started = tokio::time::Instant::now();
            assert_eq!(run(&fetcher, &other).await.code(), "ok");
            started.elapsed()
        }
    );
    assert_eq!((slow.code(), queued.code()), ("ok", "overloaded"));
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
}
