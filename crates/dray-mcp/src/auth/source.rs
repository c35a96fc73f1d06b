//! Loads the key set of the authorization server: from a URL through egress-fetcher, or from a file.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use dray_proto::v1;
use dray_types::{ByteSize, whole_millis};

use super::keys::KeyLocation;
use crate::ServiceClient;
use crate::content::run_blocking;

/// Largest set of keys.
const MAX_KEYS_BYTES: ByteSize = ByteSize::kib(256);
/// How long a fetch of the keys may take.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why the keys are not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    /// The server has no connection to egress-fetcher.
    #[error("no service fetches keys for this server")]
    NoService,
    /// egress-fetcher failed, or its policy refused.
    #[error("the keys could not be fetched: {0}")]
    Fetch(dray_types::Fault),
    /// The authorization server responded with another status than 200.
    #[error("the keys could not be fetched: status {0}")]
    Status(u32),
    /// The fetch took too long.
    #[error("the keys could not be fetched within {} s", FETCH_TIMEOUT.as_secs())]
    TimedOut,
    /// The file cannot be read.
    #[error("the file with the keys could not be read: {0}")]
    File(String),
}

/// Reads the text of the key set.
pub(super) async fn load(
    location: &KeyLocation,
    client: Option<&ServiceClient>,
) -> Result<String, SourceError> {
    let loading = async {
        match location {
            KeyLocation::Url(url) => fetch(url, client.ok_or(SourceError::NoService)?).await,
            KeyLocation::File(path) => read(path).await,
        }
    };
    // A timeout here, too, in case the service exceeds its own deadline.
    tokio::time::timeout(FETCH_TIMEOUT, loading)
        .await
        .map_err(|_| SourceError::TimedOut)?
}

/// Fetches the keys through egress-fetcher: its guard decides on the address, and its audit events name the fetch.
async fn fetch(url: &str, client: &ServiceClient) -> Result<String, SourceError> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        size_limit_bytes: MAX_KEYS_BYTES.as_u64(),
        tool_timeout_ms: whole_millis(FETCH_TIMEOUT),
        // A stored response would hide new keys and keep withdrawn ones for as long as it is fresh.
        revalidate: true,
        ..v1::FetchRequest::default()
    };
    let reply = client.call_once(FETCH_TIMEOUT, &request).await;
    let reply = reply.map_err(SourceError::Fetch)?;
    if reply.http_status != 200 {
        return Err(SourceError::Status(reply.http_status));
    }
    let text = client.text(reply.content, MAX_KEYS_BYTES).await;
    text.map_err(SourceError::Fetch)
}

async fn read(path: &Path) -> Result<String, SourceError> {
    let path = path.to_owned();
    let reading = run_blocking(move || Ok(read_file(&path)));
    reading.await.map_err(SourceError::Fetch)?
}

fn read_file(path: &Path) -> Result<String, SourceError> {
    let failed = |error: std::io::Error| SourceError::File(error.to_string());
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let limit = MAX_KEYS_BYTES.as_u64() + 1;
    let count = file.take(limit).read_to_string(&mut text).map_err(failed)?;
    if count as u64 == limit {
        return Err(SourceError::File(format!(
            "it is larger than {MAX_KEYS_BYTES}"
        )));
    }
    Ok(text)
}
