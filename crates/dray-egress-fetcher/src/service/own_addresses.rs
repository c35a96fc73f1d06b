//! The addresses of this machine and of the product's own parts, which the judge blocks (egress-security 8.4):
//! interfaces, DNS servers, and the addresses of protected names. They are read at start and every 60 s.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dray_guard::{Judge, JudgeConfig};
use dray_service::StartError;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::fetch::Fetcher;
use crate::interfaces;

/// Time between two reads of interfaces and names.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);
/// Longest time for looking up one name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Builds judges with the current addresses of the machine and of protected names.
#[derive(Debug)]
pub(super) struct OwnAddresses {
    base: JudgeConfig,
    hosts: Vec<String>,
    peers: Vec<String>,
    /// The last known addresses by name: a name that cannot be looked up for a while stays protected.
    known: HashMap<String, Vec<IpNet>>,
}

impl OwnAddresses {
    /// `base` holds what is configured; `servers` are the DNS servers. `hosts` (configured) and `peers` (bus, store,
    /// telemetry) are names, `host:port` or URLs.
    pub(super) fn new(
        mut base: JudgeConfig,
        servers: Vec<IpAddr>,
        hosts: Vec<String>,
        peers: Vec<String>,
    ) -> Self {
        base.protected
            // The judge sees IPv4-mapped addresses only unwrapped (8.3), so the entries have to match that form.
            .extend(servers.into_iter().map(|ip| IpNet::from(ip.to_canonical())));
        Self {
            base,
            hosts,
            peers,
            known: HashMap::new(),
        }
    }

    /// Reads all addresses and builds a judge. Fails if interfaces cannot be read, or a protected name that has no
    /// known address cannot be looked up (I-4).
    pub(super) async fn build_judge(&mut self) -> Result<Judge, StartError> {
        let mut config = self.base.clone();
        // Loopback is left out: it is blocked as loopback, and the audit event should name that class.
        config.own_addresses = interfaces::interface_addresses(Path::new(interfaces::PROC_NET))
            .map_err(|error| {
                StartError::with_source("could not read the addresses of this machine", error)
            })?;
        for host in &self.hosts {
            let name = host_of(host);
            if let Err(error) = learn_addresses(&mut self.known, name).await {
                let message = format!("could not look up the protected host {name}");
                return Err(StartError::with_source(message, error));
            }
        }
        for peer in &self.peers {
            let name = host_of(peer);
            if let Err(error) = learn_addresses(&mut self.known, name).await {
                // This is not an error: one of several servers may be unavailable, and the product uses the others.
                tracing::warn!(name, %error, "could not look up a peer");
            }
        }
        config.protected.extend(self.known.values().flatten());
        Ok(Judge::new(config))
    }

    /// Reads all addresses again each minute until `stop`. If that fails, the current judge stays in force.
    pub(super) async fn watch(mut self, fetcher: Arc<Fetcher>, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(REFRESH_INTERVAL))
            .await
            .is_some()
        {
            match self.build_judge().await {
                Ok(judge) => fetcher.set_judge(judge),
                Err(error) => tracing::warn!(%error, "could not refresh the protected addresses"),
            }
        }
    }
}

/// Looks `name` up and stores its addresses; if that fails, the addresses known before stay.
async fn learn_addresses(
    known: &mut HashMap<String, Vec<IpNet>>,
    name: &str,
) -> std::io::Result<()> {
    match look_up(name).await {
        Ok(addresses) => {
            known.insert(name.to_owned(), addresses);
        }
        Err(error) if known.contains_key(name) => {
            tracing::warn!(name, %error, "could not look up a name; its last addresses stay protected");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Looks up a trusted, configured name, as the system resolves it.
async fn look_up(name: &str) -> std::io::Result<Vec<IpNet>> {
    let addresses =
        tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name, 0))).await??;
    Ok(addresses
        .map(|address| IpNet::from(address.ip().to_canonical()))
        .collect())
}

