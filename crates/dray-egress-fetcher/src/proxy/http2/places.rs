//! Places for streams of HTTP/2, of all connections together. Each stream holds buffers of its own, and a connection
//! may have many. Streams without an identity have places of their own, so that they take none from clients that have
//! one. A tenant gets another place while it holds fewer than are free, as for connections, so that the next tenant
//! finds one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_types::TenantId;

use crate::config::ProxySettings;
use crate::proxy::refusal::ProxyRefusal;

/// The places of a process.
#[derive(Debug)]
pub(in crate::proxy) struct StreamSlots {
    max_identified: usize,
    max_unidentified: usize,
    counts: Arc<Mutex<StreamCounts>>,
}

#[derive(Debug, Default)]
struct StreamCounts {
    identified: usize,
    unidentified: usize,
    tenants: HashMap<TenantId, usize>,
}

impl StreamSlots {
    /// As many as there are connections of HTTP/1.1: those that are served, those that wait, and those without an
    /// identity.
    pub(in crate::proxy) fn new(settings: &ProxySettings) -> Self {
        Self {
            max_identified: settings.sizes.global + settings.sizes.queue,
            max_unidentified: settings.max_unidentified,
            counts: Arc::default(),
        }
    }

    /// A place for a stream of this tenant, of which it may hold `max_per_tenant`; without a tenant, for a stream
    /// without an identity.
    pub(in crate::proxy) fn enter(
        &self,
        tenant: Option<TenantId>,
        max_per_tenant: usize,
    ) -> Result<StreamSlot, ProxyRefusal> {
        let mut counts = lock(&self.counts);
        match &tenant {
            None if counts.unidentified >= self.max_unidentified => {
                return Err(ProxyRefusal::TooManyStreams);
            }
            None => counts.unidentified += 1,
            Some(tenant) => {
                let free = self.max_identified.saturating_sub(counts.identified);
                let held = counts.tenants.get(tenant).copied().unwrap_or_default();
                if free == 0 {
                    return Err(ProxyRefusal::TooManyStreams);
                }
                if held >= free.min(max_per_tenant) {
                    return Err(ProxyRefusal::TooManyTenantStreams);
                }
                counts.identified += 1;
                counts.tenants.insert(tenant.clone(), held + 1);
            }
        }
        drop(counts);
        Ok(StreamSlot {
            counts: Arc::clone(&self.counts),
            tenant,
        })
    }
}

fn lock(counts: &Mutex<StreamCounts>) -> MutexGuard<'_, StreamCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a stream; given back when it is dropped.
#[derive(Debug)]
pub(in crate::proxy) struct StreamSlot {
    counts: Arc<Mutex<StreamCounts>>,
    tenant: Option<TenantId>,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        let Some(tenant) = &self.tenant else {
            counts.unidentified = counts.unidentified.saturating_sub(1);
            return;
        };
        counts.identified = counts.identified.saturating_sub(1);
        if let Some(held) = counts.tenants.get_mut(tenant) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                counts.tenants.remove(tenant);
            }
        }
    }
}
