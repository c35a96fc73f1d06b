//! Tests of the DNSSEC status: the AD bit of a server counts only where it cannot be forged on the path.

use dray_guard::DnssecStatus;
use dray_testkit::tls::{Authority, TlsOffer};

use super::*;

fn records(address: &str) -> DnsReply {
    DnsReply::Records(vec![address_record(HOST_NAME, ip(address))])
}

fn authenticated_reply(address: &str) -> DnsReply {
    DnsReply::Authenticated(vec![address_record(HOST_NAME, ip(address))])
}

async fn status(resolver: &HickoryResolver) -> DnssecStatus {
    let judge = Judge::new(JudgeConfig::default());
    let answer = resolver.lookup(&canonical(HOST_NAME), &judge).await;
    answer.unwrap().dnssec
}

#[tokio::test]
async fn dnssec_counts_when_every_response_of_the_answer_is_authenticated() {
    let server = FakeDnsServer::start().await.unwrap();
    let resolver = HickoryResolver::new(&[server.address()], DNS_TIMEOUT).unwrap();
    let (v4, v6) = ("8.8.8.8", "2606:4700::1111");
    for (a, aaaa, expected) in [
        (
            authenticated_reply(v4),
            authenticated_reply(v6),
            DnssecStatus::Authenticated,
        ),
        // An authenticated denial is part of the answer.
        (
            authenticated_reply(v4),
            DnsReply::Authenticated(Vec::new()),
            DnssecStatus::Authenticated,
        ),
        (
            authenticated_reply(v4),
            records(v6),
            DnssecStatus::NotAuthenticated,
        ),
        (
            records(v4),
            authenticated_reply(v6),
            DnssecStatus::NotAuthenticated,
        ),
        (
            authenticated_reply(v4),
            DnsReply::Records(Vec::new()),
            DnssecStatus::NotAuthenticated,
        ),
        // A failed family contributes no address, so its status does not count.
        (
            authenticated_reply(v4),
            DnsReply::Code(ResponseCode::ServFail),
            DnssecStatus::Authenticated,
        ),
    ] {
        let expectation = format!("{a:?} {aaaa:?}");
        server.set(HOST_NAME, RecordType::A, a);
        server.set(HOST_NAME, RecordType::AAAA, aaaa);
        assert_eq!(status(&resolver).await, expected, "{expectation}");
    }
    // A server leaves the bit out where the query has none (RFC 6840, section 5.7).
    assert!(
        server
            .questions()
            .iter()
            .all(|question| question.authentic_data)
    );
}

#[tokio::test]
async fn dnssec_needs_every_step_of_an_alias() {
    let server = FakeDnsServer::start().await.unwrap();
    let resolver = HickoryResolver::new(&[server.address()], DNS_TIMEOUT).unwrap();
    let alias = || vec![alias_record(HOST_NAME, "cdn.example.net.")];
    for (step, expected) in [
        (
            DnsReply::Authenticated(alias()),
            DnssecStatus::Authenticated,
        ),
        (DnsReply::Records(alias()), DnssecStatus::NotAuthenticated),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            server.set(HOST_NAME, kind, step.clone());
            let last = vec![address_record("cdn.example.net", ip("8.8.8.8"))];
            server.set("cdn.example.net", kind, DnsReply::Authenticated(last));
        }
        assert_eq!(status(&resolver).await, expected);
    }
}

#[tokio::test]
async fn dnssec_counts_over_tls_and_https() {
    for (scheme, alpn) in [("tls", b"dot".to_vec()), ("https", b"h2".to_vec())] {
        let authority = Authority::new().unwrap();
        let offer = TlsOffer {
            alpn: vec![alpn],
            ..TlsOffer::default()
        };
        let acceptor = authority.acceptor_with("127.0.0.1", offer).unwrap();
        let server = match scheme {
            "tls" => FakeDnsServer::start_tls(acceptor).await.unwrap(),
            _ => FakeDnsServer::start_https(acceptor).await.unwrap(),
        };
        let item = format!("{scheme}://{}", server.address());
        let servers = parse_servers([item.as_str()]).unwrap();
        let bundle = authority.pem();
        let resolver = HickoryResolver::with_trust(&servers, DNS_TIMEOUT, Some(&bundle)).unwrap();
        server.set(HOST_NAME, RecordType::A, authenticated_reply("8.8.8.8"));
        server.set(
            HOST_NAME,
            RecordType::AAAA,
            authenticated_reply("2606:4700::1111"),
        );
        assert_eq!(
            status(&resolver).await,
            DnssecStatus::Authenticated,
            "{scheme}"
        );
    }
}

#[test]
fn a_server_is_trusted_on_loopback_and_over_an_authenticated_channel_alone() {
    for (item, expected) in [
        ("127.0.0.1", true),
        ("[::1]:5353", true),
        ("9.9.9.9", false),
        ("10.96.0.10:53", false),
        ("tls://9.9.9.9", true),
        ("https://9.9.9.9/dns-query", true),
    ] {
        let servers = parse_servers([item]).unwrap();
        assert_eq!(servers[0].is_trusted(), expected, "{item}");
    }
}
