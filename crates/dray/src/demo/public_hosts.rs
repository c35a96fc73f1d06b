//! A simulated outside world: names that resolve to public addresses, and servers behind them.
//!
//! Only the demo's resolver and dialer use it. They replace DNS and the sockets of the kernel; the code between them
//! (policy, guard, pinning, limits, audit) is that of the product. No data leaves the process.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use dray_egress_fetcher::dial::{DialedStream, Dialer};
use dray_egress_fetcher::resolve::{DnsError, Resolver};
use dray_guard::{CanonicalName, DnsAnswer, Judge, PinnedAddr};
use dray_testkit::http::{ReceivedRequest, ResponseScript, ScriptedResponder, serve_request};
use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

/// The public address to which every harmless name of the demo resolves.
const PUBLIC_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
/// A name that resolves to loopback from its second lookup on: DNS rebinding.
pub(crate) const REBINDING_HOST: &str = "rebind.attacker.example";
/// Size of the large file.
pub(crate) const LARGE_FILE_BYTES: usize = 3 << 20;

/// The outside world. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct FakeInternet {
    responder: ScriptedResponder,
    lookups: Arc<Mutex<HashMap<String, u32>>>,
    dialled: Arc<Mutex<Vec<IpAddr>>>,
    tasks: TaskTracker,
}

impl FakeInternet {
    /// A new simulation without look-ups or connections.
    pub(crate) fn new() -> Self {
        Self {
            responder: ScriptedResponder::new(scripted_response),
            lookups: Arc::default(),
            dialled: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Every address to which a connection was made, in order.
    pub(crate) fn dialled(&self) -> Vec<IpAddr> {
        self.dialled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, DnsError> {
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let count = lookups.entry(name.to_owned()).or_default();
        *count += 1;
        match name {
            "files.example.org" | "short.example.org" | "www.example.org" => {
                Ok(vec![PUBLIC_ADDRESS])
            }
            // Public at first, which passes the check; then loopback, which must not be dialled.
            REBINDING_HOST if *count == 1 => Ok(vec![PUBLIC_ADDRESS]),
            REBINDING_HOST => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            _ => Err(DnsError::NotFound),
        }
    }
}

impl Resolver for FakeInternet {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        _judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            let addresses = self.addresses(name.as_str())?;
            Ok(DnsAnswer {
                name: name.clone(),
                cnames: Vec::new(),
                addresses,
                dnssec: dray_guard::DnssecStatus::NotKnown,
            })
        })
    }
}

impl Dialer for FakeInternet {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let peer = to.socket_addr();
            self.dialled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                // The address is noted before the connection exists, so that a forbidden one counts even if it fails.
                .push(peer.ip());
            let (ours, theirs) = tokio::io::duplex(256 * 1024);
            let responder = self.responder.clone();
            self.tasks.spawn(async move {
                // A client that closes early is part of the demo.
                let _ = serve_request(theirs, &responder).await;
            });
            Ok(DialedStream {
                upstream_proxy: None,
                io: Box::new(ours),
                peer,
                // TEST-NET-1 (RFC 5737): an address that no machine has.
                local: std::net::SocketAddr::from(([192, 0, 2, 1], 40_000)),
            })
        })
    }
}

fn scripted_response(seen: &ReceivedRequest) -> ResponseScript {
    let host = seen.field("host").unwrap_or_default();
    match (host, seen.target()) {
        ("files.example.org", "/prices.csv") => ResponseScript::with_fields(
            &[("Content-Type", "text/csv; charset=utf-8")],
            "item,price\ncrane hour,420\nchassis day,35\n",
        ),
        ("files.example.org", "/photos.bin") => ResponseScript::with_fields(
            &[("Content-Type", "application/octet-stream")],
            vec![0x5a; LARGE_FILE_BYTES],
        ),
        ("short.example.org", "/p") => {
            ResponseScript::redirect(301, "http://www.example.org/prices")
        }
        ("www.example.org", "/prices") => ResponseScript::redirect(302, "/moved/prices"),
        ("www.example.org", "/moved/prices") => {
            ResponseScript::redirect(307, "http://files.example.org/prices.csv")
        }
        ("www.example.org", "/to-metadata") => {
            ResponseScript::redirect(302, "http://169.254.169.254/latest/meta-data/")
        }
        (REBINDING_HOST, "/") => ResponseScript::redirect(302, "/again"),
        _ => ResponseScript::status(404),
    }
}
