//! Reads the head of a proxy request strictly (RFC 9112): a head that can be read in two ways is refused.
//!
//! `httparse` splits the head. Before it sees the text, everything about which it is lenient is refused: a bare CR or
//! LF, folded lines, and everything that two recipients could frame differently (`Transfer-Encoding` with
//! `Content-Length`, several lengths, other codings than `chunked`). Pure: the target is still text here, and its host
//! is not judged.

use std::borrow::Cow;

use dray_guard::ruleset::overrides::METHOD_OVERRIDE_FIELDS;
use dray_guard::{CanonicalUrl, Code};
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method};

/// Length of a WebSocket key: 16 bytes in base64 (RFC 6455, section 4.1).
const WEBSOCKET_KEY_LENGTH: usize = 24;
/// Most bytes of a request head, the empty line included.
pub const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Most header fields of a request.
pub const MAX_FIELDS: usize = 100;
/// Largest declared length: what a server can hold in a signed number.
const MAX_LENGTH: u64 = i64::MAX.unsigned_abs();

/// The methods that fields name in place of that of the request line, in capitals, as most servers read them.
pub fn overridden_methods(fields: &HeaderMap) -> impl Iterator<Item = String> {
    let named = fields.iter().filter(|(name, _)| {
        // CGI and what follows it give both characters the same variable (RFC 3875, section 4.1.18).
        let name = name.as_str().replace('_', "-");
        METHOD_OVERRIDE_FIELDS.contains(&name.as_str())
    });
    named.map(|(_, value)| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.trim().to_ascii_uppercase()
    })
}

/// A request to the proxy, as far as its head says.
#[derive(Clone, Debug)]
pub struct ProxyRequest {
    /// The method; `CONNECT` exactly for [`RequestTarget::Authority`].
    pub method: Method,
    /// The requested target, as the client wrote it.
    pub target: RequestTarget,
    /// Whether the request says HTTP/1.0.
    pub is_http_10: bool,
    /// How the body of the request ends.
    pub framing: RequestFraming,
    /// Every field, hop-by-hop ones included.
    pub fields: HeaderMap,
}

/// The forms of a target in requests to a proxy, and inside a tunnel (RFC 9112, section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// The target of `CONNECT`, written `host:port`.
    Authority(String),
    /// The URL of a request in absolute form.
    Absolute(String),
    /// Path and query of a request inside a tunnel.
    Origin(String),
}

/// The recipient of a request, which decides the forms that its target may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRecipient {
    /// The proxy that reads it.
    Proxy,
    /// The server at the end of a tunnel.
    Server,
}

/// How the end of a request body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// The message has no body.
    Empty,
    /// The body has this many bytes.
    Length(u64),
    /// The body ends with its last chunk.
    Chunked,
}

/// The reason why a head is refused. It is not quoted to the client or in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// More than [`MAX_HEAD_BYTES`] bytes or [`MAX_FIELDS`] fields.
    #[error("the request head is too large")]
    TooLarge,
    /// A CR without LF, or an LF without CR.
    #[error("a line of the head does not end with CRLF")]
    BareLineEnd,
    /// A field that continues in the next line.
    #[error("a header field is folded")]
    Folded,
    /// The head is not a request line and fields.
    #[error("the head is not HTTP/1")]
    Syntax,
    /// Another version than 1.0 and 1.1.
    #[error("the HTTP version is not supported")]
    Version,
    /// A target in a form that its recipient does not read: to a proxy, the origin or asterisk form; inside a tunnel,
    /// another tunnel or the asterisk form.
    #[error("the request target has a form that does not belong here")]
    Target,
    /// A body whose chunks have no single reading.
    #[error("the request body is malformed")]
    Body,
    /// No `Host` in HTTP/1.1, or several.
    #[error("the request needs exactly one Host field")]
    Host,
    /// More than one reading of where the body ends.
    #[error("the length of the body is ambiguous")]
    Framing,
    /// A coding other than `chunked`.
    #[error("the transfer coding is not supported")]
    Coding,
    /// A field whose name some servers read as that of a field on which the reading of the message depends.
    #[error("the name of a header field has several readings")]
    Name,
    /// More than one `Proxy-Authorization`.
    #[error("the request has several Proxy-Authorization fields")]
    Credentials,
}

