//! Reads the messages of a SOCKS5 client (RFC 1928) with a user name and a password (RFC 1929).
//!
//! Pure, each message from the bytes so far. Of the commands only `CONNECT` exists; the other two would open a port of
//! the proxy. A name is not resolved here, but later like every other target.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// First byte of every message of version 5. No HTTP request begins with it.
pub const SOCKS_VERSION: u8 = 5;
/// The method "username/password" (RFC 1928, section 3).
pub const PASSWORD_METHOD: u8 = 2;
/// The method "no authentication required".
pub const NO_AUTHENTICATION_METHOD: u8 = 0;
/// No method of the client is acceptable.
pub const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// Version of the negotiation of RFC 1929.
pub const PASSWORD_VERSION: u8 = 1;

/// Code of the command `CONNECT` (RFC 1928, section 4).
const CONNECT_COMMAND: u8 = 1;

/// The reason why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocksError {
    /// Another version, or bytes that are not of this protocol.
    #[error("the message is not one of SOCKS5")]
    Malformed,
    /// The client does not offer a user name and password.
    #[error("the client offers no user name and password")]
    NoPassword,
    /// `BIND` or `UDP ASSOCIATE`.
    #[error("the command is not supported")]
    Command,
    /// The address is not an IPv4 address, a name or an IPv6 address.
    #[error("the type of address is not supported")]
    AddressType,
}

/// A message and the number of its bytes.
pub type SocksMessage<T> = Result<Option<(T, usize)>, SocksError>;

/// Replies to a request (RFC 1928, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SocksReply {
    /// Reply 0: the target is connected.
    Succeeded = 0,
    /// Reply 1: any failure without a code of its own.
    Failed = 1,
    /// Reply 2: the policy refused the connection.
    NotAllowed = 2,
    /// The host cannot be reached or found.
    HostUnreachable = 4,
    /// The target refuses connections.
    Refused = 5,
    /// The request reached a timeout.
    Expired = 6,
    /// The command is not supported.
    Command = 7,
    /// The type of address is not supported.
    AddressType = 8,
}

