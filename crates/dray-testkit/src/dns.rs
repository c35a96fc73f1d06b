//! A scripted DNS server on UDP and TCP, over TLS or over HTTPS: it responds as a test configures, correctly or not,
//! and records the queries.
//!
//! It sends one response per query, without recursion or zone logic.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

mod encrypted;

use encrypted::EncryptedProtocol;

/// The response to a question.
#[derive(Clone, Debug)]
pub enum DnsReply {
    /// Sends these records, in order: owner and data.
    Records(Vec<(String, RData)>),
    /// Sends these records, with the AD bit of a validating resolver if the query requests it.
    Authenticated(Vec<(String, RData)>),
    /// This response code without records.
    Code(ResponseCode),
    /// `SERVFAIL` with the extended error that DNSSEC validation failed (RFC 8914, section 4.7).
    Bogus,
    /// This response code together with these records.
    CodeWithRecords(ResponseCode, Vec<(String, RData)>),
    /// No response: the query is recorded, and the client times out.
    Silence,
    /// Sends these records over UDP, delayed until the channel is true.
    Held(watch::Receiver<bool>, Vec<(String, RData)>),
    /// Bytes that are not a DNS message, after the right id.
    Garbage,
    /// Sends an empty response with the truncation bit over UDP, and the records over TCP.
    Truncated(Vec<(String, RData)>),
    /// Sends these records as the response to another query.
    WrongQuestion(Vec<(String, RData)>),
    /// Sends an empty response with the truncation bit over UDP, and over TCP these records as the response to another
    /// query.
    TruncatedThenWrong(Vec<(String, RData)>),
    /// A datagram with the wrong id and the first records, then the right one with the second records.
    SpoofedFirst(Vec<(String, RData)>, Vec<(String, RData)>),
    /// Sends the first records over UDP, with the letters of the question in lower case, and the second records over
    /// TCP.
    LowerCase(Vec<(String, RData)>, Vec<(String, RData)>),
    /// Sends this status, media type and body over HTTPS, and no response over other transports.
    Http(u16, &'static str, Vec<u8>),
}

/// An address record for `owner`.
pub fn address_record(owner: &str, address: IpAddr) -> (String, RData) {
    let data = match address {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    };
    (owner.to_owned(), data)
}

/// An alias record from `owner` to `target`. An invalid target becomes the root.
pub fn alias_record(owner: &str, target: &str) -> (String, RData) {
    let target = Name::from_str(target).unwrap_or_default();
    (owner.to_owned(), RData::CNAME(CNAME(target)))
}

/// A received query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuestion {
    /// Name, lower-case, with its root dot.
    pub name: String,
    /// The name as it was spelled.
    pub spelling: String,
    /// Record type that was requested.
    pub kind: RecordType,
    /// Whether the query was sent over TCP.
    pub tcp: bool,
    /// The address of the client.
    pub from: SocketAddr,
    /// Largest UDP response that the client accepts.
    pub max_payload: u16,
    /// Whether the query has the AD bit.
    pub authentic_data: bool,
}

#[derive(Debug, Default)]
struct DnsZone {
    replies: Mutex<HashMap<(String, RecordType), DnsReply>>,
    questions: Mutex<Vec<DnsQuestion>>,
    /// Encrypted connections so far.
    connections: AtomicUsize,
}

/// The scripted server. Ends when it is dropped.
#[derive(Debug)]
pub struct FakeDnsServer {
    address: SocketAddr,
    zone: Arc<DnsZone>,
    /// Counts the requests to close all encrypted connections.
    closed: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl FakeDnsServer {
    /// Listens on one free loopback port over UDP and TCP. Unknown questions get `NXDOMAIN`.
    pub async fn start() -> io::Result<Self> {
        let (udp, tcp) = bind_sockets().await?;
        let address = udp.local_addr()?;
        let zone = Arc::new(DnsZone::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, Arc::clone(&zone)));
        tasks.spawn(serve_tcp(tcp, Arc::clone(&zone)));
        Ok(Self {
            address,
            zone,
            closed: watch::Sender::new(0),
            _tasks: tasks,
        })
    }

    /// Listens on one free loopback port for DNS over TLS.
    pub async fn start_tls(acceptor: TlsAcceptor) -> io::Result<Self> {
        Self::start_encrypted(acceptor, EncryptedProtocol::Stream).await
    }

