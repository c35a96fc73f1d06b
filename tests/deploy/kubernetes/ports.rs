//! Tests of the ports that services reach outside, by their network policies.

use super::object;

#[test]
fn s_3_platforms_are_reached_over_tls_and_mail_alone() {
    let policy = object("NetworkPolicy", "platform-delivery");
    let ports = policy["spec"]["egress"][0]["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|port| port["port"].as_u64()).collect();
    assert_eq!(ports, [443, 465, 587, 993].map(Some));
}

#[test]
fn s_3_fetches_reach_the_default_ports_and_encrypted_dns_alone() {
    let policy = object("NetworkPolicy", "egress-fetcher");
    let ports = policy["spec"]["egress"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().all(|port| port["protocol"] == "TCP"));
    let open: Vec<u64> = ports
        .iter()
        .filter_map(|port| port["port"].as_u64())
        .collect();
    // The ports that URLs may have by default, and the port of DNS over TLS (RFC 7858), which no URL may have.
    assert_eq!(open, [80, 443, 853, 8000, 8080, 8443]);
    let fetched: Vec<u64> = open
        .into_iter()
        .filter(|port| {
            let port = u16::try_from(*port).unwrap();
            dray_guard::AllowedPorts::default().allows(port)
        })
        .collect();
    assert_eq!(fetched, [80, 443, 8000, 8080, 8443]);
}
