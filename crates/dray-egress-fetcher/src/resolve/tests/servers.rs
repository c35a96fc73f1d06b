//! Tests with several servers, slow servers, and questions that get lost.

use tokio::sync::watch;

use super::*;
use crate::metrics::EgressMetrics;
use crate::tests::fake_network::FetcherFixture;
use crate::tests::test_service::start_service;

const RECORD_TYPES: [RecordType; 2] = [RecordType::A, RecordType::AAAA];

async fn start_server() -> FakeDnsServer {
    FakeDnsServer::start().await.unwrap()
}

/// A server that never answers.
async fn silent_server() -> FakeDnsServer {
    let server = start_server().await;
    for kind in RECORD_TYPES {
        server.set(HOST_NAME, kind, DnsReply::Silence);
    }
    server
}

async fn resolve(servers: &[&FakeDnsServer]) -> Result<DnsAnswer, DnsError> {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    let resolver = HickoryResolver::new(&addresses, DNS_TIMEOUT).unwrap();
    let judge = Judge::new(JudgeConfig::default());
    resolver.lookup(&canonical(HOST_NAME), &judge).await
}

#[tokio::test]
async fn section_14_three_silent_servers_leave_time_for_a_fourth() {
    let (one, two, three, last) = (
        silent_server().await,
        silent_server().await,
        silent_server().await,
        start_server().await,
    );
    last.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let answer = resolve(&[&one, &two, &three, &last]).await.unwrap();
    assert_eq!(answer.addresses, [ip("8.8.8.8")]);
}

#[tokio::test]
async fn section_14_an_answer_of_the_first_server_counts_after_the_second_was_asked() {
    let (first, second) = (start_server().await, silent_server().await);
    let (release, released) = watch::channel(false);
    for kind in RECORD_TYPES {
        let records = match kind {
            RecordType::A => vec![address_record(HOST_NAME, ip("8.8.8.8"))],
            _ => Vec::new(),
        };
        first.set(HOST_NAME, kind, DnsReply::Held(released.clone(), records));
    }
    let servers = [&first, &second];
    let (answer, ()) = tokio::join!(resolve(&servers), async {
        dray_testkit::eventually("the second server to be asked", async || {
            (second.questions().len() >= 2).then_some(())
        })
        .await;
        release.send_replace(true);
    });
    assert_eq!(answer.unwrap().addresses, [ip("8.8.8.8")]);
}

#[tokio::test]
async fn section_14_a_server_that_fails_is_not_waited_for_and_does_not_decide() {
    for failure in [
        DnsReply::Code(ResponseCode::ServFail),
        DnsReply::Code(ResponseCode::Refused),
        DnsReply::Garbage,
        DnsReply::CodeWithRecords(
            ResponseCode::NXDomain,
            vec![address_record(HOST_NAME, ip("9.9.9.9"))],
        ),
    ] {
        let (broken, good) = (start_server().await, start_server().await);
        for kind in RECORD_TYPES {
            broken.set(HOST_NAME, kind, failure.clone());
        }
        good.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
        let answer = resolve(&[&broken, &good]).await.unwrap();
        assert_eq!(answer.addresses, [ip("8.8.8.8")]);
    }
}

#[tokio::test]
async fn no_further_server_answers_what_a_trusted_one_found_bogus() {
    let (validating, other) = (start_server().await, start_server().await);
    for kind in RECORD_TYPES {
        validating.set(HOST_NAME, kind, DnsReply::Bogus);
    }
    other.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let refused = resolve(&[&validating, &other]).await.unwrap_err();
    assert_eq!(refused.kind(), "failure");
    assert!(refused.to_string().contains("DNSSEC"), "{refused}");
}

