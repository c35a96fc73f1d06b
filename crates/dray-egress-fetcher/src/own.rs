//! The addresses of this machine's own interfaces (egress-security 8.4).
//!
//! Read from the kernel's tables under `/proc/net`; sends nothing and opens no socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Directory in which the kernel shows its network tables.
pub const PROC_NET: &str = "/proc/net";

/// Every local address, loopback included.
///
/// # Errors
///
/// When the IPv4 table cannot be read. A missing IPv6 table means that the kernel has no IPv6.
pub fn local_addresses(proc_net: &Path) -> io::Result<Vec<IpAddr>> {
    let v4 = std::fs::read_to_string(proc_net.join("fib_trie"))?;
    let v6 = match std::fs::read_to_string(proc_net.join("if_inet6")) {
        Ok(table) => table,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut addresses = ipv4_addresses(&v4);
    addresses.extend(v6.lines().filter_map(parse_ipv6_line));
    // The kernel prints the trie once for each routing table, so addresses repeat.
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The addresses of [`local_addresses`] that others could reach. Loopback is left out, because it is blocked as
/// loopback.
///
/// # Errors
///
/// As [`local_addresses`].
pub fn interface_addresses(proc_net: &Path) -> io::Result<Vec<IpAddr>> {
    let mut addresses = local_addresses(proc_net)?;
    addresses.retain(|address| !address.is_loopback());
    Ok(addresses)
}

/// The routing trie has an address in one line and its type in the following ones.
fn ipv4_addresses(trie: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.trim().parse().ok();
        } else if line.ends_with("host LOCAL") {
            // Network and broadcast routes have other words at the end.
            addresses.extend(last.map(IpAddr::V4));
        }
    }
    addresses
}

/// A line begins with the address as 32 hexadecimal digits.
fn parse_ipv6_line(line: &str) -> Option<IpAddr> {
    let digits = line
        .split_whitespace()
        .next()
        .filter(|digits| digits.len() == 32)?;
    let bits = u128::from_str_radix(digits, 16).ok()?;
    Some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIB_TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.244.1.0/24 2 0 2
        |-- 10.244.1.0
           /24 link UNICAST
        |-- 10.244.1.7
           /32 host LOCAL
        |-- 10.244.1.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
Local:
        |-- 10.244.1.7
           /32 host LOCAL
";

    #[test]
    fn section_8_4_local_addresses_are_read_from_the_kernel_tables() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("fib_trie"), FIB_TRIE).unwrap();
        let v4 = ["10.244.1.7", "127.0.0.0", "127.0.0.1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(local_addresses(directory.path()).unwrap(), v4);
        std::fs::write(
            directory.path().join("if_inet6"),
            "20010db8000000000000000000000007 02 40 00 80     eth0\nnonsense\n",
        )
        .unwrap();
        let all = local_addresses(directory.path()).unwrap();
        assert_eq!(all.len(), 4);
        assert!(all.contains(&"2001:db8::7".parse().unwrap()));
    }

    #[test]
    fn section_8_4_this_machine_has_loopback() {
        let all = local_addresses(Path::new(PROC_NET)).unwrap();
        assert!(all.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn i_4_an_unreadable_table_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(local_addresses(directory.path()).is_err());
    }
}
