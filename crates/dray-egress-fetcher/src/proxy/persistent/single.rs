//! One request and its response on a separate connection, as in an intercepted tunnel. Tests and the fuzz target of
//! such responses call it; the product uses [`PersistentTarget`] itself.

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{PersistentOutcome, PersistentRequest, PersistentTarget};
use crate::dial::Io;
use crate::proxy::client::ClientStream;
use crate::proxy::meter::{ByteCounts, ByteLimits, TargetStream};
use crate::proxy::response::ResponseRules;

/// How the exchange ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The response is complete.
    Answered {
        /// Whether the client may send another request.
        keeps_client: bool,
    },
    /// The response was refused before a byte of it reached the client.
    Refused,
    /// The connection of the client ends within the response.
    Broken,
}

/// Sends `GET /` to `target`, and the response to `client`. Both are closed at the end. It has no deadline of its own.
pub async fn exchange_once<S>(target: Box<dyn Io>, client: S) -> ExchangeEnd
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let counts = ByteCounts::default();
    let stream = TargetStream::new(target, ByteLimits::WITHOUT_LIMITS, counts.clone());
    let wire = (stream.quota(), counts);
    let Ok(mut target) = PersistentTarget::start(Box::new(stream), wire).await else {
        return ExchangeEnd::Refused;
    };
    let request = PersistentRequest {
        head: Request::new(()).into_parts().0,
        body: Bytes::new(),
        rules: ResponseRules::default(),
    };
    let mut client = ClientStream::new(client);
    match target.exchange(&mut client, request, &mut None).await {
        PersistentOutcome::Answered { keeps_client, .. } => ExchangeEnd::Answered { keeps_client },
        PersistentOutcome::Refused(_) | PersistentOutcome::Unanswered { .. } => {
            ExchangeEnd::Refused
        }
        PersistentOutcome::Broken => ExchangeEnd::Broken,
    }
}
