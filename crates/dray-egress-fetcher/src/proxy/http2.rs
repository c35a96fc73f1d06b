//! HTTP/2 with clients of the proxy (RFC 9113): a connection carries several streams, and each stream is served as if
//! it had come over HTTP/1.1 on a connection of its own.

#[cfg(feature = "service")]
mod connection;
mod head;
#[cfg(feature = "service")]
mod places;
pub mod stream;
mod tunnel;

#[cfg(feature = "service")]
pub(super) use places::{StreamSlot, StreamSlots};

/// The name of HTTP/2 in TLS handshakes (RFC 9113, section 3.1).
#[cfg(feature = "service")]
pub(super) const HTTP2_PROTOCOL: &[u8] = b"h2";
