//! Earlier conversions, by content and by everything else that affects the result (read-attachment 13.7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use dray_documents::formats::{ConversionHint, Converted, VERSION};
use dray_documents::limits::{Failure, Limit, Limits};
use dray_documents::markdown::Selection;
use dray_types::Sha256Digest;
use serde::Serialize;

/// The key of a conversion: content, version of the converters, type, selection, and the limits that affect the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey(Sha256Digest);

#[derive(Serialize)]
struct KeyParts<'a> {
    version: &'a str,
    content: String,
    hint: &'a ConversionHint,
    selection: &'a Selection,
    limits: Limits,
}

impl CacheKey {
    /// The key of one conversion.
    pub fn of(
        content: Sha256Digest,
        hint: &ConversionHint,
        selection: &Selection,
        limits: &Limits,
    ) -> Self {
        let parts = KeyParts {
            version: VERSION,
            content: content.to_hex(),
            hint,
            selection,
            // Limits of time and memory are not part of the key: a conversion that they ended is not cached.
            limits: Limits {
                wall_ms: 0,
                memory_bytes: 0,
                ..limits.clone()
            },
        };
        // Plain data always serialises. If it did not, equal content would still have an equal key.
        let bytes = serde_json::to_vec(&parts).unwrap_or_else(|_| content.as_bytes().to_vec());
        Self(Sha256Digest::of(&bytes))
    }

    /// 64 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.to_hex()
    }
}

/// Whether the same conversion would have the same result again, so that the result may be cached.
pub(crate) fn is_lasting(converted: &Converted) -> bool {
    let is_transient = |limit: Limit| matches!(limit, Limit::Time | Limit::Memory);
    let has_transient_failure = match converted.failure {
        Some(Failure::Stopped(limit)) => is_transient(limit),
        // A worker that crashed may have met a machine short of memory; another run can succeed.
        Some(Failure::Internal) => true,
        _ => false,
    };
    !has_transient_failure && !converted.stopped.is_some_and(is_transient)
}

/// A store of conversions. A failing cache behaves as if it were empty; it never makes a call fail.
#[async_trait]
pub trait Cache: Send + Sync {
    /// Returns the stored conversion of this key, if there is one.
    async fn get(&self, key: &CacheKey) -> Option<Converted>;

    /// Stores a conversion under its key, replacing an earlier one. A failure is not reported.
    async fn put(&self, key: &CacheKey, value: &Converted);
}

/// Conversions that run now: of several callers that need the same conversion, one converts and the others wait.
#[derive(Debug, Default)]
pub(crate) struct ConversionFlights {
    running: Mutex<HashMap<CacheKey, Weak<tokio::sync::Mutex<()>>>>,
}

impl ConversionFlights {
    /// Waits until no other task converts this (single-flight).
    pub(crate) async fn enter(&self, key: CacheKey) -> tokio::sync::OwnedMutexGuard<()> {
        // The lock of the map ends with this block, and the task waits for its turn without that lock.
        let turn = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            // Only callers have strong references to turns. Without this line the map would grow with every document.
            running.retain(|_, turn| turn.strong_count() > 0);
            if let Some(turn) = running.get(&key).and_then(Weak::upgrade) {
                turn
            } else {
                let turn = Arc::new(tokio::sync::Mutex::new(()));
                running.insert(key, Arc::downgrade(&turn));
                turn
            }
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_documents::markdown::{Span, Unit};

    fn conversion_of(text: &str) -> Converted {
        Converted {
            converter: "x".to_owned(),
            markdown: text.to_owned(),
            parts: Vec::new(),
            parts_seen: 0,
            stopped: None,
            failure: None,
            warnings: Vec::new(),
            member: None,
            pictures: Vec::new(),
            omitted: 0,
            selected_rows: 0,
            search_lines: Vec::new(),
        }
    }

    fn key(content: &str) -> CacheKey {
        let digest = Sha256Digest::of(content.as_bytes());
        CacheKey::of(
            digest,
            &ConversionHint::default(),
            &Selection::All,
            &Limits::default(),
        )
    }

    #[test]
    fn keys_differ_by_everything_that_changes_the_output() {
        let content = Sha256Digest::of(b"a");
        let of = |hint: &ConversionHint, selection: &Selection, limits: &Limits| {
            CacheKey::of(content, hint, selection, limits)
        };
        let (hint, all, limits) = (ConversionHint::default(), Selection::All, Limits::default());
        let plain = of(&hint, &all, &limits);
        let csv = ConversionHint {
            mime: "text/csv".to_owned(),
            ..ConversionHint::default()
        };
        let page = Selection::Parts {
            unit: Unit::Page,
            span: Span { first: 1, last: 2 },
        };
        let fewer = Limits {
            max_elements: 5,
            ..Limits::default()
        };
        let slower = Limits {
            wall_ms: 5,
            memory_bytes: 5,
            ..Limits::default()
        };
        assert_ne!(plain, key("b"));
        assert_ne!(plain, of(&csv, &all, &limits));
        assert_ne!(plain, of(&hint, &page, &limits));
        assert_ne!(plain, of(&hint, &all, &fewer));
        assert_eq!(plain, of(&hint, &all, &slower));
        assert_eq!(plain.to_hex().len(), 64);
    }

    #[test]
    fn conversions_ended_by_time_or_memory_are_not_kept() {
        for (stopped, failure, lasting) in [
            (None, None, true),
            (Some(Limit::Element), None, true),
            (Some(Limit::Time), None, false),
            (None, Some(Failure::Stopped(Limit::Memory)), false),
            (None, Some(Failure::Stopped(Limit::Size)), true),
            (None, Some(Failure::Internal), false),
            (None, Some(Failure::Encrypted), true),
        ] {
            let converted = Converted {
                stopped,
                failure,
                ..conversion_of("")
            };
            assert_eq!(is_lasting(&converted), lasting);
        }
    }

    #[tokio::test]
    async fn equal_conversions_wait_for_each_other() {
        let flights = ConversionFlights::default();
        let first = flights.enter(key("a")).await;
        let other = flights.enter(key("b")).await;
        let second = flights.enter(key("a"));
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop((first, other));
        second.await;
        drop(flights.enter(key("c")).await);
        assert_eq!(
            flights.running.lock().unwrap().len(),
            1,
            "ended conversions are removed"
        );
    }
}
