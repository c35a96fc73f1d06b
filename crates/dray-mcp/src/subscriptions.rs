//! Subscriptions to resources that change: receipts, and files and directories of the sandbox.
//!
//! The server polls the services and compares the results. Events would be faster, but reading an event stream needs
//! permissions for all tenants, which this server does not have. A subscription ends with its session, with its
//! request, or with the token of its caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_proto::v1;
use dray_types::{Fault, FaultCode, Sha256Digest};
use prost::Message as _;
use rmcp::model::SubscriptionFilter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};

use crate::client::SHORT_TIMEOUT;
use crate::content::ContentAccess;
use crate::failure;
use crate::location::{Location, RECEIPT_PREFIX, SANDBOX_PATH_PREFIX, SANDBOX_PREFIX};
use crate::tools;

/// Most resources of one session or one request.
pub(crate) const MAX_RESOURCES: usize = 32;
/// Most resources that a server watches, of all callers.
const MAX_WATCHED: usize = 512;
/// Interval between two checks of a receipt.
const RECEIPT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two checks of a file or directory of the sandbox.
const SANDBOX_INTERVAL: Duration = Duration::from_secs(5);
/// Most entries of a directory that are compared.
const MAX_ENTRIES: u32 = 1_000;

/// A resource that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WatchedResource {
    /// The delivery with this id.
    Receipt(String),
    /// A file or a directory of the session's sandbox.
    Sandbox(String),
}

/// The URIs of a request that are watched. Resources that never change and those beyond the limit are left out.
pub(crate) fn accepted_uris(requested: &SubscriptionFilter) -> Vec<String> {
    let uris = requested.resource_subscriptions.iter().flatten();
    let watchable = uris.filter(|uri| is_watchable(uri));
    watchable.take(MAX_RESOURCES).cloned().collect()
}

/// Whether a URI has the form of a resource that changes.
fn is_watchable(uri: &str) -> bool {
    let prefixes = [RECEIPT_PREFIX, SANDBOX_PREFIX, SANDBOX_PATH_PREFIX];
    prefixes.iter().any(|prefix| uri.starts_with(prefix))
}

impl WatchedResource {
    fn parse(access: &ContentAccess, uri: &str) -> Result<Self, Fault> {
        if let Some(id) = uri.strip_prefix(RECEIPT_PREFIX) {
            return Ok(Self::Receipt(id.to_owned()));
        }
        match access.parse(uri)? {
            Location::Sandbox(path) => Ok(Self::Sandbox(path)),
            _ => Err(failure::invalid(
                "This resource never changes, or is not a resource.",
                "Subscribe to `dray://receipt/…` or `dray://sandbox/…`.",
            )
            .detail("not_watched")),
        }
    }

    const fn interval(&self) -> Duration {
        match self {
            Self::Receipt(_) => RECEIPT_INTERVAL,
            Self::Sandbox(_) => SANDBOX_INTERVAL,
        }
    }

    /// A digest of the present state of the resource, and whether that state is final.
    async fn fingerprint(&self, access: &ContentAccess) -> Result<(Sha256Digest, bool), Fault> {
        let mut is_final = false;
        let bytes = match self {
            Self::Receipt(id) => {
                let report = tools::outcome(&access.client, id, Duration::ZERO).await?;
                is_final = report.finished;
                tools::report_json(&report).to_string().into_bytes()
            }
            Self::Sandbox(path) => {
                let request = v1::ListSandboxRequest {
                    sandbox: Some(access.client.sandbox()),
                    path: path.trim_end_matches('/').as_bytes().to_vec(),
                    depth: 1,
                    limit: MAX_ENTRIES,
                    offset: 0,
                };
                let reply = access.client.call(SHORT_TIMEOUT, &request).await?;
                reply.encode_to_vec()
            }
        };
        Ok((Sha256Digest::of(&bytes), is_final))
    }
}

/// One watched resource. It counts towards the server's limit until it is dropped.
#[derive(Debug)]
pub(crate) struct ResourceWatch {
    access: ContentAccess,
    uri: String,
    resource: WatchedResource,
    last: Sha256Digest,
    /// Whether a change is reported without another check.
    is_due: bool,
    _permit: OwnedSemaphorePermit,
}

