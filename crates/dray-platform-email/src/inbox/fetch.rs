//! The bytes of an attachment, read in chunks over a separate connection.

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

/// Bytes of one chunk in its transfer encoding.
const CHUNK_BYTES: u64 = 256 * 1024;

pub(crate) async fn fetch_attachment(
    options: &EmailOptions,
    inbox: &InboxOptions,
    tls: &Arc<ClientConfig>,
    attachment: &InboundAttachment,
) -> Result<ByteStream, PlatformError> {
    let reference: AttachmentReference =
        serde_json::from_str(&attachment.reference).map_err(|cause| {
            PlatformError::new(
                ErrorKind::BadFormat,
                "the reference was not issued by this platform",
            )
            .caused_by(cause)
        })?;
    let is_section = |section: &str| {
        section
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    // The section becomes a part of a command.
    if !is_section(&reference.section) {
        return Err(PlatformError::new(
            ErrorKind::BadFormat,
            "not a section of a mail",
        ));
    }
    let limit = inbox.download_limit.as_u64();
    if attachment.size > limit {
        let error = PlatformError::new(
            ErrorKind::TooLarge,
            "the file is larger than the download limit",
        );
        return Err(error.with_numbers(attachment.size, limit));
    }
    // A separate connection, because the receiver's may be waiting in `IDLE`.
    let mut connection = ImapConnection::open(options, inbox, tls).await?;
    // The mailbox is opened for reading only, because fetching an attachment must not mark its mail.
    let validity = connection.select(&inbox.mailbox, false).await?;
    // With another validity, the server has assigned the UIDs again, and this UID may name another mail.
    let uid = if validity == reference.validity {
        reference.uid
    } else {
        find_by_message_id(&mut connection, &reference).await?
    };
    let reader = AttachmentReader {
        connection,
        uid,
        decoder: PartDecoder::new(&reference.encoding),
        reference,
        read: 0,
    };
    // The first chunk is read immediately: a missing mail is reported before anything is stored.
    let first = reader.next().await?;
    Ok(stream::unfold(Some(first), |state| async move {
        let (chunk, reader) = state?;
        let Some(reader) = reader else {
            return Some((Ok(chunk), None));
        };
        match reader.next().await {
            Ok(next) => Some((Ok(chunk), Some(next))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed())
}

/// Finds a mail by its id in a mailbox whose UIDs were assigned again.
async fn find_by_message_id(
    connection: &mut ImapConnection,
    reference: &AttachmentReference,
) -> Result<u64, PlatformError> {
    let mail_not_found = || PlatformError::new(ErrorKind::NotFound, "the mail is no longer there");
    if reference.id.is_empty() {
        return Err(mail_not_found());
    }
    let id = crate::imap::value::quote_string(&reference.id).ok_or_else(mail_not_found)?;
    let uids = connection
        .search(&format!("HEADER Message-ID {id}"))
        .await?;
    // The newest of several copies.
    uids.last().copied().ok_or_else(mail_not_found)
}

#[derive(Debug)]
struct AttachmentReader {
    connection: ImapConnection,
    uid: u64,
    reference: AttachmentReference,
    decoder: PartDecoder,
    /// Bytes read, in the transfer encoding.
    read: u64,
}

impl AttachmentReader {
    /// Reads a chunk; returns its decoded bytes, and the reader while there is more. The decoded bytes may be empty.
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
        // `PEEK` does not mark the mail as seen (RFC 3501, section 6.4.5).
        let items = format!("(UID BODY.PEEK[{section}]<{}.{length}>)", self.read);
        let fetched = self.connection.fetch(self.uid, &items).await?;
        let fetched = fetched.ok_or_else(|| {
            PlatformError::new(ErrorKind::NotFound, "the mail is no longer there")
        })?;
        let chunk = fetched.body(section).unwrap_or_default();
        let transient_error = |reason: &str| PlatformError::new(ErrorKind::Transient, reason);
        // Without this check the loop would never end.
        if chunk.is_empty() {
            return Err(transient_error("the part is shorter than reported"));
        }
        if chunk.len() as u64 > length {
            return Err(transient_error("the server sent more than was requested"));
        }
        self.read += chunk.len() as u64;
        let decoded = self.decoder.push(chunk);
        Ok((decoded.into(), Some(self)))
    }
}
