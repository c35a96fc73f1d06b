//! Reads the TLS `ClientHello` of a tunnel (RFC 8446, section 4.1.2): which server name it asks for, and whether it
//! hides another one.
//!
//! Pure. It decides nothing and decrypts nothing; the bytes are passed on as they came. Anything that a TLS server
//! would not accept as the first flight of a client is refused, so that server and proxy read the same name.

/// Most bytes of the records of a `ClientHello`, their headers included. Those of browsers have less than 3 KiB.
pub const MAX_HELLO_BYTES: usize = 16 * 1024;

/// Content type of a handshake record (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// Most bytes of the fragment of a record (RFC 8446, section 5.1).
const MAX_FRAGMENT_BYTES: usize = 1 << 14;
/// Type of the handshake message (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
/// Extension `application_layer_protocol_negotiation` (RFC 7301, section 3.1).
const ALPN_EXTENSION: u16 = 16;
/// The protocols that an intercepted tunnel carries, as registered for ALPN.
pub const HTTP1_PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
/// Extension `server_name` (RFC 6066, section 3).
const SERVER_NAME_EXTENSION: u16 = 0;
/// Extension `encrypted_client_hello` (RFC 9849).
const ECH_EXTENSION: u16 = 0xfe0d;
/// `encrypted_server_name`, the predecessor of ECH in its early drafts.
const ESNI_EXTENSION: u16 = 0xffce;
/// Length of `Random`.
const RANDOM_BYTES: usize = 32;
/// Longest host name in the extension.
const MAX_NAME_BYTES: usize = 255;

/// The fields of a `ClientHello` that name the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The host name of the `server_name` extension, as written.
    pub server_name: Option<String>,
    /// Whether it has an encrypted `ClientHello`, which may name another server. Browsers send a meaningless one as
    /// well (GREASE); the two look the same from outside.
    pub has_encrypted_name: bool,
    /// Whether it names application protocols, and none of [`HTTP1_PROTOCOLS`] is among them.
    pub excludes_http1: bool,
}

/// The reason why the first bytes of a tunnel are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first record is not one of a TLS handshake.
    #[error("the tunnel does not begin with a TLS handshake")]
    NotTls,
    /// The message is not a `ClientHello`, or not a valid one.
    #[error("the ClientHello is not valid")]
    Malformed,
    /// More than [`MAX_HELLO_BYTES`].
    #[error("the ClientHello is too long")]
    TooLong,
}

/// Reads the first bytes of a tunnel; `None` while the `ClientHello` is not complete. Bytes after its last record are
/// ignored: early data may follow.
///
/// # Errors
///
/// [`HelloError`], as soon as it is certain.
pub fn read_client_hello(bytes: &[u8]) -> Result<Option<ClientHello>, HelloError> {
    // The result must not depend on how many bytes one read returned.
    let bytes = bytes.get(..MAX_HELLO_BYTES).unwrap_or(bytes);
    let mut rest = FieldReader(bytes);
    let mut message = Vec::new();
    loop {
        let Some(fragment) = next_fragment(&mut rest)? else {
            // Every fragment was complete, so the message needs more bytes than the limit.
            if bytes.len() >= MAX_HELLO_BYTES {
                return Err(HelloError::TooLong);
            }
            return Ok(None);
        };
        message.extend_from_slice(fragment);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(HelloError::Malformed);
        }
        let Some(length) = message.get(1..4).map(be_number) else {
            continue;
        };
        if length > MAX_HELLO_BYTES {
            return Err(HelloError::TooLong);
        }
        match message.len().checked_sub(4 + length) {
            None => {}
            Some(0) => {
                let body = message.get(4..).unwrap_or_default();
                return parse_body(body).map(Some).ok_or(HelloError::Malformed);
            }
            // The client may add nothing to this record before the server's response.
            Some(_) => return Err(HelloError::Malformed),
        }
    }
}

