//! The rules of who may run programs in which sandboxes, their limits, and the record that keeps an operation from
//! running its program twice.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_sandbox::Address;
use dray_types::{ByteSize, OperationId, Period, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command_error::CommandError;
use crate::error::Error;
use crate::sessions::token;
use crate::uploads::UPLOAD_BUCKET;

/// Section `sandbox-transfer.commands`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandsConfig {
    /// Who may run programs in which sandboxes. A request needs one matching rule; without rules no program runs.
    /// Default none.
    pub allow: Vec<CommandRule>,
    /// Longest time of one program. The deadline of its call ends it too. Default `10m`.
    pub max_time: Period,
    /// Most bytes of standard output that are kept of one program; the rest is read and dropped. Default `64MiB`.
    pub max_output: ByteSize,
    /// Most bytes of standard error that are kept of one program, in memory until it has ended; at most `16MiB`.
    /// Default `1MiB`.
    pub max_stderr: ByteSize,
    /// Most bytes of standard input of one program. Default `64MiB`.
    pub max_input: ByteSize,
}

/// One rule of who may run programs where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRule {
    /// Tenants; `*` matches any characters, or none.
    pub tenants: Vec<String>,
    /// Sandboxes by address, for instance `docker:agent-*`; `*` matches any characters, or none. `local:` runs programs
    /// on the host of the service and as its user: they are not confined to the directory.
    pub sandboxes: Vec<String>,
}

/// Most bytes of standard error that an operator may keep: they are in memory.
const MAX_STDERR: ByteSize = ByteSize::mib(16);

impl Default for CommandsConfig {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            max_time: Period::secs(600),
            max_output: ByteSize::mib(64),
            max_stderr: ByteSize::mib(1),
            max_input: ByteSize::mib(64),
        }
    }
}

impl CommandsConfig {
    /// The first problem: the field and what is wrong with it.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.max_time == Period::default() {
            return Some(("max_time", "must be above 0"));
        }
        if self.max_stderr > MAX_STDERR {
            return Some(("max_stderr", "must be at most 16MiB"));
        }
        let empty = |rule: &CommandRule| rule.tenants.is_empty() || rule.sandboxes.is_empty();
        if self.allow.iter().any(empty) {
            return Some(("allow", "must name tenants and sandboxes in each rule"));
        }
        let patterns = || self.allow.iter().flat_map(|rule| &rule.sandboxes);
        if patterns().any(|pattern| pattern != "*" && !pattern.contains(':')) {
            return Some(("allow", "must name sandboxes as BACKEND:NAME, or `*`"));
        }
        None
    }

    /// Whether any rule names the tenant.
    pub(crate) fn concerns(&self, tenant: &TenantId) -> bool {
        self.allow.iter().any(|rule| rule.is_for(tenant))
    }

    /// Whether the tenant may run programs in the sandbox.
    pub(crate) fn allows(&self, tenant: &TenantId, sandbox: &Address) -> bool {
        let address = sandbox.to_string();
        let mut rules = self.allow.iter().filter(|rule| rule.is_for(tenant));
        rules.any(|rule| {
            let mut patterns = rule.sandboxes.iter();
            patterns.any(|pattern| fits(pattern, &address))
        })
    }

    /// The time limit of a program. `requested_ms` is the time that the caller requests (0: the longest possible), and
    /// `left` the time until the deadline.
    pub(crate) fn time(&self, requested_ms: u64, left: Duration) -> Duration {
        let max = self.max_time.as_duration().min(left);
        match requested_ms {
            0 => max,
            requested => max.min(Duration::from_millis(requested)),
        }
    }
}

impl CommandRule {
    fn is_for(&self, tenant: &TenantId) -> bool {
        let mut patterns = self.tenants.iter();
        patterns.any(|pattern| fits(pattern, tenant.as_str()))
    }
}