/// Finds the host in a name, `host:port` or URL.
fn host_of(text: &str) -> &str {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let text = text.split(['/', '?', '#']).next().unwrap_or_default();
    let text = text.rsplit_once('@').map_or(text, |(_, host)| host);
    if let Some((inside, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return inside;
    }
    match text.rsplit_once(':') {
        // More than one colon without brackets is an IPv6 address.
        Some((host, _)) if !host.contains(':') => host,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_8_4_hosts_are_found_in_names_and_urls() {
        for (text, host) in [
            ("minio", "minio"),
            ("minio:9000", "minio"),
            ("http://minio:9000/bucket", "minio"),
            ("nats://user:pass@nats.messaging:4222", "nats.messaging"),
            ("[::1]:4222", "::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("tls://[2001:db8::1]", "2001:db8::1"),
        ] {
            assert_eq!(host_of(text), host);
        }
    }

    #[tokio::test]
    async fn section_8_4_dns_servers_protected_hosts_peers_and_loopback_are_blocked() {
        let servers = vec!["9.9.9.9".parse().unwrap()];
        let hosts = vec!["http://8.8.4.4:9000".to_owned()];
        let peers = vec![
            "nats://1.0.0.1:4222".to_owned(),
            "nats://no such host".to_owned(),
        ];
        let mut own_addresses = OwnAddresses::new(JudgeConfig::default(), servers, hosts, peers);
        let judge = own_addresses.build_judge().await.unwrap();
        for blocked in ["9.9.9.9", "8.8.4.4", "1.0.0.1", "127.0.0.1"] {
            assert!(
                judge.class(blocked.parse().unwrap()).is_blocked(),
                "{blocked}"
            );
        }
        assert!(!judge.class("8.8.8.8".parse().unwrap()).is_blocked());
    }

    #[tokio::test]
    async fn i_4_a_protected_name_that_cannot_be_looked_up_stops_the_start() {
        let hosts = vec!["no such host".to_owned()];
        let mut own_addresses =
            OwnAddresses::new(JudgeConfig::default(), Vec::new(), hosts, Vec::new());
        assert!(own_addresses.build_judge().await.is_err());
    }

    #[tokio::test]
    async fn section_8_4_a_name_that_cannot_be_looked_up_any_more_stays_protected() {
        let hosts = vec!["http://no such host:9000".to_owned(), "8.8.4.4".to_owned()];
        let peers = vec!["nats://no such peer:4222".to_owned()];
        let mut own_addresses = OwnAddresses::new(JudgeConfig::default(), Vec::new(), hosts, peers);
        for (name, network) in [
            ("no such host", "203.0.112.1/32"),
            ("no such peer", "1.0.0.1/32"),
        ] {
            let network = network.parse().unwrap();
            own_addresses.known.insert(name.to_owned(), vec![network]);
        }
        let judge = own_addresses.build_judge().await.unwrap();
        for blocked in ["203.0.112.1", "1.0.0.1", "8.8.4.4"] {
            assert!(judge.class(blocked.parse().unwrap()).is_blocked());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn section_8_4_own_addresses_are_read_again_every_minute() {
        let fixture = crate::tests::fake_network::FetcherFixture::default();
        let fetcher = Arc::new(fixture.fetcher());
        let servers = vec!["9.9.9.9".parse().unwrap()];
        let own_addresses =
            OwnAddresses::new(JudgeConfig::default(), servers, Vec::new(), Vec::new());
        let stop = CancellationToken::new();
        let watching = own_addresses.watch(Arc::clone(&fetcher), stop.clone());
        let blocked = |fetcher: &Fetcher| {
            fetcher
                .judge()
                .class("9.9.9.9".parse().unwrap())
                .is_blocked()
        };
        assert!(!blocked(&fetcher));
        tokio::join!(watching, async {
            // paused clock: the next read is due
            tokio::time::sleep(REFRESH_INTERVAL + Duration::from_secs(1)).await;
            stop.cancel();
        });
        assert!(blocked(&fetcher));
    }
}
