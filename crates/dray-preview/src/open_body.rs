//! The body of a long response, which ends when its preview ends: a revoked link must not send a video to its end.

use std::io;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::error::PreviewError;
use crate::service::PreviewService;
use crate::token::PreviewToken;

/// Longest time that a response is sent without a check whether its preview is open.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Most bytes that a response sends without this check.
const MAX_UNCHECKED_BYTES: usize = 16 << 20;

/// A body and the preview that it belongs to.
struct OpenBody {
    body: BodyDataStream,
    service: PreviewService,
    token: PreviewToken,
    host: Option<String>,
    checked_at: Instant,
    sent_bytes: usize,
}

/// The same body, whose connection breaks when the preview was revoked or has expired.
pub(crate) fn while_open(
    body: Body,
    service: &PreviewService,
    token: &PreviewToken,
    host: Option<&str>,
) -> Body {
    let open = OpenBody {
        body: body.into_data_stream(),
        service: service.clone(),
        token: token.clone(),
        host: host.map(str::to_owned),
        checked_at: Instant::now(),
        sent_bytes: 0,
    };
    Body::from_stream(stream::try_unfold(open, |mut open| async move {
        match open.next_bytes().await? {
            Some(bytes) => Ok(Some((bytes, open))),
            None => Ok::<_, axum::BoxError>(None),
        }
    }))
}

impl OpenBody {
    async fn next_bytes(&mut self) -> Result<Option<Bytes>, axum::BoxError> {
        if self.sent_bytes >= MAX_UNCHECKED_BYTES || self.checked_at.elapsed() >= CHECK_INTERVAL {
            let found = self.service.find(&self.token, self.host.as_deref()).await;
            // While the bus does not respond, an open preview stays open, because no revocation is known.
            if matches!(found, Err(PreviewError::Unknown)) {
                return Err(io::Error::other("the preview has ended").into());
            }
            self.checked_at = Instant::now();
            self.sent_bytes = 0;
        }
        let Some(bytes) = self.body.next().await.transpose()? else {
            return Ok(None);
        };
        self.sent_bytes += bytes.len();
        Ok(Some(bytes))
    }
}
