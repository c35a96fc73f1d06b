//! A client of a proxy or a relay: routes to the target, and the exchanges with it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::target::{ECHO_ORDER, HTTP_PORT, RESPONSE_BODY, TUNNEL_PORT};

/// Bytes of a small exchange in a tunnel.
pub(super) const EXCHANGE_BYTES: u64 = 64;
/// Most bytes that one read of a download takes.
const DOWNLOAD_BUFFER_BYTES: usize = 256 << 10;
/// Most bytes of the response to `CONNECT`.
const MAX_HEAD_BYTES: usize = 4 << 10;

/// The protocol between a client and a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientProtocol {
    /// Nothing: the relay connects to its one target.
    Relay,
    /// A tunnel by `CONNECT`.
    Connect,
    /// A tunnel by SOCKS5, with the token as the password.
    Socks,
    /// A request in absolute form.
    Request,
}

/// A route to the target.
#[derive(Clone, Debug)]
pub(super) struct ProxyRoute {
    /// Address of the listener of the proxy or relay.
    pub(super) address: SocketAddr,
    pub(super) protocol: ClientProtocol,
    /// The token; empty for a program that needs none.
    pub(super) token: String,
    pub(super) target: Ipv4Addr,
}

impl ProxyRoute {
    /// Opens a tunnel to the target.
    pub(super) async fn open(&self) -> anyhow::Result<TcpStream> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a proxy of this measurement, on loopback"
        )]
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match self.protocol {
            ClientProtocol::Relay => {}
            ClientProtocol::Connect => self.connect(&mut stream).await?,
            ClientProtocol::Socks => self.open_socks(&mut stream).await?,
            ClientProtocol::Request => anyhow::bail!("a request in absolute form opens no tunnel"),
        }
        Ok(stream)
    }

    /// A tunnel in which the target returns every byte.
    pub(super) async fn open_echo(&self) -> anyhow::Result<TcpStream> {
        let mut stream = self.open().await?;
        stream.write_u64(ECHO_ORDER).await?;
        exchange_echo(&mut stream, &mut [7; 64]).await?;
        Ok(stream)
    }

    /// Receives `size` bytes through a tunnel, to its end.
    pub(super) async fn download(&self, size: u64) -> anyhow::Result<()> {
        receive(self.open().await?, size).await
    }

    /// A new connection with a small exchange, to its end.
    pub(super) async fn exchange(&self) -> anyhow::Result<()> {
        match self.protocol {
            ClientProtocol::Request => self.request().await,
            _ => self.download(EXCHANGE_BYTES).await,
        }
    }

    /// Asks for a tunnel with `CONNECT`.
    pub(super) async fn connect(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> anyhow::Result<()> {
        let authority = format!("{}:{TUNNEL_PORT}", self.target);
        let authorization = self.authorization();
        let request =
            format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::with_capacity(256);
        // No byte follows the head: the target sends only after a request.
        while !head.ends_with(b"\r\n\r\n") {
            let count = stream.read_buf(&mut head).await?;
            anyhow::ensure!(count > 0 && head.len() <= MAX_HEAD_BYTES, "no whole head");
        }
        check_status(&head)
    }

    /// The messages of RFC 1928 and RFC 1929.
    async fn open_socks(&self, stream: &mut TcpStream) -> anyhow::Result<()> {
        stream.write_all(&[5, 1, 2]).await?;
        let mut reply = [0; 2];
        stream.read_exact(&mut reply).await?;
        anyhow::ensure!(reply == [5, 2], "another method: {reply:?}");
        let length = u8::try_from(self.token.len()).context("the token is too long")?;
        // Version 1 and a user name of one byte, which the proxy ignores.
        let mut password = vec![1, 1, b'x', length];
        password.extend_from_slice(self.token.as_bytes());
        stream.write_all(&password).await?;
        stream.read_exact(&mut reply).await?;
        anyhow::ensure!(reply == [1, 0], "the token was refused");
        // CONNECT to an IPv4 address.
        let mut request = vec![5, 1, 0, 1];
        request.extend(self.target.octets());
        request.extend(TUNNEL_PORT.to_be_bytes());
        stream.write_all(&request).await?;
        // The address in the reply has four bytes for an address of IPv4.
        let mut granted = [0; 10];
        stream.read_exact(&mut granted).await?;
        anyhow::ensure!(granted.starts_with(&[5, 0]), "refused: {granted:?}");
        Ok(())
    }

    async fn request(&self) -> anyhow::Result<()> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a proxy of this measurement, on loopback"
        )]
        let mut stream = TcpStream::connect(self.address).await?;
        let (target, authorization) = (self.target, self.authorization());
        let request = format!(
            "GET http://{target}:{HTTP_PORT}/ HTTP/1.1\r\nHost: {target}\r\n{authorization}Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::with_capacity(1 << 10);
        stream.read_to_end(&mut response).await?;
        check_status(&response)?;
        anyhow::ensure!(
            response.ends_with(RESPONSE_BODY.as_bytes()),
            "another response"
        );
        Ok(())
    }

    /// The field that identifies the client; empty without a token.
    fn authorization(&self) -> String {
        if self.token.is_empty() {
            return String::new();
        }
        format!("Proxy-Authorization: Bearer {}\r\n", self.token)
    }
}

/// Receives `size` bytes through an open tunnel, to its end.
pub(super) async fn receive(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    size: u64,
) -> anyhow::Result<()> {
    stream.write_u64(size).await?;
    stream.flush().await?;
    let mut buffer = vec![0; DOWNLOAD_BUFFER_BYTES];
    let mut received = 0;
    // The stream is read to its end, so that closing is part of the time.
    loop {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => received += count as u64,
        }
    }
    anyhow::ensure!(received == size, "{received} of {size} bytes arrived");
    Ok(())
}

/// Sends a message through an echo tunnel and waits for its echo.
pub(super) async fn exchange_echo(
    stream: &mut TcpStream,
    message: &mut [u8],
) -> anyhow::Result<()> {
    stream.write_all(message).await?;
    stream.read_exact(message).await?;
    Ok(())
}

fn check_status(head: &[u8]) -> anyhow::Result<()> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    anyhow::ensure!(
        line.split(' ').nth(1) == Some("200"),
        "the proxy refused: {line}"
    );
    Ok(())
}
