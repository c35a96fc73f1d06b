//! Reports the outcome of deliveries, and resends files that did not arrive.

use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Clock, Fault, FaultCode, OperationId, TenantId};
use tokio::time::Instant;

use crate::accept::RequestIntake;
use crate::cache::{ClaimFailure, ClaimKeeper};
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::poll_delay::PollDelay;
use crate::preview_receipts;
use crate::queue::Order;
use crate::record::{DeliveryRecord, FileRecord};
use crate::records;
use crate::report;
use crate::resend::can_resend;

/// Longest wait for the end of a delivery.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Time in which a reply reaches its caller.
const REPLY_TIME: Duration = Duration::from_millis(500);

/// Longest time for reading the changes of the index for a list: below the timeout of a page of the console.
const INDEX_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay after which a caller may ask again for a list whose changes were not read in time.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Receipts in a list for which the request sets no limit.
const DEFAULT_RECEIPTS: usize = 50;
/// Most receipts in a list.
const MAX_RECEIPTS: usize = 500;
/// Most records that are read for one digest, newest first. Each costs one read.
const MAX_SEARCHED_RECORDS: usize = 1_000;

/// Most bytes of a list, because a response must fit into a message.
const MAX_LIST_BYTES: usize = 96 * 1024;

/// Reports on deliveries, and resends them.
#[derive(Debug)]
pub(crate) struct ReceiptService {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) log: DeliveryLog,
    pub(crate) claims: ClaimKeeper,
    pub(crate) intake: RequestIntake,
}

/// Whether a report has a file with this digest; true for an empty digest.
fn has_file(report: &v1::DeliveryReport, sha256: &[u8]) -> bool {
    sha256.is_empty() || report.files.iter().any(|file| file.sha256 == sha256)
}

impl ReceiptService {
    /// The state of a delivery; waits for its end up to `wait_ms`, and at most [`MAX_WAIT`].
    ///
    /// # Errors
    /// The delivery is unknown, or the bus failed.
    pub(crate) async fn outcome(
        &self,
        meta: &Meta,
        request: &v1::DeliveryOutcomeRequest,
    ) -> Result<v1::DeliveryReport, DeliveryError> {
        let id = id_of(&request.delivery_id)?;
        let key = records::record_key(&meta.tenant, &id);
        // A longer wait would block a permit of this service; the caller repeats the call.
        let wait = Duration::from_millis(request.wait_ms).min(MAX_WAIT);
        let until = Instant::now() + wait;
        let mut delay = PollDelay::new();
        loop {
            let found = match self.log.records.read(&key).await? {
                Some(stored) => {
                    let mut report = v1::DeliveryReport::from(&stored.record);
                    let reports = std::slice::from_mut(&mut report);
                    preview_receipts::add_openings(&self.bus, &self.clock, meta, reports).await;
                    Some(report::fit_report(report, report::MAX_RESPONSE_BYTES))
                }
                None => self.report_from_ledger(&meta.tenant, &id).await?,
            };
            let is_over = found.as_ref().is_some_and(|report| report.finished);
            if is_over || Instant::now() >= until {
                return found.ok_or(DeliveryError::NotFound("delivery"));
            }
            let delay = delay.next_delay();
            // A delivery is unknown until a worker takes it, so an unknown one is waited for as well. Without a reply in
            // time, the caller would not learn that it is unknown.
            let remaining_time = meta.deadline.remaining(self.clock.now_ms());
            if found.is_none() && remaining_time <= delay + REPLY_TIME {
                return Err(DeliveryError::NotFound("delivery"));
            }
            // The receipt is polled, because the delivery may end in another replica, and one key is a cheap read.
            tokio::time::sleep(delay).await;
        }
    }

    /// The report of a delivery without a record, from the ledger: its files are not stored yet, or its work failed
    /// before.
    async fn report_from_ledger(
        &self,
        tenant: &TenantId,
        id: &OperationId,
    ) -> Result<Option<v1::DeliveryReport>, DeliveryError> {
        let ledger = self.bus.ledger();
        let found = ledger
            .find::<v1::SendFileRequested>(tenant, id)
            .await
            .map_err(|error| DeliveryError::ServiceFault {
                description: "the ledger",
                fault: Box::new(Fault::from(error)),
            })?;
        let Some(record) = found else {
            return Ok(None);
        };
        let mut delivery = DeliveryRecord {
            delivery_id: id.to_string(),
            begun_at_ms: record.first_seen_ms,
            ..DeliveryRecord::default()
        };
        if !matches!(
            record.terminal(),
            // Work that is done has a record, which was written after this call read it; the next read finds it.
            TerminalState::Unspecified | TerminalState::Done
        ) {
            delivery.finished = true;
            // 0 would mean that the delivery has not ended.
            delivery.ended_at_ms = record.first_error_ms.max(1);
            delivery.result_json = report::result_json(&delivery);
        }
        Ok(Some((&delivery).into()))
    }

