//! The text of a media type (RFC 9110, section 8.3.1).

/// The essence of a media type: `type/subtype` in lower case, without parameters.
///
/// The result is empty when the text names no type. It is not checked against the token grammar.
pub fn essence(media_type: &str) -> String {
    let end = media_type.find(';').unwrap_or(media_type.len());
    let essence = media_type.get(..end).unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// The value of a parameter such as `charset`, with quotes removed; `None` when it is absent or empty.
///
/// A quoted value with a semicolon is cut there, because no parameter that this project reads contains one.
pub fn parameter(media_type: &str, name: &str) -> Option<String> {
    media_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"').trim();
        (key.trim().eq_ignore_ascii_case(name) && !value.is_empty()).then(|| value.to_owned())
    })
}

/// Whether a type matches a pattern: `*/*` matches any type, `x/*` any type that begins with `x/`, and other patterns
/// match the same type, ignoring ASCII case. A missing type matches no pattern (quickapps 19.2).
pub fn matches_pattern(media_type: Option<&str>, pattern: &str) -> bool {
    let Some(media_type) = media_type.filter(|media_type| !media_type.is_empty()) else {
        return false;
    };
    match pattern.strip_suffix('*') {
        // This arm comes before the one for `x/*`, where `*/*` would mean types that begin with `*/`.
        _ if pattern == "*/*" => true,
        Some(family) if family.ends_with('/') => media_type
            .get(..family.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(family)),
        _ => media_type.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_essence_has_lower_case_and_no_parameters() {
        assert_eq!(essence(" Text/HTML ; charset=UTF-8"), "text/html");
        assert_eq!(essence("image/png"), "image/png");
        assert_eq!(essence("; charset=utf-8"), "");
        assert_eq!(essence(""), "");
    }

    #[test]
    fn a_parameter_is_found_in_any_case_and_unquoted() {
        let charset = |text: &str| parameter(text, "charset");
        assert_eq!(
            charset("a/b; x=1; Charset=\"UTF-8\"").as_deref(),
            Some("UTF-8")
        );
        assert_eq!(charset("a/b; charset="), None);
        assert_eq!(charset("charset=utf-8"), None);
    }

    #[test]
    fn a_missing_type_matches_no_pattern_and_a_family_ends_at_its_slash() {
        assert!(
            matches_pattern(Some("image/png"), "*/*")
                && matches_pattern(Some("Image/PNG"), "image/*")
        );
        assert!(matches_pattern(Some("text/csv"), "text/CSV"));
        assert!(
            !matches_pattern(Some("imagery/png"), "image/*")
                && !matches_pattern(Some("image/png"), "image/p*")
        );
        assert!(!matches_pattern(None, "*/*") && !matches_pattern(Some(""), "*/*"));
    }
}
