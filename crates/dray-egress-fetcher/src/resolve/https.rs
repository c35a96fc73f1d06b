//! DNS messages over HTTP/2 (RFC 8484): each query is one POST on a connection that all queries share.

use std::io;

use bytes::Bytes;
use h2::client::SendRequest;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, StatusCode, Uri};
use tokio::task::JoinSet;

use super::encrypted::ExchangeError;
use super::stream::restore_id;
use crate::dial::Io;

/// Media type of queries and responses (RFC 8484, section 6).
const DNS_MESSAGE: &str = "application/dns-message";
/// Largest DNS message in bytes.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// Largest header list of a response, in bytes as HTTP/2 counts them.
const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;

/// The sending end of a connection.
pub(super) struct HttpsConnection {
    sender: SendRequest<Bytes>,
    uri: Uri,
}

impl HttpsConnection {
    /// Starts HTTP/2 over a connected stream, in a task of `tasks`.
    pub(super) async fn start(
        io: Box<dyn Io>,
        uri: Uri,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            .handshake(io)
            .await
            .map_err(io::Error::other)?;
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a DNS server ended");
            }
        });
        Ok(Self { sender, uri })
    }

    /// Sends a query and waits for its response.
    pub(super) async fn exchange(&self, packet: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let mut query = packet.to_vec();
        // Equal queries are equal requests for caches on the way (RFC 8484, section 4.1).
        restore_id(&mut query, &[0, 0]);
        let request = Request::post(&self.uri)
            .header(ACCEPT, DNS_MESSAGE)
            .header(CONTENT_TYPE, DNS_MESSAGE)
            .header(CONTENT_LENGTH, query.len())
            .body(())
            .map_err(|error| ExchangeError::Response(error.to_string()))?;
        let mut sender = self.sender.clone().ready().await.map_err(to_failure)?;
        let (response, mut body) = sender.send_request(request, false).map_err(to_failure)?;
        body.send_data(query.into(), true).map_err(to_failure)?;
        let response = response.await.map_err(to_failure)?;
        let refused = |description: String| Err(ExchangeError::Response(description));
        if response.status() != StatusCode::OK {
            return refused(format!("HTTP status {}", response.status().as_u16()));
        }
        let media_type = response.headers().get(CONTENT_TYPE);
        if media_type.is_none_or(|value| value.as_bytes() != DNS_MESSAGE.as_bytes()) {
            return refused("the response is not a DNS message".to_owned());
        }
        let mut body = response.into_body();
        let mut message = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(to_failure)?;
            if message.len() + chunk.len() > MAX_MESSAGE_BYTES {
                return refused("the response is longer than a DNS message".to_owned());
            }
            message.extend_from_slice(&chunk);
            // h2 does not return capacity by itself, so the shared window of the connection would run empty.
            body.flow_control()
                .release_capacity(chunk.len())
                .map_err(to_failure)?;
        }
        if message.first_chunk() != Some(&[0, 0]) {
            return refused("a response with another id".to_owned());
        }
        restore_id(&mut message, packet);
        Ok(message)
    }
}

fn to_failure(error: h2::Error) -> ExchangeError {
    ExchangeError::Connection(io::Error::other(error))
}
