//! Paths of requests whose escapes are not UTF-8.

use http::{Request, Uri};
use percent_encoding::percent_decode_str;
use tower::util::MapRequest;

/// A path without a route in any service: the replacement character of Unicode alone.
const UNROUTED_PATH: &str = "/%EF%BF%BD";

/// A service behind [`with_text_paths`].
pub type TextPaths<S, B> = MapRequest<S, fn(Request<B>) -> Request<B>>;

/// Gives requests whose path does not decode to UTF-8 (`/files/%FF`) a path without a route, so that the service
/// answers with its own "not found".
///
/// Without it, axum's extractor of path parameters refuses them with status 400 and a text in a format that clients of
/// the service cannot read. Do not use it for a service whose paths are names of files, which may be any bytes.
pub fn with_text_paths<S, B>(service: S) -> TextPaths<S, B> {
    MapRequest::new(service, replace_invalid_path)
}

fn replace_invalid_path<B>(mut request: Request<B>) -> Request<B> {
    let path = percent_decode_str(request.uri().path());
    if path.decode_utf8().is_err() {
        *request.uri_mut() = Uri::from_static(UNROUTED_PATH);
    }
    request
}
