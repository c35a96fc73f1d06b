//! The HTTP client of an API server: that of the `kube` crate, with small messages sent without delay (`TCP_NODELAY`).

use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::util::option_layer;
use tower::{BoxError, Layer as _, ServiceExt as _};

/// Makes a client. It runs credential plugins and reads certificates, so it blocks the thread.
///
/// # Errors
///
/// The configuration has credentials that cannot be used, or a proxy, which is not supported.
pub(crate) fn api_client(config: kube::Config) -> Result<kube::Client, kube::Error> {
    if config.proxy_url.is_some() {
        // Fails, and names the proxy.
        return kube::Client::try_from(config);
    }
    let connector = config.rustls_https_connector_with_connector(tcp_connector(&config))?;
    let client = Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = client.map_err(BoxError::from);
    let service = config.extra_headers_layer()?.layer(service);
    let service = option_layer(config.auth_layer()?).layer(service);
    let service = config.base_uri_layer().layer(service);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Connects without Nagle's algorithm: the input of a command is a series of small WebSocket messages, and the second
/// one would wait up to 40 ms for the server to acknowledge the first.
fn tcp_connector(config: &kube::Config) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    connector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_send_small_messages_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: http::Uri = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let connector = tcp_connector(&kube::Config::new(url.clone()));
        let connected = connector.oneshot(url).await.unwrap();
        assert!(connected.inner().nodelay().unwrap());
    }
}
