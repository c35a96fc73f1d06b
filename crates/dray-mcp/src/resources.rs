//! Resources: stored files, files of the sandbox, and receipts.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_types::{ByteSize, Fault, FaultCode};
use rmcp::model::{CacheScope, ReadResourceResult, ResourceContents, ResourceTemplate};

use crate::client::TRANSFER_TIMEOUT;
use crate::content::{ContentAccess, StoredFile};
use crate::failure;
use crate::location::{Location, RECEIPT_PREFIX};
use crate::progress::ProgressReporter;
use crate::tools;

/// Largest resource that is read for one response.
const MAX_RESOURCE_BYTES: ByteSize = ByteSize::mib(1);
/// Most bytes of a resource as JSON. The MCP client in Python refuses events above 1 MiB over HTTP.
const MAX_ENCODED_BYTES: usize = 1_000_000;
/// How long clients may cache content by digest, which never changes: one year, in milliseconds.
const CONTENT_LIFETIME_MS: u64 = 31_536_000_000;

/// The templates, in a fixed order.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    [
        (
            "dray://sandbox/{session}/{+path}",
            "sandbox-file",
            "File in the sandbox",
            "A file in the sandbox of this session.",
        ),
        (
            "dray://artifact/{sha256}",
            "artifact",
            "Stored file",
            "Content by its SHA-256; it never changes.",
        ),
        (
            "dray://receipt/{id}",
            "receipt",
            "Receipt",
            "The outcome of a delivery of this session.",
        ),
    ]
    .map(|(template, name, title, description)| {
        ResourceTemplate::new(template, name)
            .with_title(title)
            .with_description(description)
    })
    .to_vec()
}

/// Reads a resource. URLs and paths of this machine are not resources.
pub(crate) async fn read(
    access: &ContentAccess,
    uri: &str,
    progress: &mut ProgressReporter,
) -> Result<ReadResourceResult, Fault> {
    if let Some(delivery_id) = uri.strip_prefix(RECEIPT_PREFIX) {
        return read_receipt(access, uri, delivery_id).await;
    }
    let location = access.parse(uri)?;
    let lifetime_ms = match location {
        Location::Artifact(_) | Location::Ticket(_) => CONTENT_LIFETIME_MS,
        Location::Sandbox(_) => 0,
        Location::Local(_) | Location::Url(_) => return Err(not_found()),
    };
    let stored = access.store(&location, progress).await?;
    let contents = read_contents(access, &stored, uri).await?;
    Ok(ReadResourceResult::new(vec![contents])
        .with_ttl_ms(lifetime_ms)
        // Private, because only clients of the tenant may get its content.
        .with_cache_scope(CacheScope::Private))
}

async fn read_contents(
    access: &ContentAccess,
    stored: &StoredFile,
    uri: &str,
) -> Result<ResourceContents, Fault> {
    let size = stored.claim.artifact.size;
    if size > MAX_RESOURCE_BYTES.as_u64() {
        return Err(too_large(size));
    }
    let client = &access.client;
    let deadline = client.deadline(TRANSFER_TIMEOUT);
    let reader = client
        .store
        .read(&client.tenant, &stored.claim, deadline)
        .await?;
    let bytes = reader.read_all(MAX_RESOURCE_BYTES).await?;
    let contents = match std::str::from_utf8(&bytes) {
        Ok(text) if !text.contains('\0') => ResourceContents::text(text, uri),
        _ => ResourceContents::blob(STANDARD.encode(&bytes), uri),
    };
    let contents = contents.with_mime_type(&stored.media_type);
    let encoded = serde_json::to_vec(&contents).map_err(|_| Fault::internal())?;
    if encoded.len() > MAX_ENCODED_BYTES {
        return Err(too_large(size));
    }
    Ok(contents)
}

fn too_large(size: u64) -> Fault {
    let message = format!(
        "The resource has {size} bytes; encoded as text in JSON it would have more than {MAX_ENCODED_BYTES}."
    );
    Fault::new(FaultCode::TooLarge, message)
        .detail("too_large")
        .advice("`read` shows documents in parts, and `get` copies a file.")
}

async fn read_receipt(
    access: &ContentAccess,
    uri: &str,
    delivery_id: &str,
) -> Result<ReadResourceResult, Fault> {
    let report = tools::outcome(&access.client, delivery_id, Duration::ZERO).await?;
    let text = tools::report_json(&report).to_string();
    let contents = ResourceContents::text(text, uri).with_mime_type("application/json");
    // A later report of the platform can still correct a finished delivery.
    Ok(ReadResourceResult::new(vec![contents])
        .with_ttl_ms(0)
        .with_cache_scope(CacheScope::Private))
}

fn not_found() -> Fault {
    failure::invalid(
        "The resource does not exist.",
        "`resources/templates/list` shows the forms of their URIs.",
    )
    .detail("resource_not_found")
}
