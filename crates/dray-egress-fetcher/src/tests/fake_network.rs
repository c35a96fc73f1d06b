//! The in-memory network: scripted names, scripted servers at public addresses, and a record of all queries and
//! connections.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_guard::{
    AdminPolicy, AppPolicy, CanonicalName, DnsAnswer, DnssecStatus, Judge, JudgeConfig, PinnedAddr,
};
use dray_testkit::http::{ReceivedRequest, ResponseScript, ScriptedResponder, serve_request};
use futures_util::future::BoxFuture;
use http::HeaderValue;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::dial::{DialedStream, Dialer};
use crate::fetch::{FetchFailure, FetchJob, FetchLimits, FetchedFile, Fetcher, NetworkAccess};
use crate::limits::{AdmissionLimits, FetchAdmission};
use crate::record::FetchRecord;
use crate::resolve::{DnsError, Resolver};
use crate::sink::HashingSink;
use crate::tls::TlsClient;

/// A public address that tests use.
pub(crate) const PUBLIC_ADDRESS: &str = "93.184.215.14";
/// Another public address.
pub(crate) const OTHER_PUBLIC_ADDRESS: &str = "8.8.4.4";
/// A public IPv6 address.
pub(crate) const PUBLIC_V6: &str = "2606:4700::1111";

/// The server at an address.
#[derive(Clone)]
pub(crate) enum FakePeer {
    /// A plain HTTP server.
    Plain(ScriptedResponder),
    /// An HTTPS server.
    Tls(TlsAcceptor, ScriptedResponder),
    /// Accepts after this time.
    Late(Duration, ScriptedResponder),
    /// Refuses connections.
    Refuses,
    /// Accepts; the test gets the other end.
    Handed(tokio::sync::mpsc::UnboundedSender<tokio::io::DuplexStream>),
    /// Never answers a SYN.
    Hangs,
    /// Accepts and never sends a byte.
    Mute,
    /// The kernel reports another peer than the one that was dialled.
    Impostor(SocketAddr),
    /// The address is one of this machine: both ends of a connection have it.
    Itself(ScriptedResponder),
    /// The dialer panics.
    Panics,
}

/// The result of DNS for a name.
pub(crate) type DnsReply = Result<DnsAnswer, DnsError>;

#[derive(Default)]
struct NetworkState {
    names: Mutex<HashMap<String, VecDeque<DnsReply>>>,
    slow: Mutex<HashMap<String, Duration>>,
    peers: Mutex<HashMap<SocketAddr, FakePeer>>,
    queried_names: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
    running: Mutex<JoinSet<io::Result<()>>>,
}

/// The network. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct FakeNetwork(Arc<NetworkState>);

pub(crate) fn answer(name: &str, cnames: &[&str], addresses: &[&str]) -> DnsAnswer {
    DnsAnswer {
        name: canonical(name),
        cnames: cnames.iter().map(|target| (*target).to_owned()).collect(),
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        dnssec: DnssecStatus::NotKnown,
    }
}

pub(crate) fn canonical(name: &str) -> CanonicalName {
    let url = dray_guard::CanonicalUrl::parse(&format!("http://{name}/")).unwrap();
    match url.host() {
        dray_guard::Host::Name(name) => name.clone(),
        dray_guard::Host::Ip(_) => panic!("{name} is an address"),
    }
}

