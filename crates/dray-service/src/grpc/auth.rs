//! Identifies the caller of a request and decides whether it may call the method, before the body is read.

use std::sync::Arc;

use dray_types::{Fault, FaultCode, TenantId};
use http::{HeaderMap, HeaderName, header};
use tonic::{Code, Status};

use super::identity::{CallerIdentity, IdentityTable};
use super::status::status_with_code;

/// Metadata that names a tenant.
const TENANT_METADATA: HeaderName = HeaderName::from_static("dray-tenant");

/// The reason why a request was refused before its method ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthRefusal {
    /// The request has neither a token nor a certificate.
    NoCredentials,
    /// `authorization` cannot be read.
    MalformedAuthorization,
    /// No identity has the token.
    UnknownToken,
    /// The certificate is valid, but none of its names belongs to an identity.
    UnknownCertificate,
    /// The identity lacks the scope for the method.
    MissingScope {
        /// Name of the identity.
        identity: String,
        /// The method, without the leading slash.
        method: String,
    },
    /// The metadata has another tenant than the identity.
    ForeignTenant,
}

impl AuthRefusal {
    /// Label of the metric of refused calls.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NoCredentials
            | Self::MalformedAuthorization
            | Self::UnknownToken
            | Self::UnknownCertificate => "unauthenticated",
            Self::MissingScope { .. } | Self::ForeignTenant => "forbidden",
        }
    }

    /// The status for the caller, with the fault in its details.
    pub(crate) fn status(&self) -> Status {
        let (code, detail, message, advice) = match self {
            Self::NoCredentials => (
                Code::Unauthenticated,
                "unauthenticated",
                "The request has no credentials.".to_owned(),
                "Send the metadata `authorization: Bearer <token>`, or connect with a client certificate.",
            ),
            Self::MalformedAuthorization => (
                Code::Unauthenticated,
                "unauthenticated",
                "The metadata `authorization` is not one `Bearer <token>`.".to_owned(),
                "Send it once, as `Bearer`, a space and the token.",
            ),
            Self::UnknownToken => (
                Code::Unauthenticated,
                "unauthenticated",
                "The token is not known here.".to_owned(),
                "Check the token, or ask the operator for a new one.",
            ),
            Self::UnknownCertificate => (
                Code::Unauthenticated,
                "unauthenticated",
                "No name of the client certificate is known here.".to_owned(),
                "Use a certificate with a name that the operator listed, or send a token.",
            ),
            Self::MissingScope { identity, method } => (
                Code::PermissionDenied,
                "missing_scope",
                format!("The identity `{identity}` may not call `{method}`."),
                "Ask the operator to add the method to the scopes of the identity.",
            ),
            Self::ForeignTenant => (
                Code::PermissionDenied,
                "tenant_mismatch",
                "The metadata `dray-tenant` names another tenant than that of the credentials."
                    .to_owned(),
                "Leave `dray-tenant` out: the tenant follows from the credentials.",
            ),
        };
        let fault = Fault::new(FaultCode::Denied, message)
            .detail(detail)
            .advice(advice);
        status_with_code(code, &fault)
    }
}

/// Finds the identity behind a token or a verified certificate. A token that was sent decides alone: it never falls
/// back to the certificate of the connection.
pub(crate) fn identify(
    table: &IdentityTable,
    headers: &HeaderMap,
    certificate_names: &[String],
) -> Result<Arc<CallerIdentity>, AuthRefusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => {
            let token = value
                .to_str()
                .ok()
                .and_then(bearer_token)
                .ok_or(AuthRefusal::MalformedAuthorization)?;
            table
                .by_token(token)
                .cloned()
                .ok_or(AuthRefusal::UnknownToken)
        }
        // Two values could be read differently by a proxy in front and by this service.
        (Some(_), Some(_)) => Err(AuthRefusal::MalformedAuthorization),
        (None, _) if certificate_names.is_empty() => Err(AuthRefusal::NoCredentials),
        (None, _) => table
            .by_certificate(certificate_names)
            .cloned()
            .ok_or(AuthRefusal::UnknownCertificate),
    }
}

