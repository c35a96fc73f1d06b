//! Tests with hellos of rustls, and with hellos that two servers would read differently.

use std::sync::Arc;

use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// The first flight of a client of rustls that wants `name`.
fn client_flight(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut flight = Vec::new();
    client.write_tls(&mut flight).unwrap();
    flight
}

/// The name that a server of rustls reads.
fn server_reads(flight: &[u8]) -> Option<String> {
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut &*flight).unwrap();
    let accepted = acceptor.accept().ok().flatten().unwrap();
    accepted.client_hello().server_name().map(ToOwned::to_owned)
}

/// A hello with these extensions, in one record.
pub(in crate::proxy) fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    records(&message(extensions), MAX_FRAGMENT_BYTES)
}

fn message(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend([0, 2, 0x13, 1, 1, 0]);
    let mut all = Vec::new();
    for (kind, content) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        all.extend(*content);
    }
    body.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
    body.extend(all);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO][..], &length[1..], &body].concat()
}

fn records(message: &[u8], fragment: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in message.chunks(fragment) {
        bytes.extend([HANDSHAKE_RECORD, 3, 1]);
        bytes.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
        bytes.extend(part);
    }
    bytes
}

pub(in crate::proxy) fn name_list(names: &[(u8, &str)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, name) in names {
        list.push(*kind);
        list.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        list.extend(name.as_bytes());
    }
    let length = u16::try_from(list.len()).unwrap().to_be_bytes();
    [&length[..], &list].concat()
}

#[test]
fn the_name_is_the_one_that_a_server_reads() {
    let flight = client_flight("files.example.org");
    let read = read_client_hello(&flight).unwrap().unwrap();
    assert_eq!(read.server_name.as_deref(), Some("files.example.org"));
    assert_eq!(read.server_name, server_reads(&flight));
    assert!(!read.has_encrypted_name);
    let address = client_flight("8.8.8.8");
    assert_eq!(
        read_client_hello(&address).unwrap().unwrap().server_name,
        None
    );
}

#[test]
fn a_hello_is_read_for_any_division_into_chunks() {
    let list = name_list(&[(0, "files.example.org")]);
    let message = message(&[(0, &list)]);
    for fragment in [1, 2, 3, 5, 40, 1000] {
        let bytes = records(&message, fragment);
        for length in 0..bytes.len() {
            assert_eq!(read_client_hello(&bytes[..length]), Ok(None));
        }
        let read = read_client_hello(&bytes).unwrap().unwrap();
        assert_eq!(read.server_name.as_deref(), Some("files.example.org"));
        // Early data in a separate record.
        let early = [&bytes[..], &[23, 3, 3, 0, 1, 0]].concat();
        assert_eq!(read_client_hello(&early), Ok(Some(read)));
    }
}

#[test]
fn application_protocols_without_http1_are_noticed() {
    let list = |names: &[&str]| {
        let mut list = Vec::new();
        for name in names {
            list.push(u8::try_from(name.len()).unwrap());
            list.extend(name.as_bytes());
        }
        let length = u16::try_from(list.len()).unwrap().to_be_bytes();
        [&length[..], &list].concat()
    };
    for (names, expected) in [
        (&["h2"][..], true),
        (&["h2", "http/1.1x"], true),
        (&["h2", "http/1.1"], false),
        (&["http/1.0"], false),
    ] {
        let hello = hello(&[(ALPN_EXTENSION, &list(names))]);
        let read = read_client_hello(&hello).unwrap().unwrap();
        assert_eq!(read.excludes_http1, expected, "{names:?}");
    }
    let unnamed = read_client_hello(&hello(&[])).unwrap().unwrap();
    assert!(!unnamed.excludes_http1);
    for content in [
        &[][..],
        &[0, 0],
        &[0, 1, 0],
        &[0, 2, 5, b'h'],
        &[0, 2, 1, b'h', 0],
    ] {
        let hello = hello(&[(ALPN_EXTENSION, content)]);
        assert_eq!(
            read_client_hello(&hello),
            Err(HelloError::Malformed),
            "{content:?}"
        );
    }
}

