//! Compares all 2^32 IPv4 addresses with a table of intervals that shares nothing with the real one (section 23.4).

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use super::classify;

/// Blocked intervals, both ends included, ascending; written from the registry, adjacent ones merged.
const BLOCKED_INTERVALS: [(u32, u32); 18] = [
    (0x0000_0000, 0x00ff_ffff),
    (0x0a00_0000, 0x0aff_ffff),
    (0x6440_0000, 0x647f_ffff),
    (0x7f00_0000, 0x7fff_ffff),
    (0xa83f_8110, 0xa83f_8110),
    (0xa9fe_0000, 0xa9fe_ffff),
    (0xac10_0000, 0xac1f_ffff),
    (0xc000_0000, 0xc000_00ff),
    (0xc000_0200, 0xc000_02ff),
    (0xc01f_c400, 0xc01f_c4ff),
    (0xc034_c100, 0xc034_c1ff),
    (0xc058_6300, 0xc058_63ff),
    (0xc0a8_0000, 0xc0a8_ffff),
    (0xc0af_3000, 0xc0af_30ff),
    (0xc612_0000, 0xc613_ffff),
    (0xc633_6400, 0xc633_64ff),
    (0xcb00_7100, 0xcb00_71ff),
    (0xe000_0000, 0xffff_ffff),
];

fn is_blocked(number: u32) -> bool {
    classify(IpAddr::V4(Ipv4Addr::from_bits(number))).is_blocked()
}

/// Both ends of all intervals and their neighbours, then every address in between, on all cores.
#[test]
fn all_ipv4_addresses_agree_with_the_independent_table() {
    for (first, last) in BLOCKED_INTERVALS {
        assert!(is_blocked(first) && is_blocked(last));
        assert!(first == 0 || !is_blocked(first - 1), "{first:#x}");
        assert!(last == u32::MAX || !is_blocked(last + 1), "{last:#x}");
    }
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let checked_count: u64 = thread::scope(|scope| {
        let run = |worker: usize| scope.spawn(move || check_blocks(worker, workers));
        let handles: Vec<_> = (0..workers).map(run).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .sum()
    });
    assert_eq!(checked_count, 1 << 32);
}

/// Checks each address in every `workers`th /8 from the /8 number `worker`. Returns the number of addresses.
fn check_blocks(worker: usize, workers: usize) -> u64 {
    let mut checked_count = 0;
    for octet in (0..=255_u32).skip(worker).step_by(workers) {
        let (from, to) = (octet << 24, (octet << 24) | 0x00ff_ffff);
        let mut next = u64::from(from);
        for (first, last) in BLOCKED_INTERVALS {
            if last < from || to < first {
                continue;
            }
            checked_count += expect(false, next, u64::from(first));
            next = u64::from(to.min(last)) + 1;
            checked_count += expect(true, u64::from(from.max(first)), next);
        }
        checked_count += expect(false, next, u64::from(to) + 1);
    }
    checked_count
}

fn expect(expected: bool, from: u64, to: u64) -> u64 {
    if from >= to {
        return 0;
    }
    let numbers = u32::try_from(from).unwrap()..=u32::try_from(to - 1).unwrap();
    let wrong = numbers
        .into_iter()
        .find(|number| is_blocked(*number) != expected);
    assert_eq!(wrong, None, "{wrong:#x?}");
    to - from
}