/// Whether the whole text matches a pattern in which `*` stands for any characters.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        // The first match is the best one: it leaves most of the text for the parts that follow.
        let Some((_, after)) = left.split_once(part) else {
            return false;
        };
        left = after;
    }
    true
}

/// Operations that have started a program. They are kept in the bucket of uploads, whose records expire.
#[derive(Clone, Debug)]
pub(crate) struct CommandLedger {
    keys: KeyValue,
}

impl CommandLedger {
    pub(crate) fn new(bus: &Bus) -> Self {
        Self {
            keys: bus.key_value(UPLOAD_BUCKET),
        }
    }

    /// Records that the operation starts its program now.
    ///
    /// # Errors
    ///
    /// [`CommandError::Repeated`] when it did so before, here or in another replica.
    pub(crate) async fn begin(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
    ) -> Result<BegunCommand, Error> {
        let key = format!("exec.{}.{}", tenant.token(), token(operation.as_str()));
        match self.keys.create(&key, Bytes::from_static(b"1")).await {
            Ok(revision) => Ok(BegunCommand { key, revision }),
            Err(KeyError::Exists) => Err(CommandError::Repeated.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the record of an operation whose program was not started, so that a repetition starts it.
    ///
    /// # Errors
    ///
    /// The record may still be there: the bus failed.
    pub(crate) async fn withdraw(&self, begun: BegunCommand) -> Result<(), KeyError> {
        self.keys.delete(&begun.key, begun.revision).await
    }
}

/// The record of an operation that is about to start its program.
#[derive(Debug)]
pub(crate) struct BegunCommand {
    key: String,
    revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &str)]) -> CommandsConfig {
        let rule = |(tenant, sandbox): &(&str, &str)| CommandRule {
            tenants: vec![(*tenant).to_owned()],
            sandboxes: vec![(*sandbox).to_owned()],
        };
        CommandsConfig {
            allow: rules.iter().map(rule).collect(),
            ..CommandsConfig::default()
        }
    }

    fn allows(config: &CommandsConfig, tenant: &str, sandbox: &str) -> bool {
        config.allows(&TenantId::new(tenant).unwrap(), &sandbox.parse().unwrap())
    }

    #[test]
    fn without_a_rule_no_program_runs() {
        let config = CommandsConfig::default();
        assert!(!allows(&config, "default", "docker:web"));
        assert!(!config.concerns(&TenantId::new("default").unwrap()));
    }

    #[test]
    fn a_rule_allows_its_tenants_its_sandboxes_and_no_others() {
        let config = rules(&[("acme", "docker:agent-*"), ("lab*", "*")]);
        for (tenant, sandbox, allowed) in [
            ("acme", "docker:agent-1", true),
            ("acme", "docker:agent-", true),
            ("acme", "docker:web", false),
            ("acme", "ssh:docker:agent-1", false),
            ("acme2", "docker:agent-1", false),
            ("lab", "local:/srv/box", true),
            ("lab-2", "docker:web", true),
            ("collab", "docker:web", false),
        ] {
            assert_eq!(
                allows(&config, tenant, sandbox),
                allowed,
                "{tenant} {sandbox}"
            );
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, fit) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*b", "abab", true),
            ("ab", "abc", false),
            ("**", "x", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn rules_that_can_never_fit_are_problems() {
        assert_eq!(rules(&[("acme", "docker:*")]).problem(), None);
        assert!(rules(&[("acme", "docker")]).problem().is_some());
        let mut empty = rules(&[("acme", "docker:*")]);
        empty.allow.push(CommandRule::default());
        assert!(empty.problem().is_some());
    }

    #[test]
    fn the_shortest_of_all_times_counts() {
        let config = CommandsConfig::default();
        let long = Duration::from_hours(1);
        assert_eq!(config.time(0, long), Duration::from_mins(10));
        assert_eq!(config.time(500, long), Duration::from_millis(500));
        assert_eq!(
            config.time(5000, Duration::from_secs(1)),
            Duration::from_secs(1)
        );
    }
}
