//! Reports about mails that could not be delivered, from a real mailbox.

use std::time::Duration;

use async_trait::async_trait;
use dray_platform::{InboundMessage, InboundSink, InboundSource as _, PlatformError, StatusUpdate};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::dovecot::DovecotServer;
use super::inbox::with_short_delays;

/// Records the reports about sent mails.
#[derive(Debug)]
struct StatusSink(UnboundedSender<StatusUpdate>);

#[async_trait]
impl InboundSink for StatusSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        panic!("a report became a message: {message:?}");
    }

    async fn status(&self, update: StatusUpdate) -> Result<(), PlatformError> {
        self.0.send(update).unwrap();
        Ok(())
    }
}

/// The report of a mail server about a mail, of which it returns this part.
fn report(action: &str, returned: &str) -> Vec<u8> {
    format!(
        "Return-Path: <>\r\nFrom: MAILER-DAEMON@mx.our.example\r\nTo: bot@our.example\r\nSubject: Undelivered\r\n\
         Auto-Submitted: auto-replied\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n\
         --b\r\nContent-Type: text/plain\r\n\r\nSorry.\r\n\
         --b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.our.example\r\n\r\n\
         Final-Recipient: rfc822; ada@example.org\r\nAction: {action}\r\nStatus: 5.1.1\r\n\r\n\
         --b\r\n{returned}\r\n--b--\r\n"
    )
    .into_bytes()
}

#[tokio::test]
async fn a_bounce_is_a_status_of_the_mail_that_it_returns() {
    let dovecot = DovecotServer::start();
    let mail = "Content-Type: message/rfc822\r\n\r\nFrom: bot@our.example\r\nMessage-ID: <1@our.example>\r\n\r\nfiles\r\n";
    let head = "Content-Type: text/rfc822-headers\r\n\r\nFrom: bot@our.example\r\nMessage-ID: <2@our.example>\r\n";
    dovecot.put("INBOX", &report("delayed", mail));
    dovecot.put("INBOX", &report("failed", mail));
    dovecot.put("INBOX", &report("failed", head));
    let email = with_short_delays(dovecot.options(None));
    let (sender, mut received) = unbounded_channel();
    let sink = StatusSink(sender);
    let stop = CancellationToken::new();
    let polling = email.poll(&sink, stop.clone());
    let taking = async {
        for id in ["<1@our.example>", "<2@our.example>"] {
            let next = tokio::time::timeout(Duration::from_mins(1), received.recv()).await;
            let update = next.expect("the report is read").unwrap();
            assert_eq!(
                (update.message_id.as_str(), update.code.as_str()),
                (id, "5.1.1")
            );
        }
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, taking);
    polled.unwrap();
}
