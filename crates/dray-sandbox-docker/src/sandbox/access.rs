//! Where the archive calls may be used: they have the rights of root, also where the container's user is another.

use std::sync::atomic::Ordering;

use dray_sandbox::{Error, ErrorKind, Metadata, Transport};

use super::{DockerSandbox, MIN_ARCHIVE_BYTES};
use crate::user;

/// A container with a shell has one at this path.
const SHELL_PATH: &[u8] = b"/bin/sh";

impl DockerSandbox {
    /// Whether commands have the rights of root.
    pub(super) fn is_root(&self) -> bool {
        user::is_root(&self.known)
    }

    /// Whether a command can be started now, as far as is known.
    pub(super) async fn runs_commands(&self) -> Result<bool, Error> {
        if self.shell_less.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.is_running().await
    }

    /// Asks the engine each time: a person may pause or stop the container between two transfers.
    async fn is_running(&self) -> Result<bool, Error> {
        let known = self.client.inspect(self.container()).await?;
        let state = known.state.unwrap_or_default();
        Ok(state.running == Some(true) && state.paused != Some(true))
    }

    /// Whether a file may be read over the archive calls beside commands: its size makes it worth it, and they have no
    /// more rights on it than the user.
    pub(super) fn suits_archive(&self, file: &Metadata) -> bool {
        let is_readable_by_all = file.mode & 0o004 != 0;
        file.size >= MIN_ARCHIVE_BYTES && (self.is_root() || is_readable_by_all)
    }

    /// [`Self::check_archive`] for a transfer over the archive calls, unless they are used beside commands. Commands
    /// that run again do not show that they ran when the transport was chosen.
    pub(super) async fn check_transfer(&self, suits_archive: bool) -> Result<(), Error> {
        let is_without_commands = self.shell_less.load(Ordering::Relaxed)
            || self.stopped.load(Ordering::Relaxed)
            || self.hung.is_set();
        let was_offered = self.archive_offered.load(Ordering::Relaxed);
        if is_without_commands || (was_offered && !suits_archive) {
            self.check_archive().await
        } else {
            Ok(())
        }
    }

    /// Fails where the archive calls would take the place of commands, although the container runs and has a shell,
    /// unless its user is root. A process in the container can stop the shell, remove the working directory, put its
    /// own program in place of the shell, or forge a response. What the engine reports about the container cannot be
    /// forged.
    pub(super) async fn check_archive(&self) -> Result<(), Error> {
        if self.is_root()
            || self.no_shell_found.load(Ordering::Relaxed)
            || !self.is_running().await?
        {
            return Ok(());
        }
        let container = self.container();
        match self
            .client
            .stat_path(&mut None, container, SHELL_PATH)
            .await
        {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.no_shell_found.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => {
                // It may have been started again: the next attempt uses commands.
                self.stopped.store(false, Ordering::Relaxed);
                let failing =
                    "commands fail, and the archive calls have other rights than the user";
                Err(Error::new(ErrorKind::Unavailable, failing))
            }
        }
    }

    /// Leaves out the archive calls where commands run as another user than root. A command that fails must not be
    /// replaced by a call with more rights.
    pub(super) fn with_rights_of_user(&self, mut transports: Vec<Transport>) -> Vec<Transport> {
        if !self.is_root() && transports.first() != Some(&Transport::Archive) {
            transports.retain(|transport| *transport != Transport::Archive);
        }
        transports
    }
}
