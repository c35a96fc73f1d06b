//! Reads the section of a service again while the service runs, so that changed files need no restart.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dray_types::reload::{ReloadState, ReloadStep};

use super::{ConfigError, ConfigLoader, ConfigSources, Section};

/// Reads the sources of a process again: its file and its directory of secrets, with the variables and flags of its
/// start. Without sources, as in a service that is embedded without a host, it reads nothing.
#[derive(Clone, Debug, Default)]
pub struct SectionReader(Option<Arc<ReaderParts>>);

struct ReaderParts {
    name: &'static str,
    loader: ConfigLoader,
    sources: ConfigSources,
}

impl fmt::Debug for ReaderParts {
    /// The name only: flags and defaults may have secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderParts")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SectionReader {
    /// Reads the section `name` of these sources with `loader`.
    pub fn new(name: &'static str, loader: ConfigLoader, sources: ConfigSources) -> Self {
        Self(Some(Arc::new(ReaderParts {
            name,
            loader,
            sources,
        })))
    }

    /// Reads and checks all sources as the start does, and returns the section; `None` without sources. Blocks for the
    /// time of reading the files.
    ///
    /// # Errors
    ///
    /// All problems of all sections: a process could not start again with them.
    pub fn read<S: Section>(&self) -> Option<Result<S, ConfigError>> {
        let parts = self.0.as_ref()?;
        let loaded = parts.loader.load(&parts.sources);
        Some(loaded.and_then(|loaded| loaded.section(parts.name)))
    }
}

/// What a [`SectionWatcher`] found.
#[derive(Clone, Debug, PartialEq)]
pub enum SectionChange<S> {
    /// A valid section that is not the one in force.
    Changed(S),
    /// Sources that cannot be read or are invalid, with all problems. Reported once.
    Invalid(String),
    /// The sources have the section in force again, after they were invalid.
    Restored,
}

/// Finds changes of a section by reading it again and again. A change counts after two equal reads.
#[derive(Debug)]
pub struct SectionWatcher<S> {
    reader: SectionReader,
    interval: Duration,
    state: ReloadState<S>,
}

impl<S: Section + PartialEq> SectionWatcher<S> {
    /// Watches with this time between two reads; `in_force` is the section of the start.
    pub const fn new(reader: SectionReader, interval: Duration, in_force: S) -> Self {
        Self {
            reader,
            interval,
            state: ReloadState::new(in_force),
        }
    }

    /// The section in force.
    pub const fn in_force(&self) -> &S {
        self.state.in_force()
    }

    /// Waits for the next change. Never returns without sources. After [`SectionChange::Changed`] the caller notes the
    /// result with [`Self::applied`] or [`Self::rejected`]. May be dropped at any time.
    pub async fn changed(&mut self) -> SectionChange<S> {
        loop {
            tokio::time::sleep(self.interval).await;
            let reader = self.reader.clone();
            let read = tokio::task::spawn_blocking(move || reader.read::<S>()).await;
            let read = match read {
                Ok(Some(read)) => read.map_err(|error| error.to_string()),
                Ok(None) => std::future::pending().await,
                Err(error) => Err(error.to_string()),
            };
            match self.state.note(read.clone()) {
                ReloadStep::InForce { was_rejected: true } => return SectionChange::Restored,
                ReloadStep::InForce { .. } | ReloadStep::Wait => {}
                ReloadStep::Apply => match read {
                    Ok(section) => return SectionChange::Changed(section),
                    Err(problem) => {
                        self.state.rejected();
                        return SectionChange::Invalid(problem);
                    }
                },
            }
        }
    }

    /// Notes that this section is in force now.
    pub fn applied(&mut self, section: S) {
        self.state.applied(section);
    }

    /// Notes that the last section cannot be used. It is not returned again until the sources change.
    pub const fn rejected(&mut self) {
        self.state.rejected();
    }
}
