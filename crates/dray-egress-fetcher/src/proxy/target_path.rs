//! The target of a request as its server gets it.
//!
//! A proxy must not change path and query (RFC 9110, section 7.7): signatures of requests cover them. The canonical form
//! of the URL, which is judged, encodes characters that some clients send as they are. The server gets them as the
//! client wrote them if that is the only difference. Otherwise, such as with dot segments, it gets the canonical form:
//! it must read the path that was judged.

use std::borrow::Cow;

use dray_guard::CanonicalUrl;
use http::{Method, Uri};

use super::head::{ProxyRequest, RequestTarget};
use crate::credential::{Credential, CredentialLocation};

/// The target of `request` in origin form, with a credential in its query. It is in asterisk form for `OPTIONS` of a URL
/// without a path (RFC 9112, section 3.2.4).
pub(super) fn request_target<'a>(
    request: &'a ProxyRequest,
    url: &'a CanonicalUrl,
    credential: Option<&Credential>,
) -> Cow<'a, str> {
    let written = written_path(&request.target);
    let in_query =
        credential.filter(|credential| matches!(credential.place, CredentialLocation::Query(_)));
    if written.is_empty() && request.method == Method::OPTIONS && in_query.is_none() {
        return "*".into();
    }
    let is_kept = is_encoded_form(url.path_and_query(), written) && Uri::try_from(written).is_ok();
    let path_and_query = if is_kept {
        written
    } else {
        url.path_and_query()
    };
    match in_query {
        Some(credential) => credential.add_to_query(path_and_query),
        None => path_and_query.into(),
    }
}

/// Path and query as the client wrote them, without the fragment.
fn written_path(target: &RequestTarget) -> &str {
    let written = match target {
        RequestTarget::Origin(path) => path.as_str(),
        RequestTarget::Absolute(text) => {
            let rest = text.split_once("://").map_or("", |(_, rest)| rest);
            let start = rest.find(['/', '?', '#']);
            let path = start.and_then(|start| rest.get(start..));
            path.unwrap_or_default()
        }
        RequestTarget::Authority(_) => "",
    };
    written.split('#').next().unwrap_or_default()
}

/// Whether `canonical` is `written`, with some of its visible ASCII characters percent-encoded.
fn is_encoded_form(canonical: &str, written: &str) -> bool {
    let mut rest = canonical.as_bytes();
    for byte in written.bytes() {
        let after = rest.strip_prefix(&[byte]).or_else(|| {
            let encoded = format!("%{byte:02X}");
            let after = rest.strip_prefix(encoded.as_bytes());
            after.filter(|_| byte.is_ascii_graphic())
        });
        let Some(after) = after else { return false };
        rest = after;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use dray_types::Secret;

    use super::*;
    use crate::proxy::head::{RequestRecipient, parse_head};

    fn target_of(line: &str, credential: Option<&Credential>) -> String {
        let recipient = if line.contains("://") {
            RequestRecipient::Proxy
        } else {
            RequestRecipient::Server
        };
        let head = format!("{line} HTTP/1.1\r\nHost: files.example.org\r\n\r\n");
        let request = parse_head(head.as_bytes(), recipient).unwrap();
        let tunnel = CanonicalUrl::parse("http://files.example.org/").unwrap();
        let url = request.url_in_tunnel(&tunnel).unwrap();
        request_target(&request, &url, credential).into_owned()
    }

    #[test]
    fn a_target_is_sent_as_the_client_wrote_it_unless_another_path_was_judged() {
        for (line, target) in [
            ("GET /x?q=it's{a}|b^", "/x?q=it's{a}|b^"),
            ("GET /a{b}/c%27d", "/a{b}/c%27d"),
            ("GET http://files.example.org/x?q='#f", "/x?q='"),
            ("GET /x?q=a\\b&c=%5c", "/x?q=a\\b&c=%5c"),
            ("GET http://files.example.org?\\d", "/?%5Cd"),
            ("GET http://FILES.example.org", "/"),
            ("GET http://files.example.org?a=b", "/?a=b"),
            // The judged path has no dot segments.
            ("GET /a{b}/../c?q='", "/c?q=%27"),
            ("GET /./c", "/c"),
            ("GET /a/%2e%2e/c", "/c"),
            ("OPTIONS http://files.example.org", "*"),
            ("OPTIONS http://files.example.org/", "/"),
            ("OPTIONS http://files.example.org?a", "/?a"),
        ] {
            assert_eq!(target_of(line, None), target, "{line}");
        }
    }

    #[test]
    fn a_credential_is_added_to_the_query_that_the_client_wrote() {
        let credential = Credential {
            name: "files".to_owned(),
            host: "files.example.org".to_owned(),
            port: 80,
            place: CredentialLocation::Query("key".to_owned()),
            value: Secret::new("hunter2"),
            allow_plain_http: true,
            tenants: vec!["acme".to_owned()],
        };
        for (line, target) in [
            ("GET /a?q='", "/a?q='&key=hunter2"),
            ("OPTIONS http://files.example.org", "/?key=hunter2"),
        ] {
            assert_eq!(target_of(line, Some(&credential)), target, "{line}");
        }
    }
}
