//! Tests of DNS over TLS and over HTTPS, with real handshakes on loopback. Some servers follow the protocol, and some
//! break it.

use std::time::Duration;

use dray_testkit::tls::{Authority, TlsOffer};
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::{Name, Record};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;

const SERVER_NAME: &str = "dns.example.net";
const SERVER_SCHEMES: [&str; 2] = ["tls", "https"];

/// The TLS settings of a server of this scheme, with a certificate for `name`.
fn acceptor(authority: &Authority, scheme: &str, name: &str, expired: bool) -> TlsAcceptor {
    let alpn = match scheme {
        "tls" => b"dot".to_vec(),
        _ => b"h2".to_vec(),
    };
    let offer = TlsOffer {
        expired,
        alpn: vec![alpn],
        ..TlsOffer::default()
    };
    authority.acceptor_with(name, offer).unwrap()
}

struct Fixture {
    server: FakeDnsServer,
    resolver: HickoryResolver,
}

/// A server with this scheme and a certificate for `certified`, and a resolver that expects `#named`.
async fn start(scheme: &str, certified: &str, named: &str) -> Fixture {
    let authority = Authority::new().unwrap();
    let acceptor = acceptor(&authority, scheme, certified, false);
    start_with(scheme, acceptor, named, &authority).await
}

async fn start_with(
    scheme: &str,
    acceptor: TlsAcceptor,
    named: &str,
    trusted: &Authority,
) -> Fixture {
    let server = match scheme {
        "tls" => FakeDnsServer::start_tls(acceptor).await.unwrap(),
        _ => FakeDnsServer::start_https(acceptor).await.unwrap(),
    };
    server.set_addresses(HOST_NAME, &[ip("8.8.8.8"), ip("2606:4700::1111")]);
    let resolver = resolver(scheme, server.address(), named, trusted);
    Fixture { server, resolver }
}

fn resolver(
    scheme: &str,
    address: SocketAddr,
    named: &str,
    trusted: &Authority,
) -> HickoryResolver {
    let item = format!("{scheme}://{address}{named}");
    let servers = parse_servers([item.as_str()]).unwrap();
    HickoryResolver::with_trust(&servers, DNS_TIMEOUT, Some(&trusted.pem())).unwrap()
}

impl Fixture {
    /// The number of addresses, or the kind of failure.
    async fn addresses(&self) -> Result<usize, &'static str> {
        addresses(&self.resolver).await
    }
}

async fn addresses(resolver: &HickoryResolver) -> Result<usize, &'static str> {
    let judge = Judge::new(JudgeConfig::default());
    let answer = resolver.lookup(&canonical(HOST_NAME), &judge).await;
    answer
        .map(|answer| answer.addresses.len())
        .map_err(|error| error.kind())
}

#[tokio::test]
async fn d_10_all_queries_share_one_encrypted_connection() {
    for scheme in SERVER_SCHEMES {
        let fixture = start(scheme, SERVER_NAME, "#dns.example.net").await;
        for _ in 0..4 {
            assert_eq!(fixture.addresses().await, Ok(2), "{scheme}");
        }
        assert_eq!(fixture.server.connections(), 1, "{scheme}");
        assert_eq!(fixture.server.questions().len(), 8, "{scheme}");
        assert_eq!(names(&fixture.server), ["files.example.org."]);
    }
}

#[tokio::test]
async fn d_10_the_certificate_must_have_the_name_or_without_one_the_address() {
    for scheme in SERVER_SCHEMES {
        for (certified, named, expected) in [
            (SERVER_NAME, "#dns.example.net", Ok(2)),
            ("127.0.0.1", "", Ok(2)),
            ("127.0.0.1", "#127.0.0.1", Ok(2)),
            (SERVER_NAME, "", Err("failure")),
            (SERVER_NAME, "#dns.example.org", Err("failure")),
            ("127.0.0.1", "#dns.example.net", Err("failure")),
        ] {
            let fixture = start(scheme, certified, named).await;
            assert_eq!(
                fixture.addresses().await,
                expected,
                "{scheme} {certified} {named}"
            );
            let questions = fixture.server.questions().len();
            assert_eq!(questions > 0, expected.is_ok(), "no question without trust");
        }
    }
}

#[tokio::test]
async fn d_10_an_unknown_authority_and_an_expired_certificate_are_refused() {
    let (trusted, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    for scheme in SERVER_SCHEMES {
        for acceptor in [
            acceptor(&other, scheme, SERVER_NAME, false),
            acceptor(&trusted, scheme, SERVER_NAME, true),
        ] {
            let fixture = start_with(scheme, acceptor, "#dns.example.net", &trusted).await;
            let judge = Judge::new(JudgeConfig::default());
            let refused = fixture.resolver.lookup(&canonical(HOST_NAME), &judge).await;
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("certificate"), "{scheme}: {message}");
            assert!(fixture.server.questions().is_empty());
        }
    }
}

