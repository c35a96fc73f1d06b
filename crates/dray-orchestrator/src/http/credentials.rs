//! Admits callers, and reads credentials and the source of the manifest from headers (quickapps 2.1, 2.2).

use axum::http::{HeaderMap, header};
use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_types::{Secret, Sha256Digest};

use super::body::not_json;
use super::contract::ManifestSource;
use super::routes::SurfaceOptions;
use crate::permissions::CallerIdentity;
use crate::responses::BackgroundRun;

/// Header with the manifest as JSON.
const PROPERTIES_HEADER: &str = "x-dial-application-properties";
/// Header with the id of the application in DIAL Core whose properties are the manifest.
const APPLICATION_HEADER: &str = "x-dial-application-id";
/// Header with the channel of a client that can show a sign-in to its user.
const CHANNEL_HEADER: &str = "x-dial-client-channel-id";
/// Header with the session of a conversation.
const SESSION_HEADER: &str = "x-dray-session";
/// Headers that are read here and never forwarded.
const OWN_HEADERS: [&str; 3] = [PROPERTIES_HEADER, APPLICATION_HEADER, CHANNEL_HEADER];

/// A caller whose key was checked.
#[derive(Debug)]
pub(super) struct VerifiedCredentials {
    pub(super) caller: Caller,
    /// The caller; `None` while only DIAL Core can identify the key.
    pub(super) identity: Option<CallerIdentity>,
}

impl SurfaceOptions {
    /// Checks the credentials of a request to a deployment, as DIAL and Azure send it.
    pub(super) fn dial_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<VerifiedCredentials, RequestFailure> {
        self.refuse_foreign_pages(headers)?;
        let key = header_text(headers, "api-key").filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| RequestFailure::new(400, "Api-Key header is required"))?;
        let authorization = header_text(headers, header::AUTHORIZATION.as_str());
        // A client of the operator shows its own key as bearer token, beside a key of DIAL in `Api-Key`.
        let client = authorization
            .and_then(bearer_token)
            .and_then(|token| self.client(token));
        let is_own_client = client.is_some();
        let identity = match client {
            Some(client) => Some(client),
            // Only DIAL Core knows the key; see `Agent::verify`.
            None if self.dial => None,
            // The configuration allows neither keys nor DIAL only for a listener on loopback.
            None if self.clients.is_empty() => Some(CallerIdentity::Local),
            None => Some(self.client(key).ok_or_else(unauthorized_failure)?),
        };
        let caller = Caller {
            api_key: Some(Secret::new(key)),
            // A key of this service must not reach DIAL Core or a tool.
            authorization: authorization.filter(|_| !is_own_client).map(Secret::new),
            ..self.unverified_caller(headers)
        };
        Ok(VerifiedCredentials { caller, identity })
    }

    /// Checks the credentials of a request to the plain endpoints, as clients of `OpenAI` send it. The bearer token
    /// is not forwarded.
    pub(super) fn plain_caller(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Caller, CallerIdentity), RequestFailure> {
        self.refuse_foreign_pages(headers)?;
        let token = header_text(headers, header::AUTHORIZATION.as_str()).and_then(bearer_token);
        let identity = if self.clients.is_empty() {
            // With DIAL a public listener may have no keys of its own, and DIAL cannot check plain requests.
            self.loopback.then_some(CallerIdentity::Local)
        } else {
            token.and_then(|token| self.client(token))
        };
        let identity = identity.ok_or_else(unauthorized_failure)?;
        let caller = Caller {
            api_key: header_text(headers, "api-key").map(Secret::new),
            ..self.unverified_caller(headers)
        };
        Ok((caller, identity))
    }

    /// Whether these settings admit the caller; `false` for users of DIAL, whose keys are not known here.
    pub(super) fn admits(&self, identity: &CallerIdentity) -> bool {
        match identity {
            CallerIdentity::Local => self.loopback && self.clients.is_empty(),
            CallerIdentity::Client(name) => self.clients.contains_key(name),
            CallerIdentity::Dial(_) => false,
        }
    }

    /// The headers with which a replica finishes a response in the background that no client polls: those that name the
    /// user and the session, and no credentials.
    pub(super) fn background_run(
        &self,
        caller: &Caller,
        identity: &CallerIdentity,
    ) -> BackgroundRun {
        let permissions = self.permissions.of(identity);
        let named = [&permissions.user_header, &permissions.groups_header];
        let named = named.into_iter().flatten().map(String::as_str);
        let names: Vec<&str> = named.chain([SESSION_HEADER]).collect();
        // A tool may need such a header, and it may hold a secret.
        let is_forwarded = caller
            .forwarded_only(&self.forward_headers)
            .next()
            .is_some();
        let headers = caller.forwarded.iter();
        let is_kept = |header: &str| names.iter().any(|name| name.eq_ignore_ascii_case(header));
        let headers = headers.filter(|(header, _)| is_kept(header));
        BackgroundRun {
            principal: identity.key(),
            headers: headers.cloned().collect(),
            language: caller.language.clone(),
            needs_client: is_forwarded || caller.api_key.is_some(),
        }
    }

    /// Checks the credentials of an editor of manifests. A key is needed only where this service checks keys itself.
    pub(super) fn editor(&self, headers: &HeaderMap) -> Result<(), RequestFailure> {
        if self.dial || self.clients.is_empty() {
            return self.refuse_foreign_pages(headers);
        }
        self.plain_caller(headers).map(drop)
    }

    /// A listener of this machine without keys must not be open to web pages in a browser on this machine: neither
    /// under another host name nor from another origin.
    pub(super) fn refuse_foreign_pages(&self, headers: &HeaderMap) -> Result<(), RequestFailure> {
        if !self.loopback || !self.clients.is_empty() {
            return Ok(());
        }
        // In DNS rebinding, the name of a page's own site resolves to 127.0.0.1. The status is 421 (RFC 9110, section
        // 15.5.20).
        if !header_text(headers, header::HOST.as_str()).is_some_and(|host| self.is_own_host(host)) {
            return Err(RequestFailure::new(421, "The request is for another host"));
        }
        // Browsers name the site of the page here (RFC 6454 7); other programs usually send no such header.
        match header_text(headers, header::ORIGIN.as_str()) {
            Some(origin)
                if !self.cors_origins.iter().any(|listed| listed == origin)
                    && !origin
                        .split_once("://")
                        .is_some_and(|(_, host)| self.is_own_host(host)) =>
            {
                Err(RequestFailure::new(
                    403,
                    "The request comes from another origin",
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            // `[::1]` contains colons too, but the text after its last colon is not a number.
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        // `localhost.` is the same name, fully qualified.
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
        // Digests are compared, so that the time of the comparison reveals nothing about the key.
        let digest = Sha256Digest::of(key.as_bytes());
        let mut clients = self.clients.iter();
        let (name, _) =
            clients.find(|(_, client)| Sha256Digest::of(client.expose().as_bytes()) == digest)?;
        Some(CallerIdentity::Client(name.clone()))
    }

    fn unverified_caller(&self, headers: &HeaderMap) -> Caller {
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

/// The source of the manifest, by the headers.
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
    // `HeaderValue::to_str` is not used, because it refuses text outside of ASCII.
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
