//! Tunnels: each is granted, checked by its first bytes, recorded and then relayed. No byte reaches the target before
//! the record.

use dray_guard::CanonicalUrl;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::client::ClientStream;
use super::hello::{ClientHello, read_client_hello};
use super::meter::TargetStream;
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::relay::relay;
use super::serve::{EndConditions, ForwardProxy, TunnelTerms};
use crate::audit::AuditedConnection;
use crate::fetch::OpenConnection;

impl ForwardProxy {
    /// Grants the tunnel, judges its first bytes, and runs it to its end.
    pub(super) async fn run_tunnel<S>(
        &self,
        mut client: ClientStream<S>,
        opened: OpenConnection,
        mut audited: AuditedConnection,
        terms: TunnelTerms<'_>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // This is set before anything can fail, so that the event of a refusal has it too.
        audited.is_intercepted = terms.is_intercepted;
        let begun = self.begin_tunnel(&mut client, &opened.url, &mut audited, &terms);
        if let Err(refusal) = Box::pin(begun).await {
            // The target is given up first: it has received nothing.
            drop(opened);
            audited.refused(refusal).await;
            // Inside a tunnel, a client understands a refusal only as an alert of TLS.
            client.close_with(&refusal.tls_alert()).await;
            return;
        }
        if terms.is_intercepted {
            Box::pin(self.run_intercepted(client, opened, audited, terms)).await;
        } else {
            self.relay_tunnel(client, opened, audited, terms).await;
        }
    }

    /// Moves the bytes of a tunnel that is recorded as open.
    async fn relay_tunnel<S>(
        &self,
        mut client: ClientStream<S>,
        opened: OpenConnection,
        audited: AuditedConnection,
        terms: TunnelTerms<'_>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limits = self.limits_of(&opened);
        let ends_at = opened.ends_at(terms.ends_at);
        let OpenConnection {
            io,
            slots,
            quota,
            answer,
            ..
        } = opened;
        let ends = EndConditions {
            ends_at,
            answer: answer.as_ref(),
        };
        let counts = audited.counts.clone();
        let mut target = TargetStream::new(io, limits, counts.clone()).with_quota(quota);
        let relaying = async {
            match relay(&mut client, &mut target, &counts).await {
                Ok(()) => ConnectionEnd::Closed,
                Err(error) => {
                    tracing::debug!(%error, "a tunnel broke off");
                    ConnectionEnd::Broken
                }
            }
        };
        let end = self.watch(relaying, &counts, ends).await;
        // Both sides close, and the slot of the connection is free, before the event is published.
        drop((client, target, slots));
        audited.closed(end).await;
    }

    /// Sends the grant and judges the `ClientHello`. Records that the tunnel is open, unless it is intercepted: then
    /// each request inside is judged before its record.
    async fn begin_tunnel<S>(
        &self,
        client: &mut ClientStream<S>,
        url: &CanonicalUrl,
        audited: &mut AuditedConnection,
        terms: &TunnelTerms<'_>,
    ) -> Result<(), ProxyRefusal>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        // TLS keeps what the kernel did not take.
        let is_granted =
            client.write_all(terms.grant).await.is_ok() && client.flush().await.is_ok();
        // A URL of plain http stands for a port whose tunnels need not carry TLS.
        if is_granted && url.https() {
            let hello = tokio::time::timeout(self.settings().hello_timeout, read_hello(client));
            let hello = hello.await.unwrap_or(Err(ProxyRefusal::NoHello))?;
            // The name of a refused hello is recorded too.
            hello
                .server_name
                .as_deref()
                .unwrap_or_default()
                .clone_into(&mut audited.server_name);
            self.judge_hello(url, &hello)?;
            if terms.is_intercepted && hello.excludes_http1 {
                return Err(ProxyRefusal::NoHttp1);
            }
        }
        if terms.is_intercepted {
            return Ok(());
        }
        self.record_opened(audited).await
    }

    /// Records that the connection is open, before its first byte reaches the target.
    pub(super) async fn record_opened(
        &self,
        audited: &mut AuditedConnection,
    ) -> Result<(), ProxyRefusal> {
        let is_published = audited.opened().await;
        if !is_published && self.is_audit_required() {
            return Err(ProxyRefusal::Unaudited);
        }
        Ok(())
    }

    fn judge_hello(&self, url: &CanonicalUrl, hello: &ClientHello) -> Result<(), ProxyRefusal> {
        if hello.has_encrypted_name && !self.settings().allow_encrypted_hello {
            return Err(ProxyRefusal::EncryptedName);
        }
        let server_name = hello.server_name.as_deref();
        if url.host().fits_server_name(server_name) {
            return Ok(());
        }
        Err(match server_name {
            None => ProxyRefusal::ServerNameMissing,
            Some(_) => ProxyRefusal::ServerNameMismatch,
        })
    }
}

/// Reads the `ClientHello` ahead; its bytes stay for the target.
async fn read_hello<S>(client: &mut ClientStream<S>) -> Result<ClientHello, ProxyRefusal>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    client
        .read_message(|bytes| Ok(read_client_hello(bytes)?.map(|hello| (hello, 0))))
        .await
        .map_err(|error| error.map_or(ProxyRefusal::NoHello, ProxyRefusal::Hello))
}
