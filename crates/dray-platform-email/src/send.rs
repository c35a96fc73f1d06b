//! One mail through a connection, and the moment at which it may have been taken.

use std::time::Duration;

use dray_platform::{ErrorKind, OutgoingFile, PlatformError, UploadProgress};
use futures_util::StreamExt as _;

use crate::address::MailSender;
use crate::mime::{Base64LineEncoder, MailChunk, OutgoingMail};
use crate::options::EmailOptions;
use crate::reply::SmtpStage;
use crate::smtp::SmtpConnection;

/// How long a server that broke off is listened to for its reasons.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sends a mail. Ends well only when the server took responsibility for it.
pub(crate) async fn send_mail(
    mut connection: SmtpConnection,
    options: &EmailOptions,
    sender: &MailSender,
    mail: &OutgoingMail<'_>,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    let length = mail.length();
    if let Some(largest) = connection.largest()
        && length > largest
    {
        connection.quit().await;
        let error = PlatformError::new(
            ErrorKind::TooLarge,
            "the mail is larger than the server takes",
        );
        return Err(error.with_numbers(length, largest));
    }
    let size = if connection.knows_size() {
        format!(" SIZE={length}")
    } else {
        String::new()
    };
    let from = format!("MAIL FROM:<{}>{size}", sender.address);
    let taken = connection.command(&from).await?;
    taken.expect(250, SmtpStage::Mail)?;
    let reply = connection
        .command(&format!("RCPT TO:<{}>", mail.to))
        .await?;
    if reply.code != 251 {
        reply.expect(250, SmtpStage::Recipient)?;
    }
    let start = connection.command("DATA").await?;
    start.expect(354, SmtpStage::Mail)?;
    // A connection that ends before the dot ends without a mail, for any reason.
    send_body(&mut connection, mail, progress).await?;
    connection
        .write(b".\r\n")
        .await
        .map_err(PlatformError::ambiguous)?;
    let wait = options.answer_timeout.as_duration();
    let reply = connection
        .reply(wait)
        .await
        .map_err(PlatformError::ambiguous)?;
    match reply.code {
        250 => {
            connection.quit().await;
            Ok(())
        }
        400..=599 => Err(reply.refused(SmtpStage::Mail)),
        _ => Err(reply.refused(SmtpStage::Mail).ambiguous()),
    }
}

async fn send_body(
    connection: &mut SmtpConnection,
    mail: &OutgoingMail<'_>,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    for piece in &mail.pieces {
        let written = match piece {
            MailChunk::Text(text) => connection.write(text.as_bytes()).await,
            MailChunk::File(read) => send_file(connection, read, progress).await,
        };
        if let Err(error) = written {
            if error.kind() != ErrorKind::Transient {
                return Err(error);
            }
            // Servers that have enough of a mail say why and close.
            return match connection.reply(LAST_WORDS).await {
                Ok(reply) if reply.code >= 400 => Err(reply.refused(SmtpStage::Mail)),
                _ => Err(error),
            };
        }
    }
    Ok(())
}

async fn send_file(
    connection: &mut SmtpConnection,
    file: &OutgoingFile,
    progress: &dyn UploadProgress,
) -> Result<(), PlatformError> {
    let source = |why: &str| PlatformError::new(ErrorKind::Source, why);
    let mut stream = file.source.open().await?;
    let mut encoder = Base64LineEncoder::default();
    let mut read = 0_u64;
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|cause| source("the file cannot be read").caused_by(cause))?;
        let count = piece.len() as u64;
        read += count;
        if read > file.size {
            return Err(source("the file is longer than promised"));
        }
        connection.write(encoder.push(&piece).as_bytes()).await?;
        progress.sent(count);
    }
    if read != file.size {
        return Err(source("the file is shorter than promised"));
    }
    connection.write(encoder.finish().as_bytes()).await
}
