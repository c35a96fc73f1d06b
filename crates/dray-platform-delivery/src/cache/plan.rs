//! The plan of a sweep. It is a pure function: all data that it uses is passed in.

use dray_store::CachedObject;
use dray_types::{ByteSize, Period};

use super::object_needs::{ObjectUse, ObjectUses};

/// How long an object always stays after it accepts no new claims, in milliseconds: longer than a copy out of a sandbox
/// needs to get into a record.
pub(crate) const PROTECTED_MS: u64 = 15 * 60 * 1000;

/// The state of the service at the time of one sweep, by which objects are kept or evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepConditions {
    /// Unix milliseconds of the sweep.
    pub(crate) at_ms: u64,
    /// Unix milliseconds since which a delivery gathers files: younger objects stay.
    pub(crate) gathering_since_ms: u64,
    /// How long an object is kept after its last use.
    pub(crate) lifetime: Period,
    /// Most bytes that all objects may have.
    pub(crate) size: ByteSize,
}

/// The decision of one sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepPlan {
    /// Objects whose lifetime after the last use has passed.
    pub(crate) expired: Vec<CachedObject>,
    /// Objects to remove so that the cache is not above its size, the least recently used first.
    pub(crate) evicted: Vec<CachedObject>,
    /// Bytes of the objects that stay.
    pub(crate) bytes: u64,
    /// Bytes of the objects that stay because they are needed or too young.
    pub(crate) held: u64,
    /// Number of the objects that stay.
    pub(crate) objects: u64,
}

/// Decides about all objects in the cache.
pub(crate) fn plan_sweep(
    objects: Vec<CachedObject>,
    uses: &ObjectUses,
    now: SweepConditions,
) -> SweepPlan {
    let mut plan = SweepPlan::default();
    let mut evictable = Vec::new();
    for object in objects {
        let used = uses.get(&object.key).copied().unwrap_or_default();
        // An object that no delivery has used yet counts as used when its slot closed.
        let last_ms = used.used_ms.max(object.closed_at_ms);
        if is_held(&object, used, now) {
            plan.held = plan.held.saturating_add(object.bytes);
            plan.objects += 1;
        } else if last_ms.saturating_add(now.lifetime.as_millis()) <= now.at_ms {
            plan.expired.push(object);
        } else {
            evictable.push((last_ms, object));
        }
    }
    // Sorts the least recently used first, because pairs compare by their first member.
    evictable.sort();
    let evictable_bytes = evictable.iter().map(|(_, object)| object.bytes);
    plan.bytes = evictable_bytes.fold(plan.held, u64::saturating_add);
    for (_, object) in evictable {
        if plan.bytes > now.size.as_u64() {
            plan.bytes = plan.bytes.saturating_sub(object.bytes);
            plan.evicted.push(object);
        } else {
            plan.objects += 1;
        }
    }
    plan
}