#[test]
fn an_encrypted_name_is_noticed() {
    let list = name_list(&[(0, "public.example.org")]);
    for kind in [ECH_EXTENSION, ESNI_EXTENSION] {
        let read = read_client_hello(&hello(&[(0, &list), (kind, &[0])]));
        assert!(read.unwrap().unwrap().has_encrypted_name);
    }
}

#[test]
fn a_hello_with_two_readings_is_refused() {
    let one = name_list(&[(0, "a.example.org")]);
    let other = name_list(&[(0, "b.example.org")]);
    let two = name_list(&[(0, "a.example.org"), (0, "b.example.org")]);
    let unknown_kind = name_list(&[(1, "a.example.org")]);
    let nul = name_list(&[(0, "a.example.org\0.evil.net")]);
    let blank = name_list(&[(0, "a.example.org ")]);
    let empty = name_list(&[(0, "")]);
    let long = name_list(&[(0, &"a".repeat(256))]);
    let mut trailing = one.clone();
    trailing.push(0);
    for extensions in [
        &[(0, &one[..]), (0, &other[..])][..],
        &[(0, &one), (13, &[]), (13, &[])],
        &[(0, &two)],
        &[(0, &unknown_kind)],
        &[(0, &nul)],
        &[(0, &blank)],
        &[(0, &empty)],
        &[(0, &long)],
        &[(0, &trailing)],
        &[(0, &[])],
    ] {
        let read = read_client_hello(&hello(extensions));
        assert_eq!(read, Err(HelloError::Malformed), "{extensions:?}");
    }
}

#[test]
fn bytes_that_are_not_a_client_hello_are_refused_at_the_first_byte() {
    for (bytes, expected) in [
        (&b"SSH-2.0-OpenSSH"[..], HelloError::NotTls),
        (b"GET / HTTP/1.1", HelloError::NotTls),
        (&[0x80, 0x2e, 1], HelloError::NotTls),
        (&[23, 3, 3], HelloError::NotTls),
        (&[22, 2], HelloError::NotTls),
        (&[22, 3, 1, 0, 0], HelloError::Malformed),
        (&[22, 3, 1, 0x40, 1], HelloError::Malformed),
        (&[22, 3, 1, 0, 1, 2], HelloError::Malformed),
        (&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff], HelloError::TooLong),
    ] {
        assert_eq!(read_client_hello(bytes), Err(expected), "{bytes:?}");
    }
    // A second message in the record of the hello.
    let mut two = message(&[]);
    two.extend([2, 0, 0, 0]);
    let read = read_client_hello(&records(&two, MAX_FRAGMENT_BYTES));
    assert_eq!(read, Err(HelloError::Malformed));
}

#[test]
fn a_hello_that_never_ends_is_refused() {
    // 1-byte records of a message that is just within the limit.
    let mut message = vec![CLIENT_HELLO, 0, 0x3f, 0];
    message.resize(4 + 0x3f00, 0);
    let bytes = records(&message, 1);
    assert_eq!(
        read_client_hello(&bytes[..MAX_HELLO_BYTES]),
        Err(HelloError::TooLong)
    );
}

#[test]
fn truncated_bodies_are_refused() {
    let list = name_list(&[(0, "files.example.org")]);
    let whole = message(&[(0, &list)]);
    for length in 4..whole.len() {
        let mut truncated = whole[..length].to_vec();
        let size = u32::try_from(length - 4).unwrap().to_be_bytes();
        truncated[1..4].copy_from_slice(&size[1..]);
        let read = read_client_hello(&records(&truncated, MAX_FRAGMENT_BYTES));
        // Cut exactly before the extensions, it is a valid hello of a version before TLS 1.2.
        let is_old = length == 4 + 2 + 32 + 1 + 4 + 2;
        assert_eq!(read.is_ok(), is_old, "{length}");
    }
}