    /// Listens on one free loopback port for DNS over HTTPS, with HTTP/2, on every path.
    pub async fn start_https(acceptor: TlsAcceptor) -> io::Result<Self> {
        Self::start_encrypted(acceptor, EncryptedProtocol::Http2).await
    }

    async fn start_encrypted(
        acceptor: TlsAcceptor,
        protocol: EncryptedProtocol,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let zone = Arc::new(DnsZone::default());
        let closed = watch::Sender::new(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(encrypted::serve(
            listener,
            acceptor,
            protocol,
            Arc::clone(&zone),
            closed.clone(),
        ));
        Ok(Self {
            address,
            zone,
            closed,
            _tasks: tasks,
        })
    }

    /// Encrypted connections so far.
    pub fn connections(&self) -> usize {
        // No other data depends on the counter.
        self.zone.connections.load(Ordering::Relaxed)
    }

    /// Closes all encrypted connections that exist now.
    pub fn close_connections(&self) {
        self.closed.send_modify(|count| *count += 1);
    }

    /// Address on loopback, the same port for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the reply to questions for `name` (with or without root dot) and `kind`.
    pub fn set(&self, name: &str, kind: RecordType, reply: DnsReply) {
        let name = format!("{}.", name.trim_end_matches('.')).to_lowercase();
        lock_mutex(&self.zone.replies).insert((name, kind), reply);
    }

    /// Sets the addresses of `name`, each under its own type; a query for another type gets an empty response.
    pub fn set_addresses(&self, name: &str, addresses: &[IpAddr]) {
        for kind in [RecordType::A, RecordType::AAAA] {
            let records = addresses
                .iter()
                .filter(|ip| ip.is_ipv4() == (kind == RecordType::A))
                .map(|ip| address_record(name, *ip))
                .collect();
            self.set(name, kind, DnsReply::Records(records));
        }
    }

    /// Every question so far.
    pub fn questions(&self) -> Vec<DnsQuestion> {
        lock_mutex(&self.zone.questions).clone()
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Binds the same port for both transports. The kernel chooses the UDP port, which may be in use for TCP.
async fn bind_sockets() -> io::Result<(UdpSocket, TcpListener)> {
    let mut last_error = None;
    // If another process uses the TCP port with this number, another one is tried.
    for _ in 0..32 {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        match TcpListener::bind(udp.local_addr()?).await {
            Ok(tcp) => return Ok((udp, tcp)),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| io::Error::other("no free port")))
}

async fn serve_udp(socket: UdpSocket, zone: Arc<DnsZone>) {
    let socket = Arc::new(socket);
    let mut held_responses = JoinSet::new();
    let mut buffer = vec![0; 4096];
    while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
        while held_responses.try_join_next().is_some() {}
        let packet = buffer.get(..count).unwrap_or_default();
        let (responses, held) = zone.answer(packet, from, false);
        match held {
            None => send_responses(&socket, &responses, from).await,
            Some(mut held) => {
                let socket = Arc::clone(&socket);
                // The delay is in a separate task, so that a delayed response does not delay other queries.
                held_responses.spawn(async move {
                    if held.wait_for(|released| *released).await.is_ok() {
                        send_responses(&socket, &responses, from).await;
                    }
                });
            }
        }
    }
}

async fn send_responses(socket: &UdpSocket, responses: &[Vec<u8>], to: SocketAddr) {
    for response in responses {
        if let Err(error) = socket.send_to(response, to).await {
            tracing::debug!(%error, "scripted response was not sent");
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<DnsZone>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, from)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let zone = Arc::clone(&zone);
        connections.spawn(async move {
            if let Err(error) = serve_stream(stream, from, &zone).await {
                tracing::debug!(%error, "scripted connection ended");
            }
        });
    }
}

async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    from: SocketAddr,
    zone: &DnsZone,
) -> io::Result<()> {
    loop {
        // DNS over TCP puts the length before each message (RFC 1035, 4.2.2).
        let length = stream.read_u16().await?;
        let mut packet = vec![0; usize::from(length)];
        stream.read_exact(&mut packet).await?;
        for response in zone.answer(&packet, from, true).0 {
            let length = u16::try_from(response.len()).map_err(io::Error::other)?;
            stream.write_u16(length).await?;
            stream.write_all(&response).await?;
            stream.flush().await?;
        }
    }
}

impl DnsZone {
    /// The datagrams to send, and the channel that delays them.
    fn answer(
        &self,
        packet: &[u8],
        from: SocketAddr,
        tcp: bool,
    ) -> (Vec<Vec<u8>>, Option<watch::Receiver<bool>>) {
        let Ok(question) = Message::from_vec(packet) else {
            return (Vec::new(), None);
        };
        let Some(query) = question.queries.first() else {
            return (Vec::new(), None);
        };
        // Lower case, because resolvers may mix the case of a question against spoofing (0x20).
        let key = (query.name().to_lowercase().to_string(), query.query_type());
        lock_mutex(&self.questions).push(DnsQuestion {
            name: key.0.clone(),
            spelling: query.name().to_ascii(),
            kind: key.1,
            tcp,
            from,
            max_payload: question.max_payload(),
            authentic_data: question.authentic_data,
        });
        let reply = lock_mutex(&self.replies).get(&key).cloned();
        let reply = reply.unwrap_or(DnsReply::Code(ResponseCode::NXDomain));
        let held = match &reply {
            DnsReply::Held(released, _) => Some(released.clone()),
            _ => None,
        };
        (reply.into_packets(&question, query, tcp), held)
    }
}

impl DnsReply {
    /// The messages of this reply on the wire, in the order in which they are sent.
    fn into_packets(self, question: &Message, query: &Query, tcp: bool) -> Vec<Vec<u8>> {
        let response = |code, records| response_message(question, query, code, records);
        let messages = match self {
            Self::Silence | Self::Http(..) => Vec::new(),
            Self::LowerCase(changed, _) if !tcp => {
                let name = query.name().to_lowercase();
                let other = Query::query(name, query.query_type());
                let code = ResponseCode::NoError;
                vec![response_message(question, &other, code, changed)]
            }
            Self::LowerCase(_, records) => vec![response(ResponseCode::NoError, records)],
            Self::Garbage => return vec![garbage_message(question.id)],
            Self::CodeWithRecords(code, records) => vec![response(code, records)],
            Self::Code(code) => vec![response(code, Vec::new())],
            Self::Bogus => {
                let mut edns = Edns::new();
                let bogus = EdnsOption::Unknown(15, vec![0, 6]);
                edns.options_mut().insert(bogus);
                let mut message = response(ResponseCode::ServFail, Vec::new());
                message.set_edns(edns);
                vec![message]
            }
            Self::Authenticated(records) => {
                let mut message = response(ResponseCode::NoError, records);
                message.metadata.authentic_data = question.authentic_data;
                vec![message]
            }
            Self::Truncated(_) | Self::TruncatedThenWrong(_) if !tcp => {
                let mut message = response(ResponseCode::NoError, Vec::new());
                message.metadata.truncation = true;
                vec![message]
            }
            Self::Held(_, records) | Self::Records(records) | Self::Truncated(records) => {
                vec![response(ResponseCode::NoError, records)]
            }
            Self::WrongQuestion(records) | Self::TruncatedThenWrong(records) => {
                let name = Name::from_str("other.test.").unwrap_or_default();
                let other = Query::query(name, query.query_type());
                let code = ResponseCode::NoError;
                vec![response_message(question, &other, code, records)]
            }
            Self::SpoofedFirst(spoofed, genuine) => {
                let mut first = response(ResponseCode::NoError, spoofed);
                // An off-path attacker does not know the id, so a resolver has to wait for the correct one.
                first.metadata.id = question.id.wrapping_add(1);
                vec![first, response(ResponseCode::NoError, genuine)]
            }
        };
        messages
            .iter()
            .filter_map(|message| message.to_vec().ok())
            .collect()
    }
}

fn garbage_message(id: u16) -> Vec<u8> {
    // The response has the correct id, because a resolver would otherwise drop it before it parses the rest.
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend_from_slice(&[0x81, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff]);
    bytes
}

fn response_message(
    question: &Message,
    query: &Query,
    code: ResponseCode,
    records: Vec<(String, RData)>,
) -> Message {
    let mut message = Message::response(question.id, question.op_code);
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.add_query(query.clone());
    for (owner, data) in records {
        let owner =
            Name::from_str(&format!("{}.", owner.trim_end_matches('.'))).unwrap_or_default();
        message.add_answer(Record::from_rdata(owner, 60, data));
    }
    message
}
