//! What opens the circuit breakers of a target (egress-security 15), and what an open one refuses.
//!
//! Failures to connect count for all tenants: the host and port is dead for everyone. A response that does not arrive
//! counts for the tenant alone whose request it was. A tenant chooses its paths, and one that is always slow says
//! nothing about the other paths of a host, nor about tunnels to it.

use dray_guard::{CanonicalUrl, Code};

use super::Fetcher;
use crate::error::{FetchError, FetchPhase};

impl Fetcher {
    /// Whether the breaker refuses responses or connections of the target of `url` to `tenant`.
    pub(super) fn has_open_breaker(&self, url: &CanonicalUrl, tenant: &str) -> bool {
        let breaker = self.limits.breaker();
        breaker.is_open(&connection_key(url)) || breaker.is_open(&response_key(url, tenant))
    }

    /// Refuses the fetch of a tenant from a target with an open breaker.
    pub(super) fn check_breaker(&self, url: &CanonicalUrl, tenant: &str) -> Result<(), FetchError> {
        if self.has_open_breaker(url, tenant) {
            return Err(open_breaker_error());
        }
        Ok(())
    }

    /// Refuses a connection to a target that cannot be connected to.
    pub(super) fn check_connection_breaker(&self, url: &CanonicalUrl) -> Result<(), FetchError> {
        if self.limits.breaker().is_open(&connection_key(url)) {
            return Err(open_breaker_error());
        }
        Ok(())
    }

    /// Clears the failures to connect: a connection was opened.
    pub(super) fn note_connection(&self, url: &CanonicalUrl) {
        self.limits.breaker().succeeded(&connection_key(url));
    }

    /// Clears the failed responses of a tenant: a response arrived, with its whole body if that was received.
    pub(super) fn note_response(&self, url: &CanonicalUrl, tenant: &str) {
        self.limits.breaker().succeeded(&response_key(url, tenant));
    }

    /// Counts a failure of the target. The end of the fetch's own deadline does not count: a caller with little time
    /// must not block others. The upstream proxy has a separate breaker.
    pub(super) fn count_target_failure(
        &self,
        url: &CanonicalUrl,
        tenant: &str,
        failure: &FetchError,
    ) {
        if is_upstream_failure(failure) {
            return;
        }
        let key = match (failure.code, failure.phase) {
            (Code::ConnectFailed, FetchPhase::Connect)
            | (Code::Timeout, FetchPhase::Connect | FetchPhase::Tls) => connection_key(url),
            (Code::Timeout, FetchPhase::Head | FetchPhase::Body) => response_key(url, tenant),
            _ => return,
        };
        self.limits.breaker().failed(&key);
    }
}

fn open_breaker_error() -> FetchError {
    let overloaded = FetchError::new(Code::Overloaded, FetchPhase::Policy);
    overloaded.because("the breaker of this target is open")
}

/// Whether the upstream proxy failed, and not the target.
pub(super) fn is_upstream_failure(failure: &FetchError) -> bool {
    std::error::Error::source(failure).is_some_and(crate::dial::is_upstream_proxy_failure)
}

/// Key of the breaker of connections: host and port.
fn connection_key(url: &CanonicalUrl) -> String {
    format!("{}:{}", url.host(), url.port())
}

/// Key of the breaker of responses: host, port and tenant. A host contains no blank.
fn response_key(url: &CanonicalUrl, tenant: &str) -> String {
    format!("{}:{} {tenant}", url.host(), url.port())
}
