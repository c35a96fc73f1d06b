//! Tests of bounds: chains of aliases, numbers of addresses, and time.

use super::*;

#[tokio::test]
async fn d_8_the_chain_of_each_family_is_counted_by_itself() {
    let server = FakeDnsServer::start().await.unwrap();
    for (kind, letter, last) in [
        (RecordType::A, 'a', "8.8.8.8"),
        (RecordType::AAAA, 'b', "2606:4700::1111"),
    ] {
        let name = |index: usize| match index {
            0 => HOST_NAME.to_owned(),
            index => format!("{letter}{index}.example.net"),
        };
        for index in 0..6 {
            let next = alias_record(&name(index), &name(index + 1));
            server.set(&name(index), kind, DnsReply::Records(vec![next]));
        }
        server.set(
            &name(6),
            kind,
            DnsReply::Records(vec![address_record(&name(6), ip(last))]),
        );
    }
    let answer = lookup(&server, HOST_NAME).await.unwrap();
    let judged = Judge::new(JudgeConfig::default()).judge_answer(
        &answer,
        80,
        dray_guard::HopContext::default(),
    );
    assert_eq!(judged.unwrap().addresses().len(), 2);
}

#[tokio::test]
async fn d_10_more_than_256_addresses_are_a_dns_failure() {
    let server = FakeDnsServer::start().await.unwrap();
    let check = async |count: usize, expected: Result<(), Code>| {
        let many: Vec<_> = (0..count)
            .map(|index| {
                let [.., high, low] = index.to_be_bytes();
                address_record(HOST_NAME, IpAddr::from([93, 184, high, low]))
            })
            .collect();
        server.set(HOST_NAME, RecordType::A, DnsReply::Truncated(many));
        let answer = lookup(&server, HOST_NAME).await.unwrap();
        assert_eq!(answer.addresses.len(), count);
        let judge = Judge::new(JudgeConfig::default());
        let judged = judge.judge_answer(&answer, 80, dray_guard::HopContext::default());
        assert_eq!(judged.map(drop).map_err(|refusal| refusal.code), expected);
    };
    check(256, Ok(())).await;
    check(1500, Err(Code::DnsFailure)).await;
}

#[tokio::test(start_paused = true)]
async fn section_14_the_resolver_uses_the_configured_time() {
    let server = FakeDnsServer::start().await.unwrap();
    for kind in [RecordType::A, RecordType::AAAA] {
        server.set(HOST_NAME, kind, DnsReply::Silence);
    }
    let phase = std::time::Duration::from_millis(120);
    let resolver = HickoryResolver::new(&[server.address()], phase).unwrap();
    let judge = Judge::new(JudgeConfig::default());
    let answer =
        tokio::time::timeout(phase * 10, resolver.lookup(&canonical(HOST_NAME), &judge)).await;
    assert!(matches!(answer, Ok(Err(DnsError::Timeout))), "{answer:?}");
}
