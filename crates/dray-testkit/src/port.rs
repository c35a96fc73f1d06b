//! Addresses for servers that do not choose their own, or that start again on the same address.

#![expect(
    clippy::expect_used,
    reason = "only tests call it, and it fails the test"
)]

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// First port of the range: services with well-known ports are below.
const FIRST_PORT: u16 = 12_000;
/// End of the range. From here on, Linux gives ports to outgoing connections and to listeners on port 0
/// (`net.ipv4.ip_local_port_range`, ip(7)).
const END_PORT: u16 = 32_768;

/// Chooses an address of loopback that no process uses now. The kernel assigns its port only to programs that request
/// it. A port that was bound as 0 and closed can be assigned to another process at any time.
///
/// # Panics
///
/// If a hundred ports in succession are in use.
pub fn unassigned_address() -> SocketAddr {
    (0..100)
        .map(|attempt: u32| {
            // The keys of each state are random.
            let number = RandomState::new().hash_one(attempt);
            let offset = number % u64::from(END_PORT - FIRST_PORT);
            let port = FIRST_PORT + u16::try_from(offset).unwrap_or_default();
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        })
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a free port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_below_those_of_connections() {
        let address = unassigned_address();
        let _listener = TcpListener::bind(address).unwrap();
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(address.port() < first, "{address} is in {range}");
    }
}
