//! Removes a credential from the head of the response to the request that carried it.
//!
//! Many redirects keep the query of the request, and some servers repeat fields. The target of a redirect, the caller
//! and the sandbox must not get the value that way.

use std::borrow::Cow;

use dray_guard::Code;
use http::HeaderValue;
use http::header::{CONTENT_LOCATION, HeaderMap, HeaderName, LINK, LOCATION, REFRESH};
use percent_encoding::percent_decode;

use super::{Credential, CredentialLocation};

/// Fields with references, from which a parameter of a query is removed.
static REFERENCE_FIELDS: [HeaderName; 4] = [CONTENT_LOCATION, LINK, LOCATION, REFRESH];

/// Least bytes of a value that is searched for in every field. Responses contain a shorter one by chance.
const MIN_SEARCHED_BYTES: usize = 6;

/// Most times that a text is percent-decoded: a reference within a reference is encoded twice.
const MAX_DECODINGS: usize = 3;

impl Credential {
    /// Removes the parameter with the value from references of a response head.
    ///
    /// # Errors
    ///
    /// `malformed_response` if the head still contains the value, in any percent-encoding.
    pub fn remove_from_response(&self, fields: &mut HeaderMap) -> Result<(), Code> {
        if let CredentialLocation::Query(name) = &self.place {
            for (field, value) in &mut *fields {
                if !REFERENCE_FIELDS.contains(field) {
                    continue;
                }
                if let Some(rest) = without_parameter(value.as_bytes(), name, self.value.expose()) {
                    *value = HeaderValue::from_bytes(&rest).map_err(|_| Code::MalformedResponse)?;
                }
            }
        }
        let searched = self.searched_texts();
        let mut values = fields.values();
        if values.any(|value| contains_any(value.as_bytes(), &searched)) {
            return Err(Code::MalformedResponse);
        }
        Ok(())
    }

    /// The forms of the value that a response head must not contain.
    fn searched_texts(&self) -> Vec<String> {
        let value = self.value.expose();
        // A server may repeat a token without its scheme: `x` of `Bearer x`.
        let token = value.rsplit(' ').next().unwrap_or_default();
        // A form writes a blank as a plus sign.
        let mut searched = vec![value.to_owned(), value.replace(' ', "+"), token.to_owned()];
        searched.retain(|text| text.len() >= MIN_SEARCHED_BYTES);
        searched.dedup();
        searched
    }
}

/// Whether a text contains one of these texts, in any percent-encoding.
fn contains_any(text: &[u8], searched: &[String]) -> bool {
    let forms = decoded_forms(text);
    searched.iter().any(|searched| {
        let is_found = |form: &Cow<'_, [u8]>| {
            let mut windows = form.windows(searched.len());
            windows.any(|window| window == searched.as_bytes())
        };
        forms.iter().any(is_found)
    })
}

/// A text, and what percent-decoding makes of it, again and again.
fn decoded_forms(text: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut forms = vec![Cow::Borrowed(text)];
    for _ in 0..MAX_DECODINGS {
        let decoded: Option<Vec<u8>> = forms
            .last()
            .filter(|form| form.contains(&b'%'))
            .map(|form| percent_decode(form).collect());
        match decoded {
            Some(decoded) => forms.push(decoded.into()),
            None => break,
        }
    }
    forms
}

/// The text of a field without the parameters `name` with this value; `None` if it has none. The value of a parameter
/// is compared as a server decodes it.
fn without_parameter(text: &[u8], name: &str, value: &str) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text;
    // Whether the `?` of a query was removed together with its first parameter.
    let mut lacks_start = false;
    while let Some((&first, after)) = rest.split_first() {
        let end = after
            .iter()
            .position(|byte| is_delimiter(*byte))
            .unwrap_or(after.len());
        let (token, next) = after.split_at(end);
        rest = next;
        let delimiter = match first {
            b'&' | b';' if lacks_start => b'?',
            first => first,
        };
        let is_removed =
            matches!(delimiter, b'?' | b'&' | b';') && is_parameter(token, name, value);
        lacks_start = is_removed && delimiter == b'?';
        if !is_removed {
            kept.push(delimiter);
            kept.extend_from_slice(token);
        }
    }
    (kept.len() < text.len()).then_some(kept)
}

