//! The network of the running service: the configured resolver and dialer. Tests inject theirs instead.

use std::net::IpAddr;
use std::sync::Arc;

use dray_service::StartError;

use crate::config::{CompiledConfig, Config};
use crate::dial::{Dialer, TcpDialer, UpstreamProxyDialer};
use crate::fetch::NetworkAccess;
use crate::metrics::EgressMetrics;
use crate::resolve::{HickoryResolver, NameServer, system_name_servers};
use crate::tls::TlsClient;

/// Resolver and dialer as configured, and the addresses of the DNS servers.
pub(super) async fn network_access(
    config: &Config,
    compiled: &CompiledConfig,
    metrics: &EgressMetrics,
) -> Result<(NetworkAccess, Vec<IpAddr>), StartError> {
    let servers: Vec<NameServer> = match &compiled.servers {
        Some(servers) => servers.clone(),
        None => system_name_servers()
            .map_err(|error| StartError::with_source("no DNS server is configured", error))?
            .into_iter()
            .map(NameServer::from)
            .collect(),
    };
    let bundle = read_bundle(config).await?;
    let phase = compiled.settings.dns;
    let resolver = HickoryResolver::with_trust(&servers, phase, bundle.as_deref())
        .map_err(|error| StartError::with_source("could not build the resolver", error))?
        .with_observer(metrics.dns_servers());
    let dialer: Arc<dyn Dialer> = match &compiled.upstream_proxy {
        Some(settings) => {
            let tls = tls_client(config).await?;
            let dialer = UpstreamProxyDialer::new(settings.clone(), tls);
            Arc::new(dialer.with_connect_timeout(compiled.settings.connect))
        }
        None => Arc::new(TcpDialer),
    };
    let network = NetworkAccess {
        resolver: Arc::new(resolver),
        dialer,
    };
    // The servers themselves must never be fetched from (8.4).
    let addresses = servers.iter().map(|server| server.address().ip()).collect();
    Ok((network, addresses))
}

/// The TLS client, with the configured trust anchors and versions of HTTP.
pub(super) async fn tls_client(config: &Config) -> Result<TlsClient, StartError> {
    let bundle = read_bundle(config).await?;
    let client = TlsClient::new(bundle.as_deref())
        .map_err(|error| StartError::with_source("could not set up TLS", error))?;
    Ok(if config.http2 {
        client.with_http2()
    } else {
        client
    })
}

/// The text of the operator's trust anchors; `None` without any.
async fn read_bundle(config: &Config) -> Result<Option<String>, StartError> {
    let Some(file) = &config.ca_bundle else {
        return Ok(None);
    };
    let bundle = tokio::fs::read_to_string(file).await.map_err(|error| {
        let message = format!("could not read the CA bundle {}", file.display());
        StartError::with_source(message, error)
    })?;
    Ok(Some(bundle))
}