#[tokio::test]
async fn d_10_a_query_is_repeated_once_when_its_connection_was_closed() {
    for scheme in SERVER_SCHEMES {
        let fixture = start(scheme, SERVER_NAME, "#dns.example.net").await;
        for connections in 1..4 {
            assert_eq!(fixture.addresses().await, Ok(2), "{scheme}");
            assert_eq!(fixture.server.connections(), connections, "{scheme}");
            fixture.server.close_connections();
        }
    }
}

#[tokio::test]
async fn d_10_a_stalled_connection_is_replaced_within_the_dns_phase() {
    for scheme in SERVER_SCHEMES {
        let fixture = start(scheme, SERVER_NAME, "#dns.example.net").await;
        assert_eq!(fixture.addresses().await, Ok(2), "{scheme}");
        for kind in [RecordType::A, RecordType::AAAA] {
            fixture.server.set(HOST_NAME, kind, DnsReply::Silence);
        }
        assert_eq!(fixture.addresses().await, Err("timeout"), "{scheme}");
        assert!(fixture.server.connections() >= 2, "{scheme}");
        fixture.server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
        assert_eq!(fixture.addresses().await, Ok(1), "{scheme}");
    }
}

#[tokio::test]
async fn d_2_the_next_encrypted_server_is_asked_when_one_is_silent() {
    let authority = Authority::new().unwrap();
    let silent = FakeDnsServer::start_tls(acceptor(&authority, "tls", SERVER_NAME, false))
        .await
        .unwrap();
    for kind in [RecordType::A, RecordType::AAAA] {
        silent.set(HOST_NAME, kind, DnsReply::Silence);
    }
    let answering = FakeDnsServer::start_https(acceptor(&authority, "https", SERVER_NAME, false))
        .await
        .unwrap();
    answering.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    let items = [
        format!("tls://{}#{SERVER_NAME}", silent.address()),
        format!("https://{}/dns-query#{SERVER_NAME}", answering.address()),
    ];
    let servers = parse_servers(items.iter().map(String::as_str)).unwrap();
    let resolver =
        HickoryResolver::with_trust(&servers, DNS_TIMEOUT, Some(&authority.pem())).unwrap();
    assert_eq!(addresses(&resolver).await, Ok(1));
}

#[tokio::test]
async fn d_10_responses_over_encrypted_connections_are_checked_as_over_udp() {
    let evil = || vec![address_record(HOST_NAME, ip("10.0.0.1"))];
    for scheme in SERVER_SCHEMES {
        let fixture = start(scheme, SERVER_NAME, "#dns.example.net").await;
        for (reply, expected) in [
            (DnsReply::WrongQuestion(evil()), Err("failure")),
            (DnsReply::Garbage, Err("failure")),
            (DnsReply::Code(ResponseCode::ServFail), Err("failure")),
            (
                DnsReply::CodeWithRecords(ResponseCode::NXDomain, evil()),
                Err("failure"),
            ),
            (DnsReply::Code(ResponseCode::NXDomain), Err("not_found")),
            (DnsReply::Records(Vec::new()), Err("not_found")),
        ] {
            for kind in [RecordType::A, RecordType::AAAA] {
                fixture.server.set(HOST_NAME, kind, reply.clone());
            }
            assert_eq!(fixture.addresses().await, expected, "{scheme} {reply:?}");
        }
    }
}

#[tokio::test]
async fn d_10_only_a_dns_message_with_status_200_is_a_response_over_https() {
    let fixture = start("https", SERVER_NAME, "#dns.example.net").await;
    let dns = "application/dns-message";
    for (status, media_type, body) in [
        (302, dns, Vec::new()),
        (404, dns, Vec::new()),
        (500, dns, Vec::new()),
        (200, "text/html", b"<html>".to_vec()),
        (200, dns, Vec::new()),
        (200, dns, vec![0; 70_000]),
        // A response with an id of its own.
        (200, dns, vec![0, 1, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let reply = DnsReply::Http(status, media_type, body.clone());
            fixture.server.set(HOST_NAME, kind, reply);
        }
        assert_eq!(
            fixture.addresses().await,
            Err("failure"),
            "{status} {media_type}"
        );
    }
    fixture.server.set_addresses(HOST_NAME, &[ip("8.8.8.8")]);
    assert_eq!(fixture.addresses().await, Ok(1));
}

/// A server over TLS that runs `behave` on every connection.
async fn misbehaving<F>(
    tasks: &mut JoinSet<()>,
    behave: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
) -> HickoryResolver
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let authority = Authority::new().unwrap();
    let acceptor = acceptor(&authority, "tls", SERVER_NAME, false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            connections.spawn(behave(stream));
        }
    });
    resolver("tls", address, "#dns.example.net", &authority)
}

async fn read_message(stream: &mut TlsStream<TcpStream>) -> std::io::Result<Message> {
    let mut packet = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut packet).await?;
    Message::from_vec(&packet).map_err(std::io::Error::other)
}