/// Takes the fragment of the next handshake record; `None` while it is not complete.
fn next_fragment<'a>(rest: &mut FieldReader<'a>) -> Result<Option<&'a [u8]>, HelloError> {
    // Each byte is checked as soon as it arrives, so that clients of other protocols are refused without a wait.
    match rest.0.first() {
        None => return Ok(None),
        Some(&HANDSHAKE_RECORD) => {}
        Some(_) => return Err(HelloError::NotTls),
    }
    if rest.0.get(1).is_some_and(|major| *major != 3) {
        return Err(HelloError::NotTls);
    }
    let Some(length) = rest.0.get(3..5).map(be_number) else {
        return Ok(None);
    };
    if length == 0 || length > MAX_FRAGMENT_BYTES {
        return Err(HelloError::Malformed);
    }
    let Some(fragment) = rest.0.get(5..5 + length) else {
        return Ok(None);
    };
    rest.0 = rest.0.get(5 + length..).unwrap_or_default();
    Ok(Some(fragment))
}

/// Reads the message without its header; `None` when it is not valid.
fn parse_body(body: &[u8]) -> Option<ClientHello> {
    let mut reader = FieldReader(body);
    // This is the legacy version, which is 3.x in every version of TLS.
    if reader.take(2)?.first() != Some(&3) {
        return None;
    }
    reader.take(RANDOM_BYTES)?;
    let session_id = reader.vector(1)?;
    let suites = reader.vector(2)?;
    let compressions = reader.vector(1)?;
    let is_valid = session_id.len() <= 32
        && suites.len() >= 2
        && suites.len().is_multiple_of(2)
        && !compressions.is_empty();
    if !is_valid {
        return None;
    }
    if reader.0.is_empty() {
        // Before TLS 1.2, extensions may be missing altogether.
        return Some(ClientHello::default());
    }
    let extensions = reader.vector(2)?;
    reader.0.is_empty().then(|| parse_extensions(extensions))?
}

fn parse_extensions(extensions: &[u8]) -> Option<ClientHello> {
    let mut reader = FieldReader(extensions);
    let mut hello = ClientHello::default();
    let mut kinds = Vec::new();
    while !reader.0.is_empty() {
        let kind = u16::try_from(be_number(reader.take(2)?)).ok()?;
        let content = reader.vector(2)?;
        match kind {
            SERVER_NAME_EXTENSION => hello.server_name = Some(parse_server_name(content)?),
            ALPN_EXTENSION => hello.excludes_http1 = !offers_http1(content)?,
            ECH_EXTENSION | ESNI_EXTENSION => hello.has_encrypted_name = true,
            _ => {}
        }
        kinds.push(kind);
    }
    // Of two equal extensions, one server reads the first and another the last (RFC 8446, section 4.2).
    kinds.sort_unstable();
    let has_twins = kinds.windows(2).any(|pair| pair.first() == pair.last());
    (!has_twins).then_some(hello)
}

/// Reads the list of names, which has exactly one host name (RFC 6066, section 3).
fn parse_server_name(content: &[u8]) -> Option<String> {
    let mut reader = FieldReader(content);
    let list = reader.vector(2)?;
    let mut names = FieldReader(list);
    let kind = names.take(1)?;
    let name = names.vector(2)?;
    let is_single = reader.0.is_empty() && names.0.is_empty() && kind == [0];
    if !is_single || name.is_empty() || name.len() > MAX_NAME_BYTES {
        return None;
    }
    // ASCII without NUL and controls: a server in another language may end the text there.
    name.iter()
        .all(u8::is_ascii_graphic)
        .then(|| String::from_utf8_lossy(name).into_owned())
}

/// Whether a list of application protocols (RFC 7301, section 3.1) has one of [`HTTP1_PROTOCOLS`]; `None` for a list
/// that is not valid.
fn offers_http1(content: &[u8]) -> Option<bool> {
    let mut reader = FieldReader(content);
    let mut names = FieldReader(reader.vector(2)?);
    let mut has_http1 = false;
    if !reader.0.is_empty() || names.0.is_empty() {
        return None;
    }
    while !names.0.is_empty() {
        let name = names.vector(1)?;
        if name.is_empty() {
            return None;
        }
        has_http1 |= HTTP1_PROTOCOLS.contains(&name);
    }
    Some(has_http1)
}

/// The bytes that are not read yet.
struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes a vector whose length has this many bytes.
    fn vector(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = be_number(self.take(length_bytes)?);
        self.take(length)
    }
}

/// A number in network byte order, of at most three bytes here.
fn be_number(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |number, byte| (number << 8) | usize::from(*byte))
}

#[cfg(test)]
pub(super) mod tests;
