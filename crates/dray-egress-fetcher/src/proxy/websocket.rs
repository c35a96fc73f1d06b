//! WebSocket inside an intercepted tunnel (RFC 6455): the handshake is a judged request, and what follows passes
//! unread.
//!
//! Nothing of the messages is parsed. Bytes are counted and limited as in every connection, and the tunnel ends with
//! its idle time, its token and the answer that allowed it.

use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::meter::ByteCounts;
use super::refusal::ConnectionEnd;
use super::relay::relay;

/// Both connections of a request whose target agreed to WebSocket, once their heads are written.
#[derive(Debug)]
pub(super) struct PendingUpgrade {
    pub(super) client: OnUpgrade,
    pub(super) target: OnUpgrade,
}

impl PendingUpgrade {
    /// Moves messages between both ends until both have closed.
    pub(super) async fn relay_messages(self, counts: &ByteCounts) -> ConnectionEnd {
        let (Ok(client), Ok(target)) = tokio::join!(self.client, self.target) else {
            return ConnectionEnd::Broken;
        };
        // Bytes that arrived behind a head are read first.
        let (mut client, mut target) = (TokioIo::new(client), TokioIo::new(target));
        match relay(&mut client, &mut target, counts).await {
            Ok(()) => ConnectionEnd::Closed,
            Err(error) => {
                tracing::debug!(%error, "a WebSocket connection broke off");
                ConnectionEnd::Broken
            }
        }
    }
}

/// Asks for WebSocket, or agrees to it, in place of the fields for one recipient that were removed.
pub(super) fn set_upgrade(fields: &mut HeaderMap) {
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Whether the response agrees to WebSocket and to nothing else. Whether it proves that it read the key is for the
/// client to check.
pub(super) fn is_agreement(fields: &HeaderMap) -> bool {
    let mut protocols = fields.get_all(UPGRADE).iter();
    let is_websocket = protocols
        .next()
        .is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_websocket
        && protocols.next().is_none()
        // A body would have to end before the messages begin.
        && !fields.contains_key(CONTENT_LENGTH)
        && !fields.contains_key(TRANSFER_ENCODING)
}