#[tokio::test]
async fn a_trusted_server_is_asked_first_even_after_another_one_has_answered() {
    let (other, trusted) = (start_server().await, start_server().await);
    other.set_addresses(HOST_NAME, &[ip("9.9.9.9")]);
    let servers = [(other.address(), false), (trusted.address(), true)];
    let resolver = HickoryResolver::over_plain(&servers, DNS_TIMEOUT);
    let judge = Judge::new(JudgeConfig::default());
    for kind in RECORD_TYPES {
        trusted.set(HOST_NAME, kind, DnsReply::Code(ResponseCode::ServFail));
    }
    let name = canonical(HOST_NAME);
    let answer = resolver.lookup(&name, &judge).await.unwrap();
    assert_eq!(answer.addresses, [ip("9.9.9.9")]);
    trusted.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let answer = resolver.lookup(&name, &judge).await.unwrap();
    assert_eq!(answer.addresses, [ip("8.8.8.8")]);
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_asked_after_all_that_are_and_not_because_one_of_them_failed()
 {
    for second in [DnsReply::Silence, DnsReply::Code(ResponseCode::ServFail)] {
        let (slow, other, further) = (
            start_server().await,
            start_server().await,
            start_server().await,
        );
        let (release, released) = watch::channel(false);
        for kind in RECORD_TYPES {
            let records = match kind {
                RecordType::A => vec![address_record(HOST_NAME, ip("8.8.8.8"))],
                _ => Vec::new(),
            };
            slow.set(HOST_NAME, kind, DnsReply::Held(released.clone(), records));
            further.set(HOST_NAME, kind, second.clone());
        }
        other.set_addresses(HOST_NAME, &[ip("9.9.9.9")]);
        let servers = [
            (slow.address(), true),
            (other.address(), false),
            (further.address(), true),
        ];
        let resolver = HickoryResolver::over_plain(&servers, DNS_TIMEOUT);
        let judge = Judge::new(JudgeConfig::default());
        let name = canonical(HOST_NAME);
        let (answer, ()) = tokio::join!(resolver.lookup(&name, &judge), async {
            dray_testkit::eventually("the further server to be asked", async || {
                (further.questions().len() >= 2).then_some(())
            })
            .await;
            release.send_replace(true);
        });
        assert_eq!(answer.unwrap().addresses, [ip("8.8.8.8")]);
    }
}

/// The addresses of the name, by this resolver.
async fn addresses(resolver: &HickoryResolver) -> Vec<IpAddr> {
    let judge = Judge::new(JudgeConfig::default());
    let answer = resolver.lookup(&canonical(HOST_NAME), &judge).await;
    answer.unwrap().addresses
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_asked_last_until_it_responds_again() {
    for is_first_trusted in [true, false] {
        let (dead, other) = (silent_server().await, start_server().await);
        dead.set(".", RecordType::NS, DnsReply::Silence);
        other.set_addresses(HOST_NAME, &[ip("9.9.9.9")]);
        let servers = [(dead.address(), is_first_trusted), (other.address(), false)];
        let resolver = HickoryResolver::over_plain(&servers, DNS_TIMEOUT);
        assert_eq!(resolver.order(), [0, 1]);
        assert_eq!(addresses(&resolver).await, [ip("9.9.9.9")]);
        dray_testkit::eventually("the silent server to be last", async || {
            (resolver.order() == [1, 0]).then_some(())
        })
        .await;
        assert_eq!(addresses(&resolver).await, [ip("9.9.9.9")]);
        assert_eq!(resolver.order(), [1, 0]);
        dead.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
        dead.set(".", RecordType::NS, DnsReply::Records(Vec::new()));
        // Lookups that another server answers find its recovery.
        if is_first_trusted {
            dray_testkit::eventually("the server to be first again", async || {
                addresses(&resolver).await;
                (resolver.order() == [0, 1]).then_some(())
            })
            .await;
            assert_eq!(addresses(&resolver).await, [ip("8.8.8.8")]);
        }
    }
}

#[tokio::test]
async fn when_no_server_responds_all_are_asked_and_the_first_response_counts() {
    let (one, two) = (silent_server().await, silent_server().await);
    for server in [&one, &two] {
        server.set(".", RecordType::NS, DnsReply::Silence);
    }
    let servers = [(one.address(), true), (two.address(), true)];
    let resolver = HickoryResolver::over_plain(&servers, DNS_TIMEOUT);
    let judge = Judge::new(JudgeConfig::default());
    let refused = resolver.lookup(&canonical(HOST_NAME), &judge).await;
    assert_eq!(refused.unwrap_err().kind(), "timeout");
    two.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    assert_eq!(addresses(&resolver).await, [ip("8.8.8.8")]);
    assert_eq!(resolver.order(), [1, 0]);
}

#[tokio::test]
async fn a_name_without_an_answer_makes_no_server_silent() {
    // It responds to everything but this name, as if the zone of the name had no reachable server.
    let (validating, other) = (silent_server().await, start_server().await);
    other.set_addresses(HOST_NAME, &[ip("9.9.9.9")]);
    let servers = [(validating.address(), true), (other.address(), false)];
    let resolver = HickoryResolver::over_plain(&servers, DNS_TIMEOUT);
    // The lookup takes longer than a probe.
    assert_eq!(addresses(&resolver).await, [ip("9.9.9.9")]);
    assert!(names(&validating).contains(&".".to_owned()));
    assert_eq!(resolver.order(), [0, 1]);
}

#[tokio::test]
async fn section_14_a_question_that_was_lost_is_asked_again() {
    let server = silent_server().await;
    let servers = [&server];
    let (answer, ()) = tokio::join!(resolve(&servers), async {
        dray_testkit::eventually("both questions", async || {
            (server.questions().len() >= 2).then_some(())
        })
        .await;
        server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    });
    assert_eq!(answer.unwrap().addresses, [ip("8.8.8.8")]);
}

#[tokio::test]
async fn d_3_a_name_that_does_not_exist_and_has_an_address_is_refused() {
    let server = start_server().await;
    for (kind, last) in [
        (RecordType::A, "8.8.8.8"),
        (RecordType::AAAA, "2606:4700::1111"),
    ] {
        let records = vec![address_record(HOST_NAME, ip(last))];
        server.set(
            HOST_NAME,
            kind,
            DnsReply::CodeWithRecords(ResponseCode::NXDomain, records),
        );
    }
    check(&server, Err("failure")).await;
}

#[test]
fn d_2_link_local_servers_have_a_zone() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "nameserver fe80::1%lo\nnameserver fe80::2%7\nnameserver fe80::3%no/such\n";
    file.write_all(text.as_bytes()).unwrap();
    let zones: Vec<_> = name_servers(file.path())
        .unwrap()
        .iter()
        .map(|server| match server {
            SocketAddr::V6(server) => (server.ip().to_string(), server.scope_id(), server.port()),
            SocketAddr::V4(server) => panic!("{server}"),
        })
        .collect();
    // Loopback has the number 1 on every Linux.
    let expected = [("fe80::1", 1, 53), ("fe80::2", 7, 53)];
    assert_eq!(
        zones,
        expected.map(|(ip, zone, port)| (ip.to_owned(), zone, port))
    );
    let with_port = parse_servers(["[fe80::2%7]:5353"]).unwrap();
    assert_eq!(with_port[0].to_string(), "[fe80::2%7]:5353");
    for wrong in [
        "192.0.2.1%7",
        "fe80::1%",
        "fe80::1%no such",
        "[192.0.2.1]:53",
    ] {
        assert!(parse_servers([wrong]).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn the_time_of_a_question_is_recorded_for_each_server_even_without_an_answer() {
    let (one, last) = (silent_server().await, start_server().await);
    last.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let network = FetcherFixture::default().fake_network;
    let service = start_service(&network, &[]).await;
    let metrics = EgressMetrics::new(&service.running.context().meter);
    let servers = [one.address(), last.address()];
    let resolver = HickoryResolver::new(&servers, DNS_TIMEOUT).unwrap();
    let resolver = resolver.with_observer(metrics.dns_servers());
    let judge = Judge::new(JudgeConfig::default());
    let answer = resolver.lookup(&canonical(HOST_NAME), &judge).await;
    assert_eq!(answer.unwrap().addresses, [ip("8.8.8.8")]);
    let text = service.running.metrics().unwrap();
    for (server, result) in [(&one, "no_answer"), (&last, "answer")] {
        let label = format!("server=\"{}\"", server.address());
        let result = format!("result=\"{result}\"");
        let mut lines = text.lines();
        let count = lines.find(|line| {
            line.starts_with("dray_egress_dns_server_seconds_count")
                && line.contains(&label)
                && line.contains(&result)
        });
        // One question for each family of addresses.
        assert!(count.is_some_and(|line| line.ends_with(" 2")), "{text}");
    }
}
