//! Rows of 8.1, 8.2 and 8.4: first and last address, and one before and one after. The expectations are written by
//! hand from the specification.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::class;

/// `first last: class of first, class of last; class before, class after` (`-` where there is no address).
const IPV4_ROWS: &str = "
    0.0.0.0         0.255.255.255   this_network            this_network      -                        public
    10.0.0.0        10.255.255.255  private_use             private_use       public                   public
    100.64.0.0      100.127.255.255 shared_address_space    shared_address_space public                public
    127.0.0.0       127.255.255.255 loopback                loopback          public                   public
    168.63.129.16   168.63.129.16   azure_platform          azure_platform    public                   public
    169.254.0.0     169.254.255.255 link_local              link_local        public                   public
    172.16.0.0      172.31.255.255  private_use             private_use       public                   public
    192.0.0.0       192.0.0.255     ipv4_service_continuity ietf_protocol     public                   public
    192.0.0.0       192.0.0.7       ipv4_service_continuity ipv4_service_continuity public             ipv4_dummy
    192.0.0.8       192.0.0.8       ipv4_dummy              ipv4_dummy        ipv4_service_continuity  port_control_anycast
    192.0.0.9       192.0.0.9       port_control_anycast    port_control_anycast ipv4_dummy            turn_anycast
    192.0.0.10      192.0.0.10      turn_anycast            turn_anycast      port_control_anycast     ietf_protocol
    192.0.0.170     192.0.0.170     nat64_discovery         nat64_discovery   ietf_protocol            nat64_discovery
    192.0.0.171     192.0.0.171     nat64_discovery         nat64_discovery   nat64_discovery          ietf_protocol
    192.0.0.192     192.0.0.192     metadata                metadata          ietf_protocol            ietf_protocol
    192.0.2.0       192.0.2.255     documentation           documentation     public                   public
    192.31.196.0    192.31.196.255  as112                   as112             public                   public
    192.52.193.0    192.52.193.255  amt                     amt               public                   public
    192.88.99.0     192.88.99.255   six_to_four_relay       six_to_four_relay public                   public
    192.88.99.2     192.88.99.2     six_a44_relay           six_a44_relay     six_to_four_relay        six_to_four_relay
    192.168.0.0     192.168.255.255 private_use             private_use       public                   public
    192.175.48.0    192.175.48.255  as112                   as112             public                   public
    198.18.0.0      198.19.255.255  benchmarking            benchmarking      public                   public
    198.51.100.0    198.51.100.255  documentation           documentation     public                   public
    203.0.113.0     203.0.113.255   documentation           documentation     public                   public
    224.0.0.0       239.255.255.255 multicast               multicast         public                   reserved
    240.0.0.0       255.255.255.255 reserved                limited_broadcast multicast                -
    255.255.255.255 255.255.255.255 limited_broadcast       limited_broadcast reserved                 -
";

