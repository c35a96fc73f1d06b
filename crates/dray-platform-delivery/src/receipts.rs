//! Reports the outcome of deliveries, and resends files that did not arrive.

use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::ErrorKind;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Clock, Fault, OperationId, TenantId};
use tokio::time::Instant;

use crate::accept::RequestIntake;
use crate::cache::{ClaimFailure, ClaimKeeper};
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::poll_delay::PollDelay;
use crate::preview_receipts;
use crate::record::{DeliveryRecord, FileFailureKind, FileRecord, FileState};
use crate::records;
use crate::report;

/// Longest wait for the end of a delivery.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Receipts in a list without a limit, and most receipts in a list.
const DEFAULT_RECEIPTS: usize = 50;
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
    /// It is unknown, or the bus failed.
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
            // Polled, because the delivery may end in another replica, and one key is a cheap read.
            tokio::time::sleep(delay.next_delay()).await;
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
                what: "the ledger",
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
    /// The bus.
    pub(crate) async fn receipts(
        &self,
        meta: &Meta,
        request: &v1::ListReceiptsRequest,
    ) -> Result<v1::ListReceiptsReply, DeliveryError> {
        self.log.index.refresh().await.map_err(store_unreachable)?;
        let limit = match usize::try_from(request.limit).unwrap_or(MAX_RECEIPTS) {
            0 => DEFAULT_RECEIPTS,
            limit => limit.min(MAX_RECEIPTS),
        };
        let token = meta.tenant.token();
        let entries = self
            .log
            .index
            .of_tenant(&token, &request.session, request.open_only);
        let mut reply = v1::ListReceiptsReply {
            // Compared before the limit is applied. With a digest, not every entry leads to a report.
            truncated: request.sha256.is_empty() && entries.len() > limit,
            ..v1::ListReceiptsReply::default()
        };
        let mut free_bytes = MAX_LIST_BYTES;
        let max_records = if request.sha256.is_empty() {
            limit
        } else {
            MAX_SEARCHED_RECORDS
        };
        reply.truncated |= entries.len() > max_records;
        for entry in entries.into_iter().take(max_records) {
            if reply.reports.len() >= limit {
                reply.truncated = true;
                break;
            }
            // The index may be behind: the record may have expired.
            let Some(stored) = self.log.records.read(&entry.key).await? else {
                continue;
            };
            let report = v1::DeliveryReport::from(&stored.record);
            if !has_file(&report, &request.sha256) {
                continue;
            }
            let size = prost::Message::encoded_len(&report);
            if size > free_bytes {
                reply.truncated = true;
                break;
            }
            free_bytes -= size;
            reply.reports.push(report);
        }
        let reports = &mut reply.reports;
        preview_receipts::add_openings(&self.bus, &self.clock, meta, reports).await;
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
                "a resend is an operation of its own",
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
                        what: "the store",
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

/// Whether a file is worth another delivery: it failed, its outcome is unknown, it was too large, or the window was
/// closed.
fn can_resend(file: &FileRecord) -> bool {
    match file.state {
        FileState::Failed | FileState::Unknown => true,
        FileState::Rejected => matches!(
            file.error_kind,
            Some(FileFailureKind::Platform(
                ErrorKind::TooLarge | ErrorKind::WindowClosed
            ))
        ),
        FileState::Queued
        | FileState::Sending
        | FileState::Delivered
        | FileState::DeliveredAsLink
        | FileState::DeliveredAsPreview
        | FileState::Copied => false,
    }
}

fn id_of(text: &str) -> Result<OperationId, InvalidMessage> {
    OperationId::new(text).map_err(|error| InvalidMessage::field("delivery_id", error))
}

fn store_unreachable(error: dray_bus::KeyError) -> DeliveryError {
    DeliveryError::ServiceFault {
        what: "the deliveries",
        fault: Box::new(Fault::from(error)),
    }
}