/// The response with one address, after its length.
fn framed_response(query: &Message) -> Vec<u8> {
    let mut message = Message::response(query.id, query.op_code);
    message.add_query(query.queries[0].clone());
    let owner = Name::from_ascii(format!("{HOST_NAME}.")).unwrap();
    let address = match query.queries[0].query_type() {
        RecordType::A => ip("8.8.8.8"),
        _ => ip("2606:4700::1111"),
    };
    let (_, data) = address_record(HOST_NAME, address);
    message.add_answer(Record::from_rdata(owner, 60, data));
    let bytes = message.to_vec().unwrap();
    let length = u16::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes(), bytes.as_slice()].concat()
}

#[tokio::test]
async fn d_10_responses_over_tls_may_come_in_any_order_and_in_any_pieces() {
    let mut tasks = JoinSet::new();
    let resolver = misbehaving(&mut tasks, |mut stream| async move {
        loop {
            let first = read_message(&mut stream).await?;
            let second = read_message(&mut stream).await?;
            for query in [second, first] {
                for byte in framed_response(&query) {
                    stream.write_all(&[byte]).await?;
                    stream.flush().await?;
                }
            }
        }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(addresses(&resolver).await, Ok(2));
    }
}

#[tokio::test]
async fn d_10_a_flood_of_messages_that_respond_to_nothing_ends_the_connection() {
    let mut tasks = JoinSet::new();
    let resolver = misbehaving(&mut tasks, |mut stream| async move {
        let mut query = read_message(&mut stream).await?;
        query.metadata.id ^= 0x8000;
        let flood = framed_response(&query).repeat(64);
        // Ends with an error once the resolver has closed the connection.
        loop {
            stream.write_all(&flood).await?;
        }
    })
    .await;
    assert_eq!(addresses(&resolver).await, Err("failure"));
}

#[tokio::test]
async fn d_10_a_message_that_breaks_off_or_is_too_short_is_a_failure() {
    for bytes in [
        b"".as_slice(),
        b"\x01",
        b"\0\0",
        b"\0\x01\0",
        b"\xff\xffonly a part of it",
    ] {
        let mut tasks = JoinSet::new();
        let resolver = misbehaving(&mut tasks, move |mut stream| async move {
            read_message(&mut stream).await?;
            stream.write_all(bytes).await?;
            stream.shutdown().await
        })
        .await;
        assert_eq!(
            addresses(&resolver).await,
            Err("failure"),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[tokio::test]
async fn d_10_a_server_without_a_handshake_ends_the_lookup_with_the_dns_phase() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let authority = Authority::new().unwrap();
    let servers = parse_servers([format!("tls://{address}#{SERVER_NAME}").as_str()]).unwrap();
    let phase = Duration::from_millis(300);
    let resolver = HickoryResolver::with_trust(&servers, phase, Some(&authority.pem())).unwrap();
    assert_eq!(addresses(&resolver).await, Err("timeout"));
}

#[test]
fn d_2_encrypted_servers_are_written_with_address_and_certificate_name() {
    for (item, shown) in [
        ("tls://9.9.9.9#dns.quad9.net", "tls://9.9.9.9:853"),
        ("tls://9.9.9.9:8853", "tls://9.9.9.9:8853"),
        (
            "tls://[2620:fe::fe]#dns.quad9.net",
            "tls://[2620:fe::fe]:853",
        ),
        ("https://1.1.1.1", "https://1.1.1.1:443/dns-query"),
        (
            "https://1.1.1.1/dns-query#cloudflare-dns.com",
            "https://1.1.1.1:443/dns-query",
        ),
        (
            "https://[2001:db8::1]:8443/resolve?x=1#192.0.2.1",
            "https://[2001:db8::1]:8443/resolve?x=1",
        ),
    ] {
        let servers = parse_servers([item]).unwrap();
        assert_eq!(servers[0].to_string(), shown);
        assert!(servers[0].is_encrypted());
    }
    for wrong in [
        "tls://dns.quad9.net",
        "https://dns.quad9.net/dns-query",
        "https://dns.quad9.net/dns-query#9.9.9.9",
        "tls://9.9.9.9/dns-query",
        "tls://9.9.9.9:0",
        "tls://9.9.9.9:x",
        "tls://2620:fe::fe",
        "tls://9.9.9.9#",
        "tls://9.9.9.9#dns quad9",
        "tls://user@9.9.9.9",
        "https://1.1.1.1/dns query",
        "https://1.1.1.1/{?dns}",
        "quic://9.9.9.9",
        "udp://9.9.9.9",
        "tls://",
        "://9.9.9.9",
    ] {
        assert!(
            matches!(parse_servers([wrong]), Err(ServersError::Invalid(_))),
            "{wrong}"
        );
    }
}

#[test]
fn d_2_encrypted_and_plain_servers_are_not_used_together() {
    let encrypted = "tls://9.9.9.9#dns.quad9.net";
    for items in [[encrypted, "192.0.2.53"], ["192.0.2.53", encrypted]] {
        assert!(matches!(parse_servers(items), Err(ServersError::Mixed)));
    }
    assert!(parse_servers([encrypted, "https://1.1.1.1/dns-query"]).is_ok());
}