    /// Deliveries of the tenant, newest first.
    ///
    /// # Errors
    /// The bus failed, or the position is not one that an earlier list returned.
    pub(crate) async fn receipts(
        &self,
        meta: &Meta,
        request: &v1::ListReceiptsRequest,
    ) -> Result<v1::ListReceiptsReply, DeliveryError> {
        self.read_index().await?;
        let limit = match usize::try_from(request.limit).unwrap_or(MAX_RECEIPTS) {
            0 => DEFAULT_RECEIPTS,
            limit => limit.min(MAX_RECEIPTS),
        };
        let token = meta.tenant.token();
        let mut entries = self
            .log
            .index
            .of_tenant(&token, &request.session, request.open_only);
        if let Some(after) = list_position(&request.after)? {
            entries.retain(|entry| entry.order() < after);
        }
        let mut reply = self.read_reports(entries, limit, &request.sha256).await?;
        let reports = &mut reply.reports;
        preview_receipts::add_openings(&self.bus, &self.clock, meta, reports).await;
        Ok(reply)
    }

    /// Reads all changes of the index. A list from a part of them would show older deliveries as the newest.
    async fn read_index(&self) -> Result<(), DeliveryError> {
        let until = Instant::now() + INDEX_TIMEOUT;
        while !self.log.index.refresh().await.map_err(store_unreachable)? {
            // Another replica, or this one after its start, has many changes to read; what was read counts for the next
            // call.
            if Instant::now() >= until {
                return Err(DeliveryError::ServiceFault {
                    description: "the index of deliveries",
                    fault: Box::new(index_unread()),
                });
            }
        }
        Ok(())
    }

    /// The reports of these entries, as many as the limit and the size of a message allow, and where the next list
    /// begins.
    async fn read_reports(
        &self,
        entries: Vec<IndexEntry>,
        limit: usize,
        sha256: &[u8],
    ) -> Result<v1::ListReceiptsReply, DeliveryError> {
        let mut reply = v1::ListReceiptsReply::default();
        // With a digest, not every entry leads to a report, so the number of reads has a separate limit.
        let max_records = if sha256.is_empty() {
            limit
        } else {
            MAX_SEARCHED_RECORDS
        };
        let mut free_bytes = MAX_LIST_BYTES;
        for (count, entry) in entries.into_iter().enumerate() {
            if count >= max_records || reply.reports.len() >= limit {
                reply.truncated = true;
                break;
            }
            let position = position_text(&entry.order());
            // The index may be behind: the record may have expired.
            if let Some(stored) = self.log.records.read(&entry.key).await? {
                let report = v1::DeliveryReport::from(&stored.record);
                if has_file(&report, sha256) {
                    // One report fits into every list, so that no list ends before the report that it begins with.
                    let report = report::fit_report(report, MAX_LIST_BYTES);
                    let size = prost::Message::encoded_len(&report);
                    if size > free_bytes && !reply.reports.is_empty() {
                        reply.truncated = true;
                        break;
                    }
                    free_bytes = free_bytes.saturating_sub(size);
                    reply.reports.push(report);
                }
            }
            reply.next = position;
        }
        if !reply.truncated {
            reply.next.clear();
        }
        Ok(reply)
    }

    /// Resends files that failed or whose outcome is unknown, as a new delivery with the operation of this call.
    ///
    /// # Errors
    /// The delivery is unknown, it is not finished, or it has no file to resend.
    pub(crate) async fn resend(
        &self,
        meta: &Meta,
        request: &v1::ResendRequest,
    ) -> Result<v1::DeliveryAccepted, DeliveryError> {
        let id = id_of(&request.delivery_id)?;
        // The ledger would treat the request as a redelivery of the original, and return its old result.
        if id == meta.operation {
            return Err(InvalidMessage::field(
                "delivery_id",
                "must differ from the operation that is sent again",
            )
            .into());
        }
        let key = records::record_key(&meta.tenant, &id);
        let Some(stored) = self.log.records.read(&key).await? else {
            return Err(DeliveryError::NotFound("delivery"));
        };
        let report = stored.record;
        if !report.finished {
            // Its attempts continue, so a second delivery could show a file twice.
            return Err(DeliveryError::UnderWay);
        }
        let files: Vec<_> = report
            .files
            .iter()
            .filter(|file| request.all || can_resend(file))
            .collect();
        let (paths, claims) = self.sources(meta, &files).await?;
        let work = v1::SendFileRequested {
            session: report.session.clone(),
            paths,
            claims,
            // If only some files are resent, the text was shown already.
            message: if request.all {
                report.message.clone()
            } else {
                String::new()
            },
            flags: report.flags,
            target: self.target_if_changed(meta, &report).await,
            ..v1::SendFileRequested::default()
        };
        if work.paths.is_empty() && work.claims.is_empty() {
            return Err(DeliveryError::NothingToResend);
        }
        self.intake.accept(meta, &work).await
    }

