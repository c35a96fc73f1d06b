//! A fetch of one answer over an in-memory network, and the checks of its outcome.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_egress_fetcher::dial::{DialedStream, Dialer};
use dray_egress_fetcher::fetch::{FetchJob, FetchLimits, Fetcher, NetworkAccess};
use dray_egress_fetcher::limits::{AdmissionLimits, FetchAdmission};
use dray_egress_fetcher::record::FetchRecord;
use dray_egress_fetcher::resolve::{DnsError, Resolver};
use dray_egress_fetcher::sink::HashingSink;
use dray_egress_fetcher::tls::TlsClient;
use dray_guard::{
    AdminPolicy, CanonicalName, DnsAnswer, Judge, JudgeConfig, MaxRedirects, PinnedAddr,
};
use dray_types::Sha256Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const PINNED_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 215, 14));

/// Every name has the pinned address; every dialled address sends the answer.
struct FakeNetwork {
    answer: Vec<u8>,
    dialled: Mutex<Vec<IpAddr>>,
}

type BoxedFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Resolver for FakeNetwork {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        _: &'a Judge,
    ) -> BoxedFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            Ok(DnsAnswer {
                name: name.clone(),
                cnames: Vec::new(),
                addresses: vec![PINNED_ADDRESS],
                dnssec: dray_guard::DnssecStatus::NotKnown,
            })
        })
    }
}

impl Dialer for FakeNetwork {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxedFuture<'a, io::Result<DialedStream>> {
        Box::pin(async move {
            let peer = to.socket_addr();
            self.dialled.lock().unwrap().push(peer.ip());
            let (near, mut far) = tokio::io::duplex(4096);
            let answer = self.answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                if far.read(&mut request).await.is_ok() {
                    let _ = far.write_all(&answer).await;
                }
            });
            Ok(DialedStream {
                io: Box::new(near),
                peer,
                local: std::net::SocketAddr::from(([192, 0, 2, 1], 1)),
                upstream_proxy: None,
            })
        })
    }
}

/// A request for a name, with a limit that inputs easily exceed.
pub fn request() -> FetchJob {
    FetchJob {
        url: "http://files.example.org/".to_owned(),
        size_limit: 512,
        remaining: Duration::from_secs(60),
        ..FetchJob::default()
    }
}

fn fetcher(fake_network: &Arc<FakeNetwork>) -> Fetcher {
    let seconds = Duration::from_secs;
    let settings = FetchLimits {
        dns: seconds(3),
        connect: seconds(5),
        tls: seconds(5),
        head: seconds(10),
        total: seconds(60),
        idle: seconds(15),
        floor: 1024,
        grace: seconds(20),
        size: 1 << 20,
        size_ceiling: 1 << 20,
        user_agent: "fuzz".parse().unwrap(),
        robots: dray_guard::robots::RobotsMode::Ignore,
    };
    let admin = AdminPolicy {
        enabled: true,
        // Redirects are tested by the target `location`.
        max_redirects: MaxRedirects::new(0).unwrap(),
        ..AdminPolicy::default()
    };
    let network = NetworkAccess {
        resolver: Arc::clone(fake_network) as Arc<dyn Resolver>,
        dialer: Arc::clone(fake_network) as Arc<dyn Dialer>,
    };
    let judge = Judge::new(JudgeConfig::default());
    Fetcher::new(
        settings,
        admin,
        judge,
        network,
        TlsClient::new(None).unwrap(),
        FetchAdmission::new(AdmissionLimits::default()),
    )
}

/// Fetches `answer`, and checks what holds for every answer.
pub fn check(answer: Vec<u8>, request: &FetchJob) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let fake_network = Arc::new(FakeNetwork {
        answer,
        dialled: Mutex::default(),
    });
    let fetcher = fetcher(&fake_network);
    let mut sink = HashingSink::new(Vec::new());
    let mut record = FetchRecord::default();
    let (result, elapsed) = runtime.block_on(async {
        let started = tokio::time::Instant::now();
        let result = fetcher.fetch(request, &mut sink, &mut record).await;
        (result, started.elapsed())
    });
    let stored = sink.into_inner();
    assert!(elapsed <= Duration::from_secs(61), "time is bounded");
    assert!(
        stored.len() as u64 <= request.size_limit,
        "stored bytes are bounded"
    );
    assert!(record.counts.stored >= stored.len() as u64);
    for dialled in fake_network.dialled.lock().unwrap().iter() {
        assert_eq!(
            *dialled, PINNED_ADDRESS,
            "only the pinned address is dialled"
        );
    }
    match result {
        Ok(fetched) => {
            assert_eq!(fetched.stored.size, stored.len() as u64);
            assert_eq!(fetched.stored.sha256, Sha256Digest::of(&stored));
            assert!(fetched.labels.name.len() <= 255 && !fetched.labels.name.contains(['/', '\\']));
            assert!(fetched.labels.media_type.len() <= 128 && fetched.labels.media_type.is_ascii());
            assert!((200..300).contains(&fetched.status));
        }
        Err(denied) => assert_ne!(
            denied.code.as_str(),
            "internal",
            "a hostile answer causes no internal error"
        ),
    }
}