/// Whether the object must stay, even above the size.
fn is_held(object: &CachedObject, used: ObjectUse, now: SweepConditions) -> bool {
    used.until_ms > now.at_ms
        || object.closed_at_ms.saturating_add(PROTECTED_MS) > now.at_ms
        || object.closed_at_ms > now.gathering_since_ms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const NOW_MS: u64 = 1_000 * MINUTE_MS;

    fn object(name: &str, minutes_ago: u64, bytes: u64) -> CachedObject {
        CachedObject {
            key: name.to_owned(),
            bytes,
            closed_at_ms: NOW_MS - minutes_ago * MINUTE_MS,
        }
    }

    fn now(size: u64) -> SweepConditions {
        SweepConditions {
            at_ms: NOW_MS,
            gathering_since_ms: u64::MAX,
            lifetime: Period::secs(3600),
            size: ByteSize::bytes(size),
        }
    }

    fn needed_until(until_ms: u64) -> ObjectUse {
        ObjectUse {
            until_ms,
            used_ms: 0,
        }
    }

    fn names(objects: &[CachedObject]) -> String {
        let names: Vec<_> = objects.iter().map(|object| object.key.as_str()).collect();
        names.join(" ")
    }

    #[test]
    fn an_object_that_is_unused_for_its_lifetime_expires() {
        let objects = vec![object("old", 60, 1), object("young", 59, 1)];
        let planned = plan_sweep(objects, &ObjectUses::new(), now(100));
        assert_eq!(names(&planned.expired), "old");
        assert_eq!((planned.bytes, planned.held, planned.objects), (1, 0, 1));
    }

    #[test]
    fn a_use_extends_the_lifetime_of_an_object() {
        let recent = ObjectUse {
            until_ms: 0,
            used_ms: NOW_MS - 59 * MINUTE_MS,
        };
        let uses = ObjectUses::from([("used".to_owned(), recent)]);
        let objects = vec![object("used", 300, 1), object("unused", 300, 1)];
        assert_eq!(
            names(&plan_sweep(objects, &uses, now(100)).expired),
            "unused"
        );
    }

    #[test]
    fn above_the_size_the_least_recently_used_objects_are_evicted_first() {
        let recent = ObjectUse {
            until_ms: 0,
            used_ms: NOW_MS - MINUTE_MS,
        };
        let uses = ObjectUses::from([("used".to_owned(), recent)]);
        let objects = vec![
            object("b", 30, 10),
            object("used", 50, 10),
            object("a", 40, 10),
            object("c", 20, 10),
        ];
        let planned = plan_sweep(objects, &uses, now(20));
        assert_eq!(names(&planned.evicted), "a b");
        assert_eq!((planned.bytes, planned.objects), (20, 2));
    }

    #[test]
    fn needed_and_young_objects_stay_even_above_the_size() {
        let uses = ObjectUses::from([
            ("delivery".to_owned(), needed_until(u64::MAX)),
            ("link".to_owned(), needed_until(NOW_MS + 1)),
            ("ended".to_owned(), needed_until(NOW_MS)),
        ]);
        let objects = vec![
            object("delivery", 900, 10),
            object("link", 900, 10),
            object("ended", 900, 10),
            object("fresh", 14, 10),
            object("loose", 16, 10),
        ];
        let planned = plan_sweep(objects, &uses, now(0));
        assert_eq!(names(&planned.expired), "ended");
        assert_eq!(names(&planned.evicted), "loose");
        assert_eq!((planned.bytes, planned.held), (30, 30));
    }

    #[test]
    fn objects_younger_than_a_gathering_stay() {
        let objects = vec![object("before", 70, 1), object("since", 60, 1)];
        let gathering = SweepConditions {
            gathering_since_ms: NOW_MS - 65 * MINUTE_MS,
            ..now(0)
        };
        let planned = plan_sweep(objects, &ObjectUses::new(), gathering);
        assert_eq!(
            (names(&planned.expired), planned.held),
            ("before".to_owned(), 1)
        );
    }

    #[test]
    fn a_clock_that_was_set_back_removes_no_record() {
        let mut ahead = object("ahead", 0, 1);
        ahead.closed_at_ms = NOW_MS + 900 * MINUTE_MS;
        let planned = plan_sweep(vec![ahead], &ObjectUses::new(), now(0));
        assert_eq!(planned.held, 1);
    }

    proptest! {
        #[test]
        fn a_plan_counts_every_byte_and_removes_no_held_object(
            ages in prop::collection::vec((0..120_u64, 0..50_u64, any::<bool>()), 0..40),
            size in 0..1_000_u64,
        ) {
            let mut uses = ObjectUses::new();
            let mut objects = Vec::new();
            for (number, (age, bytes, needed)) in ages.iter().enumerate() {
                let name = format!("{number}");
                if *needed {
                    uses.insert(name.clone(), needed_until(NOW_MS + 1));
                }
                objects.push(object(&name, *age, *bytes));
            }
            let all: u64 = objects.iter().map(|object| object.bytes).sum();
            let planned = plan_sweep(objects.clone(), &uses, now(size));
            let removed: Vec<_> = planned.expired.iter().chain(&planned.evicted).collect();
            let removed_bytes: u64 = removed.iter().map(|object| object.bytes).sum();
            prop_assert_eq!(planned.bytes + removed_bytes, all);
            prop_assert_eq!(planned.objects + removed.len() as u64, objects.len() as u64);
            prop_assert!(planned.bytes <= size.max(planned.held));
            for object in removed {
                prop_assert!(!uses.contains_key(&object.key));
                prop_assert!(object.closed_at_ms + PROTECTED_MS <= NOW_MS);
            }
            // A second run with the remaining objects does nothing.
            let remaining: Vec<_> = objects
                .into_iter()
                .filter(|object| !planned.expired.contains(object) && !planned.evicted.contains(object))
                .collect();
            let repeated = plan_sweep(remaining, &uses, now(size));
            prop_assert!(repeated.expired.is_empty() && repeated.evicted.is_empty());
        }
    }
}
