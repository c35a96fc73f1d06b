//! The cache of responses: when a stored response is used, when its server must confirm it, and which responses are
//! stored.
//!
//! A stored response is used for its own URL alone. Redirects are not stored, so every hop that leads to it is judged
//! and requested again. For the hop itself the policy, the rules, the quotas, the name and its addresses are judged at
//! every use, as for a request. Only the connection is left out.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use dray_guard::{CanonicalUrl, Code};
use dray_types::Sha256Digest;
use futures_util::future::BoxFuture;
use http::header::{HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH};

use super::hop::{HopAdmission, TimedHead};
use super::retry::PartialBody;
use super::rules::check_media_type;
use super::{FetchContext, FetchedFile, Fetcher};
use crate::error::{FetchError, FetchPhase};
use crate::freshness::{ResponseTimes, ReuseTerms, renewed_terms, reuse_terms};
use crate::label::ResponseLabels;
use crate::record::{CacheUse, FetchRecord};
use crate::sink::{ByteSink, StoredFile};

/// A file that is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// Size and digest of its bytes.
    pub stored: StoredFile,
    /// The server's headers about it.
    pub labels: ResponseLabels,
    /// Media type found by magic bytes; empty when none matched.
    pub sniffed: Cow<'static, str>,
}

/// A response that was stored, with its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedResponse {
    /// The stored body and its description.
    pub file: CachedFile,
    /// The terms of its further use.
    pub terms: ReuseTerms,
    /// Digest of the request fields on which it depends.
    pub vary_digest: String,
}

/// The result of a cache lookup for a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheLookup {
    /// The stored response of the URL.
    pub response: Option<CachedResponse>,
    /// Revision of what is stored under its key, which may be the response of another URL; `None` if nothing is stored.
    pub revision: Option<u64>,
}

/// The parts of a hop's response that the fetch already has.
#[derive(Clone, Copy)]
pub(super) struct HopSource<'a> {
    /// A part of a body, of which only the rest is accepted.
    pub(super) partial: Option<&'a PartialBody>,
    /// A stored response of the same URL.
    pub(super) cached: Option<&'a CachedResponse>,
    /// Revision of what the cache had for the URL.
    pub(super) revision: Option<u64>,
}

/// The terms under which a received response is stored, and what it replaces.
pub(super) struct StorageTerms<'a> {
    /// `None` for a response that is not stored.
    pub(super) terms: Option<ReuseTerms>,
    /// The result of the cache lookup before the request.
    pub(super) earlier: &'a CacheLookup,
}

impl TimedHead {
    /// The times of a response whose head arrived at `arrived`.
    const fn times_at(&self, arrived: SystemTime) -> ResponseTimes {
        ResponseTimes {
            arrived,
            delay: self.delay,
        }
    }
}

/// The stored responses of all tenants. A response that cannot be read counts as absent, and one that cannot be written
/// is not stored; neither fails a fetch.
pub trait ResponseCache: Send + Sync + 'static {
    /// Finds the response of a URL.
    fn find<'a>(&'a self, tenant: &'a str, url: &'a CanonicalUrl) -> BoxFuture<'a, CacheLookup>;

    /// Stores the response of a URL in place of an earlier one; `None` removes the earlier one. Does nothing unless the
    /// entry has the same `revision` as in [`Self::find`]: what another fetch stored meanwhile is newer.
    fn keep<'a>(
        &'a self,
        tenant: &'a str,
        url: &'a CanonicalUrl,
        response: Option<&'a CachedResponse>,
        revision: Option<u64>,
    ) -> BoxFuture<'a, ()>;

    /// Size in bytes of the largest file that is stored.
    fn max_file_bytes(&self) -> u64;

    /// The current time, by which freshness is computed.
    fn now(&self) -> SystemTime;
}

impl Fetcher {
    /// Uses stored responses, and stores new ones where their servers allow it; `None` stores no responses.
    #[must_use]
    pub fn with_cache(mut self, cache: Option<std::sync::Arc<dyn ResponseCache>>) -> Self {
        self.cache = cache;
        self
    }

