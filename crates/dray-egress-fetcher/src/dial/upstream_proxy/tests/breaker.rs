//! Tests of what counts against the proxy and what against the host behind it.

use tokio::net::TcpSocket;

use super::*;

/// An address without a listener, and the socket that keeps its port from other processes.
fn closed_address() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn an_unreachable_proxy_counts_against_itself_and_not_against_the_host() {
    let fixture = FetcherFixture::default();
    let (_reserved, address) = closed_address();
    let unreachable = settings(&format!("http://{address}"));
    let limits = FetchAdmission::new(fixture.sizes);
    let fetcher = Fetcher::new(
        fixture.settings.clone(),
        fixture.admin.clone(),
        Judge::new(fixture.judge.clone()),
        NetworkAccess {
            dialer: Arc::new(UpstreamProxyDialer::new(unreachable, tls(None))),
            ..fixture.fake_network.network()
        },
        tls(None),
        limits.clone(),
    );
    // The fetches run concurrently, because each fetch waits before its further attempts.
    let request = request("http://files.example.org/");
    for fetched in join_all((0..6).map(|_| run(&fetcher, &request))).await {
        assert_eq!(fetched.code(), "connect_failed");
    }
    assert!(!limits.breaker().is_open("files.example.org:80"));
}

#[tokio::test]
async fn a_robots_txt_behind_an_unreachable_proxy_does_not_count_as_unreachable() {
    let fixture = FetcherFixture {
        settings: crate::fetch::FetchLimits {
            robots: dray_guard::robots::RobotsMode::Obey,
            ..crate::tests::fake_network::settings()
        },
        ..FetcherFixture::default()
    };
    let (_reserved, address) = closed_address();
    let unreachable = settings(&format!("http://{address}"));
    let fetched = fetch(&fixture, unreachable, "http://files.example.org/").await;
    assert_eq!(fetched.end(), ("connect_failed", "connect"));
}

#[tokio::test]
async fn an_unreachable_proxy_is_not_tried_for_a_while_and_direct_addresses_are() {
    let (reserved, address) = closed_address();
    let dialer = UpstreamProxyDialer::new(settings(&format!("http://{address}")), tls(None));
    let target = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
    for _ in 0..5 {
        let error = dialer.connect(&target).await.unwrap_err();
        assert!(error.to_string().contains("could not connect"), "{error}");
        tokio::time::pause();
        tokio::time::advance(FAILURE_INTERVAL).await;
        tokio::time::resume();
    }
    // The proxy listens again, and no connection arrives while the breaker is open.
    let listener = reserved.listen(8).unwrap().into_std().unwrap();
    let error = dialer.connect(&target).await.unwrap_err();
    assert!(error.to_string().contains("not tried"), "{error}");
    assert!(is_upstream_proxy_failure(&error));
    let accepted = listener.accept().unwrap_err();
    assert_eq!(accepted.kind(), io::ErrorKind::WouldBlock);
    assert!(is_direct(&pinned(
        "10.0.0.7",
        JudgeConfig {
            private_ranges: PrivateRanges::parse("10.0.0.0/24").unwrap(),
            ..JudgeConfig::default()
        }
    )));
}

#[tokio::test(start_paused = true)]
async fn failures_within_a_second_count_once() {
    let dialer = UpstreamProxyDialer::new(settings("http://192.0.2.1:3128"), tls(None));
    for _ in 0..4 {
        for _ in 0..5 {
            dialer.count_failure();
        }
        assert!(!dialer.breaker.is_open(BREAKER_KEY));
        tokio::time::advance(FAILURE_INTERVAL).await;
    }
    dialer.count_failure();
    assert!(dialer.breaker.is_open(BREAKER_KEY));
}

#[tokio::test]
async fn a_target_to_which_the_proxy_drops_tunnels_does_not_count_against_the_proxy() {
    let proxy = FakeProxy::start("", FakeTarget::Closed).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None));
    let target = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
    for _ in 0..6 {
        let error = dialer.connect(&target).await.unwrap_err();
        assert!(is_upstream_proxy_failure(&error));
    }
    assert_eq!(proxy.heads().len(), 6);
    assert!(!UpstreamProxyError::Closed.is_counted());
}

#[tokio::test]
async fn a_target_that_the_proxy_cannot_reach_counts_against_the_target() {
    let proxy = FakeProxy::start("HTTP/1.1 502 Bad Gateway\r\n\r\n", FakeTarget::Closed).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None));
    let target = pinned(PUBLIC_ADDRESS, JudgeConfig::default());
    for _ in 0..6 {
        let error = dialer.connect(&target).await.unwrap_err();
        assert!(error.to_string().contains("status 502"), "{error}");
        assert!(!is_upstream_proxy_failure(&error));
    }
    assert_eq!(proxy.heads().len(), 6);
}

#[tokio::test]
async fn a_proxy_that_accepts_and_says_nothing_counts_against_itself_and_not_against_the_host() {
    let fixture = FetcherFixture::default();
    let proxy = FakeProxy::start("", FakeTarget::Silent).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None))
        .with_connect_timeout(Duration::from_millis(50));
    let limits = FetchAdmission::new(fixture.sizes);
    let fetcher = Fetcher::new(
        fixture.settings.clone(),
        fixture.admin.clone(),
        Judge::new(fixture.judge.clone()),
        NetworkAccess {
            dialer: Arc::new(dialer),
            ..fixture.fake_network.network()
        },
        tls(None),
        limits.clone(),
    );
    let request = request("http://files.example.org/");
    for fetched in join_all((0..6).map(|_| run(&fetcher, &request))).await {
        assert_eq!(fetched.end(), ("connect_failed", "connect"));
    }
    assert!(!limits.breaker().is_open("files.example.org:80"));
}

/// Reports a silence for each of these targets. The time between two of them is that after which a failure counts
/// again.
async fn report_silence(dialer: &UpstreamProxyDialer, targets: impl Iterator<Item = u8>) {
    for last in targets {
        dialer
            .count_silence(IpAddr::from([203, 0, 113, last]))
            .await;
        tokio::time::pause();
        tokio::time::advance(FAILURE_INTERVAL).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn silence_for_several_targets_opens_the_breaker_of_the_proxy_and_for_one_does_not() {
    let proxy = FakeProxy::start("", FakeTarget::Silent).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None))
        .with_connect_timeout(Duration::from_millis(50));
    report_silence(&dialer, std::iter::repeat_n(1, 10)).await;
    report_silence(&dialer, 2..=4).await;
    assert!(!dialer.breaker.is_open(BREAKER_KEY));
    report_silence(&dialer, 5..=5).await;
    assert!(dialer.breaker.is_open(BREAKER_KEY));
}

#[tokio::test]
async fn targets_that_swallow_packets_do_not_open_the_breaker_of_a_proxy_that_responds() {
    let proxy = FakeProxy::start("", FakeTarget::NoTunnel).await;
    let dialer = UpstreamProxyDialer::new(proxy.settings(), tls(None))
        .with_connect_timeout(Duration::from_mins(1));
    report_silence(&dialer, 1..=10).await;
    assert!(!dialer.breaker.is_open(BREAKER_KEY));
    let heads = proxy.heads();
    assert_eq!(heads.len(), 10, "{heads:?}");
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with("OPTIONS * HTTP/1.1\r\n"))
    );
    // A silent target is not a failure of the proxy, which is tried for the next target.
    let dialer = dialer.with_connect_timeout(Duration::from_secs(1));
    let error = dialer
        .connect(&pinned(PUBLIC_ADDRESS, JudgeConfig::default()))
        .await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("no response in time")
    );
}
