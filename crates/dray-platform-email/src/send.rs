//! One mail through a connection, and the moment at which it may have been taken.

use std::time::Duration;

use dray_platform::{Error, ErrorKind, OutgoingFile, Progress};
use futures_util::StreamExt as _;

use crate::address::Sender;
use crate::mime::{Encoder, Mail, Piece};
use crate::options::Options;
use crate::reply::Stage;
use crate::smtp::Connection;

/// How long a server that broke off is listened to for its reasons.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Sends a mail. Ends well only when the server took responsibility for it.
pub(crate) async fn send(
    mut connection: Connection,
    options: &Options,
    sender: &Sender,
    mail: &Mail<'_>,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let length = mail.length();
    if let Some(largest) = connection.largest()
        && length > largest
    {
        connection.quit().await;
        let error = Error::new(
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
    taken.expect(250, Stage::Mail)?;
    let reply = connection
        .command(&format!("RCPT TO:<{}>", mail.to))
        .await?;
    if reply.code != 251 {
        reply.expect(250, Stage::Recipient)?;
    }
    let start = connection.command("DATA").await?;
    start.expect(354, Stage::Mail)?;
    // A connection that ends before the dot ends without a mail, for any reason.
    body(&mut connection, mail, progress).await?;
    connection.write(b".\r\n").await.map_err(Error::ambiguous)?;
    let wait = options.answer_timeout.as_duration();
    let reply = connection.reply(wait).await.map_err(Error::ambiguous)?;
    match reply.code {
        250 => {
            connection.quit().await;
            Ok(())
        }
        400..=599 => Err(reply.refused(Stage::Mail)),
        _ => Err(reply.refused(Stage::Mail).ambiguous()),
    }
}

async fn body(
    connection: &mut Connection,
    mail: &Mail<'_>,
    progress: &dyn Progress,
) -> Result<(), Error> {
    for piece in &mail.pieces {
        let written = match piece {
            Piece::Text(text) => connection.write(text.as_bytes()).await,
            Piece::File(read) => file(connection, read, progress).await,
        };
        if let Err(error) = written {
            if error.kind() != ErrorKind::Transient {
                return Err(error);
            }
            // Servers that have enough of a mail say why and close.
            return match connection.reply(LAST_WORDS).await {
                Ok(reply) if reply.code >= 400 => Err(reply.refused(Stage::Mail)),
                _ => Err(error),
            };
        }
    }
    Ok(())
}

async fn file(
    connection: &mut Connection,
    file: &OutgoingFile,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let source = |why: &str| Error::new(ErrorKind::Source, why);
    let mut stream = file.source.open().await?;
    let mut encoder = Encoder::default();
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