    /// Looks a hop up in the cache. The sink has adopted the file of a response; without a response it is unchanged.
    pub(super) async fn find_cached<S: ByteSink>(
        &self,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<CacheLookup, FetchError> {
        let Some(cache) = &self.cache else {
            return Ok(CacheLookup::default());
        };
        record.cache = Some(CacheUse::Miss);
        let tenant = &context.request.caller.tenant;
        // A response to a request with a credential is for the holder of the credential alone.
        if context.settings.credentials.find(tenant, url).is_some() {
            return Ok(CacheLookup::default());
        }
        let finding = async {
            let mut lookup = cache.find(tenant, url).await;
            if let Some(found) = &mut lookup.response {
                if context.request.revalidates {
                    found.terms.fresh_for = Duration::ZERO;
                }
                let is_same_variant = vary_digest(context, &found.terms.vary) == found.vary_digest;
                // The stored response is adopted before the server is asked: after its 304 this hop could not request
                // the body.
                let is_usable =
                    is_same_variant && found.terms.is_useful() && sink.adopt(&found.file).await;
                if !is_usable {
                    lookup.response = None;
                }
            }
            lookup
        };
        context.budget.within_total(finding).await
    }

    /// Judges a hop whose response is stored and fresh, as far as a request would be judged before its connection.
    pub(super) async fn use_fresh(
        &self,
        cached: &CachedResponse,
        chain: &mut dray_guard::Chain,
        context: &FetchContext<'_>,
        limit: u64,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let url = chain.current().clone();
        // The judgement is the same as before a connection: a rule that changed since counts immediately.
        let HopAdmission { pinned, .. } = self.admit(chain, &url, context, record).await?;
        chain.record_network(&pinned);
        check_cached(cached, limit, record)?;
        record.cache = Some(CacheUse::Hit);
        Ok(())
    }

    /// The terms under which the body of a response may be stored; `None` for a response that must not be stored.
    pub(super) fn storing_terms(
        &self,
        url: &CanonicalUrl,
        head: &TimedHead,
        context: &FetchContext<'_>,
    ) -> Option<ReuseTerms> {
        let cache = self.cache.as_ref()?;
        let tenant = &context.request.caller.tenant;
        if context.settings.credentials.find(tenant, url).is_some() {
            return None;
        }
        let parts = &head.parts;
        let times = head.times_at(cache.now());
        reuse_terms(parts.status, &parts.headers, times).filter(ReuseTerms::is_useful)
    }

    /// Stores a file that was received completely, in place of the earlier response.
    pub(super) async fn keep_response<S: ByteSink>(
        &self,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        fetched: &FetchedFile,
        storage: StorageTerms<'_>,
        sink: &mut S,
    ) {
        let Some(cache) = &self.cache else { return };
        let tenant = &context.request.caller.tenant;
        // A body of unverified length may be incomplete, and would be served incomplete until it expires.
        let fits = fetched.length_verified && fetched.stored.size <= cache.max_file_bytes();
        let StorageTerms { terms, earlier } = storage;
        let terms = terms.filter(ReuseTerms::is_useful);
        let Some(terms) = terms.filter(|_| fits) else {
            // The server has replaced the stored response, and the new one is not stored.
            if earlier.response.is_some() {
                cache.keep(tenant, url, None, earlier.revision).await;
            }
            return;
        };
        let response = CachedResponse {
            file: CachedFile {
                stored: fetched.stored,
                labels: fetched.labels.clone(),
                sniffed: fetched.sniffed.clone(),
            },
            vary_digest: vary_digest(context, &terms.vary),
            terms,
        };
        if sink.keep(&response.file).await {
            cache
                .keep(tenant, url, Some(&response), earlier.revision)
                .await;
        }
    }

    /// Uses a stored response that its server confirmed with a 304, and renews its terms.
    pub(super) async fn use_renewed(
        &self,
        source: HopSource<'_>,
        head: &TimedHead,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        limit: u64,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let (Some(cache), Some(cached)) = (&self.cache, source.cached) else {
            return Err(FetchError::new(Code::Internal, FetchPhase::Head));
        };
        // A 304 may forbid further storing; then the record is removed after this last use.
        let times = head.times_at(cache.now());
        let terms = renewed_terms(&head.parts.headers, &cached.terms, times);
        let renewed = terms.map(|terms| CachedResponse {
            vary_digest: vary_digest(context, &terms.vary),
            terms,
            file: cached.file.clone(),
        });
        let tenant = &context.request.caller.tenant;
        cache
            .keep(tenant, url, renewed.as_ref(), source.revision)
            .await;
        check_cached(cached, limit, record)?;
        record.cache = Some(CacheUse::Revalidated);
        Ok(())
    }
}

/// Digest of the request fields that `names` lists, as this service sends them.
fn vary_digest(context: &FetchContext<'_>, names: &[String]) -> String {
    let mut text = String::new();
    for name in names {
        let value = match name.as_str() {
            "user-agent" => context
                .settings
                .limits
                .user_agent
                .to_str()
                .unwrap_or_default(),
            "accept" => "*/*",
            "accept-encoding" => "identity",
            // This service sends no other field.
            _ => "",
        };
        text.push_str(name);
        text.push('\n');
        text.push_str(value);
        text.push('\n');
    }
    Sha256Digest::of(text.as_bytes()).to_hex()
}

/// Applies the checks of a response head to a stored response: its size and its media type.
fn check_cached(
    cached: &CachedResponse,
    limit: u64,
    record: &FetchRecord,
) -> Result<(), FetchError> {
    if cached.file.stored.size > limit {
        return Err(FetchError::new(Code::TooLarge, FetchPhase::Head));
    }
    check_media_type(record, &cached.file.labels.media_type)
}

/// The fields of a conditional request for a stored response that is not fresh (RFC 9111, section 4.3.1).
pub(super) fn condition_fields(cached: &CachedResponse) -> Vec<(HeaderName, HeaderValue)> {
    let etag = cached.terms.etag.clone().map(|etag| (IF_NONE_MATCH, etag));
    let date = cached.terms.last_modified.clone();
    let date = date.map(|date| (IF_MODIFIED_SINCE, date));
    etag.into_iter().chain(date).collect()
}
