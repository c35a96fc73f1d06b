//! The cache of fetches in the configuration.

use std::time::Duration;

use dray_types::{ByteSize, Period};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// Longest `max_age` that an operator may configure. The bucket keeps records for longer.
const MAX_RECORD_AGE: Period = Period::secs(7 * 24 * 3600);

/// Stored responses of fetches, separate for each tenant; off by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Whether responses are stored and used again as their servers allow (RFC 9111). The policy is checked at every
    /// use.
    pub enabled: bool,
    /// Most stored responses of one tenant; a further response may replace another. All processes need the same number.
    pub max_entries: u32,
    /// Size of the largest file that is stored.
    pub max_file_bytes: ByteSize,
    /// Longest time for which a response is used without revalidation, even if its server allows more; at most 7 days.
    pub max_age: Period,
}

/// The checked settings of the cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheSettings {
    /// Most stored responses of one tenant.
    pub max_entries: u32,
    /// Largest file in bytes.
    pub max_file_bytes: u64,
    /// Longest time without revalidation.
    pub max_age: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            max_entries: 1024,
            max_file_bytes: ByteSize::mib(32),
            max_age: Period::secs(24 * 3600),
        }
    }
}

impl CacheConfig {
    /// Checks the fields; `None` when responses are not stored.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<CacheSettings> {
        checks.count("cache.max_entries", self.max_entries);
        if self.max_file_bytes.as_u64() == 0 {
            checks.add("cache.max_file_bytes", "must be at least 1 byte");
        }
        let max_age = checks.period("cache.max_age", self.max_age, MAX_RECORD_AGE);
        self.enabled.then_some(CacheSettings {
            max_entries: self.max_entries,
            max_file_bytes: self.max_file_bytes.as_u64(),
            max_age,
        })
    }
}