impl FakeNetwork {
    /// `name` has these addresses.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        self.set_dns_answers(name, vec![Ok(answer(name, &[], addresses))]);
    }

    /// Sets the results of DNS for `name`, one after the other; the last one is repeated.
    pub(crate) fn set_dns_answers(&self, name: &str, replies: Vec<DnsReply>) {
        self.0
            .names
            .lock()
            .unwrap()
            .insert(name.to_owned(), replies.into());
    }

    /// Lets DNS take this long for `name`.
    pub(crate) fn slow(&self, name: &str, time: Duration) {
        self.0.slow.lock().unwrap().insert(name.to_owned(), time);
    }

    pub(crate) fn peer(&self, address: &str, port: u16, peer: FakePeer) {
        let address: IpAddr = address.parse().unwrap();
        self.0
            .peers
            .lock()
            .unwrap()
            .insert(SocketAddr::new(address, port), peer);
    }

    /// A plain server at `address`, port 80.
    pub(crate) fn serve(&self, address: &str, script: ResponseScript) {
        self.peer(
            address,
            80,
            FakePeer::Plain(ScriptedResponder::always(script)),
        );
    }

    /// A plain server at `address`, port 80, that answers by request.
    pub(crate) fn serve_with(
        &self,
        address: &str,
        answer: impl Fn(&ReceivedRequest) -> ResponseScript + Send + Sync + 'static,
    ) -> ScriptedResponder {
        let responder = ScriptedResponder::new(answer);
        self.peer(address, 80, FakePeer::Plain(responder.clone()));
        responder
    }

    /// Names that were requested, in order.
    pub(crate) fn queried_names(&self) -> Vec<String> {
        self.0.queried_names.lock().unwrap().clone()
    }

    /// Addresses that were dialled, in order.
    pub(crate) fn dialled(&self) -> Vec<String> {
        self.0
            .dialled
            .lock()
            .unwrap()
            .iter()
            .map(SocketAddr::to_string)
            .collect()
    }

    /// Clears the list of dialled addresses.
    pub(crate) fn forget_dials(&self) {
        self.0.dialled.lock().unwrap().clear();
    }

    pub(crate) fn network(&self) -> NetworkAccess {
        NetworkAccess {
            resolver: Arc::new(self.clone()),
            dialer: Arc::new(self.clone()),
        }
    }
}

impl Resolver for FakeNetwork {
    fn lookup<'a>(&'a self, name: &'a CanonicalName, _judge: &'a Judge) -> BoxFuture<'a, DnsReply> {
        Box::pin(async move {
            self.0
                .queried_names
                .lock()
                .unwrap()
                .push(name.as_str().to_owned());
            let time = self.0.slow.lock().unwrap().get(name.as_str()).copied();
            // paused clock: a slow name server
            tokio::time::sleep(time.unwrap_or_default()).await;
            let mut names = self.0.names.lock().unwrap();
            let Some(replies) = names.get_mut(name.as_str()) else {
                return Err(DnsError::NotFound);
            };
            if replies.len() > 1 {
                replies.pop_front().unwrap()
            } else {
                replies.front().cloned().unwrap()
            }
        })
    }
}

impl Dialer for FakeNetwork {
    #[expect(clippy::too_many_lines, reason = "a list of peers")]
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        let to = to.socket_addr();
        Box::pin(async move {
            self.0.dialled.lock().unwrap().push(to);
            let peer = self.0.peers.lock().unwrap().get(&to).cloned();
            let (near, far) = tokio::io::duplex(64 * 1024);
            let mut running = JoinSet::new();
            let mut peer_address = to;
            let mut local = SocketAddr::from(([192, 0, 2, 1], 40_000));
            match peer {
                None | Some(FakePeer::Refuses) => {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                Some(FakePeer::Hangs) => std::future::pending().await,
                Some(FakePeer::Panics) => panic!("a bug in the dialer"),
                Some(FakePeer::Itself(responder)) => {
                    local.set_ip(to.ip());
                    running.spawn(async move { serve_request(far, &responder).await });
                }
                Some(FakePeer::Plain(responder)) => {
                    running.spawn(async move { serve_request(far, &responder).await });
                }
                Some(FakePeer::Late(time, responder)) => {
                    // paused clock: a peer that answers late
                    tokio::time::sleep(time).await;
                    running.spawn(async move { serve_request(far, &responder).await });
                }
                Some(FakePeer::Tls(acceptor, responder)) => {
                    running.spawn(async move {
                        serve_request(acceptor.accept(far).await?, &responder).await
                    });
                }
                Some(FakePeer::Handed(ends)) => {
                    ends.send(far).unwrap();
                }
                Some(FakePeer::Mute) => {
                    running.spawn(async move {
                        let _far = far;
                        std::future::pending().await
                    });
                }
                Some(FakePeer::Impostor(other)) => {
                    peer_address = other;
                    running.spawn(async move {
                        serve_request(
                            far,
                            &ScriptedResponder::always(ResponseScript::ok("stolen")),
                        )
                        .await
                    });
                }
            }
            let mut all = self.0.running.lock().unwrap();
            all.spawn(async move {
                running
                    .join_next()
                    .await
                    .map_or(Ok(()), |served| served.unwrap_or(Ok(())))
            });
            Ok(DialedStream {
                io: Box::new(near),
                peer: peer_address,
                local,
                upstream_proxy: None,
            })
        })
    }
}

