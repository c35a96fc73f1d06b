//! One file of DIAL Core for a tool call (quickapps 5.1, 31; R2, R3).
//!
//! [`dray_dial::DialClient`] sends the requests and enforces the rule for the origin. The resolver uses it without
//! retries, because the deadline of the tool call limits them. It requests the metadata first; the bytes that were read
//! are authoritative.

mod error;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_dial::files::FileDownload;
use dray_dial::origin::FileUrl;
use dray_dial::{DialClient, DialOptions};
use dray_http::TrustedAuthorities;
use dray_types::{ByteSize, Secret};
use http::header::HeaderValue;

use crate::config::Config;

pub use error::DialError;

/// Longest metadata response that is read, in bytes.
const MAX_METADATA_BYTES: usize = 256 * 1024;

/// Longest media type that is passed on, in bytes; the fetcher's limit as well.
const MAX_MEDIA_TYPE_BYTES: usize = 128;

/// Credentials that a caller shows to DIAL Core. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerCredentials {
    /// Value of the `Api-Key` header.
    pub api_key: Secret,
    /// Value of the `Authorization` header.
    pub authorization: Secret,
}

/// A file of DIAL Core that is being read.
#[derive(Debug)]
pub struct DialFile {
    download: FileDownload,
    media_type: String,
    stated_bytes: Option<u64>,
    limit: ByteSize,
    read_bytes: u64,
}

/// Makes the client for the DIAL Core at `url`.
///
/// # Errors
///
/// [`dray_dial::ErrorKind::Request`] when the URL or the file of authorities is not usable.
pub(crate) fn dial_client(url: &str, config: &Config) -> Result<DialClient, dray_dial::Error> {
    DialClient::new(DialOptions {
        // The authorities of the file replace the public ones, so that an operator with a private authority sends keys
        // only to its hosts.
        authorities: config
            .dial_ca_file
            .as_deref()
            .map_or(TrustedAuthorities::Public, |path| {
                TrustedAuthorities::Only(path.to_owned())
            }),
        limits: config.timeouts(),
        read_retries: 0,
        max_json_bytes: MAX_METADATA_BYTES,
        // The resolver completes no chats, so their version is not used.
        ..DialOptions::new(url, "")
    })
}

impl DialFile {
    /// Opens a file of at most `limit` bytes: metadata first, then the bytes.
    ///
    /// # Errors
    ///
    /// [`DialError`]. With a credential that is not a valid header value, no request is sent.
    pub async fn open(
        client: &DialClient,
        file: &FileUrl,
        credentials: &CallerCredentials,
        limit: ByteSize,
    ) -> Result<Self, DialError> {
        let caller = to_caller(credentials)?;
        let to_error = |error| DialError::from_client(error, limit);
        let metadata = client.metadata(&caller, file).await.map_err(to_error)?;
        if metadata.is_folder() {
            return Err(DialError::Folder);
        }
        let stated_bytes = metadata.content_length;
        if let Some(size) = stated_bytes.filter(|size| *size > limit.as_u64()) {
            return Err(DialError::TooLarge { size, limit });
        }
        // Metadata may be older than the file, so the limit is applied again to the bytes that are read.
        let download = client.download(&caller, file, limit.as_u64()).await;
        let download = download.map_err(to_error)?;
        let media_type = download
            .media_type
            .as_ref()
            .or(metadata.content_type.as_ref());
        Ok(Self {
            media_type: media_type_label(media_type.map_or("", String::as_str)),
            download,
            stated_bytes,
            limit,
            read_bytes: 0,
        })
    }

    /// Declared media type of the file; empty when unknown.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Returns the next bytes, or `None` after the last ones. More bytes than the limit are an error, and so is another
    /// number of bytes than in the metadata.
    pub async fn next(&mut self) -> Result<Option<Bytes>, DialError> {
        let chunk = self.download.next().await;
        match chunk.map_err(|error| DialError::from_client(error, self.limit))? {
            Some(chunk) => {
                self.read_bytes = self.read_bytes.saturating_add(chunk.len() as u64);
                Ok(Some(chunk))
            }
            None => match self.stated_bytes {
                Some(stated) if stated != self.read_bytes => Err(DialError::LengthMismatch {
                    stated,
                    read: self.read_bytes,
                }),
                _ => Ok(None),
            },
        }
    }
}

fn to_caller(credentials: &CallerCredentials) -> Result<Caller, DialError> {
    let CallerCredentials {
        api_key,
        authorization,
    } = credentials;
    if !(is_header_value(api_key) && is_header_value(authorization)) {
        return Err(DialError::InvalidCredential);
    }
    Ok(Caller {
        api_key: Some(api_key.clone()),
        authorization: Some(authorization.clone()),
        ..Caller::default()
    })
}

/// Returns the media type, or empty text if it is longer than [`MAX_MEDIA_TYPE_BYTES`] or not printable ASCII.
fn media_type_label(media_type: &str) -> String {
    let is_label = media_type.len() <= MAX_MEDIA_TYPE_BYTES
        && media_type.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if is_label {
        media_type.to_owned()
    } else {
        String::new()
    }
}

/// Returns whether the secret can be sent in a header.
pub(crate) fn is_header_value(secret: &Secret) -> bool {
    HeaderValue::from_str(secret.expose()).is_ok()
}
