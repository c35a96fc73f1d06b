//! Connections to engines on other hosts: TLS with the certificates of the Docker command line, and SSH with the
//! command that it uses.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An engine that listens with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsEndpoint {
    /// Host and port, with brackets around an IPv6 address.
    pub(crate) address: String,
    /// Directory with `ca.pem`, and with `cert.pem` and `key.pem` where the engine asks for them.
    pub(crate) certificates: PathBuf,
}

/// An engine that `docker system dial-stdio` reaches on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshEndpoint {
    /// The program that is run, usually `ssh`.
    pub(crate) program: PathBuf,
    /// The destination `user@host`, as `ssh` takes it.
    pub(crate) destination: String,
    pub(crate) port: Option<u16>,
}

fn invalid(
    description: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> io::Error {
    let error = error.into();
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{description}: {error}"),
    )
}

impl TlsEndpoint {
    /// Connects with TLS; each side verifies the other one. The files are read each time, so that renewed certificates
    /// are used.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let directory = self.certificates.clone();
        let config = tokio::task::spawn_blocking(move || client_config(&directory));
        let config = config.await.map_err(io::Error::other)??;
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host
            // Certificates name an IPv6 address without its brackets.
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let name = ServerName::try_from(host).map_err(|error| invalid("the host", error))?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

fn client_config(directory: &Path) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&directory.join("ca.pem"))? {
        roots
            .add(certificate)
            .map_err(|error| invalid("ca.pem", error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("TLS", error))?
        .with_root_certificates(roots);
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    // Either both files or none: one file alone is a mistake that must be reported.
    if !certificate.exists() && !key.exists() {
        return Ok(builder.with_no_client_auth());
    }
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| invalid("key.pem", error))?;
    let config = builder.with_client_auth_cert(certificates(&certificate)?, key);
    config.map_err(|error| invalid("cert.pem", error))
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let file_name = file.display().to_string();
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(invalid(&file_name, "holds no certificate")),
        Err(error) => Err(invalid(&file_name, error)),
    }
}

/// Standard streams of a program that carries a connection. The program ends with the value.
#[derive(Debug)]
pub(crate) struct SshCarrier {
    streams: Join<ChildStdout, ChildStdin>,
    _child: Child,
}

impl SshEndpoint {
    /// Starts the program. A host that cannot be reached is noticed only when the first response does not arrive.
    pub(crate) fn connect(&self) -> io::Result<SshCarrier> {
        let mut command = Command::new(&self.program);
        // The options prevent a terminal, and a prompt that would wait for a person.
        command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"]);
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        command
            .args(["--", &self.destination, "docker", "system", "dial-stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Warnings of `ssh` and banners of hosts have no place in this process's own stderr.
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        match (child.stdout.take(), child.stdin.take()) {
            (Some(output), Some(input)) => Ok(SshCarrier {
                streams: tokio::io::join(output, input),
                _child: child,
            }),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl AsyncRead for SshCarrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_read(context, buffer)
    }
}

impl AsyncWrite for SshCarrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.streams).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.streams).poll_shutdown(context)
    }
}
