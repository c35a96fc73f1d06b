//! Passes on the members of a directory, except those whose content the policy refuses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox_tree::{Kind, Member, Members, Report, SkipReason};
use tokio::time::timeout;

use super::MemberScreen;
use crate::policy::{Finding, MAX_SCANNED_BYTES, Policy, Scanner, Verdict};

/// Counts that its clones share: the archive reads them after the last member.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenTally(Arc<Mutex<(u64, Option<Finding>)>>);

impl ScreenTally {
    /// Number of files, and the first finding that policy lets pass with a warning.
    pub(super) fn read(&self) -> (u64, Option<Finding>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, warning: Option<Finding>) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.0 += 1;
        tally.1 = tally.1.or(warning);
    }
}

/// The verdict of the policy about a file of a directory.
enum MemberVerdict {
    /// The file passes, with a finding that causes a warning, if there is one.
    Passes(Option<Finding>),
    /// The file is left out.
    Refused,
}

/// Examines every file before it is passed on. Meanwhile a file that is small enough for the scan is held in memory.
pub(super) struct ScreenedMembers {
    inner: Box<dyn Members>,
    screen: MemberScreen,
    tally: ScreenTally,
    held: VecDeque<Bytes>,
}

impl ScreenedMembers {
    pub(super) fn new(inner: Box<dyn Members>, screen: MemberScreen, tally: ScreenTally) -> Self {
        Self {
            inner,
            screen,
            tally,
            held: VecDeque::new(),
        }
    }

    /// The next chunk of the member, within the idle timeout.
    async fn fetch(&mut self) -> Result<Option<Bytes>, Error> {
        timeout(self.screen.idle, self.inner.next_chunk())
            .await
            .unwrap_or_else(|_| {
                let error = "no byte within the idle window";
                Err(Error::new(ErrorKind::Timeout, error))
            })
    }

    /// Reads the part of a file that has to be examined, and judges it.
    async fn screen_member(&mut self, member: &Member) -> Result<MemberVerdict, Error> {
        let path = self.screen.path(&member.name)?;
        let is_scanned = member.size <= MAX_SCANNED_BYTES;
        // A larger file is only checked for a key at its beginning, so that memory stays limited.
        let max_screened_bytes = if is_scanned {
            usize::MAX
        } else {
            Policy::KEY_FILE_HEAD_BYTES
        };
        let (mut head, mut scanner, mut screened_bytes) = (Vec::new(), Scanner::new(), 0);
        while screened_bytes < max_screened_bytes {
            let Some(chunk) = self.fetch().await? else {
                break;
            };
            screened_bytes += chunk.len();
            let missing = Policy::KEY_FILE_HEAD_BYTES.saturating_sub(head.len());
            head.extend(chunk.iter().take(missing));
            if is_scanned {
                scanner.push(&chunk);
            }
            self.held.push_back(chunk);
        }
        let policy = &self.screen.policy;
        if let Err(refusal) = policy.check_key_file(&path, &head, scanner.has_private_key()) {
            tracing::info!(%refusal, "left a file out of a directory: the policy refuses it");
            return Ok(MemberVerdict::Refused);
        }
        let finding = is_scanned.then(|| scanner.finish()).flatten();
        Ok(match self.screen.policy.judge(&path, finding) {
            Verdict::Pass => MemberVerdict::Passes(None),
            Verdict::Warn(finding) => {
                finding.warn(&path);
                MemberVerdict::Passes(Some(finding))
            }
            Verdict::Block(finding) => {
                let refusal = finding.refusal(&path);
                tracing::info!(%refusal, "left a file out of a directory: the policy refuses it");
                MemberVerdict::Refused
            }
        })
    }
}

#[async_trait]
impl Members for ScreenedMembers {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        loop {
            // The rest of a refused member; its content must not follow the next name.
            self.held.clear();
            let Some(member) = self.inner.next().await? else {
                return Ok(None);
            };
            if member.kind == Kind::Directory {
                return Ok(Some(member));
            }
            match self.screen_member(&member).await? {
                MemberVerdict::Passes(warning) => {
                    self.tally.count(warning);
                    return Ok(Some(member));
                }
                MemberVerdict::Refused => self.report().skip(&member.name, SkipReason::Denied),
            }
        }
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self.held.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None => self.fetch().await,
        }
    }

    fn report(&self) -> Report {
        self.inner.report()
    }
}