impl SocksReply {
    /// The message. Its address is always 0.0.0.0:0: the client learns no address of this machine (I-8).
    pub const fn message(self) -> [u8; 10] {
        [SOCKS_VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Reads the greeting and returns the method for the client: "username/password", or "no authentication required" where
/// the client offers no password and is identified already. `None` while it is not complete.
///
/// # Errors
///
/// [`SocksError::Malformed`] and [`SocksError::NoPassword`].
pub fn read_greeting(bytes: &[u8], is_identified: bool) -> SocksMessage<u8> {
    check_version(bytes, SOCKS_VERSION)?;
    let Some(count) = bytes.get(1).copied().map(usize::from) else {
        return Ok(None);
    };
    let Some(methods) = bytes.get(2..2 + count) else {
        return Ok(None);
    };
    let method = if methods.contains(&PASSWORD_METHOD) {
        PASSWORD_METHOD
    } else if is_identified && methods.contains(&NO_AUTHENTICATION_METHOD) {
        NO_AUTHENTICATION_METHOD
    } else {
        return Err(SocksError::NoPassword);
    };
    Ok(Some((method, 2 + count)))
}

/// Reads user name and password and returns the password; the user name may be any. `None` while it is not complete.
///
/// # Errors
///
/// [`SocksError::Malformed`].
pub fn read_password(bytes: &[u8]) -> SocksMessage<Vec<u8>> {
    check_version(bytes, PASSWORD_VERSION)?;
    let Some(user_length) = bytes.get(1).copied().map(usize::from) else {
        return Ok(None);
    };
    let start = 2 + user_length + 1;
    let Some(length) = bytes.get(start - 1).copied().map(usize::from) else {
        return Ok(None);
    };
    let password = bytes.get(start..start + length);
    Ok(password.map(|password| (password.to_vec(), start + length)))
}

/// Reads the request and returns its target as `host:port`; `None` while it is not complete.
///
/// # Errors
///
/// [`SocksError`], except [`SocksError::NoPassword`].
pub fn read_request(bytes: &[u8]) -> SocksMessage<String> {
    check_version(bytes, SOCKS_VERSION)?;
    let Some(&[command, reserved, kind]) = bytes.get(1..4) else {
        return Ok(None);
    };
    if reserved != 0 {
        return Err(SocksError::Malformed);
    }
    if command != CONNECT_COMMAND {
        return Err(SocksError::Command);
    }
    let (address, length) = match kind {
        1 => (
            address_text::<4>(bytes, |octets| Ipv4Addr::from(octets).to_string()),
            4,
        ),
        4 => (
            address_text::<16>(bytes, |octets| format!("[{}]", Ipv6Addr::from(octets))),
            16,
        ),
        3 => match read_name(bytes)? {
            Some((name, length)) => (Some(name), length),
            None => return Ok(None),
        },
        _ => return Err(SocksError::AddressType),
    };
    let port = bytes.get(4 + length..4 + length + 2);
    let (Some(mut target), Some(&[high, low])) = (address, port) else {
        return Ok(None);
    };
    // Writing to a string cannot fail.
    let _ = write!(target, ":{}", u16::from_be_bytes([high, low]));
    Ok(Some((target, 4 + length + 2)))
}

fn address_text<const N: usize>(bytes: &[u8], text: fn([u8; N]) -> String) -> Option<String> {
    let octets: [u8; N] = bytes.get(4..4 + N)?.try_into().ok()?;
    Some(text(octets))
}

/// The name in a request, and the number of bytes of the name and its length byte together.
fn read_name(bytes: &[u8]) -> Result<Option<(String, usize)>, SocksError> {
    let Some(length) = bytes.get(4).copied().map(usize::from) else {
        return Ok(None);
    };
    let Some(name) = bytes.get(5..5 + length) else {
        return Ok(None);
    };
    // Colons and brackets would become part of an authority: a name has none.
    let is_name = !name.is_empty()
        && name
            .iter()
            .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b':' | b'[' | b']'));
    if !is_name {
        return Err(SocksError::Malformed);
    }
    Ok(Some((
        String::from_utf8_lossy(name).into_owned(),
        1 + length,
    )))
}

fn check_version(bytes: &[u8], expected: u8) -> Result<(), SocksError> {
    match bytes.first() {
        Some(version) if *version != expected => Err(SocksError::Malformed),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, kind][..], address, &port.to_be_bytes()].concat()
    }

    fn name(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
    }

    #[test]
    fn the_three_messages_are_read_with_their_lengths() {
        assert_eq!(read_greeting(&[5, 2, 0, 2, 9], false), Ok(Some((2, 4))));
        assert_eq!(read_greeting(&[5, 2, 0, 2, 9], true), Ok(Some((2, 4))));
        assert_eq!(read_greeting(&[5, 1, 0, 9], true), Ok(Some((0, 3))));
        assert_eq!(
            read_password(b"\x01\x01u\x05tokenrest"),
            Ok(Some((b"token".to_vec(), 9)))
        );
        for (bytes, target) in [
            (request(1, &[8, 8, 8, 8], 443), "8.8.8.8:443"),
            (
                request(3, &name("files.example.org"), 443),
                "files.example.org:443",
            ),
            (request(4, &Ipv6Addr::LOCALHOST.octets(), 80), "[::1]:80"),
        ] {
            let (read, length) = read_request(&[&bytes[..], b"rest"].concat())
                .unwrap()
                .unwrap();
            assert_eq!((read.as_str(), length), (target, bytes.len()));
        }
    }

    #[test]
    fn a_message_that_is_not_complete_waits_for_more() {
        let bytes = request(3, &name("files.example.org"), 443);
        for length in 0..bytes.len() {
            assert_eq!(read_request(&bytes[..length]), Ok(None));
        }
        for length in 0..9 {
            assert_eq!(read_password(&b"\x01\x01u\x05token"[..length]), Ok(None));
        }
        for length in 0..4 {
            assert_eq!(read_greeting(&[5, 2, 0, 2][..length], false), Ok(None));
        }
    }

    #[test]
    fn everything_but_connect_with_a_password_is_refused() {
        assert_eq!(
            read_greeting(&[5, 1, 0], false),
            Err(SocksError::NoPassword)
        );
        assert_eq!(read_greeting(&[5, 0], true), Err(SocksError::NoPassword));
        assert_eq!(read_greeting(&[4, 1], false), Err(SocksError::Malformed));
        assert_eq!(read_password(&[5]), Err(SocksError::Malformed));
        for (bytes, expected) in [
            (&[4, 1, 0, 1][..], SocksError::Malformed),
            (&[5, 1, 1, 1], SocksError::Malformed),
            (&[5, 2, 0, 1], SocksError::Command),
            (&[5, 3, 0, 1], SocksError::Command),
            (&[5, 1, 0, 2], SocksError::AddressType),
            (&[5, 1, 0, 3, 0, 1, 187], SocksError::Malformed),
            (
                &[5, 1, 0, 3, 3, b':', b':', b'1', 1, 187],
                SocksError::Malformed,
            ),
            (&[5, 1, 0, 3, 2, b'a', 0, 1, 187], SocksError::Malformed),
        ] {
            assert_eq!(read_request(bytes), Err(expected), "{bytes:?}");
        }
    }
}
