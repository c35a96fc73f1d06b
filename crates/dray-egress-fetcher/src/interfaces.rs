//! The addresses of this machine's own interfaces (egress-security 8.4).
//!
//! Read from the kernel's tables under `/proc/net`; sends nothing. Every connection needs them, and reading costs a
//! dozen system calls, so they are kept until the kernel reports a change.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

/// Directory in which the kernel shows its network tables.
pub const PROC_NET: &str = "/proc/net";
/// Longest time for which addresses are kept, for a change that was not reported.
const MAX_ADDRESS_AGE: Duration = Duration::from_secs(1);
/// Groups of netlink(7) that report changes of addresses and of the routes from which `fib_trie` is printed:
/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR` and `RTMGRP_IPV6_ROUTE`. A notice of
/// an address comes before its route exists, so the routes are needed too.
const CHANGE_GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Most notices that are received before the tables are read.
const MAX_NOTICES: usize = 64;

/// The addresses of this machine's interfaces, read again after each change.
#[derive(Debug)]
pub struct InterfaceWatch {
    proc_net: PathBuf,
    /// A socket of rtnetlink(7); without one the tables are read each time.
    notices: Option<OwnedFd>,
    known: Mutex<Option<KnownAddresses>>,
}

/// Addresses, and when they were read.
#[derive(Debug)]
struct KnownAddresses {
    since: Instant,
    addresses: Vec<IpAddr>,
}

impl InterfaceWatch {
    /// Begins to receive the kernel's notices about this process's network namespace.
    pub fn start() -> Self {
        let notices = open_notices().inspect_err(
            |error| tracing::debug!(%error, "the kernel reports no changes of addresses"),
        );
        Self {
            proc_net: PROC_NET.into(),
            notices: notices.ok(),
            known: Mutex::default(),
        }
    }

    /// The addresses now, as [`interface_addresses`].
    ///
    /// # Errors
    ///
    /// Those of [`local_addresses`].
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // The notices are taken before the read: a change after it is noticed by the next call.
        let has_changed = self.take_notices();
        if let Some(known) = &*known
            && !has_changed
            && known.since.elapsed() < MAX_ADDRESS_AGE
        {
            return Ok(known.addresses.clone());
        }
        // The list is cleared first, so that the next call reads again when this read fails.
        *known = None;
        let since = Instant::now();
        let addresses = interface_addresses(&self.proc_net)?;
        *known = Some(KnownAddresses {
            since,
            addresses: addresses.clone(),
        });
        Ok(addresses)
    }

    /// Receives all queued notices. Returns whether there was any.
    fn take_notices(&self) -> bool {
        let Some(notices) = &self.notices else {
            return true;
        };
        let mut buffer = [0_u8; 4096];
        for count in 0..MAX_NOTICES {
            match rustix::net::recv(notices, &mut buffer, RecvFlags::DONTWAIT) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return count > 0,
                // An error such as `ENOBUFS` means lost notices, so the addresses may have changed.
                Err(_) => return true,
            }
        }
        true
    }
}

fn open_notices() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol 0 is `NETLINK_ROUTE`.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    // Port 0: the kernel gives one.
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CHANGE_GROUPS))?;
    Ok(socket)
}

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
/// Those of [`local_addresses`].
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

    /// A watch over `proc_net`, and the other end of its notices.
    fn watch(proc_net: &Path) -> (InterfaceWatch, std::os::unix::net::UnixDatagram) {
        let (near, far) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let watch = InterfaceWatch {
            proc_net: proc_net.to_owned(),
            notices: Some(near.into()),
            known: Mutex::default(),
        };
        (watch, far)
    }

    #[test]
    fn section_8_4_addresses_are_read_again_after_a_notice_of_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let table = directory.path().join("fib_trie");
        std::fs::write(&table, FIB_TRIE).unwrap();
        let (watch, kernel) = watch(directory.path());
        let before = watch.addresses().unwrap();
        assert_eq!(before, ["10.244.1.7".parse::<IpAddr>().unwrap()]);
        std::fs::write(&table, FIB_TRIE.replace("10.244.1.7", "10.244.1.9")).unwrap();
        kernel.send(b"a change").unwrap();
        kernel.send(b"another").unwrap();
        let after = watch.addresses().unwrap();
        assert_eq!(after, ["10.244.1.9".parse::<IpAddr>().unwrap()]);
        // No further change was reported, so the tables are not read.
        std::fs::remove_file(&table).unwrap();
        assert_eq!(watch.addresses().unwrap(), after);
        kernel.send(b"a change").unwrap();
        assert!(watch.addresses().is_err());
        // The old addresses are not returned, because they may be wrong (I-4).
        assert!(watch.addresses().is_err());
    }

    #[test]
    fn section_8_4_old_addresses_are_read_again_without_a_notice() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("fib_trie"), FIB_TRIE).unwrap();
        let (watch, _kernel) = watch(directory.path());
        *watch.known.lock().unwrap() = Some(KnownAddresses {
            since: Instant::now().checked_sub(MAX_ADDRESS_AGE).unwrap(),
            addresses: Vec::new(),
        });
        assert_eq!(watch.addresses().unwrap().len(), 1);
    }

    #[test]
    fn section_8_4_without_notices_the_tables_are_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let table = directory.path().join("fib_trie");
        std::fs::write(&table, FIB_TRIE).unwrap();
        let watch = InterfaceWatch {
            notices: None,
            ..watch(directory.path()).0
        };
        assert_eq!(watch.addresses().unwrap().len(), 1);
        std::fs::write(&table, "").unwrap();
        assert_eq!(watch.addresses().unwrap(), Vec::<IpAddr>::new());
    }

    #[test]
    fn section_8_4_the_kernel_gives_its_notices_to_a_process() {
        let watch = InterfaceWatch::start();
        assert!(watch.notices.is_some());
        let all = watch.addresses().unwrap();
        assert_eq!(all, interface_addresses(Path::new(PROC_NET)).unwrap());
    }

    #[test]
    fn i_4_an_unreadable_table_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(local_addresses(directory.path()).is_err());
    }
}
