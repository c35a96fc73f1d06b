//! Values in the parts of a request: path, query, headers. No value can change the surrounding part.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

/// Everything but the unreserved characters of RFC 3986 section 2.3.
const ESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Headers that determine the framing and the receiver of a request.
const FRAMING_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Text unchanged, lists joined by commas, objects as JSON, `null` as an empty text.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Escapes all but letters, digits and `-._~`.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED_BYTES).to_string()
}

/// The template with values in place of `{key}`. Braces inside of a value are not replaced again. `Some(None)` is a
/// known key without a value.
///
/// # Errors
///
/// The key whose value is missing.
pub(crate) fn fill_template<'a>(
    template: &str,
    value: impl Fn(&str) -> Option<Option<&'a str>>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let known = after
            .split_once('}')
            .and_then(|(key, after)| Some((key, value(key)?, after)));
        match known {
            Some((_, Some(text), after)) => {
                filled.push_str(&percent_encode(text));
                rest = after;
            }
            Some((key, None, _)) => return Err(key.to_owned()),
            None => {
                // A brace that is not a parameter is part of the path.
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// How many segments of the path of a URL lead to another place: parsers treat `..` and `%2e%2e` alike.
pub(crate) fn dot_segments(url: &str) -> usize {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let is_dots = |segment: &&str| {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        matches!(decoded.as_slice(), b"." | b"..")
    };
    path.split(['/', '\\']).filter(is_dots).count()
}

/// The URL with these pairs added to its query. They replace pairs of the same names that the URL has.
pub(crate) fn with_query(url: &str, pairs: &[(String, String)]) -> String {
    // A fragment is never sent.
    let url = url.split('#').next().unwrap_or_default();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let is_replaced = |pair: &str| {
        // In a query a plus encodes a space (form encoding).
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        let name = percent_decode_str(&name).decode_utf8_lossy().into_owned();
        pairs.iter().any(|(replaced, _)| *replaced == name)
    };
    let existing = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !is_replaced(pair))
        .map(str::to_owned);
    let more = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
    let all: Vec<_> = existing.chain(more).collect();
    if all.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", all.join("&"))
    }
}

/// Whether a header may be set by a manifest.
pub(crate) fn is_settable(name: &str) -> bool {
    http::HeaderName::try_from(name).is_ok_and(|name| !FRAMING_HEADERS.contains(&name.as_str()))
}

/// Whether a text can be the value of a header: no line breaks and no other controls.
pub(crate) fn is_header_value(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_in_a_path_stay_one_segment() {
        let value = |key: &str| (key == "id").then_some(Some("a/b?c#d {id} é"));
        assert_eq!(
            fill_template("https://h/x/{id}/{other}/{", value).unwrap(),
            "https://h/x/a%2Fb%3Fc%23d%20%7Bid%7D%20%C3%A9/{other}/{"
        );
        assert_eq!(
            fill_template("https://h/{id}", |_| Some(None)),
            Err("id".to_owned())
        );
    }

    #[test]
    fn dot_segments_are_found_in_every_spelling() {
        for dots in [
            "https://h/a/..",
            "https://h/./a",
            "https://h/%2E%2e/a?b",
            "https://h/a/.%2e",
        ] {
            assert_eq!(dot_segments(dots), 1, "{dots}");
        }
        assert_eq!(dot_segments("https://h/a.b/...?x=/../"), 0);
    }

    #[test]
    fn a_query_is_merged_and_the_same_name_is_replaced() {
        let pairs = [("b c".to_owned(), "1&2".to_owned())];
        assert_eq!(
            with_query("https://h/x?a=%20&b+c=0&b%20c=9&d#f", &pairs),
            "https://h/x?a=%20&d&b%20c=1%262"
        );
        assert_eq!(with_query("https://h/x?", &[]), "https://h/x");
        assert_eq!(with_query("https://h/x?a=1", &[]), "https://h/x?a=1");
    }

    #[test]
    fn values_as_text() {
        assert_eq!(value_text(&json!(["a", 1, true])), "a,1,true");
        assert_eq!(value_text(&json!({"a": [1]})), r#"{"a":[1]}"#);
        assert_eq!(value_text(&json!(false)), "false");
    }

    #[test]
    fn no_header_breaks_out_of_its_line() {
        assert!(is_header_value("a\tb é"));
        for wrong in ["a\r\nX: y", "a\n", "\0", "\u{7f}"] {
            assert!(!is_header_value(wrong), "{wrong:?}");
        }
        for wrong in [
            "Host",
            "content-length",
            "a b",
            "",
            "x:y",
            "Transfer-Encoding",
        ] {
            assert!(!is_settable(wrong), "{wrong}");
        }
        assert!(is_settable("X-Tenant") && is_settable("Authorization"));
    }
}
