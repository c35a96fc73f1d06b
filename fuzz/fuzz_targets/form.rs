//! Raw bytes as the body of a form, after a byte that chooses its type. The scanner finds a name of the method however
//! the body is split, and finds every name that a reader of the whole body finds.

#![no_main]

use dray_guard::ruleset::overrides::body::FormBody;
use dray_guard::ruleset::overrides::methods_in_query;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};
use libfuzzer_sys::fuzz_target;

/// The types of a form.
const MEDIA_TYPES: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=b",
    "application/json",
];

/// Whether the scanner finds a method in a body of this type that arrives in parts of `size` bytes.
fn finds(media_type: &'static str, body: &[u8], size: usize) -> bool {
    let mut fields = HeaderMap::new();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let FormBody::Form(mut scanner) = FormBody::of(&fields) else {
        panic!("{media_type} is a form");
    };
    let mut parts = body.chunks(size);
    parts.any(|part| scanner.finds_method(part))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, body)) = bytes.split_first() else {
        return;
    };
    let kind = usize::from(*kind) % MEDIA_TYPES.len();
    let whole = finds(MEDIA_TYPES[kind], body, body.len().max(1));
    assert_eq!(finds(MEDIA_TYPES[kind], body, 1), whole);
    assert_eq!(finds(MEDIA_TYPES[kind], body, 5), whole);
    if whole {
        return;
    }
    let text = String::from_utf8_lossy(body);
    if kind == 0 {
        // A name without a value names no method.
        assert!(methods_in_query(&text).all(|method| method.is_empty()));
    }
    if kind == 2
        && let Ok(serde_json::Value::Object(members)) = serde_json::from_slice(body)
    {
        assert!(!members.contains_key("_method"));
    }
});
