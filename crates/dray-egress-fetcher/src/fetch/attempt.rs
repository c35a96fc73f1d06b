//! One attempt of a fetch: the hops to its file, and the file itself.

use std::borrow::Cow;

use dray_guard::{Chain, Code};
use tokio::time::Instant;

use super::cached::{CacheLookup, CachedResponse, HopSource, StorageTerms};
use super::connection::held_answer;
use super::hop::{HopOutcome, HopResponse};
use super::retry::PartialBody;
use super::{FetchContext, FetchedFile, Fetcher};
use crate::body::BodyLimits;
use crate::budget::TimeBudget;
use crate::error::{FetchError, FetchPhase};
use crate::head::{BodyFraming, BodyPlan};
use crate::hop::WireBody;
use crate::record::FetchRecord;
use crate::sink::{ByteSink, SinkError, StoredFile};

impl Fetcher {
    /// Follows the redirects from the URL of the command to the file, or to the rest of a partial one, and receives it.
    pub(super) async fn attempt<S: ByteSink>(
        &self,
        chain: &mut Chain,
        context: &FetchContext<'_>,
        partial: &mut Option<PartialBody>,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<FetchedFile, FetchError> {
        // The stored response of the current URL, if its server did not confirm it.
        let mut refuted: Option<CacheLookup> = None;
        loop {
            let url = chain.current().clone();
            // A sink that holds a part of a body cannot adopt a stored file.
            let lookup = if partial.is_none() && refuted.is_none() {
                self.find_cached(&url, context, sink, record).await?
            } else {
                CacheLookup::default()
            };
            let cached = lookup.response.as_ref();
            let source = HopSource {
                partial: partial.as_ref(),
                cached,
                revision: lookup.revision,
            };
            // The last answer is the one that allows this hop: that about its host, if a person was asked.
            let answer = held_answer(context.request, record);
            // Large futures are boxed, because they are moved.
            let hop = Box::pin(self.hop(chain, context, source, record));
            let outcome = self.while_allowed(answer, hop).await;
            if cached.is_some() && !matches!(outcome, Ok(HopOutcome::Stored)) {
                // The sink would record the origin of the next file with the digest of the adopted one.
                sink.discard().await;
            }
            match (outcome?, cached) {
                (HopOutcome::Redirected, _) => refuted = None,
                // This happens at most once for a URL: the next request has no condition.
                (HopOutcome::NotStored, _) => refuted = Some(lookup.clone()),
                (HopOutcome::Stored, Some(cached)) => {
                    let origin = record.origin(&cached.file.labels.media_type);
                    let recording = sink.record_origin(origin);
                    context
                        .budget
                        .within_total(recording)
                        .await?
                        .map_err(sink_failure)?;
                    return Ok(cached_file(cached, chain, record));
                }
                // Only a hop with a stored response has this outcome.
                (HopOutcome::Stored, None) => {
                    return Err(FetchError::new(Code::Internal, FetchPhase::Head));
                }
                (HopOutcome::Body(mut response), _) => {
                    let terms = response.terms.take();
                    let earlier = refuted.as_ref().unwrap_or(&lookup);
                    let head_arrived = Instant::now();
                    let answer = held_answer(context.request, record);
                    let receiving = self.receive(response, chain, context, partial, sink, record);
                    let fetched = self.while_allowed(answer, Box::pin(receiving)).await?;
                    // The lifetime counts from the head, and the body may have taken minutes (RFC 9111, section 4.2.3).
                    let terms = terms.map(|terms| terms.with_elapsed(head_arrived.elapsed()));
                    let storage = StorageTerms { terms, earlier };
                    self.keep_response(&url, context, &fetched, storage, sink)
                        .await;
                    return Ok(fetched);
                }
            }
        }
    }

    /// Receives the body of a response and finishes the file.
    async fn receive<S: ByteSink>(
        &self,
        response: Box<HopResponse>,
        chain: &Chain,
        context: &FetchContext<'_>,
        partial: &mut Option<PartialBody>,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<FetchedFile, FetchError> {
        let HopResponse {
            plan,
            wire,
            slots,
            limit,
            terms: _,
        } = *response;
        let bounds = BodyLimits {
            limit,
            idle: context.settings.limits.idle,
            floor: context.settings.limits.floor,
            grace: context.settings.limits.grace,
        };
        let partial =
            partial.get_or_insert_with(|| PartialBody::new(&plan, chain.current(), &bounds));
        record.content_type.clone_from(&partial.labels.media_type);
        record.coding = partial.coding;
        record.at(FetchPhase::Body);
        let received = Self::store(wire, &plan, partial, &context.budget, sink, record).await;
        record.at(FetchPhase::Policy);
        drop(slots);
        let (sniffed, stored) = received?;
        self.note_response(chain.current(), &context.request.tenant);
        // With TLS a clean end needs a `close_notify` alert, so a connection that breaks is detected (B-3).
        record.length_verified = partial.framing != BodyFraming::Close
            || plan.whole.is_some()
            || chain.current().https();
        record.sha256 = stored.sha256.to_hex();
        Ok(FetchedFile {
            stored,
            labels: partial.labels.clone(),
            sniffed: Cow::Borrowed(sniffed),
            length_verified: record.length_verified,
            wire_size: record.counts.wire,
            coding: partial
                .coding
                .map_or("", crate::coding::ContentCoding::as_str),
            // Queries sometimes contain tokens; they stay out of replies and logs (S-5).
            final_url: chain.current().without_query(),
            redirect_count: chain.followed(),
            status: plan.status,
        })
    }

    async fn store<S: ByteSink>(
        wire: WireBody,
        plan: &BodyPlan,
        partial: &mut PartialBody,
        budget: &TimeBudget,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<(&'static str, StoredFile), FetchError> {
        let counts = &mut record.counts;
        let transfer = &mut partial.transfer;
        transfer.receive(wire, plan, budget, sink, counts).await?;
        let sniffed = transfer.finish(counts)?;
        let labels = &partial.labels;
        let origin = record.origin(&labels.media_type);
        let storing = async {
            // The origin is recorded first, so that a process that ends between both steps leaves no content without
            // its origin.
            sink.record_origin(origin).await?;
            sink.finish(labels).await
        };
        let stored = budget.within_total(storing).await?.map_err(sink_failure)?;
        Ok((sniffed, stored))
    }
}

fn sink_failure(error: SinkError) -> FetchError {
    FetchError::new(Code::SinkFailed, FetchPhase::Sink).because(error)
}

/// Returns the file of a stored response in the form of a new one, and records it.
fn cached_file(cached: &CachedResponse, chain: &Chain, record: &mut FetchRecord) -> FetchedFile {
    let file = &cached.file;
    record.content_type.clone_from(&file.labels.media_type);
    record.counts.stored = file.stored.size;
    record.sha256 = file.stored.sha256.to_hex();
    // Only responses with a verified length are stored.
    record.length_verified = true;
    FetchedFile {
        stored: file.stored,
        labels: file.labels.clone(),
        sniffed: file.sniffed.clone(),
        length_verified: true,
        wire_size: 0,
        coding: "",
        final_url: chain.current().without_query(),
        redirect_count: chain.followed(),
        status: http::StatusCode::OK.as_u16(),
    }
}