const IPV6_ROWS: &str = "
    ::              ::                                        unspecified     unspecified     -               loopback
    ::1             ::1                                       loopback        loopback        unspecified     ipv4_compatible
    ::              ::ffff:ffff                               unspecified     ipv4_compatible -               unassigned
    ::ffff:0:0      ::ffff:ffff:ffff                          this_network    limited_broadcast unassigned    unassigned
    ::ffff:0:0:0    ::ffff:0:ffff:ffff                        ipv4_translated ipv4_translated unassigned      unassigned
    64:ff9b::       64:ff9b::ffff:ffff                        nat64           nat64           unassigned      unassigned
    64:ff9b:1::     64:ff9b:1:ffff:ffff:ffff:ffff:ffff        nat64_local     nat64_local     unassigned      unassigned
    100::           100::ffff:ffff:ffff:ffff                  discard_only    discard_only    unassigned      dummy_prefix
    100:0:0:1::     100::1:ffff:ffff:ffff:ffff                dummy_prefix    dummy_prefix    discard_only    unassigned
    2001::          2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff    teredo          ietf_protocol   public          public
    2001::          2001:0:ffff:ffff:ffff:ffff:ffff:ffff      teredo          teredo          public          ietf_protocol
    2001:1::1       2001:1::1                                 port_control_anycast port_control_anycast ietf_protocol turn_anycast
    2001:1::2       2001:1::2                                 turn_anycast    turn_anycast    port_control_anycast srp_anycast
    2001:1::3       2001:1::3                                 srp_anycast     srp_anycast     turn_anycast    ietf_protocol
    2001:2::        2001:2:0:ffff:ffff:ffff:ffff:ffff         benchmarking    benchmarking    ietf_protocol   ietf_protocol
    2001:3::        2001:3:ffff:ffff:ffff:ffff:ffff:ffff      amt             amt             ietf_protocol   ietf_protocol
    2001:4:112::    2001:4:112:ffff:ffff:ffff:ffff:ffff       as112           as112           ietf_protocol   ietf_protocol
    2001:10::       2001:1f:ffff:ffff:ffff:ffff:ffff:ffff     orchid          orchid          ietf_protocol   orchid_v2
    2001:20::       2001:2f:ffff:ffff:ffff:ffff:ffff:ffff     orchid_v2       orchid_v2       orchid          drone_remote_id
    2001:30::       2001:3f:ffff:ffff:ffff:ffff:ffff:ffff     drone_remote_id drone_remote_id orchid_v2       ietf_protocol
    2001:db8::      2001:db8:ffff:ffff:ffff:ffff:ffff:ffff    documentation   documentation   public          public
    2002::          2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff   six_to_four     six_to_four     public          public
    2620:4f:8000::  2620:4f:8000:ffff:ffff:ffff:ffff:ffff     as112           as112           public          public
    3fff::          3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff    documentation   documentation   public          public
    5f00::          5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff   segment_routing segment_routing unassigned      unassigned
    fc00::          fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   unique_local    unique_local    unassigned      unassigned
    fe80::          febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff   link_local      link_local      unassigned      site_local
    fec0::          feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   site_local      site_local      link_local      multicast
    ff00::          ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   multicast       multicast       site_local      -
    ::              1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   unspecified     unassigned      -               public
    4000::          7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   unassigned      unassigned      public          unassigned
    8000::          ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff   unassigned      multicast       unassigned      -
";

fn check(table: &str, neighbours: impl Fn(&str, &str) -> [Option<String>; 2]) -> usize {
    let rows = table.lines().filter(|line| !line.trim().is_empty());
    rows.map(|line| {
        let row: Vec<_> = line.split_whitespace().collect();
        let [first, last, at_first, at_last, before, after] = row[..] else {
            panic!("not a row: {line}");
        };
        let [one_before, one_after] = neighbours(first, last);
        let classes = [
            class(first),
            class(last),
            one_before.as_deref().map_or("-", class),
            one_after.as_deref().map_or("-", class),
        ];
        assert_eq!(classes, [at_first, at_last, before, after], "{line}");
    })
    .count()
}

#[test]
fn each_ipv4_row_begins_and_ends_where_it_should() {
    let rows = check(IPV4_ROWS, |first, last| {
        let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().unwrap(), last.parse().unwrap());
        let print = |number| Ipv4Addr::from_bits(number).to_string();
        [
            first.to_bits().checked_sub(1).map(print),
            last.to_bits().checked_add(1).map(print),
        ]
    });
    assert_eq!(rows, super::IPV4_BLOCKS.len());
}

#[test]
fn each_ipv6_row_begins_and_ends_where_it_should() {
    let rows = check(IPV6_ROWS, |first, last| {
        let (first, last): (Ipv6Addr, Ipv6Addr) = (first.parse().unwrap(), last.parse().unwrap());
        let print = |number| Ipv6Addr::from_bits(number).to_string();
        [
            first.to_bits().checked_sub(1).map(print),
            last.to_bits().checked_add(1).map(print),
        ]
    });
    assert_eq!(rows, super::IPV6_BLOCKS.len());
}

/// Nothing outside `2000::/3` is public: the top three bits alone decide, for every value of the first segment.
#[test]
fn everything_outside_global_unicast_is_blocked() {
    for segment in 0..=u16::MAX {
        for tail in [0, 1, 0x5efe_0808_0808, u128::MAX >> 16] {
            let number = (u128::from(segment) << 112) | tail;
            let mapped = number >> 32 == 0xffff;
            if segment >> 13 != 1 && !mapped {
                let address = Ipv6Addr::from_bits(number);
                assert!(super::classify(address.into()).is_blocked(), "{address}");
            }
        }
    }
}
