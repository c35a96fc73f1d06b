//! Limits as data: configured, requested from the platform, and learned from refusals (platform-delivery 6, R-6).

use serde::{Deserialize, Serialize};

use crate::delivery::Route;

/// Limits of one chat. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatLimits {
    /// Largest file per route; a route without an entry has the limit `any`.
    pub routes: Vec<(Route, u64)>,
    /// Largest file on any other route.
    pub any: u64,
    /// Longest caption; 0 where files have no captions.
    pub caption: usize,
    /// Longest text, in the platform's unit.
    pub text: usize,
    /// Most files in one visible request, at least 1.
    pub per_message: usize,
    /// Largest sum of files in one visible request; `None` if unknown.
    pub request: Option<u64>,
    /// Largest file that can be downloaded from the platform; `None` without a limit.
    pub download: Option<u64>,
}

impl ChatLimits {
    /// Largest file on this route.
    pub fn of(&self, route: Route) -> u64 {
        self.routes
            .iter()
            .find(|(limited, _)| *limited == route)
            .map_or(self.any, |(_, limit)| *limit)
    }

    /// The same limits without routes above `learned` bytes, the limit that a refusal of the platform revealed.
    #[must_use]
    pub fn at_most(mut self, learned: u64) -> Self {
        self.any = self.any.min(learned);
        for (_, limit) in &mut self.routes {
            *limit = (*limit).min(learned);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovered_limit_lowers_every_route() {
        let limits = ChatLimits {
            routes: vec![(Route::Photo, 10)],
            any: 50,
            caption: 1024,
            text: 4096,
            per_message: 10,
            request: None,
            download: None,
        };
        assert_eq!(
            (limits.of(Route::Photo), limits.of(Route::Document)),
            (10, 50)
        );
        let lowered = limits.at_most(20);
        assert_eq!(
            (lowered.of(Route::Photo), lowered.of(Route::Document)),
            (10, 20)
        );
    }
}
