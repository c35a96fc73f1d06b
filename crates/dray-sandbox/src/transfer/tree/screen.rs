//! Members of a directory, less those whose content policy refuses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::timeout;

use super::Screen;
use crate::error::{Error, ErrorKind};
use crate::policy::{Finding, Policy, SCANNED, Scanner, Verdict};
use crate::tree::{Kind, Member, Members, Report, Why};

/// What was counted on the way; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<Mutex<(u64, Option<Finding>)>>);

impl Tally {
    /// Files, and the first finding that policy lets pass with a warning.
    pub(super) fn read(&self) -> (u64, Option<Finding>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, warning: Option<Finding>) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.0 += 1;
        tally.1 = tally.1.or(warning);
    }
}

/// Looks into every file before it lets it pass. Files that are small enough to be scanned are held for that.
pub(super) struct Screened {
    inner: Box<dyn Members>,
    screen: Screen,
    tally: Tally,
    held: VecDeque<Bytes>,
}

impl Screened {
    pub(super) fn new(inner: Box<dyn Members>, screen: Screen, tally: Tally) -> Self {
        Self {
            inner,
            screen,
            tally,
            held: VecDeque::new(),
        }
    }

    /// The next piece of the member, within the idle window.
    async fn fetch(&mut self) -> Result<Option<Bytes>, Error> {
        timeout(self.screen.idle, self.inner.piece())
            .await
            .unwrap_or_else(|_| {
                let error = "no byte within the idle window";
                Err(Error::new(ErrorKind::Timeout, error))
            })
    }

    /// Holds as much of a file as must be seen, and says whether it may pass and with which warning.
    async fn look(&mut self, member: &Member) -> Result<Result<Option<Finding>, ()>, Error> {
        let path = self.screen.path(&member.name)?;
        let scanned = member.size <= SCANNED;
        let wanted = if scanned { usize::MAX } else { Policy::HEAD };
        let (mut head, mut scanner, mut held) = (Vec::new(), Scanner::new(), 0);
        while held < wanted {
            let Some(piece) = self.fetch().await? else {
                break;
            };
            held += piece.len();
            let missing = Policy::HEAD.saturating_sub(head.len());
            head.extend(piece.iter().take(missing));
            if scanned {
                scanner.push(&piece);
            }
            self.held.push_back(piece);
        }
        let policy = &self.screen.policy;
        if let Err(refusal) = policy.check_key_file(&path, &head, scanner.has_private_key()) {
            tracing::info!(%refusal, "left out of a directory");
            return Ok(Err(()));
        }
        let finding = scanned.then(|| scanner.finish()).flatten();
        Ok(match self.screen.policy.judge(&path, finding) {
            Verdict::Pass => Ok(None),
            Verdict::Warn(finding) => Ok(Some(finding)),
            Verdict::Block(_) => Err(()),
        })
    }
}

#[async_trait]
impl Members for Screened {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        loop {
            self.held.clear();
            let Some(member) = self.inner.next().await? else {
                return Ok(None);
            };
            if member.kind == Kind::Directory {
                return Ok(Some(member));
            }
            if let Ok(warning) = self.look(&member).await? {
                self.tally.count(warning);
                return Ok(Some(member));
            }
            self.report().skip(&member.name, Why::Denied);
        }
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        match self.held.pop_front() {
            Some(piece) => Ok(Some(piece)),
            None => self.fetch().await,
        }
    }

    fn report(&self) -> Report {
        self.inner.report()
    }
}
