//! Which destinations a client may connect to, decided by its owner. Decides nothing by itself.
//!
//! A name is resolved once, the guard judges the addresses, and the connection is made to an address that the guard
//! returned: a name that resolves to something else a moment later (DNS rebinding) changes nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::Cause;

/// Decides where the connections of one client may go. Many tasks call it at the same time.
pub trait DestinationGuard: fmt::Debug + Send + Sync + 'static {
    /// Checks the URL of a request before anything is resolved or connected. A literal address is checked here alone:
    /// there is nothing to resolve.
    ///
    /// # Errors
    ///
    /// Why it is refused. The cause goes to the log, as part of
    /// [`FailureKind::Connect`](crate::FailureKind::Connect).
    fn check_url(&self, url: &Url) -> Result<(), Cause>;

    /// The addresses of `host` that may be connected to, in the order in which to try them.
    ///
    /// # Errors
    ///
    /// Why none may be connected to, for the log.
    fn check_addresses(&self, host: &str, resolved: Vec<IpAddr>) -> Result<Vec<IpAddr>, Cause>;
}

/// Resolves names with the resolver of the system and returns what the guard allows.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Arc<dyn DestinationGuard>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let host = name.as_str();
            // The only lookup: what is judged here is what the connector gets.
            let resolved = tokio::net::lookup_host((host, 0)).await?;
            let resolved = resolved.map(|address| address.ip()).collect();
            // On the whole DNS answer: a guard may refuse a name because of one of its addresses.
            let allowed = guard.check_addresses(host, resolved)?;
            // Port 0 stands for the port of the URL.
            let allowed = allowed
                .into_iter()
                .map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(allowed) as Addrs)
        })
    }
}
