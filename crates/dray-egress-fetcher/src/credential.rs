//! Credentials of the operator that are added to requests for one host.
//!
//! A credential belongs to the URL of the caller's request. It is sent to exactly that host and port, in the first hop
//! alone, so it is not sent to the target of a redirect. Audit events contain only its name, and no message, log or
//! reply of this service contains its value. The head of a response is passed on without it. A server
//! that repeats it in a body would show it to the caller; the operator has to consider that.

use std::borrow::Cow;
use std::sync::Arc;

use dray_guard::{CanonicalUrl, Host};
use dray_types::Secret;
use http::{HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

mod response;

/// The part of a request that carries the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// A header field, which replaces one of the caller.
    Header(HeaderName),
    /// A parameter of the query, unless the caller's URL has one of this name.
    Query(String),
}

/// A credential for one host.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The name in audit events.
    pub name: String,
    /// The only host that gets it, in canonical form.
    pub host: String,
    /// The only port at which it is sent.
    pub port: u16,
    /// The place of the value in a request.
    pub place: CredentialLocation,
    /// The value, as it is sent.
    pub value: Secret,
    /// Whether the credential may be sent over plain http.
    pub allow_plain_http: bool,
    /// The tenants whose requests get it.
    pub tenants: Vec<String>,
}

impl Credential {
    /// Whether a request of `tenant` for `url` gets it.
    fn is_for(&self, tenant: &str, url: &CanonicalUrl) -> bool {
        let is_host = matches!(url.host(), Host::Name(name) if name.as_str() == self.host);
        is_host
            && !url.root_dot()
            && url.port() == self.port
            && (url.https() || self.allow_plain_http)
            && self.tenants.iter().any(|allowed| allowed == tenant)
            && !self.has_parameter(url)
    }

    /// Whether the URL already has a parameter of this name: two of one name could be read either way.
    fn has_parameter(&self, url: &CanonicalUrl) -> bool {
        let CredentialLocation::Query(name) = &self.place else {
            return false;
        };
        let query = url.path_and_query().split_once('?');
        query.is_some_and(|(_, query)| {
            // Some servers separate parameters by semicolons too.
            query.split(['&', ';']).any(|pair| {
                let written = pair.split('=').next().unwrap_or_default();
                // The name is decoded as servers do: `k%65y` is `key`.
                percent_decode_str(written).eq(name.bytes())
            })
        })
    }

    /// The header field; `None` for a parameter.
    pub fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let CredentialLocation::Header(name) = &self.place else {
            return None;
        };
        let mut value = HeaderValue::from_str(self.value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name.clone(), value))
    }

    /// Path and query of a request for `url`, for the target.
    pub fn path_and_query<'a>(&self, url: &'a CanonicalUrl) -> Cow<'a, str> {
        self.add_to_query(url.path_and_query())
    }

    /// This path and query with the parameter of the credential, if it is one.
    pub fn add_to_query<'a>(&self, path_and_query: &'a str) -> Cow<'a, str> {
        let CredentialLocation::Query(name) = &self.place else {
            return path_and_query.into();
        };
        let value = utf8_percent_encode(self.value.expose(), NON_ALPHANUMERIC);
        let separator = if path_and_query.contains('?') {
            '&'
        } else {
            '?'
        };
        format!("{path_and_query}{separator}{name}={value}").into()
    }
}

/// All credentials of the operator. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CredentialStore(Arc<Vec<Arc<Credential>>>);

impl CredentialStore {
    /// A request gets the first credential that is for it.
    pub fn new(credentials: Vec<Credential>) -> Self {
        Self(Arc::new(credentials.into_iter().map(Arc::new).collect()))
    }

    /// The credential for a request of `tenant` for `url`.
    pub fn find(&self, tenant: &str, url: &CanonicalUrl) -> Option<Arc<Credential>> {
        let mut credentials = self.0.iter();
        credentials
            .find(|credential| credential.is_for(tenant, url))
            .map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(place: CredentialLocation) -> Credential {
        Credential {
            name: "files".to_owned(),
            host: "files.example.org".to_owned(),
            port: 443,
            place,
            value: Secret::new("hunter2 &?"),
            allow_plain_http: false,
            tenants: vec!["acme".to_owned()],
        }
    }

    fn url(text: &str) -> CanonicalUrl {
        CanonicalUrl::parse(text).unwrap()
    }

    #[test]
    fn a_credential_is_for_its_host_port_scheme_and_tenants_alone() {
        let header = CredentialLocation::Header(http::header::AUTHORIZATION);
        let store = CredentialStore::new(vec![credential(header)]);
        assert!(
            store
                .find("acme", &url("https://FILES.example.org/a"))
                .is_some()
        );
        for (tenant, text) in [
            ("umbrella", "https://files.example.org/"),
            ("acme", "http://files.example.org/"),
            ("acme", "http://files.example.org:443/"),
            ("acme", "https://files.example.org:8443/"),
            ("acme", "https://files.example.org./"),
            ("acme", "https://x.files.example.org/"),
            ("acme", "https://example.org/files.example.org"),
            ("acme", "https://93.184.215.14/"),
        ] {
            assert!(store.find(tenant, &url(text)).is_none(), "{tenant} {text}");
        }
    }

    #[test]
    fn a_parameter_is_encoded_and_does_not_repeat_one_of_the_caller() {
        let query = credential(CredentialLocation::Query("key".to_owned()));
        for (text, expected) in [
            ("https://files.example.org/a", "/a?key=hunter2%20%26%3F"),
            (
                "https://files.example.org/a?b=c",
                "/a?b=c&key=hunter2%20%26%3F",
            ),
        ] {
            assert_eq!(query.path_and_query(&url(text)), expected);
        }
        let store = CredentialStore::new(vec![query]);
        for (query, is_free) in [
            ("a=b&key=own", false),
            ("key", false),
            ("k%65y=own", false),
            ("a=b;%6B%65%79=own", false),
            ("keys=own", true),
            ("a=key", true),
            ("k%2565y=own", true),
        ] {
            let url = url(&format!("https://files.example.org/?{query}"));
            assert_eq!(store.find("acme", &url).is_some(), is_free, "{query}");
        }
    }

    #[test]
    fn no_form_of_a_credential_shows_its_value() {
        let header = credential(CredentialLocation::Header(http::header::AUTHORIZATION));
        let (_, value) = header.header().unwrap();
        let store = CredentialStore::new(vec![header]);
        assert!(!format!("{store:?} {value:?}").contains("hunter2"));
    }
}