    /// The sources of resent files: claims for files that are still stored, and paths for all others.
    async fn sources(
        &self,
        meta: &Meta,
        files: &[&FileRecord],
    ) -> Result<(Vec<Vec<u8>>, Vec<v1::Claim>), DeliveryError> {
        let (mut paths, mut claims) = (Vec::new(), Vec::new());
        for file in files {
            let Some(mut claim) = file.claim.clone() else {
                paths.extend((!file.path.is_empty()).then(|| file.path.clone()));
                continue;
            };
            if let Some(artifact) = &mut claim.artifact {
                // The cache names objects by digest, so the name of the first delivery is set again.
                artifact.name.clone_from(&file.name);
            }
            match self.claims.keep_claim(meta, claim).await {
                Ok(kept) => claims.push(kept),
                // The copy expired, but the sandbox may still have the file.
                Err(ClaimFailure::Missing) if !file.path.is_empty() => {
                    paths.push(file.path.clone());
                }
                Err(ClaimFailure::Missing) => return Err(DeliveryError::NotFound("stored file")),
                Err(ClaimFailure::Failed(fault)) => {
                    return Err(DeliveryError::ServiceFault {
                        description: "the store",
                        fault,
                    });
                }
            }
        }
        Ok((paths, claims))
    }

    /// The chat of the earlier delivery, unless the session has the same chat now.
    async fn target_if_changed(
        &self,
        meta: &Meta,
        record: &DeliveryRecord,
    ) -> Option<v1::ChatTarget> {
        let earlier_target = record.target.clone()?;
        if record.session.is_empty() {
            return Some(earlier_target);
        }
        let show = v1::ShowSessionRequest {
            session: record.session.clone(),
        };
        // A session that ended has no chat; its target is decided like that of a new request.
        let own = self.bus.call(meta, &show).await.ok()?.chat?;
        (own.platform != earlier_target.platform || own.chat != earlier_target.chat)
            .then_some(earlier_target)
    }
}

/// A position in the list of deliveries, for the next request.
fn position_text((begun_at_ms, delivery): &Order) -> String {
    format!("{begun_at_ms}.{delivery}")
}

/// The position that a request names; `None` for the beginning of the list.
fn list_position(text: &str) -> Result<Option<Order>, InvalidMessage> {
    if text.is_empty() {
        return Ok(None);
    }
    let parts = text.split_once('.');
    let position = parts.and_then(|(begun_at_ms, delivery)| {
        // Ids may contain dots; times do not.
        Some((begun_at_ms.parse().ok()?, delivery.to_owned()))
    });
    let position = position.ok_or_else(|| {
        InvalidMessage::field("after", "must be the `next` of an earlier part of the list")
    });
    position.map(Some)
}

fn id_of(text: &str) -> Result<OperationId, InvalidMessage> {
    OperationId::new(text).map_err(|error| InvalidMessage::field("delivery_id", error))
}

fn index_unread() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "The records of deliveries are still being read. Try again in some seconds.",
    )
    .detail("index_unread")
    .retry_after(RETRY_DELAY)
}

fn store_unreachable(error: dray_bus::KeyError) -> DeliveryError {
    DeliveryError::ServiceFault {
        description: "the deliveries",
        fault: Box::new(Fault::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use dray_types::Deadline;

    use super::*;
    use crate::tests::fixture::DeliveryFixture;

    #[tokio::test]
    async fn an_unknown_delivery_is_reported_before_the_deadline_of_the_caller() {
        let fixture = DeliveryFixture::new().await;
        let soon = Deadline::after(fixture.clock.now_ms(), Duration::from_millis(400));
        let meta = fixture.meta("q").with_deadline(soon);
        let outcome = v1::DeliveryOutcomeRequest {
            delivery_id: "none".to_owned(),
            wait_ms: 30_000,
        };
        let reply = fixture.replica.receipts.outcome(&meta, &outcome);
        let reply = tokio::time::timeout(Duration::from_secs(20), reply).await;
        let error = reply.expect("a reply before the wait ends").unwrap_err();
        let fault = Fault::from(error);
        assert_eq!(fault.detail, "not_found");
        assert!(fault.advice.contains("Check the id"), "{fault:?}");
    }
}
