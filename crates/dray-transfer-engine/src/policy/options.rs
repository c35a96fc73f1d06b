//! Options of the policy that an operator can set.

use dray_sandbox::error::Error;
use dray_sandbox::path::SandboxPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::{Places, expand};
use super::{Pattern, Policy};

/// Paths of sandboxes that files may come from and go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PolicyOptions {
    /// Directories beneath which files may lie: absolute, `~` for the home of the sandbox user, `.` for the working
    /// directory of the session. `~` and `.` are ignored where they mean `/`. Without any root no path is allowed. A
    /// root inside a system directory, such as `/var/lib/jobs`, may be used. Default `.`, `~`, `/tmp`, `/workspace` and
    /// `/mnt/data`.
    pub roots: Vec<String>,
    /// Entries of the built-in list of credential and system paths that are allowed: absolute paths or `~/…` with
    /// everything beneath them, or bare names such as `.env.test` in any directory. Default none.
    pub allow: Vec<String>,
    /// Paths that are refused in addition to the built-in list, written as in `allow`. Default none.
    pub deny: Vec<String>,
    /// Action for text of up to 1 MiB that contains a private key or a known form of token: `ignore`, `warn` (send it
    /// with a warning), `block_keys` (refuse private keys, and send tokens with a warning) or `block`. Files that an
    /// agent only reads are refused by `block` alone. Default `block_keys`.
    pub content: ContentAction,
}

/// Action for content that looks like a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentAction {
    /// No action.
    Ignore,
    /// Deliver the file, with a warning in the receipt and the log.
    Warn,
    /// Refuse a file with a private key, and deliver one with a token with a warning.
    #[default]
    BlockKeys,
    /// Refuse the file.
    Block,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            roots: [".", "~", "/tmp", "/workspace", "/mnt/data"]
                .map(str::to_owned)
                .to_vec(),
            allow: Vec::new(),
            deny: Vec::new(),
            content: ContentAction::default(),
        }
    }
}

impl PolicyOptions {
    /// The policy for a sandbox with these directories. Callers with an [`Engine`](crate::Engine) call
    /// [`Engine::policy`](crate::Engine::policy) instead: it also follows links in the roots and the home.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](dray_sandbox::ErrorKind::InvalidName) for an entry that is not a path; its context
    /// names it.
    pub fn bind(&self, directories: &Places) -> Result<Policy, Error> {
        let (mut roots, mut configured_roots) = (Vec::new(), Vec::new());
        let mut works_in_root = false;
        for text in &self.roots {
            let root = root(text, directories)?;
            // Only an absolute path was chosen by the operator; `.` and `~` depend on what the sandbox reports.
            if text.starts_with('/') {
                configured_roots.extend(root.clone());
            }
            works_in_root |= text == "." && root.is_none();
            roots.extend(root);
        }
        Ok(Policy {
            roots,
            works_in_root,
            configured_roots,
            homes: directories.home.iter().cloned().collect(),
            allow: patterns(&self.allow, directories)?,
            deny: patterns(&self.deny, directories)?,
            content: self.content,
        })
    }

    /// The first entry that no sandbox can make valid, for a check of the configuration before any sandbox is known.
    pub fn problem(&self) -> Option<String> {
        // The check has a home, so that entries with `~/` are not reported as errors.
        let directories = Places {
            home: SandboxPath::new("/home").ok(),
            working_directory: SandboxPath::root(),
        };
        let relative = self
            .roots
            .iter()
            .find(|text| !matches!(text.as_str(), "." | "~") && !is_anchored(text));
        relative
            .map(|text| format!("`{text}` is neither absolute nor `.` nor beneath `~/`"))
            .or_else(|| {
                self.bind(&directories)
                    .err()
                    .map(|error| error.context().to_owned())
            })
    }
}

/// The directory that a root names; `None` if it would silently be the whole file system.
fn root(text: &str, directories: &Places) -> Result<Option<SandboxPath>, Error> {
    if is_home(text) && directories.home.is_none() {
        return Ok(None);
    }
    let path = expand(text, directories).map_err(|error| error_naming(text, &error))?;
    // `.` in a sandbox that works in `/` would allow every path; the operator has to write `/` for that.
    let implied = !text.starts_with('/');
    Ok((!implied || path != SandboxPath::root()).then_some(path))
}

fn patterns(texts: &[String], directories: &Places) -> Result<Vec<Pattern>, Error> {
    let mut patterns = Vec::new();
    for text in texts {
        // Without a home the entry covers nothing.
        if is_home(text) && directories.home.is_none() {
            continue;
        }
        let pattern = if is_anchored(text) {
            Pattern::Beneath(expand(text, directories).map_err(|error| error_naming(text, &error))?)
        } else {
            // The result is not used: this checks that a file can have the bare name.
            SandboxPath::root()
                .join(text)
                .map_err(|error| error_naming(text, &error))?;
            Pattern::Name(text.clone().into_bytes())
        };
        patterns.push(pattern);
    }
    Ok(patterns)
}

fn is_anchored(text: &str) -> bool {
    text.starts_with('/') || is_home(text)
}

fn is_home(text: &str) -> bool {
    text == "~" || text.starts_with("~/")
}

fn error_naming(text: &str, error: &Error) -> Error {
    Error::new(error.kind(), format!("`{text}`: {}", error.context()))
}
