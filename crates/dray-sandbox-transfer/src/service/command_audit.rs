//! Audit events of programs: one before a program is started and one after it, however it ends.

use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::v1::{self, SandboxCommandStage, SandboxCommandState};
use dray_types::{Clock, Deadline, Fault};
use tokio::runtime::Handle;

use crate::command_error::CommandError;
use crate::error::Error;

/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of arguments in an event.
const MAX_ARGV_BYTES: usize = 16 << 10;

/// Publishes audit events of programs.
#[derive(Clone, Debug)]
pub(super) struct CommandAuditor {
    bus: Bus,
    clock: Clock,
}

impl CommandAuditor {
    pub(super) const fn new(bus: Bus, clock: Clock) -> Self {
        Self { bus, clock }
    }

    /// Records a stage under the operation of `meta`.
    ///
    /// # Errors
    ///
    /// [`CommandError::Audit`]: the event was not stored, so the program must not start.
    pub(super) async fn record(
        &self,
        meta: &Meta,
        stage: SandboxCommandStage,
        audit: &v1::SandboxCommandAudit,
    ) -> Result<(), Error> {
        let mut audit = audit.clone();
        audit.set_stage(stage);
        let deadline = Deadline::after(self.clock.now_ms(), AUDIT_TIMEOUT);
        let meta = meta.clone().with_deadline(deadline);
        let published = self.bus.publish_audit(&meta, &audit).await;
        published
            .map(drop)
            .map_err(|error| CommandError::Audit(Box::new(Fault::from(error))).into())
    }

    /// Records that a program is about to start, and returns the handle that records its end.
    ///
    /// # Errors
    ///
    /// Those of [`Self::record`].
    pub(super) async fn start(
        &self,
        meta: &Meta,
        audit: v1::SandboxCommandAudit,
    ) -> Result<CommandRecord, Error> {
        let stage = SandboxCommandStage::Started;
        self.record(meta, stage, &audit).await?;
        Ok(CommandRecord {
            auditor: self.clone(),
            meta: meta.clone(),
            started_ms: self.clock.now_ms(),
            audit: Some(audit),
        })
    }
}

/// The audit record of a started program. If it is dropped before [`Self::end`], for example because the caller
/// disconnected, the program is recorded as cancelled.
pub(super) struct CommandRecord {
    auditor: CommandAuditor,
    meta: Meta,
    started_ms: u64,
    audit: Option<v1::SandboxCommandAudit>,
}

impl CommandRecord {
    /// Records how the program ended. An event that cannot be stored is only reported to the operator, because the
    /// program has ended already.
    pub(super) async fn end(mut self, ended: Result<&v1::ExecSandboxReply, &Error>) {
        let Some(mut audit) = self.audit.take() else {
            return;
        };
        audit.milliseconds = self.milliseconds();
        match ended {
            Ok(reply) => {
                audit.set_state(reply.state());
                audit.exit_code = reply.exit_code;
                audit.signal = reply.signal;
                let size = |output: &Option<v1::CommandOutput>| {
                    output.as_ref().map_or(0, |output| output.size)
                };
                audit.stdout_size = size(&reply.stdout);
                audit.stderr_size = size(&reply.stderr);
            }
            Err(error) => {
                audit.set_state(SandboxCommandState::Failed);
                audit.detail = error.to_string().chars().take(200).collect();
            }
        }
        record_end(&self.auditor, &self.meta, audit).await;
    }

    /// Milliseconds since the start.
    pub(super) fn milliseconds(&self) -> u64 {
        self.auditor.clock.now_ms().saturating_sub(self.started_ms)
    }
}

impl Drop for CommandRecord {
    fn drop(&mut self) {
        let (Some(mut audit), Ok(runtime)) = (self.audit.take(), Handle::try_current()) else {
            return;
        };
        audit.milliseconds = self.milliseconds();
        audit.set_state(SandboxCommandState::Cancelled);
        let (auditor, meta) = (self.auditor.clone(), self.meta.clone());
        runtime.spawn(async move { record_end(&auditor, &meta, audit).await });
    }
}

async fn record_end(auditor: &CommandAuditor, meta: &Meta, audit: v1::SandboxCommandAudit) {
    let recorded = auditor
        .record(meta, SandboxCommandStage::Ended, &audit)
        .await;
    if let Err(error) = recorded {
        tracing::error!(%error, operation = %meta.operation, "the end of a program was not recorded");
    }
}

/// The arguments that fit an event, and whether any were left out or cut.
pub(super) fn recorded_argv(argv: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
    let mut remaining = MAX_ARGV_BYTES;
    let mut recorded = Vec::new();
    for word in argv {
        let kept = word.get(..remaining).unwrap_or(word);
        recorded.push(kept.to_vec());
        if kept.len() < word.len() {
            return (recorded, true);
        }
        // Tag and length of each word count as well, so that many empty words reach the limit too.
        remaining = remaining.saturating_sub(word.len() + 4);
    }
    (recorded, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_recorded_up_to_a_limit() {
        let short = vec![b"sh".to_vec(), b"".to_vec()];
        assert_eq!(recorded_argv(&short), (short.clone(), false));
        let long = vec![
            b"echo".to_vec(),
            vec![b'x'; MAX_ARGV_BYTES],
            b"end".to_vec(),
        ];
        let (recorded, cut) = recorded_argv(&long);
        assert!(cut);
        assert_eq!(recorded.len(), 2);
        assert_eq!(recorded[1].len(), MAX_ARGV_BYTES - 8);
    }
}
