//! One question to one server and its answer, over UDP with repetitions or over TCP (D-10).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::udp::UdpClientStream;
use hickory_resolver::net::xfer::DnsRequestSender as _;
use hickory_resolver::proto::op::{DnsRequest, DnsRequestOptions, DnsResponse, Query};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::DnsError;

/// Largest UDP answer that is requested, in bytes (D-10): with its headers it fits an IPv6 packet of 1,280 bytes,
/// which no path fragments.
const MAX_UDP_PAYLOAD_BYTES: u16 = 1232;
/// Time between two repetitions of a question over UDP; an answer to an earlier one still counts.
const REPEAT_INTERVAL: Duration = Duration::from_millis(800);
/// Most times that a question is sent over UDP.
const MAX_UDP_SENDS: u8 = 8;
/// Longest wait of the UDP client; the resolver has a deadline of its own, which is always earlier.
const MAX_UDP_TIME: Duration = Duration::from_mins(5);

/// A request for a response of any size that the transport can carry, with the name as it is.
pub(super) fn dns_request(query: Query) -> DnsRequest {
    with_status(DnsRequest::from_query(query, request_options()))
}

/// Asks for the AD bit in the response: a server leaves it out where the query shows no interest (RFC 6840, section
/// 5.7).
fn with_status(mut request: DnsRequest) -> DnsRequest {
    request.metadata.authentic_data = true;
    request
}

fn request_options() -> DnsRequestOptions {
    let mut options = DnsRequestOptions::default();
    options.use_edns = true;
    options.edns_payload_len = MAX_UDP_PAYLOAD_BYTES;
    options.retry_interval = REPEAT_INTERVAL;
    options
}

/// Asks over UDP, and over TCP when the response was truncated or changed the case of the name. It has no deadline of
/// its own; the caller sets one.
pub(super) async fn exchange_plain(
    server: SocketAddr,
    query: Query,
) -> Result<DnsResponse, DnsError> {
    match exchange_udp(server, query.clone()).await? {
        // All addresses have to be known, since one blocked address refuses the whole answer (D-4).
        Some(response) if !response.truncation => Ok(response),
        Some(_) | None => exchange_tcp(server, query).await,
    }
}

/// Asks over UDP, from a random port and with random case of the letters each time, until an answer comes. Datagrams of
/// other senders, with another id or for another question are dropped. Returns `None` when the answer does not repeat
/// the case: it may be forged, or the server changes the case.
async fn exchange_udp(server: SocketAddr, query: Query) -> Result<Option<DnsResponse>, DnsError> {
    let mut options = request_options();
    // Each letter is one more bit that a forged response must guess, beside id and port ("0x20").
    options.case_randomization = true;
    let request = with_status(DnsRequest::from_query(query, options));
    let mut stream = UdpClientStream::builder(server, TokioRuntimeProvider::default())
        .with_timeout(Some(MAX_UDP_TIME))
        .with_max_retries(MAX_UDP_SENDS)
        .build();
    match stream.send_message(request).next().await {
        Some(Ok(response)) => Ok(Some(response)),
        Some(Err(NetError::QueryCaseMismatch)) => Ok(None),
        Some(Err(NetError::Timeout)) => Err(DnsError::Timeout),
        Some(Err(error)) => Err(DnsError::Failure(error.to_string())),
        None => Err(DnsError::Failure("no answer".to_owned())),
    }
}

/// Asks over TCP: one connection, one question. A message has at most 64 KiB. It has no deadline of its own; the
/// caller sets one.
async fn exchange_tcp(server: SocketAddr, query: Query) -> Result<DnsResponse, DnsError> {
    let request = dns_request(query);
    let packet = request
        .to_vec()
        .map_err(|error| DnsError::Failure(error.to_string()))?;
    let received = exchange_bytes(server, &packet)
        .await
        .map_err(|error| DnsError::Failure(error.to_string()))?;
    let response =
        DnsResponse::from_buffer(received).map_err(|error| DnsError::Failure(error.to_string()))?;
    // The UDP client compares ids by itself; over TCP no lower layer does.
    if response.id != request.id {
        return Err(DnsError::Failure("a response with another id".to_owned()));
    }
    Ok(response)
}

/// Connects to a DNS server, whose address the operator chose.
pub(super) async fn connect_tcp(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn exchange_bytes(server: SocketAddr, packet: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect_tcp(server).await?;
    // Over TCP each message follows its length in two bytes (RFC 1035, section 4.2.2).
    let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
    // One write for both, so that they leave in one segment (RFC 7766, section 8).
    stream
        .write_all(&[&length.to_be_bytes(), packet].concat())
        .await?;
    let mut received = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut received).await?;
    Ok(received)
}
