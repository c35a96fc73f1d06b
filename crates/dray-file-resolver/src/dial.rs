//! The client of DIAL Core's file API (quickapps 5.1, 31; R2, R3).
//!
//! DIAL Core is an endpoint that configuration names, so an ordinary HTTP client is right: no proxies, no redirects,
//! no cookies, no `Referer`. Every request is built from the configured origin and a canonical path, so credentials can
//! go nowhere else. Metadata is asked first; what counts in the end is what was read.

mod error;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use dray_types::{ByteSize, Secret};

pub use error::{DialError, OpenError};

use crate::classify::{DialOrigin, DialPath};

/// Longest metadata answer that is read.
const METADATA_LIMIT: usize = 256 * 1024;

/// Longest media type that is passed on, in bytes; the fetcher's limit as well.
const LONGEST_TYPE: usize = 128;

/// Header that carries a DIAL key.
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// What a caller may show to DIAL Core. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerCredentials {
    /// Value of `Api-Key`.
    pub api_key: Secret,
    /// Value of `Authorization`.
    pub authorization: Secret,
}

/// How long DIAL Core may take.
#[derive(Clone, Copy, Debug)]
pub struct DialTimeouts {
    /// To connect, TLS included.
    pub connect: Duration,
    /// Between two pieces of an answer.
    pub read: Duration,
}

/// DIAL Core at one origin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DialClient {
    origin: DialOrigin,
    http: Client,
}

/// A file of DIAL Core while it is read.
#[derive(Debug)]
pub struct DialFile {
    response: Response,
    media_type: String,
    stated: Option<u64>,
    limit: ByteSize,
    read: u64,
}

/// The part of a metadata answer that decides anything. Unknown members are ignored; a length that is not a whole
/// number counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DialMetadata {
    node_type: Option<String>,
    content_length: Option<serde_json::Value>,
    content_type: Option<String>,
}

impl DialClient {
    /// A client for the files below `origin`. `ca_file` is a PEM file with the authorities that sign its certificate,
    /// instead of the public ones.
    pub fn new(
        origin: DialOrigin,
        timeouts: DialTimeouts,
        ca_file: Option<&Path>,
    ) -> Result<Self, OpenError> {
        let http = Client::builder()
            .tls_backend_preconfigured(tls_config(ca_file)?)
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .http1_only()
            .connect_timeout(timeouts.connect)
            .read_timeout(timeouts.read)
            .build()
            .map_err(OpenError::Client)?;
        Ok(Self { origin, http })
    }

    /// The origin that this client speaks to.
    pub fn origin(&self) -> &DialOrigin {
        &self.origin
    }

    /// Opens a file of at most `limit` bytes: metadata first, then the bytes.
    pub async fn open(
        &self,
        path: &DialPath,
        credentials: &CallerCredentials,
        limit: ByteSize,
    ) -> Result<DialFile, DialError> {
        let headers = credential_headers(credentials)?;
        let metadata = self.metadata(path, &headers).await?;
        if metadata.node_type.as_deref() == Some("FOLDER") {
            return Err(DialError::Folder);
        }
        let stated = metadata.content_length.and_then(|length| length.as_u64());
        check_size(stated, limit)?;
        let response = self.get(&self.origin.api(path.as_str()), &headers).await?;
        check_size(response.content_length(), limit)?;
        let coding = response.headers().get(CONTENT_ENCODING);
        if coding.is_some_and(|coding| coding != "identity") {
            return Err(DialError::Malformed("the content is encoded"));
        }
        let media_type = match response.headers().get(CONTENT_TYPE) {
            Some(value) => media_type_label(value.to_str().unwrap_or_default()),
            None => media_type_label(&metadata.content_type.unwrap_or_default()),
        };
        Ok(DialFile {
            response,
            media_type,
            stated,
            limit,
            read: 0,
        })
    }

    async fn metadata(
        &self,
        path: &DialPath,
        headers: &HeaderMap,
    ) -> Result<DialMetadata, DialError> {
        let url = self.origin.api(&format!("metadata/{path}"));
        let mut response = self.get(&url, headers).await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(DialError::from_http)? {
            if body.len() + chunk.len() > METADATA_LIMIT {
                return Err(DialError::Malformed("the metadata are too long"));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|_| DialError::Malformed("the metadata are not JSON"))
    }

    async fn get(&self, url: &str, headers: &HeaderMap) -> Result<Response, DialError> {
        let response = self
            .http
            .get(url)
            .headers(headers.clone())
            .send()
            .await
            .map_err(DialError::from_http)?;
        match DialError::from_status(response.status(), response.headers()) {
            None => Ok(response),
            Some(error) => Err(error),
        }
    }
}

impl DialFile {
    /// Declared media type; empty when unknown.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// The next bytes, `None` after the last. Counts them: more than the limit is an error, and so is another number
    /// than the metadata stated.
    pub async fn next(&mut self) -> Result<Option<Bytes>, DialError> {
        let chunk = self.response.chunk().await.map_err(DialError::from_http)?;
        let Some(chunk) = chunk else {
            return match self.stated {
                Some(stated) if stated != self.read => Err(DialError::LengthMismatch {
                    stated,
                    read: self.read,
                }),
                _ => Ok(None),
            };
        };
        self.read = self
            .read
            .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        // How far it would have gone is not known: the first byte too many is what is reported.
        check_size(
            Some(self.read.min(self.limit.as_u64().saturating_add(1))),
            self.limit,
        )?;
        Ok(Some(chunk))
    }
}

fn check_size(size: Option<u64>, limit: ByteSize) -> Result<(), DialError> {
    match size {
        Some(size) if size > limit.as_u64() => Err(DialError::TooLarge { size, limit }),
        _ => Ok(()),
    }
}

fn credential_headers(credentials: &CallerCredentials) -> Result<HeaderMap, DialError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    for (name, secret) in [
        (API_KEY, &credentials.api_key),
        (AUTHORIZATION, &credentials.authorization),
    ] {
        if secret.is_empty() {
            continue;
        }
        let mut value =
            HeaderValue::from_str(secret.expose()).map_err(|_| DialError::InvalidCredential)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A media type as a label: nothing when it is not short printable ASCII.
fn media_type_label(media_type: &str) -> String {
    let is_label = media_type.len() <= LONGEST_TYPE
        && media_type.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if is_label {
        media_type.to_owned()
    } else {
        String::new()
    }
}

/// Whether the secret can be sent.
pub(crate) fn is_header_value(secret: &Secret) -> bool {
    HeaderValue::from_str(secret.expose()).is_ok()
}

/// TLS with its own provider and roots, so that nothing process-wide is needed or changed.
pub(crate) fn tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, OpenError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(OpenError::Authorities)?
            {
                roots
                    .add(certificate.map_err(OpenError::Authorities)?)
                    .map_err(OpenError::Tls)?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(OpenError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
