//! Public hosts that do not exist: a resolver and a dialer replace DNS and sockets. Everything between them (policy,
//! guard and limits) is that of the product.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use dray_egress_fetcher::dial::{DialedStream, Dialer};
use dray_egress_fetcher::resolve::{DnsError, Resolver};
use dray_guard::{CanonicalName, DnsAnswer, Judge, PinnedAddr};
use dray_testkit::http::{ReceivedRequest, ResponseScript, ScriptedResponder, serve_request};
use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

/// The only host that exists outside.
pub(crate) const HOST_NAME: &str = "files.example.org";
/// The content of `/prices.csv` there.
pub(crate) const CSV_TEXT: &str = "item,price\ncrane hour,420\n";
/// The only address of the host.
const PUBLIC_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));

/// A resolver and a dialer with one public host; clones share the host and its record of requests.
#[derive(Clone, Debug)]
pub(crate) struct FakeInternet {
    responder: ScriptedResponder,
    tasks: TaskTracker,
}

impl FakeInternet {
    pub(crate) fn new() -> Self {
        Self {
            responder: ScriptedResponder::new(respond),
            tasks: TaskTracker::new(),
        }
    }

    /// The number of requests that arrived.
    pub(crate) fn request_count(&self) -> usize {
        self.responder.received_requests().len()
    }
}

impl Resolver for FakeInternet {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        _judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            let is_known = name.as_str() == HOST_NAME;
            is_known
                .then(|| DnsAnswer {
                    name: name.clone(),
                    cnames: Vec::new(),
                    addresses: vec![PUBLIC_ADDRESS],
                    dnssec: dray_guard::DnssecStatus::NotKnown,
                })
                .ok_or(DnsError::NotFound)
        })
    }
}

impl Dialer for FakeInternet {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(256 * 1024);
            let responder = self.responder.clone();
            self.tasks.spawn(async move {
                // Clients may hang up early.
                let _ = serve_request(theirs, &responder).await;
            });
            Ok(DialedStream {
                upstream_proxy: None,
                io: Box::new(ours),
                peer: to.socket_addr(),
                local: std::net::SocketAddr::from(([192, 0, 2, 1], 40_000)),
            })
        })
    }
}

fn respond(request: &ReceivedRequest) -> ResponseScript {
    match request.target() {
        "/prices.csv" => ResponseScript::with_fields(&[("Content-Type", "text/csv")], CSV_TEXT),
        _ => ResponseScript::status(404),
    }
}
