//! Audit events as messages to a syslog server: RFC 5424, over UDP (RFC 5426), TCP with octet counts (RFC 6587) or
//! datagrams of a Unix socket.
//!
//! A connection is opened when it is needed, also after one broke. While the server cannot be reached, events are
//! dropped and counted, and the connection is tried again once a second. So events are never late by more than one
//! attempt. UDP gives no proof that a message arrived.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use dray_proto::v1;

use super::event_result::EventResult;
use super::queue::{AuditQueue, EventWriter, QueueTerms};
use crate::config::{AuditSyslogSettings, SyslogAddress};
use crate::metrics::{AuditDestination, EgressMetrics};

/// Longest time for a connection, and for one message.
const SYSLOG_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Most bytes of a datagram of UDP over IPv4 (RFC 5426, section 3.2).
const MAX_DATAGRAM_BYTES: usize = 65_507;
/// `APP-NAME` of every message.
const APP_NAME: &str = "egress-fetcher";
/// `MSGID` of every message.
const MESSAGE_ID: &str = "EgressAudit";
/// Severity of refusals and failures: notice (RFC 5424, section 6.2.1).
const FAILURE_SEVERITY: u8 = 5;
/// Severity of everything else: informational (RFC 5424, section 6.2.1).
const SUCCESS_SEVERITY: u8 = 6;
/// Longest `HOSTNAME` in bytes.
const MAX_HOSTNAME_BYTES: usize = 255;
/// Where the kernel shows the name of this machine.
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

impl AuditQueue {
    /// Starts the thread, which connects to the server.
    ///
    /// # Errors
    ///
    /// No thread can be started. A server that does not respond is not an error: it may start later.
    pub fn to_syslog(settings: &AuditSyslogSettings, metrics: EgressMetrics) -> io::Result<Self> {
        let terms = QueueTerms {
            place: AuditDestination::Syslog,
            format: settings.format,
            sample_percent: settings.sample_percent,
        };
        Self::start(SyslogWriter::new(settings), terms, metrics)
    }
}

enum SyslogConnection {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixDatagram),
}

/// Sends messages to one server.
struct SyslogWriter {
    address: SyslogAddress,
    facility: u8,
    host_name: String,
    connection: Option<SyslogConnection>,
    /// No attempt to connect before this instant.
    next_attempt: Option<Instant>,
}

impl SyslogWriter {
    fn new(settings: &AuditSyslogSettings) -> Self {
        Self {
            address: settings.address.clone(),
            facility: settings.facility,
            host_name: host_name(),
            connection: None,
            next_attempt: None,
        }
    }

    fn connect(&mut self) -> io::Result<SyslogConnection> {
        if self.next_attempt.is_some_and(|next| Instant::now() < next) {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the server could not be reached a moment ago",
            ));
        }
        self.next_attempt = Some(Instant::now() + RECONNECT_DELAY);
        match &self.address {
            SyslogAddress::Udp(server) => {
                let server = resolve(server)?;
                // A socket of one family cannot send to an address of the other.
                let local: SocketAddr = match server {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
                };
                let socket = UdpSocket::bind(local)?;
                // The socket is connected, so that the kernel reports a closed port at the next message.
                socket.connect(server)?;
                Ok(SyslogConnection::Udp(socket))
            }
            SyslogAddress::Tcp(server) => {
                let stream = TcpStream::connect_timeout(&resolve(server)?, SYSLOG_TIMEOUT)?;
                stream.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                Ok(SyslogConnection::Tcp(stream))
            }
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(SYSLOG_TIMEOUT))?;
                Ok(SyslogConnection::Unix(socket))
            }
        }
    }

    /// The message of a frame: its head and the JSON.
    fn message(&self, frame: &[u8]) -> Vec<u8> {
        let (severity, rest) = frame.split_first().unwrap_or((&SUCCESS_SEVERITY, &[]));
        let priority = u32::from(self.facility) * 8 + u32::from(*severity);
        let time_length = rest
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or_default();
        let (time, text) = rest.split_at(time_length);
        let time = String::from_utf8_lossy(time);
        let (host, process) = (&self.host_name, std::process::id());
        let mut message =
            format!("<{priority}>1 {time} {host} {APP_NAME} {process} {MESSAGE_ID} -").into_bytes();
        message.extend_from_slice(text);
        message
    }
}

impl EventWriter for SyslogWriter {
    /// Severity in one byte, time, and the JSON after a blank. The parts that all events share are added later.
    fn frame(event: &v1::EgressAudit, text: &str) -> Vec<u8> {
        let severity = match EventResult::of(event) {
            EventResult::Success => SUCCESS_SEVERITY,
            EventResult::Failed | EventResult::Refused => FAILURE_SEVERITY,
        };
        let mut frame = vec![severity];
        frame.extend_from_slice(timestamp(event.time_ms).as_bytes());
        frame.push(b' ');
        frame.extend_from_slice(text.as_bytes());
        frame
    }

    // Events kept here could be sent at any later time; docs/egress.md says that they are dropped.
    const KEEPS_UNWRITTEN: bool = false;

    fn write_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        let message = self.message(frame);
        if matches!(self.address, SyslogAddress::Udp(_)) && message.len() > MAX_DATAGRAM_BYTES {
            // The size is checked before the connection is used, so that the connection is kept.
            let problem = "the event is too large for a datagram";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        // A connection that broke since the last message is found only by writing.
        if let Some(mut connection) = self.connection.take()
            && send(&mut connection, &message).is_ok()
        {
            self.connection = Some(connection);
            return Ok(());
        }
        let mut connection = self.connect()?;
        send(&mut connection, &message)?;
        self.connection = Some(connection);
        self.next_attempt = None;
        Ok(())
    }
}

fn send(connection: &mut SyslogConnection, message: &[u8]) -> io::Result<()> {
    match connection {
        SyslogConnection::Udp(socket) => socket.send(message).map(drop),
        SyslogConnection::Tcp(stream) => {
            // Length and message go into one write, so that a message is rarely cut at the end of a connection.
            let mut framed = format!("{} ", message.len()).into_bytes();
            framed.extend_from_slice(message);
            stream.write_all(&framed)
        }
        SyslogConnection::Unix(socket) => socket.send(message).map(drop),
    }
}

/// The first address of a configured server, as the system resolves it.
fn resolve(server: &str) -> io::Result<SocketAddr> {
    let mut addresses = server.to_socket_addrs()?;
    addresses
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the server has no address"))
}

/// `TIMESTAMP` with milliseconds, in UTC.
fn timestamp(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms)
        .ok()
        .and_then(|unix_ms| jiff::Timestamp::from_millisecond(unix_ms).ok());
    // The nil value of RFC 5424.
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}"))
}

/// `HOSTNAME`: printable ASCII without blanks, or the nil value.
fn host_name() -> String {
    let name = std::fs::read_to_string(HOSTNAME_FILE).unwrap_or_default();
    let name = name.trim();
    let is_name = !name.is_empty()
        && name.len() <= MAX_HOSTNAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name { name } else { "-" }.to_owned()
}

#[cfg(test)]
mod tests;
