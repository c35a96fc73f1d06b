//! Checks of the addresses on which services listen: whether this machine has them, and whether they are free.
//!
//! A listener is opened on each and closed again. Nothing is sent, except one request to an address that is in use
//! where a service of Drayage would report its health.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::finding::Finding;

/// Most bytes of a response that are read to recognize a service.
const MAX_RESPONSE_BYTES: u64 = 4096;

/// An address that a service opens, with the key of its setting, or the flag that names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenAddress {
    pub(super) key: &'static str,
    pub(super) address: SocketAddr,
}

impl ListenAddress {
    /// `None` for a listener that is not configured.
    pub(super) fn of(key: &'static str, address: Option<SocketAddr>) -> Option<Self> {
        address.map(|address| Self { key, address })
    }
}

/// Checks all addresses. `health` is the address of `http.listen`: if a service responds there, a system runs on this
/// machine, and its addresses are in use by intent.
pub(super) async fn check_listeners(
    addresses: Vec<ListenAddress>,
    health: Option<SocketAddr>,
    limit: Duration,
) -> Vec<Finding> {
    let checks = move || {
        let is_running = health.is_some_and(|address| is_service(address, limit));
        let judge = |address: &ListenAddress| judge_address(*address, is_running);
        addresses.iter().map(judge).collect()
    };
    // The checks block for up to the limit.
    let checked = tokio::task::spawn_blocking(checks).await;
    checked.unwrap_or_else(|error| {
        let text = format!("The addresses were not checked: {error}");
        vec![Finding::problem(
            "listeners",
            text,
            "Run the command again.",
        )]
    })
}

fn judge_address(listen: ListenAddress, is_running: bool) -> Finding {
    let ListenAddress { key, address } = listen;
    let Err(error) = TcpListener::bind(address) else {
        return Finding::good("listeners", format!("{address} (`{key}`) is free"));
    };
    match error.kind() {
        ErrorKind::AddrInUse if is_running => Finding::skipped(
            "listeners",
            format!("{address} (`{key}`) is in use, and a service of Drayage runs here"),
        ),
        ErrorKind::AddrInUse => Finding::problem(
            "listeners",
            format!("{address} (`{key}`) is in use by another program"),
            format!("End that program (`ss -ltnp` shows it), or set another port in `{key}`."),
        ),
        ErrorKind::AddrNotAvailable => Finding::problem(
            "listeners",
            format!("{address} (`{key}`) is not an address of this machine"),
            format!("Set one of `ip address` in `{key}`, or 0.0.0.0 for all of them."),
        ),
        ErrorKind::PermissionDenied => Finding::problem(
            "listeners",
            format!("This user may not listen on {address} (`{key}`)"),
            format!("Set a port of 1024 or higher in `{key}`, or grant CAP_NET_BIND_SERVICE."),
        ),
        _ => Finding::problem(
            "listeners",
            format!("No listener can be opened on {address} (`{key}`): {error}"),
            format!("Correct `{key}`."),
        ),
    }
}

/// Whether a service of Drayage reports its health at an address.
fn is_service(address: SocketAddr, limit: Duration) -> bool {
    health_response(address, limit).is_ok_and(|text| text.contains("dray_"))
}

/// The beginning of the metrics at an address.
fn health_response(address: SocketAddr, limit: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn listen(address: &str) -> ListenAddress {
        ListenAddress {
            key: "grpc.listen",
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn a_port_in_use_is_a_problem_unless_a_system_runs_here() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listen(&other.local_addr().unwrap().to_string());
        let finding = judge_address(taken, false);
        assert_eq!(finding.level, FindingLevel::Problem, "{finding:?}");
        assert!(finding.text.contains("`grpc.listen`"), "{finding:?}");
        assert!(finding.advice.contains("another port"), "{finding:?}");
        assert_eq!(judge_address(taken, true).level, FindingLevel::Skipped);
        let free = listen("127.0.0.1:0");
        assert_eq!(judge_address(free, false).level, FindingLevel::Good);
    }

    #[test]
    fn an_address_of_another_machine_is_a_problem() {
        // TEST-NET-1 (RFC 5737).
        let finding = judge_address(listen("192.0.2.1:1234"), false);
        assert_eq!(finding.level, FindingLevel::Problem, "{finding:?}");
        assert!(finding.text.contains("of this machine"), "{finding:?}");
    }
}
