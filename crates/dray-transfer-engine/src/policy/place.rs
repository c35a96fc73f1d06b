//! The home and the working directory of a sandbox, and how paths of users are resolved with them.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Probe;
use dray_sandbox::path::SandboxPath;

/// The directories that `~` and relative paths refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Home of the sandbox user; `None` when unknown. A home that is `/` counts as unknown.
    pub home: Option<SandboxPath>,
    /// Working directory of the session, to which relative paths refer.
    pub working_directory: SandboxPath,
}

impl Places {
    /// Takes the directories that a probe reported. `working_directory`, that of a session, replaces the reported one.
    pub fn new(probe: &Probe, working_directory: Option<SandboxPath>) -> Self {
        Self {
            // With `/` as home, the deny entries for homes would apply only at the root.
            home: Some(probe.home.clone()).filter(|home| *home != SandboxPath::root()),
            working_directory: working_directory.unwrap_or_else(|| probe.working_directory.clone()),
        }
    }
}

impl From<&Probe> for Places {
    fn from(probe: &Probe) -> Self {
        Self::new(probe, None)
    }
}

/// The path that an agent or a user means (platform-delivery 2.1): absolute, `~/…` against the home of the sandbox
/// user, or relative to the working directory. `~name` is an ordinary relative name.
///
/// # Errors
///
/// [`ErrorKind::InvalidName`] for text that cannot be a path, and for `~` when the home is unknown.
pub fn expand(raw: impl AsRef<[u8]>, directories: &Places) -> Result<SandboxPath, Error> {
    let raw = raw.as_ref();
    let under =
        |base: &SandboxPath, rest: &[u8]| SandboxPath::new([base.as_bytes(), b"/", rest].concat());
    match raw {
        [] => Err(Error::new(ErrorKind::InvalidName, "the path is empty")),
        [b'/', ..] => SandboxPath::new(raw),
        [b'~'] | [b'~', b'/', ..] => {
            let home = directories.home.as_ref().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidName,
                    "the home of the sandbox user is unknown",
                )
            })?;
            under(home, raw.get(2..).unwrap_or_default())
        }
        relative => under(&directories.working_directory, relative),
    }
}
