//! The bytes of an attachment, read in pieces over a connection of its own.

use std::sync::Arc;

use bytes::Bytes;
use dray_platform::{ByteStream, Error, ErrorKind, InboundAttachment};
use futures_util::{StreamExt as _, stream};
use rustls::ClientConfig;

use super::decode::Decoder;
use super::mail::Reference;
use super::options::InboxOptions;
use crate::imap::Connection;
use crate::options::Options;

/// Bytes of one piece, as they travel.
const PIECE: u64 = 256 * 1024;

pub(crate) async fn fetch(
    options: &Options,
    inbox: &InboxOptions,
    tls: &Arc<ClientConfig>,
    attachment: &InboundAttachment,
) -> Result<ByteStream, Error> {
    let reference: Reference = serde_json::from_str(&attachment.reference).map_err(|cause| {
        Error::new(ErrorKind::BadFormat, "not a reference of ours").caused_by(cause)
    })?;
    let is_section = |section: &str| {
        section
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    if !is_section(&reference.section) {
        return Err(Error::new(ErrorKind::BadFormat, "not a section of a mail"));
    }
    let limit = inbox.download_limit.as_u64();
    if attachment.size > limit {
        let error = Error::new(ErrorKind::TooLarge, "over what may be fetched");
        return Err(error.with_numbers(attachment.size, limit));
    }
    let mut connection = Connection::open(options, inbox, tls).await?;
    let validity = connection.select(&inbox.mailbox, false).await?;
    let uid = if validity == reference.validity {
        reference.uid
    } else {
        found_again(&mut connection, &reference).await?
    };
    let reader = Reader {
        connection,
        uid,
        decoder: Decoder::new(&reference.encoding),
        reference,
        read: 0,
    };
    // The first piece is read immediately: what is missing is reported before anything is stored.
    let first = reader.next().await?;
    Ok(stream::unfold(Some(first), |state| async move {
        let (piece, reader) = state?;
        let Some(reader) = reader else {
            return Some((Ok(piece), None));
        };
        match reader.next().await {
            Ok(next) => Some((Ok(piece), Some(next))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}

/// The mail in a mailbox whose numbers were assigned again.
async fn found_again(connection: &mut Connection, reference: &Reference) -> Result<u64, Error> {
    let gone = || Error::new(ErrorKind::NotFound, "the mail is no longer there");
    if reference.id.is_empty() {
        return Err(gone());
    }
    let id = crate::imap::value::quote(&reference.id).ok_or_else(gone)?;
    let found = connection
        .search(&format!("HEADER Message-ID {id}"))
        .await?;
    found.last().copied().ok_or_else(gone)
}

#[derive(Debug)]
struct Reader {
    connection: Connection,
    uid: u64,
    reference: Reference,
    decoder: Decoder,
    /// Bytes read, as they travel.
    read: u64,
}

impl Reader {
    /// The next bytes, and the reader while there are more.
    async fn next(mut self) -> Result<(Bytes, Option<Self>), Error> {
        let Reference {
            section, octets, ..
        } = &self.reference;
        if self.read >= *octets {
            let last = self.decoder.finish();
            self.connection.logout().await;
            return Ok((last.into(), None));
        }
        let length = PIECE.min(octets - self.read);
        let what = format!("(UID BODY.PEEK[{section}]<{}.{length}>)", self.read);
        let fetched = self.connection.fetch(self.uid, &what).await?;
        let fetched = fetched
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "the mail is no longer there"))?;
        let piece = fetched.body(section).unwrap_or_default();
        let broken = |why: &str| Error::new(ErrorKind::Transient, why);
        if piece.is_empty() {
            return Err(broken("the part is shorter than was told"));
        }
        if piece.len() as u64 > length {
            return Err(broken("the server gave more than was asked for"));
        }
        self.read += piece.len() as u64;
        let decoded = self.decoder.push(piece);
        Ok((decoded.into(), Some(self)))
    }
}