/// Checks that an identity may call the method at `path` with this metadata.
pub(crate) fn authorize(
    identity: &CallerIdentity,
    headers: &HeaderMap,
    path: &str,
) -> Result<(), AuthRefusal> {
    if !identity.may_call(path) {
        return Err(AuthRefusal::MissingScope {
            identity: identity.name.clone(),
            method: path.trim_start_matches('/').to_owned(),
        });
    }
    let foreign = headers
        .get_all(TENANT_METADATA)
        .iter()
        .any(|value| !names_tenant(value.as_bytes(), &identity.tenant));
    if foreign {
        return Err(AuthRefusal::ForeignTenant);
    }
    Ok(())
}

fn names_tenant(value: &[u8], tenant: &TenantId) -> bool {
    value == tenant.as_str().as_bytes()
}

/// The token of `Bearer <token>`; the scheme has no case (RFC 9110, section 11.1).
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> IdentityTable {
        let digest = dray_types::Sha256Digest::of(b"token").to_hex();
        IdentityTable::parse(&format!(
            "[[identity]]\nname = \"a\"\ntenant = \"acme\"\ntoken_sha256 = [\"{digest}\"]\n\
             certificate_names = [\"a.internal\"]\nscopes = [\"dray.v1.Files\"]\n"
        ))
        .unwrap()
    }

    fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in entries {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_one_well_formed_bearer_token_is_read() {
        let names = ["a.internal".to_owned()];
        let find = |entries: &[(&'static str, &str)], names: &[String]| {
            identify(&table(), &headers(entries), names).map(|identity| identity.name.clone())
        };
        assert_eq!(
            find(&[("authorization", "Bearer token")], &[]).unwrap(),
            "a"
        );
        assert_eq!(
            find(&[("authorization", "bearer token")], &[]).unwrap(),
            "a"
        );
        assert_eq!(find(&[], &names).unwrap(), "a");
        for (entries, expected) in [
            (&[][..], AuthRefusal::NoCredentials),
            (
                &[("authorization", "Basic token")],
                AuthRefusal::MalformedAuthorization,
            ),
            (
                &[("authorization", "Bearer ")],
                AuthRefusal::MalformedAuthorization,
            ),
            (
                &[("authorization", "Bearer token x")],
                AuthRefusal::MalformedAuthorization,
            ),
            (
                &[("authorization", "token")],
                AuthRefusal::MalformedAuthorization,
            ),
            (
                &[
                    ("authorization", "Bearer token"),
                    ("authorization", "Bearer token"),
                ],
                AuthRefusal::MalformedAuthorization,
            ),
            (
                &[("authorization", "Bearer other")],
                AuthRefusal::UnknownToken,
            ),
        ] {
            assert_eq!(find(entries, &[]).unwrap_err(), expected, "{entries:?}");
        }
        // A wrong token is refused even where the certificate alone would be enough.
        assert_eq!(
            find(&[("authorization", "Bearer other")], &names).unwrap_err(),
            AuthRefusal::UnknownToken
        );
        assert_eq!(
            find(&[], &["b.internal".to_owned()]).unwrap_err(),
            AuthRefusal::UnknownCertificate
        );
    }

    #[test]
    fn scope_and_tenant_are_both_checked() {
        let identity = identify(
            &table(),
            &headers(&[("authorization", "Bearer token")]),
            &[],
        )
        .unwrap();
        let check = |entries: &[(&'static str, &str)], path: &str| {
            authorize(&identity, &headers(entries), path)
        };
        assert_eq!(check(&[], "/dray.v1.Files/Resolve"), Ok(()));
        assert_eq!(
            check(&[("dray-tenant", "acme")], "/dray.v1.Files/Resolve"),
            Ok(())
        );
        for tenants in [
            &[("dray-tenant", "other")][..],
            &[("dray-tenant", "acme"), ("dray-tenant", "other")],
            &[("dray-tenant", "ACME")],
        ] {
            assert_eq!(
                check(tenants, "/dray.v1.Files/Resolve"),
                Err(AuthRefusal::ForeignTenant)
            );
        }
        let refused = check(&[], "/dray.v1.Egress/Fetch").unwrap_err();
        let status = refused.status();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(
            status.message(),
            "The identity `a` may not call `dray.v1.Egress/Fetch`."
        );
    }
}
