//! Methods that the body of a request names, for servers that read it as a form. Rails, Laravel, Symfony, Spring and
//! others take `_method` of a form in place of `POST`; Laravel also takes that of JSON.
//!
//! The scanner reads a body while it passes, and stores at most one name. It reports a name before it passes on the
//! last byte of the name, so that no server gets both the name and a complete request. It errs on the strict side: it
//! may take text inside a part for a header of the form, and then refuses more than a server would.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use super::names_method;

/// Most bytes of a name in a form, in its encoding.
const MAX_NAME_BYTES: usize = 4 * 1024;
/// Most bytes from the name of the field `Content-Disposition` to the end of the fields of a part.
const MAX_PART_FIELDS_BYTES: usize = 64 * 1024;
/// Field of a part that has its name (RFC 7578, section 4.2).
const DISPOSITION_FIELD: &[u8] = b"content-disposition";
/// Charsets in which the names of a form have the bytes of ASCII.
const ASCII_CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252"];

/// How the body of a request can name a method.
#[derive(Debug)]
pub enum FormBody {
    /// The body is not a form.
    Other,
    /// The body is a form that cannot be read here: compressed, in another charset, with several types, or with one that
    /// some servers do not read.
    Unreadable,
    /// The body is a form.
    Form(FormScanner),
}

impl FormBody {
    /// Decides by the fields of a request. Some servers read a body without a type as a form.
    pub fn of(fields: &HeaderMap) -> Self {
        let mut types = values_of(fields, "content-type");
        let declared = types.next().map(HeaderValue::as_bytes);
        // A server that ignores names with `_` gets a body without a type.
        if declared.is_some() && !fields.contains_key(CONTENT_TYPE) {
            return Self::Unreadable;
        }
        let declared = String::from_utf8_lossy(declared.unwrap_or_default()).to_ascii_lowercase();
        let syntax = if declared.contains("multipart/") {
            FormSyntax::Multipart(PartScanner::default())
        } else if declared.contains("json") {
            FormSyntax::Json(JsonScanner::default())
        } else if declared.contains("urlencoded") || declared.trim().is_empty() {
            FormSyntax::UrlEncoded(PairScanner::default())
        } else if types.next().is_some() {
            return Self::Unreadable;
        } else {
            return Self::Other;
        };
        let is_coded = values_of(fields, "content-encoding")
            .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"));
        if is_coded || types.next().is_some() || declared.contains(',') || !is_ascii(&declared) {
            return Self::Unreadable;
        }
        Self::Form(FormScanner(syntax))
    }
}

/// The values of a field under all its names: for a server that reads fields as CGI variables, `_` stands for `-` (RFC
/// 3875, section 4.1.18).
fn values_of<'a>(
    fields: &'a HeaderMap,
    name: &'static str,
) -> impl Iterator<Item = &'a HeaderValue> {
    let named = fields
        .iter()
        .filter(move |(field, _)| field.as_str().replace('_', "-") == name);
    named.map(|(_, value)| value)
}

/// Whether the parameter `charset` of a media type names one of [`ASCII_CHARSETS`], or is absent.
fn is_ascii(declared: &str) -> bool {
    declared.split(';').skip(1).all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        !name.contains("charset") || ASCII_CHARSETS.contains(&value.trim().trim_matches('"'))
    })
}

/// Reads a form for parameters that name a method.
#[derive(Debug)]
pub struct FormScanner(FormSyntax);

#[derive(Debug)]
enum FormSyntax {
    UrlEncoded(PairScanner),
    Multipart(PartScanner),
    Json(JsonScanner),
}

impl FormScanner {
    /// Whether these next bytes of the body complete a name that a server may take for the name of the method.
    pub fn finds_method(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| match &mut self.0 {
            FormSyntax::UrlEncoded(scanner) => scanner.finds_method(*byte),
            FormSyntax::Multipart(scanner) => scanner.finds_method(*byte),
            FormSyntax::Json(scanner) => scanner.finds_method(*byte),
        })
    }

    /// Whether a whole body has the syntax of a query, so that the methods in it can be read.
    pub const fn is_query(&self) -> bool {
        matches!(self.0, FormSyntax::UrlEncoded(_))
    }
}

/// Reads `application/x-www-form-urlencoded`.
#[derive(Debug, Default)]
struct PairScanner {
    name: Vec<u8>,
    /// Whether the rest of the pair does not matter.
    is_decided: bool,
}

impl PairScanner {
    fn finds_method(&mut self, byte: u8) -> bool {
        if matches!(byte, b'&' | b';') {
            self.name.clear();
            self.is_decided = false;
            return false;
        }
        if self.is_decided {
            return false;
        }
        if byte != b'=' && self.name.len() < MAX_NAME_BYTES {
            // `URLSearchParams` passes over a question mark at the start.
            if byte != b'?' || !self.name.is_empty() {
                self.name.push(byte);
            }
            return false;
        }
        self.is_decided = true;
        if byte != b'=' {
            // The limit may be within an escape.
            let escape = self.name.iter().rposition(|byte| *byte == b'%');
            let is_part = |start: &usize| self.name.len() - start < 3;
            self.name
                .truncate(escape.filter(is_part).unwrap_or(self.name.len()));
        }
        let mut pairs = url::form_urlencoded::parse(&self.name);
        let name = pairs.next().map(|(name, _)| name).unwrap_or_default();
        // A longer name can still be that of the method if blanks precede it.
        let may_continue = byte != b'=' && name.trim().is_empty();
        may_continue || names_method(&name)
    }
}

