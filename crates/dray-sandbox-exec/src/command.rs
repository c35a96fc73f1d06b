//! Sandboxes for which an operator configures a command line that enters them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::backend::{Backend, Sandbox};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::{Address, Handle};
use dray_types::Sha256Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::channel::{Arguments, Channel, Exec};
use super::local::LocalExec;
use super::sandbox::{ExecSandbox, GuardedExec, IncarnationGuard};

/// Longest identity of an incarnation in bytes.
const MAX_INCARNATION_BYTES: usize = 1024;

/// One sandbox of the `exec` backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandConfig {
    /// Program and arguments that a command is appended to, for instance `["bwrap", "--bind", "/srv/box", "/"]`.
    pub command: Vec<String>,
    /// Environment variables of the command, which inherits no others. Without `PATH` the usual system directories are
    /// searched.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Program and arguments, run on this host, whose output identifies this incarnation of the sandbox and which fails
    /// when there is none. Empty: there is one incarnation for as long as this entry stays the same.
    #[serde(default)]
    pub incarnation: Vec<String>,
    /// Capabilities of the command line's streams.
    #[serde(default)]
    pub channel: ChannelConfig,
}

/// Properties of the channel that a command line opens. The default is a plain pipe.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a wire"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelConfig {
    /// Whether the command is appended as one quoted string for a shell, as ssh wants it, and not as separate
    /// arguments.
    pub shell: bool,
    /// Whether stdout carries any bytes unchanged. A terminal does not.
    pub binary_output: bool,
    /// Whether stdin carries any bytes unchanged.
    pub binary_input: bool,
    /// Whether stdin exists. Set it to false for a terminal, which echoes its input.
    pub input: bool,
    /// Whether the end of stdin is passed on.
    pub input_end: bool,
    /// Most bytes of all arguments together.
    pub longest_arguments: usize,
    /// Most bytes of output of one command; 0 for no limit.
    pub longest_output: usize,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        let pipe = Channel::PIPE_CAPABILITIES;
        Self {
            shell: pipe.arguments == Arguments::Shell,
            binary_output: pipe.binary_output,
            binary_input: pipe.binary_input,
            input: pipe.input,
            input_end: pipe.input_end,
            longest_arguments: pipe.longest_arguments,
            longest_output: 0,
        }
    }
}

impl From<ChannelConfig> for Channel {
    fn from(config: ChannelConfig) -> Self {
        Self {
            arguments: if config.shell {
                Arguments::Shell
            } else {
                Arguments::Vector
            },
            binary_output: config.binary_output,
            binary_input: config.binary_input,
            input: config.input,
            input_end: config.input_end,
            longest_arguments: config.longest_arguments,
            longest_output: (config.longest_output > 0).then_some(config.longest_output),
        }
    }
}

/// The backend `exec`: sandboxes under the names of their entries.
#[derive(Debug, Default)]
pub struct CommandBackend {
    sandboxes: BTreeMap<String, CommandConfig>,
}

impl CommandBackend {
    /// A backend of these sandboxes, by their names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for an entry without a command.
    pub fn new(sandboxes: BTreeMap<String, CommandConfig>) -> Result<Self, Error> {
        if let Some((name, _)) = sandboxes
            .iter()
            .find(|(_, config)| config.command.is_empty())
        {
            return Err(Error::new(
                ErrorKind::InvalidName,
                format!("the exec sandbox {name} has no command"),
            ));
        }
        Ok(Self { sandboxes })
    }

    fn find(&self, address: &Address) -> Result<&CommandConfig, Error> {
        self.sandboxes
            .get(&address.name)
            .filter(|_| address.backend == self.name())
            .ok_or_else(|| Error::new(ErrorKind::SandboxGone, "no entry of this name"))
    }
}

#[async_trait]
impl Backend for CommandBackend {
    fn name(&self) -> &'static str {
        "exec"
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        let incarnation = incarnation(self.find(address)?).await?;
        Ok(Handle {
            address: address.clone(),
            incarnation,
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let config = self.find(&handle.address)?;
        let guard = SameIncarnation {
            config: config.clone(),
            incarnation: handle.incarnation.clone(),
        };
        guard.check().await?;
        let exec = LocalExec::new(&config.command)
            .with_environment(&config.environment)
            .with_channel(config.channel.into());
        // Without a command for the incarnation, the entry identifies it, and the entry cannot change while this
        // process runs.
        Ok(if config.incarnation.is_empty() {
            Arc::new(ExecSandbox::new(handle.clone(), exec))
        } else {
            let exec = GuardedExec::new(exec, Arc::new(guard));
            Arc::new(ExecSandbox::new(handle.clone(), exec))
        })
    }
}

/// Runs the operator's command again before each command.
#[derive(Debug)]
struct SameIncarnation {
    config: CommandConfig,
    incarnation: String,
}

#[async_trait]
impl IncarnationGuard for SameIncarnation {
    async fn check(&self) -> Result<(), Error> {
        if incarnation(&self.config).await? == self.incarnation {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::SandboxGone,
                "another incarnation has the name now",
            ))
        }
    }
}

/// Identity of the incarnation: the output of the operator's command, or a digest of the entry itself.
async fn incarnation(config: &CommandConfig) -> Result<String, Error> {
    if config.incarnation.is_empty() {
        // Another command or environment may enter another sandbox.
        let entry = format!("{:?} {:?}", config.command, config.environment);
        return Ok(Sha256Digest::of(entry.as_bytes()).to_hex());
    }
    let none: [&str; 0] = [];
    let exec = LocalExec::new(none).with_environment(&config.environment);
    let argv = config.incarnation.iter().map(|word| word.clone().into());
    let running = exec.run(argv.collect(), None).await.map_err(|error| {
        let context = "the command for the incarnation cannot be run";
        Error::new(ErrorKind::Unavailable, context).caused_by(error)
    })?;
    let output = running.stdout.read_all(MAX_INCARNATION_BYTES).await?;
    let exit = running.end.await?;
    let output = String::from_utf8_lossy(&output).trim().to_owned();
    if exit.status != 0 || output.is_empty() {
        return Err(Error::new(
            ErrorKind::SandboxGone,
            format!(
                "no incarnation, status {}: {}",
                exit.status,
                exit.stderr.trim()
            ),
        ));
    }
    Ok(output)
}
