//! What the fake server keeps.

use std::collections::BTreeMap;

use dray_http::fake_server::ContentDigest;

use super::{InjectedFault, StoredMessage};

#[derive(Debug, Default)]
pub(super) struct FakeState {
    pub(super) files: BTreeMap<String, SlackFile>,
    pub(super) channels: BTreeMap<String, Vec<StoredMessage>>,
    pub(super) faults: Vec<InjectedFault>,
    /// Requests until now: method, and whether it bore a token.
    pub(super) requests: Vec<(String, bool)>,
    /// Files of users by their path.
    pub(super) downloads: BTreeMap<String, Vec<u8>>,
    /// Scopes of the token in the order granted; the usual ones before.
    pub(super) scopes: Option<String>,
    pub(super) count: u64,
    /// Messages that one user sees: user and text.
    pub(super) notices: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub(super) struct SlackFile {
    pub(super) name: String,
    pub(super) length: u64,
    pub(super) content: Option<ContentDigest>,
    /// Channel, time stamp, and calls of `files.info` until the share shows.
    pub(super) shared: Option<(String, String, u32)>,
}

impl FakeState {
    pub(super) fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn fault(
        &mut self,
        wanted: impl Fn(&InjectedFault) -> bool,
    ) -> Option<InjectedFault> {
        let at = self.faults.iter().position(wanted)?;
        Some(self.faults.remove(at))
    }
}
