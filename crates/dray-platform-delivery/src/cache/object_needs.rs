//! Needs of objects of the cache, read from the records of deliveries.

use std::collections::BTreeMap;

use dray_types::{Claim, Period};

use crate::record::DeliveryRecord;

/// One delivery's need of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectNeed {
    /// Key of the object in the bucket.
    pub(crate) object: String,
    /// Unix milliseconds until which it must stay; [`u64::MAX`] until the delivery is finished.
    pub(crate) until_ms: u64,
    /// Unix milliseconds of its last use by this delivery.
    pub(crate) used_ms: u64,
}

/// Needs of all deliveries, by the key of their record.
#[derive(Debug, Default)]
pub(crate) struct ObjectNeeds {
    by_delivery: BTreeMap<String, Vec<ObjectNeed>>,
}

/// The need of all deliveries together for one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectUse {
    /// Unix milliseconds until which it must stay.
    pub(crate) until_ms: u64,
    /// Unix milliseconds of its last use.
    pub(crate) used_ms: u64,
}

/// Uses of objects, by the key of the object.
pub(crate) type ObjectUses = BTreeMap<String, ObjectUse>;

impl ObjectNeeds {
    /// Replaces the needs of a delivery by those of its current record.
    pub(crate) fn put(&mut self, key: &str, record: &DeliveryRecord) {
        let needs = needs_of(record);
        if needs.is_empty() {
            self.by_delivery.remove(key);
        } else {
            self.by_delivery.insert(key.to_owned(), needs);
        }
    }

    /// Removes the needs of a delivery whose record was removed.
    pub(crate) fn remove(&mut self, key: &str) {
        self.by_delivery.remove(key);
    }

    /// All objects that are needed, or were used within `lifetime`. Other needs are removed.
    pub(crate) fn uses(&mut self, now_ms: u64, lifetime: Period) -> ObjectUses {
        let is_relevant = |need: &ObjectNeed| {
            need.until_ms > now_ms || need.used_ms.saturating_add(lifetime.as_millis()) > now_ms
        };
        self.by_delivery
            .retain(|_, needs| needs.iter().any(is_relevant));
        let mut uses = ObjectUses::new();
        for need in self.by_delivery.values().flatten() {
            let object_use = uses.entry(need.object.clone()).or_default();
            object_use.until_ms = object_use.until_ms.max(need.until_ms);
            object_use.used_ms = object_use.used_ms.max(need.used_ms);
        }
        uses
    }
}

/// The needs of one delivery: all its files until it is finished, then the files of valid links.
fn needs_of(record: &DeliveryRecord) -> Vec<ObjectNeed> {
    let mut needs = Vec::new();
    for file in &record.files {
        let claim = file.claim.clone().map(Claim::try_from);
        let Some(object) = claim
            .and_then(Result::ok)
            .and_then(|claim| dray_store::cache_key(&claim))
        else {
            continue;
        };
        // The record has the expiry of the first link. A later attempt made a link that expires later, by at most the
        // duration of the delivery.
        let duration_ms = record.ended_at_ms.saturating_sub(record.begun_at_ms);
        let until_ms = match file.url_expires_at_ms {
            _ if !record.finished => u64::MAX,
            0 => 0,
            link => link.saturating_add(duration_ms),
        };
        needs.push(ObjectNeed {
            object,
            until_ms,
            used_ms: record.ended_at_ms.max(record.begun_at_ms),
        });
    }
    needs
}

#[cfg(test)]
mod tests {
    use dray_proto::v1;
    use dray_types::Sha256Digest;

    use super::*;
    use crate::record::{FileRecord, FileState};

    const ONE_HOUR: Period = Period::secs(3600);

    fn file(bytes: &[u8], store: &str, link: u64) -> FileRecord {
        FileRecord {
            claim: Some(v1::Claim {
                artifact: Some(v1::Artifact {
                    tenant: "acme".to_owned(),
                    sha256: Sha256Digest::of(bytes).as_bytes().to_vec(),
                    ..v1::Artifact::default()
                }),
                store: store.to_owned(),
                ..v1::Claim::default()
            }),
            url_expires_at_ms: link,
            ..FileRecord::in_state(FileState::Delivered)
        }
    }

    fn record(files: Vec<FileRecord>, ended: u64) -> DeliveryRecord {
        DeliveryRecord {
            files,
            begun_at_ms: 1_000,
            ended_at_ms: ended,
            finished: ended > 0,
            ..DeliveryRecord::default()
        }
    }

    fn only_use(needs: &mut ObjectNeeds, now_ms: u64) -> Option<ObjectUse> {
        let uses = needs.uses(now_ms, ONE_HOUR);
        assert!(uses.len() <= 1, "{uses:?}");
        uses.into_values().next()
    }

    #[test]
    fn an_unfinished_delivery_needs_its_files_for_ever_and_a_finished_one_does_not() {
        let mut needs = ObjectNeeds::default();
        needs.put("acme.d", &record(vec![file(b"a", "main.cache-7", 0)], 0));
        let object_use = only_use(&mut needs, u64::MAX - 1).unwrap();
        assert_eq!((object_use.until_ms, object_use.used_ms), (u64::MAX, 1_000));
        needs.put(
            "acme.d",
            &record(vec![file(b"a", "main.cache-7", 0)], 5_000),
        );
        let object_use = only_use(&mut needs, 6_000).unwrap();
        assert_eq!((object_use.until_ms, object_use.used_ms), (0, 5_000));
        assert_eq!(only_use(&mut needs, 5_000 + ONE_HOUR.as_millis()), None);
        assert!(needs.by_delivery.is_empty(), "the need was removed");
    }

    #[test]
    fn a_link_needs_its_object_until_the_last_one_that_may_be_visible_ends() {
        let mut needs = ObjectNeeds::default();
        let sent = record(vec![file(b"a", "main.cache-7", 90_000_000)], 61_000);
        needs.put("acme.d", &sent);
        let object_use = only_use(&mut needs, 80_000_000).unwrap();
        assert_eq!(object_use.until_ms, 90_060_000);
    }

    #[test]
    fn the_longest_need_of_an_object_counts() {
        let mut needs = ObjectNeeds::default();
        needs.put(
            "acme.a",
            &record(vec![file(b"a", "main.cache-7", 9_000)], 2_000),
        );
        needs.put(
            "acme.b",
            &record(vec![file(b"a", "main.cache-7", 0)], 4_000),
        );
        let object_use = only_use(&mut needs, 5_000).unwrap();
        assert_eq!((object_use.until_ms, object_use.used_ms), (10_000, 4_000));
        needs.remove("acme.a");
        needs.remove("acme.b");
        assert_eq!(only_use(&mut needs, 5_000), None);
    }

    #[test]
    fn stored_content_and_values_that_are_not_claims_are_not_counted() {
        let mut needs = ObjectNeeds::default();
        let mut broken = file(b"a", "main.cache-7", 0);
        broken.claim = Some(v1::Claim::default());
        let files = vec![
            file(b"a", "main", 0),
            broken,
            FileRecord::in_state(FileState::Delivered),
        ];
        needs.put("acme.d", &record(files, 0));
        assert_eq!(only_use(&mut needs, 0), None);
    }
}