/// Reads `multipart/form-data` (RFC 7578).
#[derive(Debug, Default)]
struct PartScanner {
    /// How many bytes of [`DISPOSITION_FIELD`] have come.
    matched: usize,
    /// The fields of a part, beginning with `Content-Disposition`.
    fields: Option<Vec<u8>>,
}

impl PartScanner {
    fn finds_method(&mut self, byte: u8) -> bool {
        let Some(fields) = &mut self.fields else {
            let byte = byte.to_ascii_lowercase();
            self.matched = match DISPOSITION_FIELD.get(self.matched) {
                Some(expected) if *expected == byte => self.matched + 1,
                // After a mismatch only the first letter can begin the name again, because `c` occurs nowhere else in
                // the name.
                _ => usize::from(DISPOSITION_FIELD.first() == Some(&byte)),
            };
            if self.matched == DISPOSITION_FIELD.len() {
                self.matched = 0;
                self.fields = Some(Vec::new());
            }
            return false;
        };
        fields.push(byte);
        let is_complete = fields.ends_with(b"\r\n\r\n") || fields.ends_with(b"\n\n");
        if !is_complete && fields.len() < MAX_PART_FIELDS_BYTES {
            return false;
        }
        let finds = !is_complete || part_names_method(&String::from_utf8_lossy(fields));
        self.fields = None;
        finds
    }
}

/// Whether the fields of a part have a parameter `name` that may be that of the method.
fn part_names_method(fields: &str) -> bool {
    let lower = fields.to_ascii_lowercase();
    lower.match_indices("name").any(|(index, _)| {
        let before = lower.get(..index).and_then(|text| text.chars().next_back());
        let is_whole = before.is_none_or(|letter| !letter.is_ascii_alphanumeric());
        // Lower case has the same length in ASCII, so the index is one of the original.
        let after = fields.get(index + 4..).unwrap_or_default().trim_start();
        is_whole && parameter_names_method(after)
    })
}

/// Reads the text after `name`: its value, or an extended value (RFC 2231, RFC 2047), which may be any name.
fn parameter_names_method(after: &str) -> bool {
    let (is_extended, after) = match after.strip_prefix('*') {
        Some(after) => (true, after.trim_start()),
        None => (false, after),
    };
    let Some(value) = after.strip_prefix('=') else {
        // This is a continuation, such as `name*0=`.
        return is_extended;
    };
    let value = value.trim_start();
    let (value, ends): (&str, &[char]) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => (value.trim_start_matches(quote), &['"', '\'', '\r', '\n']),
        _ => (value, &[';', '\r', '\n']),
    };
    let value = value.split(ends).next().unwrap_or_default();
    let is_encoded = is_extended || value.contains("=?") || value.contains(['%', '\\']);
    is_encoded || names_method(value.trim())
}

/// Reads the names of the members of a JSON object.
#[derive(Debug, Default)]
struct JsonScanner {
    depth: usize,
    /// The text of the open string so far, with its escapes.
    string: Option<Vec<u8>>,
    is_escaped: bool,
    /// The last complete string.
    last: Vec<u8>,
}

impl JsonScanner {
    fn finds_method(&mut self, byte: u8) -> bool {
        if let Some(string) = &mut self.string {
            match byte {
                b'"' if !self.is_escaped => {
                    self.last = std::mem::take(string);
                    self.string = None;
                }
                _ => {
                    self.is_escaped = byte == b'\\' && !self.is_escaped;
                    // A longer name cannot be the name of a method.
                    if string.len() < MAX_NAME_BYTES {
                        string.push(byte);
                    }
                }
            }
            return false;
        }
        match byte {
            b'"' => self.string = Some(Vec::new()),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b':' if self.depth == 1 => return json_names_method(&self.last),
            _ => {}
        }
        false
    }
}

