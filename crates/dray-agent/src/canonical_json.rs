//! One text for each JSON value: the JSON Canonicalization Scheme (RFC 8785), so that digests of equal values are
//! equal.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

/// Every integer up to this one is exactly one double (RFC 8785, section 3.2.2.3).
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The canonical text of a value.
///
/// Members are in the order of their names in UTF-16, numbers are written as ECMAScript writes them. Integers beyond
/// 2^53 keep all digits, although RFC 8785 would round them, because two different calls must not have the same digest.
///
/// ```
/// let value = serde_json::json!({"b": 1e3, "a": ["\u{20ac}", null]});
/// assert_eq!(dray_agent::canonical_json::canonical_json(&value), "{\"a\":[\"€\",null],\"b\":1000}");
/// ```
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        // This library writes the escapes of RFC 8785, section 3.2.2.2.
        Value::String(_) => out.push_str(&value.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => write_object(out, members),
    }
}

fn write_object(out: &mut String, members: &Map<String, Value>) {
    let mut sorted: Vec<_> = members.iter().collect();
    // RFC 8785 sorts by UTF-16 code units, whose order differs from that of code points beyond the basic plane.
    sorted.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
    out.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&Value::from(name.as_str()).to_string());
        out.push(':');
        write_value(out, value);
    }
    out.push('}');
}

fn write_number(out: &mut String, number: &Number) {
    let is_unsafe = |whole: u64| whole > MAX_SAFE_INTEGER;
    let beyond = number.as_u64().is_some_and(is_unsafe)
        || number
            .as_i64()
            .is_some_and(|whole| is_unsafe(whole.unsigned_abs()));
    match number.as_f64() {
        Some(double) if !beyond => write_double(out, double),
        _ => {
            let _ = write!(out, "{number}");
        }
    }
}

/// ECMAScript's `Number::toString` (ECMA-262, section 6.1.6.1.20), with the shortest digits that read back as the same
/// double.
fn write_double(out: &mut String, double: f64) {
    if double == 0.0 {
        // Negative zero is written as 0 too.
        out.push('0');
        return;
    }
    if double < 0.0 {
        out.push('-');
    }
    let shortest = format!("{:e}", double.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The value is 0.digits × 10^point.
    let point = exponent + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    match point {
        1..=21 if count <= point => {
            let _ = write!(out, "{digits}{}", zeros(point - count));
        }
        1..=21 => {
            let (whole, part) = digits.split_at(usize::try_from(point).unwrap_or_default());
            let _ = write!(out, "{whole}.{part}");
        }
        -5..=0 => {
            let _ = write!(out, "0.{}{digits}", zeros(-point));
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let _ = write!(out, "{first}{dot}{rest}e{exponent:+}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        canonical_json(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_example_of_rfc_8785_has_its_canonical_text() {
        // Section 3.2.2.
        let numbers = [
            333_333_333.333_333_3,
            1e30,
            4.50,
            2e-3,
            0.000_000_000_000_000_000_000_000_001,
        ];
        let mut input: Value = serde_json::from_str(
            r#"{"string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#,
        )
        .unwrap();
        input["numbers"] = serde_json::json!(numbers);
        let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
            \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
        assert_eq!(canonical_json(&input), expected);
    }

    #[test]
    fn members_are_in_the_order_of_utf_16() {
        // Section 3.2.3.
        let input = r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#;
        let order: Vec<_> = canonical(input)
            .matches(|character: char| character.is_ascii_digit())
            .map(str::to_owned)
            .collect();
        // The name "1" comes before its value.
        assert_eq!(order.concat(), "21467153");
    }

    #[test]
    fn numbers_are_those_of_ecmascript() {
        // The examples of appendix B, and the limits of each form.
        for (given, expected) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("5e-324", "5e-324"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("9007199254740991", "9007199254740991"),
            ("1e21", "1e+21"),
            ("9.999999999999997e20", "999999999999999700000"),
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("333333333.3333332", "333333333.3333332"),
            ("-12.5", "-12.5"),
            ("10.0", "10"),
        ] {
            let double: f64 = given.parse().unwrap();
            assert_eq!(canonical_json(&Value::from(double)), expected, "{given}");
        }
        assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
        assert_ne!(
            canonical("18446744073709551615"),
            canonical("18446744073709551614")
        );
    }
}
