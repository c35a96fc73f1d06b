//! Connections to mail servers, with TLS from the beginning, after a command, or without it.

use std::sync::Arc;
use std::time::Duration;

use dray_platform::{ErrorKind, PlatformError};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::options::ConnectionSecurity;

/// Both directions of a connection, with or without TLS.
pub(crate) trait MailStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> MailStream for T {}

/// A connection whose responses are read by the line.
pub(crate) type BufferedStream = BufReader<Box<dyn MailStream>>;

/// A mail server of the configuration.
#[derive(Clone, Copy)]
pub(crate) struct MailServer<'a> {
    /// The server's name or address; brackets mark an IPv6 address.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) security: ConnectionSecurity,
    /// Longest time to connect, and for the handshake of TLS after a command.
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: &'a Arc<ClientConfig>,
}

impl MailServer<'_> {
    /// Connects, with TLS if that begins with the connection.
    pub(crate) async fn connect(&self) -> Result<BufferedStream, PlatformError> {
        let connecting = async {
            #[expect(
                clippy::disallowed_methods,
                reason = "the operator configured the address"
            )]
            let tcp = TcpStream::connect((self.bare_host(), self.port)).await;
            let tcp = tcp
                .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
                .map_err(|cause| broken_connection("no connection").caused_by(cause))?;
            let io: Box<dyn MailStream> = match self.security {
                ConnectionSecurity::Tls => self.shake_hands(Box::new(tcp)).await?,
                // `StartTls` begins without TLS, which is started by a command.
                ConnectionSecurity::StartTls | ConnectionSecurity::None => Box::new(tcp),
            };
            Ok(BufReader::new(io))
        };
        with_timeout(self.connect_timeout, connecting).await
    }

    /// Starts TLS on a connection whose server has agreed to it.
    pub(crate) async fn start_tls(
        &self,
        io: BufferedStream,
    ) -> Result<BufferedStream, PlatformError> {
        // Data before the handshake was not protected, so it must not be used.
        if !io.buffer().is_empty() {
            let context = "the server sent data before the TLS handshake";
            return Err(PlatformError::new(ErrorKind::Auth, context));
        }
        let handshake = self.shake_hands(io.into_inner());
        let protected = with_timeout(self.connect_timeout, handshake).await?;
        Ok(BufReader::new(protected))
    }

    async fn shake_hands(
        &self,
        io: Box<dyn MailStream>,
    ) -> Result<Box<dyn MailStream>, PlatformError> {
        let name = ServerName::try_from(self.bare_host().to_owned()).map_err(|cause| {
            PlatformError::new(ErrorKind::BadFormat, "host is not a host name").caused_by(cause)
        })?;
        let connector = TlsConnector::from(Arc::clone(self.tls));
        let protected = connector.connect(name, io).await;
        let protected = protected.map_err(|cause| broken_connection("no TLS").caused_by(cause))?;
        Ok(Box::new(protected))
    }

    /// The host without the brackets of the options, which do not belong to an IPv6 address.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PlatformError>>,
) -> Result<T, PlatformError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(broken_connection("could not connect in time")))
}

/// The error for a connection that fails or ends.
pub(crate) fn broken_connection(reason: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Transient, reason)
}