/// Settings with the documented defaults.
pub(crate) fn settings() -> FetchLimits {
    let seconds = Duration::from_secs;
    FetchLimits {
        dns: seconds(3),
        connect: seconds(5),
        tls: seconds(5),
        head: seconds(10),
        total: seconds(60),
        idle: seconds(15),
        floor: 1024,
        grace: seconds(20),
        size: 10 << 20,
        size_ceiling: 100 << 20,
        user_agent: HeaderValue::from_static("dray/test"),
        robots: dray_guard::robots::RobotsMode::Ignore,
    }
}

/// A fetcher over a separate fake network.
pub(crate) struct FetcherFixture {
    pub(crate) fake_network: FakeNetwork,
    pub(crate) admin: AdminPolicy,
    pub(crate) judge: JudgeConfig,
    pub(crate) settings: FetchLimits,
    pub(crate) sizes: AdmissionLimits,
    pub(crate) bundle: Option<String>,
    /// Whether HTTP/2 is offered.
    pub(crate) http2: bool,
}

/// The outcome of a fetch.
pub(crate) struct FetchResult {
    pub(crate) result: Result<FetchedFile, FetchFailure>,
    pub(crate) body: Vec<u8>,
    pub(crate) record: FetchRecord,
}

impl FetchResult {
    /// The code, or `ok`.
    pub(crate) fn code(&self) -> &'static str {
        match &self.result {
            Ok(_) => "ok",
            Err(denied) => denied.code.as_str(),
        }
    }

    /// The code and phase, or `ok`.
    pub(crate) fn end(&self) -> (&'static str, &'static str) {
        match &self.result {
            Ok(_) => ("ok", ""),
            Err(denied) => (denied.code.as_str(), denied.phase.as_str()),
        }
    }

    /// The sentence for the agent.
    pub(crate) fn message(&self) -> &str {
        match &self.result {
            Ok(_) => "",
            Err(denied) => &denied.fault.message,
        }
    }
}

impl Default for FetcherFixture {
    /// Fetching is on, and `files.example.org` answers `hello` at a public address.
    fn default() -> Self {
        let fake_network = FakeNetwork::default();
        fake_network.name("files.example.org", &[PUBLIC_ADDRESS]);
        fake_network.serve(PUBLIC_ADDRESS, ResponseScript::ok("hello"));
        Self {
            fake_network,
            admin: AdminPolicy {
                enabled: true,
                ..AdminPolicy::default()
            },
            judge: JudgeConfig::default(),
            settings: settings(),
            sizes: AdmissionLimits::default(),
            bundle: None,
            http2: true,
        }
    }
}

impl FetcherFixture {
    pub(crate) fn fetcher(&self) -> Fetcher {
        let judge = JudgeConfig {
            private_ranges: self.admin.private_ranges.clone(),
            extra_blocked_hosts: self.admin.blocked_hosts.clone(),
            ..self.judge.clone()
        };
        Fetcher::new(
            self.settings.clone(),
            self.admin.clone(),
            Judge::new(judge),
            self.fake_network.network(),
            self.tls_client(),
            FetchAdmission::new(self.sizes),
        )
    }

    fn tls_client(&self) -> TlsClient {
        let client = TlsClient::new(self.bundle.as_deref()).unwrap();
        if self.http2 {
            client.with_http2()
        } else {
            client
        }
    }

    pub(crate) async fn fetch(&self, url: &str) -> FetchResult {
        self.fetch_for(url, AppPolicy::default()).await
    }

    pub(crate) async fn fetch_for(&self, url: &str, app_policy: AppPolicy) -> FetchResult {
        let request = FetchJob {
            app_policy,
            ..request(url)
        };
        run(&self.fetcher(), &request).await
    }
}

pub(crate) fn request(url: &str) -> FetchJob {
    FetchJob {
        url: url.to_owned(),
        tenant: "tenant".to_owned(),
        app: "app".to_owned(),
        remaining: Duration::from_mins(10),
        ..FetchJob::default()
    }
}

pub(crate) async fn run(fetcher: &Fetcher, request: &FetchJob) -> FetchResult {
    let mut sink = HashingSink::new(Vec::new());
    let mut record = FetchRecord::default();
    let result = fetcher.fetch(request, &mut sink, &mut record).await;
    FetchResult {
        result,
        body: sink.into_inner(),
        record,
    }
}
