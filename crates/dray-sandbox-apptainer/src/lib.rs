//! Files in Apptainer (Singularity) instances (sandbox-transfer 10).
//!
//! Every operation is a command by `apptainer exec instance://NAME`, whose pipes carry any bytes. Files beneath the
//! exchange directory, a private bind mount of each instance, are read and written on this host directly.
//!
//! What it does not do: it starts and stops no instances, and it never looks into overlays of running ones.
//!
//! ```no_run
//! # async fn example() -> Result<(), dray_sandbox::Error> {
//! use dray_sandbox::{Backend as _, Follow, SandboxPath};
//! use dray_sandbox_apptainer::{ApptainerBackend, Config};
//!
//! let backend = ApptainerBackend::new(Config::default());
//! let handle = backend.resolve(&"apptainer:box".parse()?).await?;
//! let sandbox = backend.open(&handle).await?;
//! let report = sandbox.stat(&SandboxPath::new("/work/report.pdf")?, Follow::Yes).await?;
//! println!("{} bytes", report.size);
//! # Ok(())
//! # }
//! ```

mod config;
mod exchange;
mod instance;
mod sandbox;

use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, BackendCheck, Error, ErrorKind, Handle, Sandbox};
use dray_sandbox_exec::{CommandExit, GuardedExec, IncarnationGuard as _, LocalExec, kind_of_text};

pub use config::{Config, Exchange};
use exchange::BoundExchange;
use instance::{Instance, SameInstance, check_name, list};
use sandbox::ApptainerSandbox;

/// The backend `apptainer`: instances by their names.
#[derive(Clone, Debug, Default)]
pub struct ApptainerBackend {
    config: Config,
}

impl ApptainerBackend {
    /// A backend with these settings; no program is started or checked before the first use.
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    fn program(&self) -> LocalExec {
        // There is no prefix: this runs the program itself, not a command in an instance.
        let no_prefix: [&str; 0] = [];
        LocalExec::new(no_prefix)
            .with_environment(&self.config.environment)
            .with_directory("/")
    }

    async fn find(&self, address: &Address) -> Result<Instance, Error> {
        let name = &address.name;
        check_name(name)?;
        let instances = list(&self.program(), &self.config.program).await?;
        instances
            .into_iter()
            .find(|instance| instance.name == *name && address.backend == self.name())
            .ok_or_else(|| Error::new(ErrorKind::SandboxGone, "no instance of this name"))
    }

    /// Runs commands in an instance.
    fn exec(&self, name: &str) -> LocalExec {
        let mut prefix = vec![self.config.program.clone(), "exec".to_owned()];
        if let Some(directory) = &self.config.working_directory {
            prefix.extend(["--pwd".to_owned(), directory.clone()]);
        }
        // The name was checked, so this is neither an option nor another kind of image.
        prefix.push(format!("instance://{name}"));
        LocalExec::new(prefix)
            .with_environment(&self.config.environment)
            .with_directory("/")
            .with_failure(apptainer_failure)
    }
}

#[async_trait]
impl Backend for ApptainerBackend {
    fn name(&self) -> &'static str {
        "apptainer"
    }

    async fn check(&self) -> Result<BackendCheck, Error> {
        let instances = list(&self.program(), &self.config.program).await?;
        let count = instances.len();
        Ok(BackendCheck::Ready(format!("running instances: {count}")))
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let instance = self.find(address).await?;
        Ok(Handle {
            address: address.clone(),
            incarnation: instance.incarnation().await?,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let instance = self.find(&handle.address).await?;
        let guard = Arc::new(SameInstance::new(&instance, &handle.incarnation));
        // The guard checks before anything runs in the instance: the handle may be of an earlier instance of the name.
        guard.check().await?;
        let guarding: Arc<dyn dray_sandbox_exec::IncarnationGuard> = guard;
        let exec = GuardedExec::new(self.exec(&handle.address.name), Arc::clone(&guarding));
        let mut sandbox = ApptainerSandbox::new(handle.clone(), exec, guarding);
        sandbox.home_is_working_directory = self.config.working_directory.is_none();
        if let Some(exchange) = &self.config.exchange {
            sandbox.bound =
                BoundExchange::find(exchange, &handle.address.name, &sandbox.files).await?;
        }
        Ok(Arc::new(sandbox))
    }
}

/// The failure of Apptainer itself, whose status is always 255; `None` when the command failed.
fn apptainer_failure(exit: &CommandExit) -> Option<Error> {
    if exit.status != 255 {
        return None;
    }
    let message = exit
        .stderr
        .lines()
        // The lines are searched from the end: lines of the command may come before the message of the program itself.
        .rev()
        .find(|line| line.contains("FATAL"))?;
    let lower = message.to_ascii_lowercase();
    let about_instance = lower.contains("instance") && !lower.contains("executable");
    let kind = if lower.contains("no instance found")
        || about_instance && (lower.contains("not found") || lower.contains("no such"))
    {
        ErrorKind::SandboxGone
    } else if lower.contains("executable file not found") {
        ErrorKind::ToolMissing
    } else {
        match kind_of_text(message) {
            // Other messages concern the host, such as a missing image file, and not the path.
            Some(ErrorKind::NoSpace) => ErrorKind::NoSpace,
            _ => ErrorKind::Unavailable,
        }
    };
    Some(Error::new(kind, message.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_failures_are_distinguished_from_those_of_commands() {
        let kind = |status, stderr: &str| {
            let exit = CommandExit {
                status,
                stderr: stderr.to_owned(),
            };
            apptainer_failure(&exit).map(|error| error.kind())
        };
        for (stderr, expected) in [
            (
                "FATAL:   no instance found with name box",
                ErrorKind::SandboxGone,
            ),
            (
                "INFO: x\nFATAL:   instance box not found\n",
                ErrorKind::SandboxGone,
            ),
            (
                "FATAL:   \"sh\": executable file not found in $PATH",
                ErrorKind::ToolMissing,
            ),
            (
                "FATAL:   container creation failed: mount: No space left on device",
                ErrorKind::NoSpace,
            ),
            ("FATAL:   kernel too old", ErrorKind::Unavailable),
        ] {
            assert_eq!(kind(255, stderr), Some(expected), "{stderr}");
            assert_eq!(kind(1, stderr), None);
        }
        assert_eq!(kind(255, "grep: no instance found"), None);
    }
}
