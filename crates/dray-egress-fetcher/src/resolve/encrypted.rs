//! DNS over TLS (RFC 7858) and DNS over HTTPS (RFC 8484) to one server, over a connection that all queries share.
//!
//! The server is authenticated by its certificate, so no other sender can respond and ids need not be random. A
//! connection that fails or stalls is replaced once for each query, because servers close idle ones at any time (RFC
//! 7766, section 6.2.4). A query that alone gets no response, for example because of a slow zone, leaves the connection
//! to the other queries. This module has no deadline for the whole query; the caller sets one.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dray_guard::Host;
use hickory_resolver::proto::op::{DnsResponse, Query};
use http::Uri;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::DnsError;
use super::arrival::LastArrival;
use super::https::HttpsConnection;
use super::name_server::{DnsTransport, NameServer};
use super::question::{connect_tcp, dns_request};
use super::stream::StreamConnection;
use crate::dial::Io;
use crate::tls::{TlsClient, TlsError};

/// Time without a byte after which a query on an existing connection is repeated on a new one: the peer may have
/// disappeared without closing it.
const STALL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Port that URLs of DNS over HTTPS leave out.
const HTTPS_PORT: u16 = 443;

/// A query got no message in response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The connection failed; another one may work.
    #[error("the connection failed: {0}")]
    Connection(io::Error),
    /// The server responded, but not with a DNS message.
    #[error("{0}")]
    Response(String),
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// An encrypted DNS server and the connection to it.
pub(super) struct EncryptedServer {
    address: SocketAddr,
    host: Host,
    tls: TlsClient,
    /// Where DNS over HTTPS posts queries; `None` for DNS over TLS.
    uri: Option<Uri>,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl std::fmt::Debug for EncryptedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncryptedServer")
            .field("address", &self.address)
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

/// A connection that is ready for queries.
struct Connection {
    protocol: ConnectionProtocol,
    /// The time of the last received bytes.
    last_arrival: LastArrival,
    /// Moves the bytes; the task ends with the last user of the connection.
    _tasks: JoinSet<()>,
}

enum ConnectionProtocol {
    Stream(StreamConnection),
    Https(HttpsConnection),
}

impl EncryptedServer {
    /// The server, without a connection yet; `None` for a server of plain DNS. `bundle` has further trust anchors.
    pub(super) fn new(
        server: &NameServer,
        bundle: Option<&str>,
    ) -> Result<Option<Self>, EncryptedServerError> {
        let address = server.address();
        let (host, protocol, uri) = match server.transport() {
            DnsTransport::Plain => return Ok(None),
            DnsTransport::Tls(host) => (host, b"dot".as_slice(), None),
            DnsTransport::Https(host, path) => {
                let port = match address.port() {
                    HTTPS_PORT => String::new(),
                    port => format!(":{port}"),
                };
                let uri = format!("https://{host}{port}{path}");
                // HTTP/2 is the least version that RFC 8484 recommends, and large resolvers refuse HTTP/1.1.
                (host, b"h2".as_slice(), Some(uri.parse()?))
            }
        };
        Ok(Some(Self {
            address,
            host: host.clone(),
            tls: TlsClient::for_protocol(bundle, protocol)?,
            uri,
            connection: Mutex::default(),
        }))
    }

    /// Sends one query and returns the response, which the caller must still compare with the query.
    pub(super) async fn exchange(&self, query: Query) -> Result<DnsResponse, DnsError> {
        let packet = dns_request(query)
            .to_vec()
            .map_err(|error| DnsError::Failure(error.to_string()))?;
        let (connection, is_new) = self.connection().await?;
        if !is_new {
            match connection.exchange_unless_stalled(&packet).await {
                Some(Ok(response)) => return parse_response(response),
                Some(Err(ExchangeError::Response(error))) => return Err(DnsError::Failure(error)),
                Some(Err(ExchangeError::Connection(_))) | None => {}
            }
            self.forget(&connection).await;
        }
        // A concurrent query may have connected already; its connection can be used.
        let connection = if is_new {
            connection
        } else {
            self.connection().await?.0
        };
        match connection.exchange(&packet).await {
            Ok(response) => parse_response(response),
            Err(error) => {
                self.forget(&connection).await;
                Err(DnsError::Failure(error.to_string()))
            }
        }
    }

    /// The current connection, or a new one. Returns whether it is new.
    async fn connection(&self) -> Result<(Arc<Connection>, bool), DnsError> {
        // The lock is held while connecting, so that concurrent queries share the connection.
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref() {
            return Ok((Arc::clone(connection), false));
        }
        let connection = self
            .connect()
            .await
            .map_err(|error| DnsError::Failure(error.to_string()))?;
        let connection = Arc::new(connection);
        *current = Some(Arc::clone(&connection));
        Ok((connection, true))
    }

    /// Drops the connection, unless another one has taken its place.
    async fn forget(&self, failed: &Arc<Connection>) {
        let mut current = self.connection.lock().await;
        if current
            .as_ref()
            .is_some_and(|connection| Arc::ptr_eq(connection, failed))
        {
            *current = None;
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let io: Box<dyn Io> = Box::new(connect_tcp(self.address).await?);
        let (io, _) = self
            .tls
            .handshake(io, &self.host)
            .await
            .map_err(|error| io::Error::other(describe_chain(&error)))?;
        let last_arrival = LastArrival::now();
        let io = last_arrival.watch(io);
        let mut tasks = JoinSet::new();
        let protocol = match &self.uri {
            None => ConnectionProtocol::Stream(StreamConnection::start(io, &mut tasks)),
            Some(uri) => ConnectionProtocol::Https(
                HttpsConnection::start(io, uri.clone(), &mut tasks).await?,
            ),
        };
        Ok(Connection {
            protocol,
            last_arrival,
            _tasks: tasks,
        })
    }
}

impl Connection {
    /// Sends a query message and returns the response message. Both have the id that the caller chose.
    async fn exchange(&self, packet: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        match &self.protocol {
            ConnectionProtocol::Stream(stream) => stream.exchange(packet).await,
            ConnectionProtocol::Https(https) => https.exchange(packet).await,
        }
    }

    /// Like [`Self::exchange`]; `None` when nothing has arrived on the connection for [`STALL_TIMEOUT`].
    async fn exchange_unless_stalled(
        &self,
        packet: &[u8],
    ) -> Option<Result<Vec<u8>, ExchangeError>> {
        let sent = Instant::now();
        let mut exchange = pin!(self.exchange(packet));
        loop {
            let stalled_at = self.last_arrival.get().max(sent) + STALL_TIMEOUT;
            if stalled_at <= Instant::now() {
                return None;
            }
            // Bytes for other queries may have arrived meanwhile, so the time is computed again.
            if let Ok(outcome) = timeout_at(stalled_at, exchange.as_mut()).await {
                return Some(outcome);
            }
        }
    }
}

/// The text of an error and of its sources: only the sources name the invalid part of a certificate.
fn describe_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn parse_response(message: Vec<u8>) -> Result<DnsResponse, DnsError> {
    DnsResponse::from_buffer(message).map_err(|error| DnsError::Failure(error.to_string()))
}

/// An encrypted server cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncryptedServerError {
    /// The trust anchors are not usable.
    #[error("{0}")]
    Trust(#[from] TlsError),
    /// Host and path do not form a URL.
    #[error("{0}")]
    Uri(#[from] http::uri::InvalidUri),
}

#[cfg(test)]
mod tests;
