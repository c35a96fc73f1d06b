//! Tests of the real resolver with a scripted DNS server on loopback, over UDP and TCP.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use dray_guard::{CanonicalUrl, Host, JudgeConfig};
use dray_testkit::dns::{DnsReply, FakeDnsServer, address_record, alias_record};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;

use super::*;

mod bounds;
mod dnssec;
mod encrypted;
mod servers;

const HOST_NAME: &str = "files.example.org";
/// The documented time of the DNS phase.
const DNS_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

fn canonical(name: &str) -> CanonicalName {
    match CanonicalUrl::parse(&format!("http://{name}/"))
        .unwrap()
        .host()
    {
        Host::Name(name) => name.clone(),
        Host::Ip(_) => panic!("{name} is an address"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn lookup(server: &FakeDnsServer, name: &str) -> Result<DnsAnswer, DnsError> {
    let resolver = HickoryResolver::new(&[server.address()], DNS_TIMEOUT).unwrap();
    let judge = Judge::new(JudgeConfig::default());
    resolver.lookup(&canonical(name), &judge).await
}

/// The addresses in order of their text, or the kind of failure.
async fn check(server: &FakeDnsServer, expected: Result<&[&str], &str>) {
    let resolved = lookup(server, HOST_NAME).await;
    let resolved = resolved.map(|answer| {
        let mut addresses: Vec<_> = answer.addresses.iter().map(ToString::to_string).collect();
        addresses.sort();
        addresses
    });
    match (resolved, expected) {
        (Ok(resolved), Ok(expected)) => assert_eq!(resolved, expected),
        (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{error}"),
        (resolved, expected) => panic!("{resolved:?} is not {expected:?}"),
    }
}

fn names(server: &FakeDnsServer) -> Vec<String> {
    let mut names: Vec<_> = server
        .questions()
        .into_iter()
        .map(|question| question.name)
        .collect();
    names.dedup();
    names
}

#[tokio::test]
async fn d_3_both_families_are_always_queried() {
    let server = FakeDnsServer::start().await.unwrap();
    server.set_addresses(
        HOST_NAME,
        &[ip("93.184.215.14"), ip("2606:4700::1111"), ip("8.8.8.8")],
    );
    check(
        &server,
        Ok(&["2606:4700::1111", "8.8.8.8", "93.184.215.14"]),
    )
    .await;
    let kinds: HashSet<_> = server
        .questions()
        .iter()
        .map(|question| question.kind)
        .collect();
    assert_eq!(kinds, HashSet::from([RecordType::A, RecordType::AAAA]));
}

#[tokio::test]
async fn d_1_only_fully_qualified_names_are_queried() {
    let server = FakeDnsServer::start().await.unwrap();
    let answer = lookup(&server, "a.b").await;
    assert!(matches!(answer, Err(DnsError::NotFound)));
    assert_eq!(names(&server), ["a.b."]);
    let answer = lookup(&server, "under_score.example.org").await;
    assert!(matches!(answer, Err(DnsError::NotFound)));
    assert_eq!(names(&server), ["a.b.", "under_score.example.org."]);
}

#[tokio::test]
async fn d_10_questions_ask_for_1232_bytes_from_different_ports() {
    let server = FakeDnsServer::start().await.unwrap();
    server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    for _ in 0..4 {
        check(&server, Ok(&["8.8.8.8"])).await;
    }
    let questions = server.questions();
    assert!(
        questions
            .iter()
            .all(|question| question.max_payload == 1232 && !question.tcp)
    );
    let ports: HashSet<_> = questions
        .iter()
        .map(|question| question.from.port())
        .collect();
    assert!(
        ports.len() >= 6,
        "eight questions from {} ports",
        ports.len()
    );
}

#[tokio::test]
async fn d_3_one_family_is_enough() {
    let server = FakeDnsServer::start().await.unwrap();
    for broken in [
        DnsReply::Code(ResponseCode::ServFail),
        DnsReply::Code(ResponseCode::Refused),
        DnsReply::Records(Vec::new()),
        DnsReply::Garbage,
        DnsReply::Silence,
    ] {
        server.set(
            HOST_NAME,
            RecordType::A,
            DnsReply::Records(vec![address_record(HOST_NAME, ip("8.8.8.8"))]),
        );
        server.set(HOST_NAME, RecordType::AAAA, broken);
        check(&server, Ok(&["8.8.8.8"])).await;
    }
}

#[tokio::test]
async fn d_3_when_both_families_fail_the_reason_is_returned() {
    let server = FakeDnsServer::start().await.unwrap();
    for (reply, kind) in [
        (DnsReply::Code(ResponseCode::NXDomain), "not_found"),
        (DnsReply::Records(Vec::new()), "not_found"),
        (DnsReply::Code(ResponseCode::ServFail), "failure"),
        (DnsReply::Code(ResponseCode::Refused), "failure"),
        (DnsReply::Garbage, "failure"),
        (DnsReply::Silence, "timeout"),
    ] {
        server.set(HOST_NAME, RecordType::A, reply.clone());
        server.set(HOST_NAME, RecordType::AAAA, reply);
        check(&server, Err(kind)).await;
    }
}

#[tokio::test]
async fn d_10_a_truncated_answer_is_asked_for_again_over_tcp() {
    let server = FakeDnsServer::start().await.unwrap();
    let records: Vec<_> = (0..=255)
        .map(|last| address_record(HOST_NAME, IpAddr::from([93, 184, 215, last])))
        .collect();
    server.set(HOST_NAME, RecordType::A, DnsReply::Truncated(records));
    let answer = lookup(&server, HOST_NAME).await.unwrap();
    assert_eq!(answer.addresses.len(), 256, "D-4: all of them");
    assert!(
        server
            .questions()
            .iter()
            .any(|question| question.tcp && question.kind == RecordType::A)
    );
}

#[tokio::test]
async fn d_10_answers_to_other_questions_are_dropped() {
    let server = FakeDnsServer::start().await.unwrap();
    let records = || vec![address_record(HOST_NAME, ip("8.8.8.8"))];
    let evil = || vec![address_record(HOST_NAME, ip("10.0.0.1"))];
    server.set(
        HOST_NAME,
        RecordType::A,
        DnsReply::SpoofedFirst(evil(), records()),
    );
    check(&server, Ok(&["8.8.8.8"])).await;
    server.set(HOST_NAME, RecordType::A, DnsReply::WrongQuestion(evil()));
    server.set(HOST_NAME, RecordType::AAAA, DnsReply::Records(Vec::new()));
    check(&server, Err("timeout")).await;
    server.set(
        HOST_NAME,
        RecordType::A,
        DnsReply::TruncatedThenWrong(evil()),
    );
    check(&server, Err("failure")).await;
}

#[tokio::test]
async fn d_10_letters_of_names_have_random_case_over_udp() {
    let server = FakeDnsServer::start().await.unwrap();
    server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    for _ in 0..4 {
        check(&server, Ok(&["8.8.8.8"])).await;
    }
    let questions = server.questions();
    assert!(questions.iter().all(|question| !question.tcp));
    let spellings: HashSet<_> = questions
        .iter()
        .map(|question| question.spelling.clone())
        .collect();
    // 15 letters have 32,768 spellings.
    assert!(spellings.len() >= 4, "{spellings:?}");
}

#[tokio::test]
async fn d_10_a_response_with_other_case_is_not_valid_and_tcp_decides() {
    let server = FakeDnsServer::start().await.unwrap();
    let evil = vec![address_record(HOST_NAME, ip("10.0.0.1"))];
    let records = vec![address_record(HOST_NAME, ip("8.8.8.8"))];
    server.set(HOST_NAME, RecordType::A, DnsReply::LowerCase(evil, records));
    check(&server, Ok(&["8.8.8.8"])).await;
    let questions = server.questions();
    assert!(questions.iter().any(|question| question.tcp));
}

#[tokio::test]
async fn d_10_records_of_other_names_are_not_taken() {
    let server = FakeDnsServer::start().await.unwrap();
    let records = vec![
        address_record("other.example.org", ip("9.9.9.9")),
        address_record(HOST_NAME, ip("8.8.8.8")),
    ];
    server.set(HOST_NAME, RecordType::A, DnsReply::Records(records));
    check(&server, Ok(&["8.8.8.8"])).await;
}

#[tokio::test]
async fn d_8_aliases_are_followed_within_an_answer_and_by_further_questions() {
    let server = FakeDnsServer::start().await.unwrap();
    let complete = vec![
        alias_record(HOST_NAME, "cdn.example.net."),
        address_record("cdn.example.net", ip("8.8.8.8")),
    ];
    server.set(HOST_NAME, RecordType::A, DnsReply::Records(complete));
    server.set(
        HOST_NAME,
        RecordType::AAAA,
        DnsReply::Records(vec![alias_record(HOST_NAME, "cdn.example.net.")]),
    );
    server.set_addresses("cdn.example.net", &[ip("2606:4700::1111")]);
    let answer = lookup(&server, HOST_NAME).await.unwrap();
    assert_eq!(answer.cnames, ["cdn.example.net."]);
    assert_eq!(answer.addresses, [ip("8.8.8.8"), ip("2606:4700::1111")]);
}

#[tokio::test]
async fn d_8_a_refused_alias_is_never_queried() {
    let server = FakeDnsServer::start().await.unwrap();
    for target in [
        "db.internal.",
        "localhost.",
        "metadata.google.internal.",
        "kubernetes.default.svc.",
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            server.set(
                HOST_NAME,
                kind,
                DnsReply::Records(vec![alias_record(HOST_NAME, target)]),
            );
        }
        let answer = lookup(&server, HOST_NAME).await.unwrap();
        assert_eq!(
            (answer.cnames, answer.addresses),
            (vec![target.to_owned()], vec![])
        );
    }
    assert_eq!(names(&server), [format!("{HOST_NAME}.")]);
}

#[tokio::test]
async fn d_8_addresses_behind_a_refused_alias_are_not_taken() {
    let server = FakeDnsServer::start().await.unwrap();
    let records = vec![
        alias_record(HOST_NAME, "db.internal."),
        address_record("db.internal", ip("8.8.8.8")),
    ];
    server.set(HOST_NAME, RecordType::A, DnsReply::Records(records));
    let answer = lookup(&server, HOST_NAME).await.unwrap();
    let refused = Judge::new(JudgeConfig::default()).judge_answer(
        &answer,
        80,
        dray_guard::HopContext::default(),
    );
    assert_eq!(refused.unwrap_err().code, Code::SsrfBlocked);
    assert_eq!(answer.addresses, Vec::<IpAddr>::new());
}

#[tokio::test]
async fn d_8_loops_and_long_chains_end() {
    let server = FakeDnsServer::start().await.unwrap();
    let name = |index: usize| format!("c{index}.example.net");
    for kind in [RecordType::A, RecordType::AAAA] {
        server.set(
            HOST_NAME,
            kind,
            DnsReply::Records(vec![alias_record(HOST_NAME, &name(0))]),
        );
        for index in 0..20 {
            let next = alias_record(&name(index), &name(index + 1));
            server.set(&name(index), kind, DnsReply::Records(vec![next]));
        }
    }
    let answer = lookup(&server, HOST_NAME).await.unwrap();
    assert_eq!(
        answer.cnames.len(),
        9,
        "one more than is allowed, so that the judge sees it"
    );
    let loops = vec![
        alias_record(HOST_NAME, "b.example.net"),
        alias_record("b.example.net", HOST_NAME),
    ];
    server.set(HOST_NAME, RecordType::A, DnsReply::Records(loops));
    server.set(HOST_NAME, RecordType::AAAA, DnsReply::Records(Vec::new()));
    assert!(
        lookup(&server, HOST_NAME)
            .await
            .is_ok_and(|answer| answer.addresses.is_empty())
    );
}

#[tokio::test]
async fn d_3_an_alias_to_a_missing_name_is_not_found() {
    let server = FakeDnsServer::start().await.unwrap();
    for kind in [RecordType::A, RecordType::AAAA] {
        server.set(
            HOST_NAME,
            kind,
            DnsReply::Records(vec![alias_record(HOST_NAME, "gone.example.net.")]),
        );
    }
    check(&server, Err("not_found")).await;
}

#[tokio::test]
async fn d_7_nothing_is_cached() {
    let server = FakeDnsServer::start().await.unwrap();
    server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let resolver = HickoryResolver::new(&[server.address()], DNS_TIMEOUT).unwrap();
    let judge = Judge::new(JudgeConfig::default());
    assert_eq!(
        resolver
            .lookup(&canonical(HOST_NAME), &judge)
            .await
            .unwrap()
            .addresses,
        [ip("8.8.8.8")]
    );
    server.set_addresses(HOST_NAME, &[ip("127.0.0.1")]);
    assert_eq!(
        resolver
            .lookup(&canonical(HOST_NAME), &judge)
            .await
            .unwrap()
            .addresses,
        [ip("127.0.0.1")]
    );
}

#[tokio::test]
async fn section_22_localhost_is_not_answered_from_within() {
    let server = FakeDnsServer::start().await.unwrap();
    let answer = lookup(&server, "a.localhost").await;
    assert!(matches!(answer, Err(DnsError::NotFound)));
    assert_eq!(names(&server), ["a.localhost."]);
}

#[tokio::test]
async fn d_2_the_next_server_is_asked_when_one_is_dead() {
    let server = FakeDnsServer::start().await.unwrap();
    server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let dead = FakeDnsServer::start().await.unwrap();
    for kind in [RecordType::A, RecordType::AAAA] {
        dead.set(HOST_NAME, kind, DnsReply::Silence);
    }
    let resolver = HickoryResolver::new(&[dead.address(), server.address()], DNS_TIMEOUT).unwrap();
    let judge = Judge::new(JudgeConfig::default());
    for _ in 0..2 {
        let answer = resolver
            .lookup(&canonical(HOST_NAME), &judge)
            .await
            .unwrap();
        assert_eq!(answer.addresses, [ip("8.8.8.8")]);
    }
    let questions = dead.questions().len();
    resolver
        .lookup(&canonical(HOST_NAME), &judge)
        .await
        .unwrap();
    assert_eq!(
        dead.questions().len(),
        questions,
        "the server that responds is asked first from then on"
    );
}

#[test]
fn d_2_servers_come_from_the_configuration_or_the_nameserver_lines() {
    let parsed = parse_servers([
        "192.0.2.1",
        " 192.0.2.2:5353 ",
        "2001:db8::1",
        "[2001:db8::1]:54",
    ])
    .unwrap();
    let parsed: Vec<SocketAddr> = parsed.iter().map(NameServer::address).collect();
    let expected: Vec<SocketAddr> = [
        "192.0.2.1:53",
        "192.0.2.2:5353",
        "[2001:db8::1]:53",
        "[2001:db8::1]:54",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect();
    assert_eq!(parsed, expected);
    for wrong in [
        "",
        "dns.example.org",
        "192.0.2.1:0",
        "192.0.2.1:x",
        "https://dns.example.org",
    ] {
        assert!(parse_servers([wrong]).is_err(), "{wrong}");
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "# nameserver 192.0.2.9\nsearch svc.cluster.local\noptions ndots:5\nnameserver 192.0.2.1\n  nameserver 2001:db8::1  # two\nnameserver broken\n";
    file.write_all(text.as_bytes()).unwrap();
    let servers: Vec<_> = name_servers(file.path())
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53"]);
}

#[test]
fn d_2_there_is_no_fallback_resolver() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(
        name_servers(empty.path()),
        Err(ServersError::None(_))
    ));
    assert!(matches!(
        name_servers(Path::new("/nonexistent/resolv.conf")),
        Err(ServersError::Unreadable { .. })
    ));
    assert!(HickoryResolver::new::<NameServer>(&[], DNS_TIMEOUT).is_err());
}
