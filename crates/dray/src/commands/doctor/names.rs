//! Checks of the name servers that the fetcher uses.

use std::time::Duration;

use dray_egress_fetcher::resolve::{
    DnsError, HickoryResolver, NameServer, Resolver as _, ServersError, parse_servers,
    system_name_servers,
};
use dray_guard::{CanonicalName, Judge, JudgeConfig};

use super::finding::Finding;

/// The queried name: a caching server responds itself without forwarding the query (RFC 6761 section 6.3).
const LOCAL_NAME: &str = "drayage.localhost";

/// Sends one query to every configured name server.
pub(super) async fn check_name_servers(
    config: &dray_egress_fetcher::Config,
    limit: Duration,
) -> Vec<Finding> {
    if !config.enabled {
        let text = "fetching is off (`egress-fetcher.enabled`)";
        return vec![Finding::skipped("name server", text)];
    }
    match configured_servers(config.dns_servers.as_deref()) {
        Ok(servers) => {
            let bundle = match &config.ca_bundle {
                // A file that cannot be read is a finding of the configuration; here only its authorities are missing.
                Some(file) => tokio::fs::read_to_string(file).await.ok(),
                None => None,
            };
            let lookup = servers
                .iter()
                .map(|server| check_server(server, bundle.as_deref(), limit));
            futures_util::future::join_all(lookup).await
        }
        Err(error) => vec![Finding::problem(
            "name server",
            format!("No name server can be used: {error}"),
            "Set name servers in `egress-fetcher.dns_servers`, or in /etc/resolv.conf.",
        )],
    }
}

fn configured_servers(named: Option<&[String]>) -> Result<Vec<NameServer>, ServersError> {
    match named {
        Some(named) => parse_servers(named.iter().map(String::as_str)),
        None => Ok(system_name_servers()?
            .into_iter()
            .map(NameServer::from)
            .collect()),
    }
}

async fn check_server(server: &NameServer, bundle: Option<&str>, limit: Duration) -> Finding {
    match ask_server(server, bundle, limit).await {
        // "No such name" is a valid response.
        Ok(()) | Err(DnsError::NotFound) => {
            Finding::good("name server", format!("{server} answers"))
        }
        Err(DnsError::Timeout) => Finding::problem(
            "name server",
            format!("{server} did not respond within {} s", limit.as_secs()),
            "Check the address and that UDP and TCP port 53 (853 for `tls://`, TCP 443 for `https://`) are open to it, or remove it from the list.",
        ),
        Err(DnsError::Failure(reason)) => Finding::warning(
            "name server",
            format!("{server} did not answer as a resolver does: {reason}"),
            "Check that it resolves names for this machine (recursion allowed), and that an encrypted server has a \
             certificate for the name behind `#`, or for its address.",
        ),
    }
}

async fn ask_server(
    server: &NameServer,
    bundle: Option<&str>,
    limit: Duration,
) -> Result<(), DnsError> {
    let resolver = HickoryResolver::with_trust(std::slice::from_ref(server), limit, bundle)?;
    let failure = |reason: String| DnsError::Failure(reason);
    let name: CanonicalName = LOCAL_NAME
        .parse()
        .map_err(|_| failure("no name".to_owned()))?;
    let judge = Judge::new(JudgeConfig::default());
    let lookup = tokio::time::timeout(limit, resolver.lookup(&name, &judge)).await;
    lookup.map_err(|_| DnsError::Timeout)?.map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::UdpSocket;
    use tokio::task::JoinSet;

    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    fn asking(servers: &[SocketAddr]) -> dray_egress_fetcher::Config {
        dray_egress_fetcher::Config {
            enabled: true,
            dns_servers: Some(servers.iter().map(ToString::to_string).collect()),
            ..dray_egress_fetcher::Config::default()
        }
    }

    /// A server that responds to every query with "no such name" (RFC 1035 section 4.1.1, RCODE 3), until the task
    /// ends.
    async fn denying_server(tasks: &mut JoinSet<()>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tasks.spawn(async move {
            let mut message = [0_u8; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut message).await {
                // The query is returned as the response, with the bits of a response.
                message[2] |= 0x80;
                message[3] = 0x83;
                let _ = socket.send_to(&message[..length], peer).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn a_server_that_knows_no_such_name_answers_and_a_silent_one_is_a_problem() {
        let mut tasks = JoinSet::new();
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let servers = [
            denying_server(&mut tasks).await,
            silent.local_addr().unwrap(),
        ];
        let findings = check_name_servers(&asking(&servers), Duration::from_secs(1)).await;
        assert_eq!(findings[0].level, FindingLevel::Good, "{findings:?}");
        assert_eq!(findings[1].level, FindingLevel::Problem, "{findings:?}");
        assert!(findings[1].advice.contains("port 53"), "{findings:?}");
    }

    #[tokio::test]
    async fn no_server_is_asked_where_fetching_is_off() {
        let off = dray_egress_fetcher::Config::default();
        let findings = check_name_servers(&off, Duration::from_secs(1)).await;
        assert_eq!(findings[0].level, FindingLevel::Skipped, "{findings:?}");
    }
}
