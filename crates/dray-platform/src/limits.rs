//! Limits as data: configured, asked of the platform, and learnt (platform-delivery 6, R-6).

use serde::{Deserialize, Serialize};

/// Limits of one chat. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatLimits {
    /// Largest file per route (`photo`, `document`, `video` …); a route that is not named takes `any`.
    pub routes: Vec<(String, u64)>,
    /// Largest file on any other route.
    pub any: u64,
    /// Longest caption, in the platform's unit.
    pub caption: usize,
    /// Longest text, in the platform's unit.
    pub text: usize,
    /// Most files in one visible request.
    pub per_message: usize,
    /// Largest whole request; `None` when unknown.
    pub request: Option<u64>,
    /// Largest file that the platform lets us fetch; `None` for no limit of its own.
    pub download: Option<u64>,
}

impl ChatLimits {
    /// Largest file on this route.
    pub fn of(&self, route: &str) -> u64 {
        self.routes
            .iter()
            .find(|(name, _)| name == route)
            .map_or(self.any, |(_, limit)| *limit)
    }

    /// The same limits, none of them above `learnt`: a refusal taught it.
    #[must_use]
    pub fn at_most(mut self, learnt: u64) -> Self {
        self.any = self.any.min(learnt);
        for (_, limit) in &mut self.routes {
            *limit = (*limit).min(learnt);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learnt_limit_lowers_every_route() {
        let limits = ChatLimits {
            routes: vec![("photo".to_owned(), 10)],
            any: 50,
            caption: 1024,
            text: 4096,
            per_message: 10,
            request: None,
            download: None,
        };
        assert_eq!((limits.of("photo"), limits.of("document")), (10, 50));
        let learnt = limits.at_most(20);
        assert_eq!((learnt.of("photo"), learnt.of("document")), (10, 20));
    }
}
