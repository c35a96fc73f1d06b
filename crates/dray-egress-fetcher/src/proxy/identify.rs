//! Finds out who a client of the proxy is and what it asks for: the first messages of HTTP or SOCKS5, the token, and
//! the certificate of its TLS handshake.

use dray_guard::proxy_token::{IdentityError, ProxyIdentity, token_of};
use http::header::PROXY_AUTHORIZATION;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::certificate::ClientCertificate;
use super::client::ClientStream;
use super::head::{HeadError, ProxyRequest, RequestRecipient, may_begin_head};
use super::refusal::ProxyRefusal;
use super::serve::{ForwardProxy, read_head};
use super::socks::{
    self, NO_ACCEPTABLE_METHOD, PASSWORD_METHOD, PASSWORD_VERSION, SOCKS_VERSION, SocksError,
};

/// A client that may be served.
#[derive(Debug)]
pub(super) struct IdentifiedClient {
    pub(super) identity: ProxyIdentity,
    pub(super) request: ClientRequest,
}

/// What the client asks for.
#[derive(Debug)]
pub(super) enum ClientRequest {
    Http(Box<ProxyRequest>),
    Socks(String),
}

/// The reason why a client was not identified: the refusal and the last bytes for it. `None` for a client that has
/// disconnected.
type IdentificationFailure = Option<(ProxyRefusal, Vec<u8>)>;

impl ForwardProxy {
    /// Reads up to the request, which is complete and from an identified client.
    pub(super) async fn identify<S>(
        &self,
        client: &mut ClientStream<S>,
        certificate: Option<ClientCertificate>,
    ) -> Result<IdentifiedClient, IdentificationFailure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let end = Instant::now() + self.settings().head_timeout;
        let first = timeout_at(
            end,
            client.read_message(|bytes| Ok::<_, ()>(bytes.first().map(|byte| (*byte, 0)))),
        );
        // A client that sends nothing gets no response.
        let Ok(Ok(first)) = first.await else {
            return Err(None);
        };
        if first == SOCKS_VERSION {
            let socks = timeout_at(end, self.identify_socks(client, certificate)).await;
            // SOCKS5 has no message for a request that is late.
            return socks.unwrap_or(Err(Some((ProxyRefusal::SlowRequest, Vec::new()))));
        }
        let refuse = |refusal: ProxyRefusal| Some((refusal, refusal.http_response()));
        // This is TLS to a listener without TLS, or SOCKS4: their senders wait for a response, and would wait until the
        // head times out.
        if !may_begin_head(first) {
            return Err(refuse(ProxyRefusal::Head(HeadError::Syntax)));
        }
        let request = match timeout_at(end, read_head(client, RequestRecipient::Proxy)).await {
            Ok(read) => {
                read.map_err(|error| error.and_then(|error| refuse(ProxyRefusal::Head(error))))?
            }
            Err(_) => return Err(refuse(ProxyRefusal::SlowRequest)),
        };
        let token = token_of(request.fields.get(PROXY_AUTHORIZATION));
        let identity = self
            .identity_of(token, certificate)
            .map_err(|error| refuse(ProxyRefusal::Identity(error)))?;
        Ok(IdentifiedClient {
            identity,
            request: ClientRequest::Http(Box::new(request)),
        })
    }

    /// The three messages of SOCKS5, with the token as the password.
    async fn identify_socks<S>(
        &self,
        client: &mut ClientStream<S>,
        certificate: Option<ClientCertificate>,
    ) -> Result<IdentifiedClient, IdentificationFailure>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let socks_refusal = |error: Option<SocksError>, last: &[u8]| {
            error.map(|error| (ProxyRefusal::Socks(error), last.to_vec()))
        };
        let has_identity = certificate
            .as_ref()
            .is_some_and(|certificate| self.certified_identity(certificate).is_some());
        let method = client
            .read_message(|bytes| socks::read_greeting(bytes, has_identity))
            .await
            .map_err(|error| socks_refusal(error, &[SOCKS_VERSION, NO_ACCEPTABLE_METHOD]))?;
        send(client, &[SOCKS_VERSION, method]).await?;
        let denied = [PASSWORD_VERSION, 1];
        let token = if method == PASSWORD_METHOD {
            let token = client.read_message(socks::read_password).await;
            Ok(token.map_err(|error| socks_refusal(error, &denied))?)
        } else {
            Err(IdentityError::Missing)
        };
        let identity = self
            .identity_of(token, certificate)
            .map_err(|error| Some((ProxyRefusal::Identity(error), denied.to_vec())))?;
        if method == PASSWORD_METHOD {
            send(client, &[PASSWORD_VERSION, 0]).await?;
        }
        let target = client
            .read_message(socks::read_request)
            .await
            .map_err(|error| {
                error.map(|error| {
                    let refusal = ProxyRefusal::Socks(error);
                    (refusal, refusal.socks_reply().message().to_vec())
                })
            })?;
        Ok(IdentifiedClient {
            identity,
            request: ClientRequest::Socks(target),
        })
    }

    /// Who a client with this token and this certificate is. A token names the session; without one, the configuration
    /// says who the client of the certificate is.
    pub(super) fn identity_of(
        &self,
        token: Result<Vec<u8>, IdentityError>,
        certificate: Option<ClientCertificate>,
    ) -> Result<ProxyIdentity, IdentityError> {
        let certified = certificate
            .as_ref()
            .and_then(|certificate| self.certified_identity(certificate));
        let token = match (token, &certified) {
            (Err(IdentityError::Missing), Some(identity)) => return Ok(identity.clone()),
            (token, _) => token?,
        };
        let settings = self.settings();
        let keys = settings.keys.as_ref().ok_or(IdentityError::Invalid)?;
        let mut identity = keys.verify(&token, self.now_ms())?;
        if certified.is_some_and(|certified| certified.tenant != identity.tenant) {
            return Err(IdentityError::OtherTenant);
        }
        if let Some(certificate) = certificate {
            identity.expires_s = identity.expires_s.min(certificate.expires_s);
            identity.certificate = certificate.name;
        }
        Ok(identity)
    }

    fn certified_identity(&self, certificate: &ClientCertificate) -> Option<ProxyIdentity> {
        self.client_tls()?.identity_of(certificate)
    }
}

async fn send<S>(client: &mut ClientStream<S>, bytes: &[u8]) -> Result<(), IdentificationFailure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    client.write_all(bytes).await.map_err(|_| None)?;
    // TLS keeps what the kernel did not take.
    client.flush().await.map_err(|_| None)
}
