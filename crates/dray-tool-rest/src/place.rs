//! Values in the parts of a request: path, query, headers. Nothing that a value holds changes the part around it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

/// What RFC 3986 section 2.3 leaves as it is; everything else is escaped.
const ESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Headers that say how a request is sent and to whom.
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

/// Text as it is, lists joined by commas, objects as JSON, `null` as nothing.
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

/// The template with values in place of `{key}`; what is put in is not looked at again. `None` as a value is one that
/// is missing.
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
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Whether a segment of the path of a URL means another place: parsers take `..` and `%2e%2e` for the same.
pub(crate) fn has_dots(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.split(['/', '\\']).any(|segment| {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        matches!(decoded.as_slice(), b"." | b"..")
    })
}

/// The URL with more in its query. What it says of the same names already gives way.
pub(crate) fn with_query(url: &str, pairs: &[(String, String)]) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let is_replaced = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        let name = percent_decode_str(&name).decode_utf8_lossy().into_owned();
        pairs.iter().any(|(replaced, _)| *replaced == name)
    };
    let kept = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !is_replaced(pair))
        .map(str::to_owned);
    let more = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)));
    let all: Vec<_> = kept.chain(more).collect();
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
    fn segments_of_dots_are_seen_however_they_are_spelt() {
        for dots in [
            "https://h/a/..",
            "https://h/./a",
            "https://h/%2E%2e/a?b",
            "https://h/a/.%2e",
        ] {
            assert!(has_dots(dots), "{dots}");
        }
        assert!(!has_dots("https://h/a.b/...?x=/../"));
    }

    #[test]
    fn a_query_is_merged_and_the_same_name_gives_way() {
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
