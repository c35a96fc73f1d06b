//! The resources of the suite.

use rmcp::model::{CacheScope, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::tools::PIXEL_PNG;

const TEXT_URI: &str = "test://static-text";
const BINARY_URI: &str = "test://static-binary";
/// The URI template before and after its variable `id`.
const TEMPLATE_PARTS: (&str, &str) = ("test://template/", "/data");
/// How long a client may keep a resource, in milliseconds.
const RESOURCE_LIFETIME_MS: u64 = 60_000;

pub(crate) fn list() -> [Resource; 2] {
    [
        Resource::new(TEXT_URI, "static-text")
            .with_description("A text that never changes.")
            .with_mime_type("text/plain"),
        Resource::new(BINARY_URI, "static-binary")
            .with_description("A picture that never changes.")
            .with_mime_type("image/png"),
    ]
}

pub(crate) fn template() -> ResourceTemplate {
    let (before, after) = TEMPLATE_PARTS;
    ResourceTemplate::new(format!("{before}{{id}}{after}"), "template-data")
        .with_description("Data made from the id.")
        .with_mime_type("application/json")
}

/// The content of a resource of the suite; `None` for other URIs.
pub(crate) fn read(uri: &str) -> Option<ReadResourceResult> {
    let (before, after) = TEMPLATE_PARTS;
    let contents = match uri {
        TEXT_URI => ResourceContents::text("This is the content of the static text resource.", uri)
            .with_mime_type("text/plain"),
        BINARY_URI => ResourceContents::blob(PIXEL_PNG, uri).with_mime_type("image/png"),
        _ => {
            let id = uri.strip_prefix(before)?.strip_suffix(after)?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
        }
    };
    Some(
        ReadResourceResult::new(vec![contents])
            .with_ttl_ms(RESOURCE_LIFETIME_MS)
            .with_cache_scope(CacheScope::Private),
    )
}
