//! The state of the fake server.

use std::collections::BTreeMap;

use dray_http::fake_server::ContentDigest;

use super::{InjectedFault, StoredMessage};

#[derive(Debug, Default)]
pub(super) struct FakeState {
    pub(super) files: BTreeMap<String, SlackFile>,
    pub(super) channels: BTreeMap<String, Vec<StoredMessage>>,
    pub(super) faults: Vec<InjectedFault>,
    /// Requests until now: method, and whether there was a token.
    pub(super) requests: Vec<(String, bool)>,
    /// Files of users by their path.
    pub(super) downloads: BTreeMap<String, Vec<u8>>,
    /// The scopes of the token; `None` for the default ones.
    pub(super) scopes: Option<String>,
    /// Number of ids and time stamps that were assigned.
    pub(super) count: u64,
    /// Messages that only one user sees: user and text.
    pub(super) notices: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct SlackFile {
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) content: Option<ContentDigest>,
    /// The URL of a file of a user.
    pub(super) url: Option<String>,
    /// Channel, time stamp, and number of `files.info` calls until the share is visible.
    pub(super) shared: Option<(String, String, u32)>,
}

impl FakeState {
    pub(super) fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn fault(
        &mut self,
        is_match: impl Fn(&InjectedFault) -> bool,
    ) -> Option<InjectedFault> {
        let index = self.faults.iter().position(is_match)?;
        Some(self.faults.remove(index))
    }
}
