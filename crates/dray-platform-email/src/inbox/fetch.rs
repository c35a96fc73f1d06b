//! The bytes of an attachment, read in pieces over a connection of its own.

use std::sync::Arc;

use bytes::Bytes;
use dray_platform::{ByteStream, ErrorKind, InboundAttachment, PlatformError};
use futures_util::{StreamExt as _, stream};
use rustls::ClientConfig;

use super::decode::PartDecoder;
use super::mail::AttachmentReference;
use super::options::InboxOptions;
use crate::imap::ImapConnection;
use crate::options::EmailOptions;

/// Bytes of one piece, as they travel.
const CHUNK_BYTES: u64 = 256 * 1024;

pub(crate) async fn fetch_attachment(
    options: &EmailOptions,
    inbox: &InboxOptions,
    tls: &Arc<ClientConfig>,
    attachment: &InboundAttachment,
) -> Result<ByteStream, PlatformError> {
    let reference: AttachmentReference =
        serde_json::from_str(&attachment.reference).map_err(|cause| {
            PlatformError::new(ErrorKind::BadFormat, "not a reference of ours").caused_by(cause)
        })?;
    let is_section = |section: &str| {
        section
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    if !is_section(&reference.section) {
        return Err(PlatformError::new(
            ErrorKind::BadFormat,
            "not a section of a mail",
        ));
    }
    let limit = inbox.download_limit.as_u64();
    if attachment.size > limit {
        let error = PlatformError::new(ErrorKind::TooLarge, "over what may be fetched");
        return Err(error.with_numbers(attachment.size, limit));
    }
    let mut connection = ImapConnection::open(options, inbox, tls).await?;
    let validity = connection.select(&inbox.mailbox, false).await?;
    let uid = if validity == reference.validity {
        reference.uid
    } else {
        found_again(&mut connection, &reference).await?
    };
    let reader = AttachmentReader {
        connection,
        uid,
        decoder: PartDecoder::new(&reference.encoding),
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
async fn found_again(
    connection: &mut ImapConnection,
    reference: &AttachmentReference,
) -> Result<u64, PlatformError> {
    let gone = || PlatformError::new(ErrorKind::NotFound, "the mail is no longer there");
    if reference.id.is_empty() {
        return Err(gone());
    }
    let id = crate::imap::value::quote_string(&reference.id).ok_or_else(gone)?;
    let found = connection
        .search(&format!("HEADER Message-ID {id}"))
        .await?;
    found.last().copied().ok_or_else(gone)
}

#[derive(Debug)]
struct AttachmentReader {
    connection: ImapConnection,
    uid: u64,
    reference: AttachmentReference,
    decoder: PartDecoder,
    /// Bytes read, as they travel.
    read: u64,
}

impl AttachmentReader {
    /// The next bytes, and the reader while there are more.
    async fn next(mut self) -> Result<(Bytes, Option<Self>), PlatformError> {
        let AttachmentReference {
            section, octets, ..
        } = &self.reference;
        if self.read >= *octets {
            let last = self.decoder.finish();
            self.connection.logout().await;
            return Ok((last.into(), None));
        }
        let length = CHUNK_BYTES.min(octets - self.read);
        let what = format!("(UID BODY.PEEK[{section}]<{}.{length}>)", self.read);
        let fetched = self.connection.fetch(self.uid, &what).await?;
        let fetched = fetched.ok_or_else(|| {
            PlatformError::new(ErrorKind::NotFound, "the mail is no longer there")
        })?;
        let piece = fetched.body(section).unwrap_or_default();
        let broken = |why: &str| PlatformError::new(ErrorKind::Transient, why);
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
