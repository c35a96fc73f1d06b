//! Adds to receipts whether previews were opened. Sandbox-transfer is called for each receipt, because people open
//! previews after the delivery ended.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::v1::{self, PreviewLinkState, sandbox_ref};
use dray_types::{Clock, Deadline, OperationId};
use futures_util::StreamExt as _;

/// Longest time for one call: a receipt without counts is better than none.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Most deliveries of one list whose counts are read.
const MAX_LISTED_DELIVERIES: usize = 50;
/// Most concurrent calls.
const MAX_CONCURRENT_CALLS: usize = 8;

/// Adds counts and states of previews to these reports.
pub(crate) async fn add_openings(
    bus: &Bus,
    clock: &Clock,
    meta: &Meta,
    reports: &mut [v1::DeliveryReport],
) {
    let has_preview = |report: &&v1::DeliveryReport| {
        let mut files = report.files.iter();
        files.any(|file| {
            let receipt = file.preview.as_ref();
            receipt.is_some_and(|receipt| !receipt.preview_ids.is_empty())
        })
    };
    let deliveries: Vec<(String, String)> = reports
        .iter()
        .filter(has_preview)
        .map(|report| (report.session.clone(), report.delivery_id.clone()))
        .take(MAX_LISTED_DELIVERIES)
        .collect();
    let calls = deliveries
        .into_iter()
        .map(|(session, delivery)| async move {
            let previews = list_previews(bus, clock, meta, session, &delivery).await;
            (delivery, previews)
        });
    let previews_by_delivery: BTreeMap<String, Option<Vec<v1::Preview>>> =
        futures_util::stream::iter(calls)
            .buffer_unordered(MAX_CONCURRENT_CALLS)
            .collect()
            .await;
    let now_ms = clock.now_ms();
    for report in reports {
        // The delivery id alone is the key, because it is unique in a tenant.
        let previews = previews_by_delivery
            .get(&report.delivery_id)
            .cloned()
            .flatten();
        for file in &mut report.files {
            if let Some(receipt) = &mut file.preview {
                fill_receipt(receipt, previews.as_deref(), now_ms);
            }
        }
    }
}

/// The previews of a delivery; `None` if sandbox-transfer did not respond.
async fn list_previews(
    bus: &Bus,
    clock: &Clock,
    meta: &Meta,
    session: String,
    delivery_id: &str,
) -> Option<Vec<v1::Preview>> {
    let request = v1::ListPreviewsRequest {
        sandbox: Some(v1::SandboxRef {
            sandbox: Some(sandbox_ref::Sandbox::Session(session)),
        }),
        delivery_id: delivery_id.to_owned(),
    };
    // The caller may wait for less.
    let deadline = Deadline::after(clock.now_ms(), LIST_TIMEOUT).min(meta.deadline);
    let call_meta = meta
        .clone()
        .with_operation(OperationId::mint())
        .with_deadline(deadline);
    match bus.call(&call_meta, &request).await {
        Ok(reply) => Some(reply.previews),
        Err(error) => {
            tracing::debug!(%error, "the openings of previews are not known");
            None
        }
    }
}

fn fill_receipt(receipt: &mut v1::PreviewReceipt, previews: Option<&[v1::Preview]>, now_ms: u64) {
    let Some(newest_id) = receipt.preview_ids.last().cloned() else {
        return;
    };
    let is_over = receipt.expires_at_ms <= now_ms;
    let mut state = if is_over {
        PreviewLinkState::Expired
    } else {
        PreviewLinkState::Unspecified
    };
    for preview in previews.unwrap_or_default() {
        if !receipt.preview_ids.contains(&preview.preview_id) {
            continue;
        }
        receipt.counts_known = true;
        receipt.opened_count += preview.opened_count;
        receipt.scanned_count += preview.scanned_count;
        keep_earlier(&mut receipt.first_opened_at_ms, preview.opened_at_ms);
        keep_earlier(&mut receipt.first_scanned_at_ms, preview.scanned_at_ms);
        // Only the newest preview decides, because the service itself revoked the earlier ones.
        if preview.preview_id == newest_id {
            receipt.revoked_at_ms = preview.revoked_at_ms;
            state = match preview.revoked_at_ms {
                0 if is_over => PreviewLinkState::Expired,
                0 => PreviewLinkState::Open,
                _ => PreviewLinkState::Revoked,
            };
        }
    }
    receipt.set_state(state);
}

/// Sets `earliest` to the earlier of two times; 0 means that there is no time.
fn keep_earlier(earliest: &mut u64, candidate: u64) {
    if candidate > 0 && (*earliest == 0 || candidate < *earliest) {
        *earliest = candidate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt() -> v1::PreviewReceipt {
        v1::PreviewReceipt {
            preview_ids: vec!["a".to_owned(), "b".to_owned()],
            expires_at_ms: 100,
            ..v1::PreviewReceipt::default()
        }
    }

    fn preview(id: &str, opened_at_ms: u64) -> v1::Preview {
        v1::Preview {
            preview_id: id.to_owned(),
            opened_at_ms,
            opened_count: u32::from(opened_at_ms > 0),
            ..v1::Preview::default()
        }
    }

    #[test]
    fn openings_of_all_links_of_a_file_are_counted_and_the_newest_decides_the_state() {
        let mut reported = receipt();
        let other = preview("of another file", 1);
        let previews = [preview("b", 30), preview("a", 20), other];
        fill_receipt(&mut reported, Some(&previews), 50);
        assert!(reported.counts_known);
        assert_eq!(
            (reported.opened_count, reported.first_opened_at_ms),
            (2, 20)
        );
        assert_eq!(reported.state(), PreviewLinkState::Open);
        let mut revoked = preview("b", 0);
        revoked.revoked_at_ms = 40;
        let mut reported = receipt();
        fill_receipt(&mut reported, Some(&[revoked]), 500);
        assert_eq!(reported.state(), PreviewLinkState::Revoked);
        assert_eq!(reported.revoked_at_ms, 40);
    }

    #[test]
    fn without_reported_previews_only_the_expiry_is_known() {
        let mut reported = receipt();
        fill_receipt(&mut reported, None, 50);
        assert_eq!(reported.state(), PreviewLinkState::Unspecified);
        fill_receipt(&mut reported, Some(&[]), 100);
        assert_eq!(reported.state(), PreviewLinkState::Expired);
        assert!(!reported.counts_known);
    }
}
