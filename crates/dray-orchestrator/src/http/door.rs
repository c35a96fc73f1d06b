//! Who may come in, and what a request brings along (quickapps 2.1, 2.2).

use axum::http::{HeaderMap, header};
use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_types::{Secret, Sha256Digest};

use super::body::not_json;
use super::contract::ManifestSource;
use super::routes::SurfaceOptions;
use crate::permissions::CallerIdentity;

/// The manifest itself.
const PROPERTIES_HEADER: &str = "x-dial-application-properties";
/// Where the manifest is.
const APPLICATION_HEADER: &str = "x-dial-application-id";
/// The client can show a sign-in.
const CHANNEL_HEADER: &str = "x-dial-client-channel-id";
/// What is read here and goes no further.
const OWN_HEADERS: [&str; 3] = [PROPERTIES_HEADER, APPLICATION_HEADER, CHANNEL_HEADER];

/// A caller whose key was looked at.
#[derive(Debug)]
pub(super) struct VerifiedCredentials {
    pub(super) caller: Caller,
    /// Who it is; `None` when only DIAL Core can tell.
    pub(super) identity: Option<CallerIdentity>,
}

impl SurfaceOptions {
    /// Lets in a request in DIAL's manner.
    pub(super) fn dial_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<VerifiedCredentials, RequestFailure> {
        self.refuse_strangers(headers)?;
        let key = header_text(headers, "api-key").filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| RequestFailure::new(400, "Api-Key header is required"))?;
        let authorization = header_text(headers, header::AUTHORIZATION.as_str());
        let client = authorization
            .and_then(bearer_token)
            .and_then(|token| self.client(token));
        let ours = client.is_some();
        let identity = match client {
            Some(client) => Some(client),
            None if self.dial => None,
            None if self.clients.is_empty() => Some(CallerIdentity::Local),
            None => Some(self.client(key).ok_or_else(unauthorized_failure)?),
        };
        let caller = Caller {
            api_key: Some(Secret::new(key)),
            authorization: authorization.filter(|_| !ours).map(Secret::new),
            ..self.anyone(headers)
        };
        Ok(VerifiedCredentials { caller, identity })
    }

    /// Lets in a request in `OpenAI`'s manner. The bearer token is for this door alone and goes nowhere.
    pub(super) fn plain_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Caller, CallerIdentity), RequestFailure> {
        self.refuse_strangers(headers)?;
        let token = header_text(headers, header::AUTHORIZATION.as_str()).and_then(bearer_token);
        let identity = if self.clients.is_empty() {
            self.loopback.then_some(CallerIdentity::Local)
        } else {
            token.and_then(|token| self.client(token))
        };
        let identity = identity.ok_or_else(unauthorized_failure)?;
        let caller = Caller {
            api_key: header_text(headers, "api-key").map(Secret::new),
            ..self.anyone(headers)
        };
        Ok((caller, identity))
    }

    /// Lets in an editor of manifests: as any request, but a key is needed only where this service checks keys itself.
    pub(super) fn editor(&self, headers: &HeaderMap) -> Result<(), RequestFailure> {
        if self.dial || self.clients.is_empty() {
            return self.refuse_strangers(headers);
        }
        self.plain_caller(headers).map(drop)
    }

    /// A listener of this machine alone that asks for no key must not be open to the pages that a browser on this
    /// machine shows: neither under another name nor from another origin.
    fn refuse_strangers(&self, headers: &HeaderMap) -> Result<(), RequestFailure> {
        if !self.loopback || !self.clients.is_empty() {
            return Ok(());
        }
        if !header_text(headers, header::HOST.as_str()).is_some_and(|host| self.is_ours(host)) {
            return Err(RequestFailure::new(421, "The request is for another host"));
        }
        match header_text(headers, header::ORIGIN.as_str()) {
            Some(origin)
                if !origin
                    .split_once("://")
                    .is_some_and(|(_, host)| self.is_ours(host)) =>
            {
                Err(RequestFailure::new(
                    403,
                    "The request comes from another origin",
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_end_matches('.');
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || address
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The client that has this key.
    fn client(&self, key: &str) -> Option<CallerIdentity> {
        // Digests are compared, so that the timing reveals nothing about the key.
        let shown = Sha256Digest::of(key.as_bytes());
        let mut known = self.clients.iter();
        let (name, _) =
            known.find(|(_, client)| Sha256Digest::of(client.expose().as_bytes()) == shown)?;
        Some(CallerIdentity::Client(name.clone()))
    }

    fn anyone(&self, headers: &HeaderMap) -> Caller {
        let forwarded = headers
            .iter()
            .filter(|(name, _)| {
                name.as_str().starts_with("x-") && !OWN_HEADERS.contains(&name.as_str())
            })
            .filter_map(|(name, value)| {
                let value = std::str::from_utf8(value.as_bytes()).ok()?;
                Some((name.as_str().to_owned(), value.to_owned()))
            });
        Caller {
            api_key: None,
            authorization: None,
            forwarded: forwarded.collect(),
            channel: header_text(headers, CHANNEL_HEADER).map(str::to_owned),
            language: header_text(headers, &self.language_header).map(str::to_owned),
        }
    }
}

/// Where the headers say that the manifest is.
pub(super) fn manifest_source(
    headers: &HeaderMap,
) -> Result<Option<ManifestSource>, RequestFailure> {
    if let Some(properties) = headers.get(PROPERTIES_HEADER) {
        let manifest = serde_json::from_slice(properties.as_bytes());
        let manifest =
            manifest.map_err(|error| not_json("The X-APPLICATION-PROPERTIES header", &error))?;
        return Ok(Some(ManifestSource::Given(manifest)));
    }
    let application = header_text(headers, APPLICATION_HEADER).filter(|id| !id.is_empty());
    Ok(application.map(|id| ManifestSource::Application(id.to_owned())))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthorized_failure() -> RequestFailure {
    let mut failure = RequestFailure::new(401, "Incorrect API key provided");
    failure.code = Some("invalid_api_key".to_owned());
    failure
}