/// Whether the byte ends a parameter of a query, in a reference or in the text around it.
const fn is_delimiter(byte: u8) -> bool {
    matches!(
        byte,
        b'?' | b'&' | b';' | b'#' | b'<' | b'>' | b'"' | b'\'' | b',' | b' ' | b'\t'
    )
}

fn is_parameter(token: &[u8], name: &str, value: &str) -> bool {
    let mut parts = token.splitn(2, |byte| *byte == b'=');
    let (Some(found), Some(written)) = (parts.next(), parts.next()) else {
        return false;
    };
    // A form writes a blank as a plus sign, and a value may contain one.
    let blanks: Vec<u8> = written
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(found).eq(name.bytes())
        && (percent_decode(written).eq(value.bytes()) || percent_decode(&blanks).eq(value.bytes()))
}

#[cfg(test)]
mod tests {
    use dray_types::Secret;
    use http::header::{AUTHORIZATION, SET_COOKIE};

    use super::*;

    fn credential(place: CredentialLocation, value: &str) -> Credential {
        Credential {
            name: "files".to_owned(),
            host: "files.example.org".to_owned(),
            port: 443,
            place,
            value: Secret::new(value),
            allow_plain_http: false,
            tenants: vec!["acme".to_owned()],
        }
    }

    /// The value of the field after the removal.
    fn field_without(
        credential: &Credential,
        name: HeaderName,
        value: &str,
    ) -> Result<String, Code> {
        let mut fields = HeaderMap::new();
        fields.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        credential.remove_from_response(&mut fields)?;
        Ok(fields[name].to_str().unwrap().to_owned())
    }

    #[test]
    fn a_parameter_is_removed_from_references() {
        let query = credential(CredentialLocation::Query("key".to_owned()), "hunter2 &?");
        for (name, value, expected) in [
            (LOCATION, "/dir/?key=hunter2%20%26%3F", "/dir/"),
            (LOCATION, "/dir/?key=hunter2+%26%3f", "/dir/"),
            (LOCATION, "/?k%65y=hunter2%20%26%3F&a=b#c", "/?a=b#c"),
            (LOCATION, "/?a=b&key=hunter2%20%26%3F;c=d", "/?a=b;c=d"),
            (
                LOCATION,
                "/?key=hunter2%20%26%3F&key=hunter2%20%26%3F&a",
                "/?a",
            ),
            (CONTENT_LOCATION, "?a&key=hunter2%20%26%3F", "?a"),
            (
                LINK,
                "</l?page=2&key=hunter2%20%26%3F>; rel=\"next\", </l?key=hunter2%20%26%3F>; rel=first",
                "</l?page=2>; rel=\"next\", </l>; rel=first",
            ),
            (REFRESH, "0; url=/a?key=hunter2%20%26%3F", "0; url=/a"),
            // Another parameter, and another value of this one.
            (LOCATION, "/?keys=a&key=b&a=key", "/?keys=a&key=b&a=key"),
        ] {
            assert_eq!(field_without(&query, name, value).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_response_that_still_contains_the_value_is_refused() {
        let query = credential(CredentialLocation::Query("key".to_owned()), "hunter2 &?");
        let header = credential(CredentialLocation::Header(AUTHORIZATION), "Bearer hunter2");
        for (credential, name, value, is_refused) in [
            (
                &query,
                LOCATION,
                "/login?to=%2Fdir%3Fkey%3Dhunter2%2520%2526%253F",
                true,
            ),
            (&query, LOCATION, "/hunter2%20%26%3f", true),
            (&query, SET_COOKIE, "last=/a?key=hunter2+%26%3F", true),
            (&query, SET_COOKIE, "last=hunter2", false),
            (&header, SET_COOKIE, "token=hunter2", true),
            (&header, LOCATION, "/?token=%68unter2", true),
            (&header, LOCATION, "/Bearer", false),
        ] {
            let expected = if is_refused {
                Err(Code::MalformedResponse)
            } else {
                Ok(value.to_owned())
            };
            assert_eq!(field_without(credential, name, value), expected, "{value}");
        }
    }

    #[test]
    fn a_short_value_is_removed_as_a_parameter_alone() {
        let query = credential(CredentialLocation::Query("key".to_owned()), "1");
        for (value, expected) in [("/?key=1&a=1", "/?a=1"), ("/1", "/1")] {
            assert_eq!(
                field_without(&query, LOCATION, value).as_deref(),
                Ok(expected)
            );
        }
    }
}
