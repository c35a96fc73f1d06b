//! Sends one mail through a connection, and determines whether it may have been accepted.

use std::time::Duration;

use dray_platform::{ErrorKind, OutgoingFile, PlatformError, UploadProgress};
use futures_util::StreamExt as _;

use crate::address::MailSender;
use crate::mime::{Base64LineEncoder, MailChunk, OutgoingMail};
use crate::options::EmailOptions;
use crate::reply::SmtpStage;
use crate::smtp::SmtpConnection;

/// How long to wait for the reason of a server that closes in the middle of a mail.
const CLOSE_REASON_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a mail. `Ok` means that the server took responsibility for it (RFC 5321, 4.2.5). Consumes the connection.
pub(crate) async fn send_mail(
    mut connection: SmtpConnection,
    options: &EmailOptions,
    sender: &MailSender,
    mail: &OutgoingMail<'_>,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    let length = mail.length();
    // The exact length of this mail; the limits of a plan only estimate it.
    if let Some(largest) = connection.max_mail_bytes()
        && length > largest
    {
        connection.quit().await;
        let error = PlatformError::new(
            ErrorKind::TooLarge,
            "the mail is larger than the server takes",
        );
        return Err(error.with_numbers(length, largest));
    }
    let size = if connection.supports_size() {
        format!(" SIZE={length}")
    } else {
        String::new()
    };
    let from = format!("MAIL FROM:<{}>{size}", sender.address);
    let mail_reply = connection.command(&from).await?;
    mail_reply.expect(250, SmtpStage::Mail)?;
    let reply = connection
        .command(&format!("RCPT TO:<{}>", mail.to))
        .await?;
    // 251: the server forwards the mail for a user who is not local.
    if reply.code != 251 {
        reply.expect(250, SmtpStage::Recipient)?;
    }
    let start = connection.command("DATA").await?;
    start.expect(354, SmtpStage::Mail)?;
    // RFC 5321, section 4.1.1.4: without the dot the mail is not accepted, so an error up to here is never ambiguous.
    send_body(&mut connection, mail, progress).await?;
    // Content never begins a line with a dot, so no dot-stuffing was needed.
    connection
        .write(b".\r\n")
        .await
        .map_err(PlatformError::ambiguous)?;
    let wait = options.response_timeout.as_duration();
    let reply = connection
        .reply(wait)
        .await
        .map_err(PlatformError::ambiguous)?;
    // Only a final reply determines the outcome; otherwise it is unknown.
    match reply.code {
        250 => {
            connection.quit().await;
            Ok(())
        }
        400..=599 => Err(reply.refusal_error(SmtpStage::Mail)),
        _ => Err(reply.refusal_error(SmtpStage::Mail).ambiguous()),
    }
}

/// Checks that the server accepts mails of a sender, in a transaction that is reset.
pub(crate) async fn check_sender(
    connection: &mut SmtpConnection,
    sender: &str,
) -> Result<(), PlatformError> {
    let reply = connection.command(&format!("MAIL FROM:<{sender}>")).await?;
    reply.expect(250, SmtpStage::Mail)?;
    let reset = connection.command("RSET").await?;
    reset.expect(250, SmtpStage::Mail).map(drop)
}

async fn send_body(
    connection: &mut SmtpConnection,
    mail: &OutgoingMail<'_>,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    for chunk in &mail.chunks {
        let written = match chunk {
            MailChunk::Text(text) => connection.write(text.as_bytes()).await,
            MailChunk::File(file) => send_file(connection, file, progress).await,
        };
        if let Err(error) = written {
            // A source that cannot be read is not a failure of the server.
            if error.kind() != ErrorKind::Transient {
                return Err(error);
            }
            // A server that refuses a mail in the middle sends the reason and closes.
            return match connection.reply(CLOSE_REASON_TIMEOUT).await {
                Ok(reply) if reply.code >= 400 => Err(reply.refusal_error(SmtpStage::Mail)),
                _ => Err(error),
            };
        }
    }
    Ok(())
}

/// Encodes and writes a file. An error leaves the mail incomplete, so that the server drops it.
async fn send_file(
    connection: &mut SmtpConnection,
    file: &OutgoingFile,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    let source_error = |reason: &str| PlatformError::new(ErrorKind::Source, reason);
    let mut stream = file.source.open().await?;
    let mut encoder = Base64LineEncoder::default();
    let mut read = 0_u64;
    while let Some(chunk) = stream.next().await {
        let chunk =
            chunk.map_err(|cause| source_error("the file cannot be read").caused_by(cause))?;
        let count = chunk.len() as u64;
        read += count;
        // The length of the mail was announced.
        if read > file.size {
            return Err(source_error("the file is longer than declared"));
        }
        connection.write(encoder.push(&chunk).as_bytes()).await?;
        // Bytes of the file, not of its encoding, as the receipt counts them.
        progress.sent(count);
    }
    if read != file.size {
        return Err(source_error("the file is shorter than declared"));
    }
    connection.write(encoder.finish().as_bytes()).await
}
