//! The queues of work: which durable consumer hands out which area of the work stream.
//!
//! Each service that consumes work has one queue, and each platform has one, so that a slow or unavailable platform
//! does not block the others. The topology, the accounts of the bus and the routes of services are derived from this
//! list. What it does not do: provision anything; that is `dray-bus`.

use dray_types::PlatformKind;

use crate::contract::{PLATFORM_AREA, Work};
use crate::v1;

/// A durable consumer of one area of the work stream, with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkQueue {
    /// Name of the durable consumer: the name of the service that pulls from it, or another name that the service
    /// chooses.
    pub durable: String,
    /// Area of the work stream that it hands out.
    pub area: String,
    /// Most messages handed out and not acknowledged, over all replicas.
    pub max_ack_pending: u64,
    /// Most messages of one pull.
    pub max_batch: u64,
}

/// More messages than one tenant usually queues. Messages that were returned or parked count until their work ends. At
/// this number the queue delivers no further message, of any tenant.
const MAX_ACK_PENDING: u64 = 8_192;

impl WorkQueue {
    fn of<W: Work>(durable: &str, max_batch: u64) -> Self {
        Self {
            durable: durable.to_owned(),
            area: W::AREA.to_owned(),
            max_ack_pending: MAX_ACK_PENDING,
            max_batch,
        }
    }

    fn of_platform(platform: PlatformKind) -> Self {
        Self {
            durable: platform_queue(platform),
            area: format!("{PLATFORM_AREA}{}", platform.as_str()),
            max_ack_pending: MAX_ACK_PENDING,
            max_batch: 8,
        }
    }
}

/// The queue of the messages that users write.
pub const INBOUND_QUEUE: &str = "inbound";

/// The queue of deliveries to one platform.
pub fn platform_queue(platform: PlatformKind) -> String {
    format!("platform-delivery-{}", platform.as_str())
}

/// Every queue of work, including those of the platforms.
pub fn work_queues() -> Vec<WorkQueue> {
    let mut queues = vec![
        WorkQueue::of::<v1::ToolCallRequested>("file-resolver", 32),
        WorkQueue::of::<v1::PlaceUpload>("sandbox-transfer", 16),
        WorkQueue::of::<v1::SendFileRequested>("platform-delivery", 8),
    ];
    queues.extend(
        PlatformKind::ALL
            .iter()
            .copied()
            .map(WorkQueue::of_platform),
    );
    queues.push(WorkQueue::of::<v1::ReceiveMessage>(INBOUND_QUEUE, 8));
    queues
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dray_types::BackendKind;

    use super::*;

    #[test]
    fn every_platform_has_a_queue_that_accepts_its_deliveries() {
        let queues = work_queues();
        for platform in PlatformKind::ALL {
            let deliver = v1::DeliverFiles {
                target: Some(v1::ChatTarget {
                    platform: platform.as_str().to_owned(),
                    ..v1::ChatTarget::default()
                }),
                ..v1::DeliverFiles::default()
            };
            let found = queues
                .iter()
                .find(|queue| queue.area == deliver.area())
                .unwrap();
            assert_eq!(found.durable, platform_queue(*platform));
            assert!(v1::DeliverFiles::serves(&found.area));
        }
    }

    #[test]
    fn no_two_queues_share_a_name_or_an_area() {
        let queues = work_queues();
        let names: BTreeSet<_> = queues.iter().map(|queue| &queue.durable).collect();
        let areas: BTreeSet<_> = queues.iter().map(|queue| &queue.area).collect();
        assert_eq!((names.len(), areas.len()), (queues.len(), queues.len()));
    }

    #[test]
    fn the_contract_names_every_platform_and_every_kind_of_sandbox() {
        let contract = include_str!("../../../proto/dray/v1/session.proto");
        let platforms = PlatformKind::ALL.iter().map(|platform| platform.as_str());
        for name in platforms.chain(BackendKind::ALL.iter().map(|backend| backend.as_str())) {
            assert!(
                contract.contains(&format!("`{name}`")),
                "{name} is not in session.proto"
            );
        }
    }
}