impl ResourceWatch {
    /// The URI that the client subscribed to.
    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    /// Waits until the resource has changed. A failure is not a change: the client gets it when it reads the resource.
    pub(crate) async fn changed(&mut self) {
        if std::mem::take(&mut self.is_due) {
            return;
        }
        loop {
            tokio::time::sleep(self.resource.interval()).await;
            let Ok((current, _)) = self.resource.fingerprint(&self.access).await else {
                continue;
            };
            if std::mem::replace(&mut self.last, current) != current {
                return;
            }
        }
    }
}

/// Limits the number of resources that a server watches.
#[derive(Clone, Debug)]
pub(crate) struct WatchLimiter {
    permits: Arc<Semaphore>,
}

impl Default for WatchLimiter {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_WATCHED)),
        }
    }
}

impl WatchLimiter {
    /// Begins to watch a resource.
    ///
    /// # Errors
    ///
    /// The resource cannot be watched or does not exist, or the server watches too many.
    pub(crate) async fn watch(
        &self,
        access: &ContentAccess,
        uri: &str,
    ) -> Result<ResourceWatch, Fault> {
        let resource = WatchedResource::parse(access, uri)?;
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| too_many("The server"))?;
        // A missing file may appear later; another failure would repeat forever.
        let (last, is_due) = match resource.fingerprint(access).await {
            // The delivery may have ended before the subscription began; its client must not wait forever.
            Ok(found) => found,
            Err(fault) if is_awaited(&resource, &fault) => (Sha256Digest::of(b""), false),
            Err(fault) => return Err(fault),
        };
        Ok(ResourceWatch {
            access: access.clone(),
            uri: uri.to_owned(),
            resource,
            last,
            is_due,
            _permit: permit,
        })
    }
}

fn is_awaited(resource: &WatchedResource, fault: &Fault) -> bool {
    matches!(resource, WatchedResource::Sandbox(_)) && fault.code == FaultCode::NotFound
}

fn too_many(watcher: &str) -> Fault {
    Fault::new(
        FaultCode::RateLimited,
        format!("{watcher} watches too many resources."),
    )
    .detail("too_many_subscriptions")
    .advice("End another subscription first.")
}

/// The subscriptions of one session of 2025-11-25. They end when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct SessionSubscriptions {
    state: Mutex<SubscriptionTasks>,
}

#[derive(Debug, Default)]
struct SubscriptionTasks {
    handles: HashMap<String, AbortHandle>,
    tasks: JoinSet<()>,
}

impl SessionSubscriptions {
    fn state(&self) -> MutexGuard<'_, SubscriptionTasks> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the limit for a resource. A repeated subscription replaces the earlier one, so it always has room.
    pub(crate) fn check_room(&self, uri: &str) -> Result<(), Fault> {
        let mut state = self.state();
        while state.tasks.try_join_next().is_some() {}
        state.handles.retain(|_, handle| !handle.is_finished());
        if state.handles.len() >= MAX_RESOURCES && !state.handles.contains_key(uri) {
            return Err(too_many("This session"));
        }
        Ok(())
    }

    /// Runs a subscription. An earlier one to the same resource ends.
    pub(crate) fn begin(&self, uri: String, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state();
        let handle = state.tasks.spawn(task);
        if let Some(earlier) = state.handles.insert(uri, handle) {
            earlier.abort();
        }
    }

    /// Ends a subscription, if there is one.
    pub(crate) fn end(&self, uri: &str) {
        if let Some(handle) = self.state().handles.remove(uri) {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_repeated_subscription_has_room_when_the_session_has_no_more() {
        let subscriptions = SessionSubscriptions::default();
        for number in 0..MAX_RESOURCES {
            let uri = format!("{RECEIPT_PREFIX}{number}");
            assert!(subscriptions.check_room(&uri).is_ok());
            subscriptions.begin(uri, std::future::pending());
        }
        let another = format!("{RECEIPT_PREFIX}another");
        assert!(subscriptions.check_room(&another).is_err());
        let known = format!("{RECEIPT_PREFIX}0");
        assert!(subscriptions.check_room(&known).is_ok());
        subscriptions.end(&known);
        assert!(subscriptions.check_room(&another).is_ok());
    }
}