/// Whether a request head can begin with this byte: that of a token, the method (RFC 9110, section 5.6.2).
pub const fn may_begin_head(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Returns the length of the head with its empty line, once it is complete.
///
/// `searched` is the length that an earlier call has examined, so that no byte of a slow head is searched twice.
pub fn head_length(bytes: &[u8], searched: usize) -> Option<usize> {
    // The empty line may have begun in the bytes before.
    let from = searched.saturating_sub(3);
    let rest = bytes.get(from..)?;
    let end = rest.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(from + end + 4)
}

/// Checks the beginning of a head that is not complete yet, as far as [`parse_head`] would refuse every continuation:
/// a client that ends its lines with LF alone waits for a response, and would wait until the head is late.
///
/// `searched` is that of [`head_length`].
///
/// # Errors
///
/// [`HeadError`] for a line end that is not CRLF, and for a folded field.
pub fn check_beginning(bytes: &[u8], searched: usize) -> Result<(), HeadError> {
    // The two bytes before may be a line end whose continuation is new.
    check_line_ends(bytes, searched.saturating_sub(2))
}

/// Reads a complete head to `recipient`, the empty line included.
///
/// # Errors
///
/// [`HeadError`] for the first rule that it breaks.
pub fn parse_head(head: &[u8], recipient: RequestRecipient) -> Result<ProxyRequest, HeadError> {
    if head.len() > MAX_HEAD_BYTES {
        return Err(HeadError::TooLarge);
    }
    check_line_ends(head, 0)?;
    // `httparse` passes over empty lines before the request line.
    if head.starts_with(b"\r") {
        return Err(HeadError::Syntax);
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(httparse::Error::Version) => return Err(HeadError::Version),
        Ok(_) | Err(_) => return Err(HeadError::Syntax),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Syntax);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Syntax)?;
    let target = request_target(&method, target, recipient)?;
    let fields = field_map(parsed.headers)?;
    let is_http_10 = minor == 0;
    let hosts = fields.get_all(HOST).iter().count();
    // HTTP/1.0 has no such field, and some clients still use it for tunnels.
    if hosts > 1 || (hosts == 0 && !is_http_10) {
        return Err(HeadError::Host);
    }
    if fields.get_all(PROXY_AUTHORIZATION).iter().count() > 1 {
        return Err(HeadError::Credentials);
    }
    let framing = request_framing(&method, is_http_10, &fields)?;
    Ok(ProxyRequest {
        method,
        target,
        is_http_10,
        framing,
        fields,
    })
}

impl ProxyRequest {
    /// Reads the target as a canonical URL. `is_plain_port` says for which ports a tunnel need not carry TLS.
    ///
    /// # Errors
    ///
    /// Those of [`CanonicalUrl::parse`]; `unsupported_scheme` for a URL that is not `http`: https goes through a
    /// tunnel.
    pub fn url(&self, is_plain_port: impl FnOnce(u16) -> bool) -> Result<CanonicalUrl, Code> {
        match &self.target {
            RequestTarget::Authority(authority) => tunnel_url(authority, is_plain_port),
            RequestTarget::Absolute(text) => {
                let url = CanonicalUrl::parse(&encode_query(text))?;
                if url.https() {
                    return Err(Code::UnsupportedScheme);
                }
                Ok(url)
            }
            // A target in origin form is valid only inside a tunnel, whose URL it continues.
            RequestTarget::Origin(_) => Err(Code::InvalidUrl),
        }
    }

