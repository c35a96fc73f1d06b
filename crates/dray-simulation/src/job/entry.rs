//! Reads and writes of the ledger entry of a job (`ledger`, and `WorkJob::write`).

use std::rc::Rc;

use dray_bus::rules::{MAX_WRITE_ATTEMPTS, is_own_claim};
use dray_proto::v1::LedgerRecord;

use super::{JobError, KnownEntry, MAX_WRITE_RETRY_DELAY, SimulatedJob};
use crate::simulation::NoResponse;
use crate::statistics::RequestKind;

impl SimulatedJob {
    pub(crate) async fn read(&self) -> Result<Option<KnownEntry>, NoResponse> {
        let key = self.key();
        let found = self
            .simulation
            .request(self.replica, RequestKind::LedgerRead, move |simulation| {
                simulation.ledger.borrow().get(&key)
            })
            .await?;
        Ok(found.map(|entry| KnownEntry {
            record: entry.value,
            revision: entry.revision,
        }))
    }

    /// Writes over the last revision of this job. The revision is the fencing token.
    pub(super) async fn write(&mut self, record: LedgerRecord) -> Result<(), JobError> {
        let record = Rc::new(record);
        match self.try_write(&record).await {
            Err(JobError::Moved) if self.find_own_claim().await? => self.try_write(&record).await,
            other => other,
        }
    }

    async fn find_own_claim(&mut self) -> Result<bool, JobError> {
        let Some(known) = self.entry.clone() else {
            return Ok(false);
        };
        if !known.record.owner.ends_with(&self.suffix) {
            return Ok(false);
        }
        let found = self.read().await?;
        let own = found.filter(|found| is_own_claim(&known.record, &found.record, &self.suffix));
        let is_own = own.is_some();
        if is_own {
            self.entry = own;
        }
        Ok(is_own)
    }

    async fn try_write(&mut self, record: &Rc<LedgerRecord>) -> Result<(), JobError> {
        let expected = self.entry.as_ref().map_or(0, |entry| entry.revision);
        let key = self.key();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let value = Rc::clone(record);
            let written = self
                .simulation
                .request(self.replica, RequestKind::LedgerWrite, move |simulation| {
                    simulation.ledger.borrow_mut().put(key, value, expected)
                })
                .await;
            match written {
                Ok(Some(revision)) => {
                    self.entry = Some(KnownEntry {
                        record: Rc::clone(record),
                        revision,
                    });
                    return Ok(());
                }
                // An earlier attempt may have been stored although its response was lost; then the entry equals it.
                Ok(None) => {
                    let found = self.read().await?;
                    let own = found.filter(|found| found.record == *record);
                    self.entry = Some(own.ok_or(JobError::Moved)?);
                    return Ok(());
                }
                Err(NoResponse) if attempts < MAX_WRITE_ATTEMPTS => {
                    self.simulation
                        .sleep(self.simulation.draw(10_000, MAX_WRITE_RETRY_DELAY))
                        .await;
                }
                Err(NoResponse) => return Err(JobError::Unreachable),
            }
        }
    }
}