fn json_names_method(string: &[u8]) -> bool {
    let quoted = format!("\"{}\"", String::from_utf8_lossy(string));
    serde_json::from_str::<String>(&quoted).is_ok_and(|name| names_method(&name))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use http::header::CONTENT_ENCODING;

    use super::*;

    fn fields(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in pairs {
            fields.append(name, HeaderValue::from_static(value));
        }
        fields
    }

    /// Whether a body of this type names a method, however it is cut.
    fn finds(declared: &'static str, body: &str) -> bool {
        let fed = |size: usize| {
            let FormBody::Form(mut scanner) = FormBody::of(&fields(&[(CONTENT_TYPE, declared)]))
            else {
                panic!("{declared} is a form");
            };
            let mut parts = body.as_bytes().chunks(size);
            parts.any(|part| scanner.finds_method(part))
        };
        let whole = fed(body.len().max(1));
        assert_eq!([fed(1), fed(7)], [whole; 2], "{body}");
        whole
    }

    #[test]
    fn a_pair_of_a_form_names_the_method_in_every_spelling() {
        let declared = "application/x-www-form-urlencoded; charset=UTF-8";
        for body in [
            "_method=DELETE",
            "a=1&_method=DELETE",
            "a=1;%5Fm%65thod=x",
            "?_method=DELETE",
            "+_method=DELETE",
            "_method[]=DELETE",
            "X-HTTP-Method-Override=DELETE",
        ] {
            assert!(finds(declared, body), "{body}");
        }
        for body in [
            "",
            "a=_method",
            "_method",
            "method=x",
            "{\"a\":\"_method\"}",
        ] {
            assert!(!finds(declared, body), "{body}");
        }
        let long = "a".repeat(2 * MAX_NAME_BYTES);
        assert!(!finds(declared, &format!("{long}=_method=")));
        assert!(finds(declared, &format!("{long}&_method=x")));
        let blanks = "%20".repeat(MAX_NAME_BYTES);
        assert!(finds(declared, &format!("{blanks}_method=x")));
        assert!(finds(declared, &format!("_method[{long}]=x")));
    }

    #[test]
    fn a_part_of_a_form_names_the_method_in_every_spelling() {
        let declared = "multipart/form-data; boundary=b";
        for disposition in [
            "Content-Disposition: form-data; name=\"_method\"",
            "content-disposition: form-data; NAME=_method",
            "Content-Disposition: form-data;\r\n name = \"_method\"",
            "Content-Disposition: form-data; name='_method'",
            "Content-Disposition: form-data; name*=utf-8''%5Fmethod",
            "Content-Disposition: form-data; name*0=\"_met\"; name*1=\"hod\"",
            "Content-Disposition: form-data; name=\"=?utf-8?q?_method?=\"",
            "Content-Disposition: form-data; name=\"_me\\thod\"",
            "Content-Disposition: form-data; name=\"a\"; name=\"_method\"",
            "CContent-Disposition: form-data; name=\"_method\"\r\nContent-Type: text/plain",
        ] {
            let body = format!("--b\r\n{disposition}\r\n\r\nDELETE\r\n--b--\r\n");
            assert!(finds(declared, &body), "{disposition}");
            assert!(
                finds(declared, &body.replace("\r\n", "\n")),
                "{disposition}"
            );
        }
        for body in [
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"_method\"\r\n\r\n_method=x\r\n--b--",
            "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n<input name=\"_method\">\r\n--b--",
        ] {
            assert!(!finds(declared, body), "{body}");
        }
        let padding = "x".repeat(MAX_PART_FIELDS_BYTES);
        assert!(finds(declared, &format!("Content-Disposition: {padding}")));
    }

    #[test]
    fn a_member_of_json_names_the_method_only_at_the_top() {
        for body in [
            "{\"_method\":\"DELETE\"}",
            "{\"a\":[{}],\n \"\\u005fmethod\" : 1}",
            "{\"a\":\"\\\"{\", \"_Method\":1}",
        ] {
            assert!(finds("application/json", body), "{body}");
        }
        for body in [
            "",
            "[\"_method\"]",
            "{\"a\":{\"_method\":1}}",
            "{\"a\":\"_method\"}",
        ] {
            assert!(!finds("application/vnd.api+json", body), "{body}");
        }
    }

    #[test]
    fn a_body_is_a_form_by_its_fields() {
        let gzip = (CONTENT_ENCODING, "gzip");
        let namesake = HeaderName::from_static("content_type");
        for (pairs, expected) in [
            (&[][..], "Form"),
            (&[(CONTENT_TYPE, "application/octet-stream")], "Other"),
            (&[(CONTENT_TYPE, "text/csv"), gzip.clone()], "Other"),
            (&[(CONTENT_TYPE, "application/json"), gzip], "Unreadable"),
            (
                &[(CONTENT_TYPE, "multipart/form-data; charset=\"utf-8\"")],
                "Form",
            ),
            (
                &[(CONTENT_TYPE, "multipart/form-data; charset=utf-16")],
                "Unreadable",
            ),
            (
                &[
                    (CONTENT_TYPE, "text/csv"),
                    (CONTENT_TYPE, "multipart/form-data"),
                ],
                "Unreadable",
            ),
            (
                &[(CONTENT_TYPE, "text/csv, application/json")],
                "Unreadable",
            ),
            (&[(namesake.clone(), "text/csv")], "Unreadable"),
            (
                &[
                    (CONTENT_TYPE, "text/csv"),
                    (namesake, "multipart/form-data"),
                ],
                "Unreadable",
            ),
        ] {
            let body = format!("{:?}", FormBody::of(&fields(pairs)));
            assert!(body.starts_with(expected), "{pairs:?}: {body}");
        }
    }
}
