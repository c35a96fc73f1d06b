//! How a command ends, by itself or because its caller is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bollard::exec::StartExecOptions;
use bollard::models::ExecConfig;
use dray_sandbox::exec::Exit;
use dray_sandbox::{Error, ErrorKind};
use tokio::runtime::Handle;

use super::output::Stderr;
use super::pending::Pending;
use super::{MARK, create, ended};
use crate::client::Client;
use crate::fault;

/// How often a command is killed that does not end.
const MOST_KILLS: usize = 20;

/// Kills every process that carries the mark. Twice, for those that were being made meanwhile.
const KILL: &str = r#"
for round in 1 2; do
  for process in /proc/[0-9]*; do
    tr '\0' '\n' 2>/dev/null <"$process/environ" | grep -qx "$1" && kill -9 "${process#/proc/}"
  done
done 2>/dev/null
"#;

/// A command that was made.
#[derive(Debug)]
pub(super) struct End {
    client: Arc<Client>,
    container: String,
    id: String,
    mark: String,
    pending: Arc<Pending>,
    /// Whether it has ended, or is being ended.
    over: AtomicBool,
    runtime: Handle,
}

impl End {
    pub(super) fn new(
        client: Arc<Client>,
        container: String,
        id: String,
        mark: String,
        pending: Arc<Pending>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            container,
            id,
            mark,
            pending,
            over: AtomicBool::new(false),
            runtime: Handle::current(),
        })
    }

    /// Waits until it has ended; its output has.
    pub(super) async fn status(&self) -> Result<i32, Error> {
        let status = ended(&self.client, &self.id).await?;
        self.over.store(true, Ordering::SeqCst);
        Ok(status)
    }

    /// Has it killed unless it has ended.
    fn kill(self: &Arc<Self>) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.pending.begin();
        let end = Arc::clone(self);
        let killing = async move {
            if let Err(error) = end.kill_all().await {
                // A container that stopped or went away has no commands either.
                tracing::debug!(error = %error, "a command could not be ended");
            }
            end.pending.end();
        };
        drop(self.client.tasks().spawn_on(killing, &self.runtime));
    }

    /// Kills until the engine says that it has ended: a command that is only starting carries no mark yet.
    async fn kill_all(&self) -> Result<(), Error> {
        for _ in 0..MOST_KILLS {
            self.kill_once().await?;
            let told = self.client.docker().await?.inspect_exec(&self.id).await;
            match told {
                Ok(told) if told.running == Some(true) => {}
                _ => break,
            }
        }
        Ok(())
    }

    async fn kill_once(&self) -> Result<(), Error> {
        let mark = format!("{MARK}={}", self.mark);
        let command = ["sh", "-c", KILL, "sh", &mark].map(str::to_owned);
        let config = ExecConfig {
            cmd: Some(command.to_vec()),
            ..ExecConfig::default()
        };
        let id = create(&self.client, &self.container, config).await?;
        let options = StartExecOptions {
            detach: true,
            ..StartExecOptions::default()
        };
        let started = self.client.docker().await?.start_exec(&id, Some(options));
        let started = started.await;
        started.map_err(|error| fault::failed("ending a command", error))?;
        ended(&self.client, &id).await.map(drop)
    }
}

/// Dropping one before it is done kills the command.
#[derive(Debug)]
pub(super) struct Ending {
    end: Option<Arc<End>>,
}

impl Ending {
    pub(super) fn new(end: &Arc<End>) -> Self {
        Self {
            end: Some(Arc::clone(end)),
        }
    }

    /// Its output was read to the end; it need not be killed for that.
    pub(super) fn done(&mut self) {
        self.end = None;
    }

    /// Waits for the end of the command.
    pub(super) async fn wait(self, stderr: Stderr) -> Result<Exit, Error> {
        let mut ending = self;
        let Some(end) = ending.end.as_ref() else {
            return Err(Error::new(ErrorKind::Protocol, "waited for twice"));
        };
        let status = end.status().await?;
        ending.done();
        Ok(Exit {
            status,
            stderr: stderr.text(),
        })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(end) = &self.end {
            end.kill();
        }
    }
}
