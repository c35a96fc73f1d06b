//! `Expect: 100-continue` (RFC 9110, section 10.1.1): a client waits with its body until the target agrees to it. A body
//! that the target refuses is never requested, so a client can send it to another place.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::EXPECT;
use http::{Request, StatusCode};
use hyper::ext::on_informational;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::head::ProxyRequest;

/// The only expectation that exists.
pub(super) const CONTINUE_EXPECTATION: &str = "100-continue";
/// Longest wait for the agreement of a target, which may not know the field. curl waits as long.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the client of a request waits for the agreement of its target.
pub(super) fn expects_agreement(request: &ProxyRequest) -> bool {
    let mut values = request.fields.get_all(EXPECT).iter();
    let is_expected = values.next().is_some_and(|value| {
        let value = value.as_bytes();
        value.eq_ignore_ascii_case(CONTINUE_EXPECTATION.as_bytes())
    });
    is_expected && values.next().is_none() && request.has_body() && !request.is_http_10
}

/// Ends when the target of a request that is about to be sent agrees to its body, or has said nothing for a while.
pub(super) fn await_agreement<B>(request: &mut Request<B>) -> BoxFuture<'static, ()> {
    let agreed = Arc::new(Notify::new());
    let agreeing = Arc::clone(&agreed);
    on_informational(request, move |interim| {
        if interim.status() == StatusCode::CONTINUE {
            agreeing.notify_one();
        }
    });
    Box::pin(async move {
        // Clients that get no response send the body after a while, too.
        let _ = timeout(AGREEMENT_TIMEOUT, agreed.notified()).await;
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::proxy::head::{RequestRecipient, parse_head};

    #[test]
    fn only_a_body_whose_client_waits_needs_an_agreement() {
        for (line, fields, expected) in [
            (
                "PUT / HTTP/1.1",
                "Expect: 100-Continue\r\nContent-Length: 5\r\n",
                true,
            ),
            (
                "PUT / HTTP/1.1",
                "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n",
                true,
            ),
            (
                "PUT / HTTP/1.1",
                "Expect: 100-continue\r\nContent-Length: 0\r\n",
                false,
            ),
            (
                "PUT / HTTP/1.0",
                "Expect: 100-continue\r\nContent-Length: 5\r\n",
                false,
            ),
            (
                "PUT / HTTP/1.1",
                "Expect: other\r\nContent-Length: 5\r\n",
                false,
            ),
            ("PUT / HTTP/1.1", "Content-Length: 5\r\n", false),
        ] {
            let head = format!("{line}\r\nHost: files.example.org\r\n{fields}\r\n");
            let request = parse_head(head.as_bytes(), RequestRecipient::Server).unwrap();
            assert_eq!(expects_agreement(&request), expected, "{head}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_for_a_target_that_says_nothing_waits_for_a_second() {
        let started = Instant::now();
        await_agreement(&mut Request::new(())).await;
        assert_eq!(started.elapsed(), AGREEMENT_TIMEOUT);
    }
}