    /// Reads the target of a request inside a tunnel to the host and port of `tunnel`.
    ///
    /// # Errors
    ///
    /// Those of [`CanonicalUrl::parse`]; `None` for a URL of another host, port or scheme.
    pub fn url_in_tunnel(&self, tunnel: &CanonicalUrl) -> Result<CanonicalUrl, Option<Code>> {
        let url = match &self.target {
            RequestTarget::Origin(path) => {
                // The URL of a tunnel has no path but `/`.
                let base = tunnel.to_string();
                let text = format!("{}{path}", base.trim_end_matches('/'));
                CanonicalUrl::parse(&encode_query(&text))
            }
            RequestTarget::Absolute(text) => CanonicalUrl::parse(&encode_query(text)),
            RequestTarget::Authority(_) => Err(Code::InvalidUrl),
        };
        let url = url.map_err(Some)?;
        let is_same = url.host() == tunnel.host()
            && url.port() == tunnel.port()
            && url.https() == tunnel.https();
        if is_same { Ok(url) } else { Err(None) }
    }

    /// Returns whether the request asks for WebSocket (RFC 6455, section 4.2.1).
    pub fn wants_websocket(&self) -> bool {
        let mut upgrades = self.fields.get_all(UPGRADE).iter();
        upgrades.any(|value| {
            let mut protocols = value.as_bytes().split(|byte| *byte == b',');
            protocols.any(|protocol| protocol.trim_ascii().eq_ignore_ascii_case(b"websocket"))
        })
    }

    /// Returns whether it is a complete handshake of WebSocket with one reading (RFC 6455, section 4.2.1): another
    /// upgrade beside it, or content, could begin a protocol that the policy does not see.
    pub fn is_websocket_handshake(&self) -> bool {
        let only = |name: &str| {
            let mut values = self.fields.get_all(name).iter();
            let value = values.next()?.to_str().ok()?;
            values.next().is_none().then_some(value.trim())
        };
        let is_upgrade = |token: &str| token.trim().eq_ignore_ascii_case("upgrade");
        self.method == Method::GET
            && !self.is_http_10
            && self.framing == RequestFraming::Empty
            && only("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
            && only("connection").is_some_and(|tokens| tokens.split(',').any(is_upgrade))
            && only("sec-websocket-version") == Some("13")
            && only("sec-websocket-key").is_some_and(|key| key.len() == WEBSOCKET_KEY_LENGTH)
    }

    /// Returns whether bytes follow the head that belong to the request.
    pub const fn has_body(&self) -> bool {
        !matches!(
            self.framing,
            RequestFraming::Empty | RequestFraming::Length(0)
        )
    }

    /// Returns whether the `Host` field, where there is one, names the target.
    pub fn has_fitting_host(&self, url: &CanonicalUrl) -> bool {
        let Some(field) = self.fields.get(HOST) else {
            return true;
        };
        let Ok(field) = field.to_str().map(str::trim) else {
            return false;
        };
        // For a tunnel some clients (undici, websockets) write the field of the request inside, without the port of
        // plain http. The target names the port.
        let is_tunnel = matches!(self.target, RequestTarget::Authority(_));
        url.is_host_field(field)
            || (is_tunnel && url.is_host_field(&format!("{field}:{}", url.port())))
    }
}

/// Encodes a backslash in the query of a URL. Browsers and curl send it as it is, and the guard refuses it everywhere
/// (U-2), although no parser takes it for a separator there (WHATWG URL, query state).
fn encode_query(url: &str) -> Cow<'_, str> {
    match url.split_once('?') {
        Some((before, query)) if query.contains('\\') && !before.contains('#') => {
            format!("{before}?{}", query.replace('\\', "%5C")).into()
        }
        _ => url.into(),
    }
}

/// Reads the target of a tunnel. The scheme follows from its port: http where a tunnel need not carry TLS.
///
/// # Errors
///
/// Those of [`CanonicalUrl::of_authority`].
pub fn tunnel_url(
    authority: &str,
    is_plain_port: impl FnOnce(u16) -> bool,
) -> Result<CanonicalUrl, Code> {
    let url = CanonicalUrl::of_authority(authority, true)?;
    if is_plain_port(url.port()) {
        return CanonicalUrl::of_authority(authority, false);
    }
    Ok(url)
}

