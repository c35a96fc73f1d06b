//! Common parsers for the text of an aliased variable. They are strict: text that they cannot parse is a start-up error
//! and never becomes a default.

use std::time::Duration;

use dray_types::{ByteSize, Period};

use super::AliasValue;

/// Warning about a variable that is set but blank.
const BLANK_VALUE_MESSAGE: &str = "is blank and counts as unset";

/// Accepts a whole number, zero or above.
pub fn parse_integer(text: &str) -> Result<AliasValue, String> {
    text.trim()
        .parse::<u64>()
        .map(|number| AliasValue::Value(number.into()))
        .map_err(|_| "must be a whole number".to_owned())
}

/// Accepts seconds as a decimal number (`5`, `0.5`), for a field that is a [`Period`].
pub fn parse_seconds(text: &str) -> Result<AliasValue, String> {
    text.trim()
        .parse::<f64>()
        .ok()
        // `inf` and `NaN` are numbers for the parser.
        .filter(|seconds| seconds.is_finite())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .map(|duration| AliasValue::Value(Period::from(duration).to_string().into()))
        .ok_or_else(|| "must be a number of seconds, such as 5 or 0.5".to_owned())
}

/// Accepts a number of bytes, with or without a unit, for a field that is a [`ByteSize`].
pub fn parse_bytes(text: &str) -> Result<AliasValue, String> {
    text.trim()
        .parse::<ByteSize>()
        .map(|size| AliasValue::Value(size.to_string().into()))
        .map_err(|_| "must be a number of bytes".to_owned())
}

/// Accepts any text as it is; blank counts as unset, with a warning.
pub fn parse_text(text: &str) -> Result<AliasValue, String> {
    if text.trim().is_empty() {
        return Ok(AliasValue::Unset(BLANK_VALUE_MESSAGE));
    }
    Ok(AliasValue::Value(text.into()))
}

/// Accepts a list of texts: `a,b` or a JSON list. Blanks around items are dropped; a blank variable counts as unset,
/// with a warning.
pub fn parse_list(text: &str) -> Result<AliasValue, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(AliasValue::Unset(BLANK_VALUE_MESSAGE));
    }
    // `[2620:fe::fe]:53` begins like a JSON list but is not one.
    if text.starts_with('[') && text.ends_with(']') {
        let items: Vec<String> = serde_json::from_str(text)
            .map_err(|_| "must be a JSON list of texts or a list separated by commas".to_owned())?;
        return Ok(AliasValue::Value(items.into()));
    }
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.iter().any(|item| item.is_empty()) {
        // With `a,,b`, an item may be missing that was meant as a restriction.
        return Err("must not have empty items".to_owned());
    }
    Ok(AliasValue::Value(items.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(parse: super::super::AliasParser, text: &str, expected: &Value) {
        assert_eq!(
            parse(text),
            Ok(AliasValue::Value(expected.clone())),
            "{text}"
        );
    }

    #[test]
    fn numbers_of_seconds_become_periods() {
        check(parse_seconds, "5", &json!("5s"));
        check(parse_seconds, "5.0", &json!("5s"));
        check(parse_seconds, "0.25", &json!("250ms"));
        for wrong in ["-1", "nan", "inf", "5s", ""] {
            assert!(parse_seconds(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn malformed_bytes_and_integers_are_refused() {
        check(parse_bytes, "104857600", &json!("100MiB"));
        check(parse_integer, " 7 ", &json!(7));
        assert!(parse_bytes("ten").is_err());
        assert!(parse_integer("7.5").is_err());
        assert!(parse_integer("-1").is_err());
    }

    #[test]
    fn lists_are_separated_by_commas_or_written_as_json() {
        check(
            parse_list,
            "a.example, *.b.example",
            &json!(["a.example", "*.b.example"]),
        );
        check(parse_list, r#"["a","b"]"#, &json!(["a", "b"]));
        check(parse_list, "[]", &json!([]));
        check(
            parse_list,
            "[2620:fe::fe]:53, 192.0.2.1:53",
            &json!(["[2620:fe::fe]:53", "192.0.2.1:53"]),
        );
        assert!(parse_list("a,,b").is_err());
        assert!(parse_list("[1]").is_err());
        assert_eq!(parse_list("  "), Ok(AliasValue::Unset(BLANK_VALUE_MESSAGE)));
        assert_eq!(parse_text(" "), Ok(AliasValue::Unset(BLANK_VALUE_MESSAGE)));
    }
}
