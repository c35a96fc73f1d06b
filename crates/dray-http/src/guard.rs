//! The destinations to which a client may connect. The owner of the client decides; this module only enforces.
//!
//! A name is resolved once, the guard checks the addresses, and the connection is made to an address that the guard
//! returned. So a name that resolves to another address later (DNS rebinding) has no effect.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::Cause;

/// Decides where the connections of one client may go. Many tasks call it concurrently.
pub trait DestinationGuard: fmt::Debug + Send + Sync + 'static {
    /// Checks the URL of a request before a name is resolved or a connection is made. A literal address is checked only
    /// here, because it is not resolved.
    ///
    /// # Errors
    ///
    /// The reason why it is refused. The cause is for the log, as part of
    /// [`FailureKind::Connect`](crate::FailureKind::Connect).
    fn check_url(&self, url: &Url) -> Result<(), Cause>;

    /// The addresses of `host` that may be connected to, in the order in which to try them.
    ///
    /// # Errors
    ///
    /// The reason why no address of the host may be connected to, for the log.
    fn check_addresses(&self, host: &str, resolved: Vec<IpAddr>) -> Result<Vec<IpAddr>, Cause>;
}

/// Resolves names with the resolver of the system and returns the addresses that the guard allows.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Arc<dyn DestinationGuard>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let host = name.as_str();
            // There is no other lookup: the connector gets only the addresses that are checked here.
            let resolved = tokio::net::lookup_host((host, 0)).await?;
            let resolved = resolved.map(|address| address.ip()).collect();
            // The guard gets the complete DNS response: a guard may refuse a name because of one of its addresses.
            let allowed = guard.check_addresses(host, resolved)?;
            // Port 0 means the port of the URL.
            let allowed = allowed
                .into_iter()
                .map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(allowed) as Addrs)
        })
    }
}