/// Refuses line ends that only some recipients accept, and fields that continue in the next line, in a head or in its
/// beginning, from the byte `from` on.
fn check_line_ends(head: &[u8], from: usize) -> Result<(), HeadError> {
    let before = from.checked_sub(1).and_then(|index| head.get(index));
    let mut previous = before.copied().unwrap_or_default();
    for (index, byte) in head.iter().enumerate().skip(from) {
        let next = head.get(index + 1).copied();
        match byte {
            // The last byte of a beginning has no next one yet. A complete head ends with a line end.
            b'\r' if next.is_some_and(|next| next != b'\n') => return Err(HeadError::BareLineEnd),
            b'\n' if previous != b'\r' => return Err(HeadError::BareLineEnd),
            b'\n' if matches!(next, Some(b' ' | b'\t')) => return Err(HeadError::Folded),
            _ => {}
        }
        previous = *byte;
    }
    Ok(())
}

fn request_target(
    method: &Method,
    target: &str,
    recipient: RequestRecipient,
) -> Result<RequestTarget, HeadError> {
    let is_origin = target.starts_with('/');
    let is_absolute = !is_origin && target.contains("://");
    match recipient {
        RequestRecipient::Proxy if method == Method::CONNECT => {
            Ok(RequestTarget::Authority(target.to_owned()))
        }
        // Servers accept the absolute form too (RFC 9112, section 3.2.2).
        RequestRecipient::Server if method == Method::CONNECT => Err(HeadError::Target),
        RequestRecipient::Server if is_origin => Ok(RequestTarget::Origin(target.to_owned())),
        _ if is_absolute => Ok(RequestTarget::Absolute(target.to_owned())),
        RequestRecipient::Proxy | RequestRecipient::Server => Err(HeadError::Target),
    }
}

fn field_map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, HeadError> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Syntax)?;
        if is_read_as_framing(&name) {
            return Err(HeadError::Name);
        }
        let value = HeaderValue::from_bytes(field.value).map_err(|_| HeadError::Syntax)?;
        map.append(name, value);
    }
    Ok(map)
}

/// Whether a server may take a field for one that frames the request or names its recipient. Such a server reads fields
/// as CGI variables, in which `_` stands for `-` (RFC 3875, section 4.1.18).
fn is_read_as_framing(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.contains('_')
        && [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING]
            .iter()
            .any(|field| name.replace('_', "-").trim_matches('-') == field.as_str())
}

/// RFC 9112, section 6.3, without its repairs: two recipients may repair a message differently.
fn request_framing(
    method: &Method,
    is_http_10: bool,
    fields: &HeaderMap,
) -> Result<RequestFraming, HeadError> {
    let codings: Vec<_> = fields.get_all(TRANSFER_ENCODING).iter().collect();
    let lengths: Vec<_> = fields.get_all(CONTENT_LENGTH).iter().collect();
    // A request for a tunnel has no content; what follows it belongs to the tunnel. Windows says so with a zero.
    if method == Method::CONNECT {
        let is_empty = match lengths.as_slice() {
            [] => true,
            [length] => length.as_bytes() == b"0",
            _ => false,
        };
        return if is_empty && codings.is_empty() {
            Ok(RequestFraming::Empty)
        } else {
            Err(HeadError::Framing)
        };
    }
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(RequestFraming::Empty),
        ([], [length]) => parse_length(length.as_bytes()).ok_or(HeadError::Framing),
        ([coding], []) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") && !is_http_10 => {
            Ok(RequestFraming::Chunked)
        }
        ([_], []) => Err(HeadError::Coding),
        _ => Err(HeadError::Framing),
    }
}

/// Reads a decimal number without sign, blank, list or overflow.
fn parse_length(text: &[u8]) -> Option<RequestFraming> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = std::str::from_utf8(text).ok()?.parse().ok()?;
    (length <= MAX_LENGTH).then_some(RequestFraming::Length(length))
}

#[cfg(test)]
mod tests;
