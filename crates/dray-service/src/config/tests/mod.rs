//! Tests of the configuration from its sources to effective values or errors.

use std::collections::BTreeMap;
use std::io::Write as _;

use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

mod aliases;
mod complaints;
mod former;
mod report;
mod sources;
mod watch;

/// Strictness of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TestMode {
    #[default]
    Loose,
    Tight,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct TestLimits {
    /// Most concurrent requests to one host.
    per_host: u32,
}

/// A section with one field of every kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct TestSection {
    /// Whether anything is fetched.
    enabled: bool,
    /// Redirects that are followed, 0 to 10.
    max_redirects: u32,
    /// Largest body.
    max_bytes: ByteSize,
    /// Time to connect.
    connect_timeout: Period,
    /// Patterns; unset means all | any.
    hosts: Option<Vec<String>>,
    /// Numbers that may be used.
    ports: Vec<u16>,
    /// Key for hashes.
    key: Secret,
    /// Strictness of a check.
    mode: TestMode,
    /// A section inside the section.
    limits: TestLimits,
    /// Weight per name.
    weights: BTreeMap<String, f64>,
    /// Free text.
    agent: String,
}

impl Default for TestSection {
    fn default() -> Self {
        Self {
            enabled: false,
            max_redirects: 5,
            max_bytes: ByteSize::mib(10),
            connect_timeout: Period::secs(5),
            hosts: None,
            ports: vec![80, 443],
            key: Secret::default(),
            mode: TestMode::Loose,
            limits: TestLimits { per_host: 4 },
            weights: BTreeMap::new(),
            agent: "drayage".to_owned(),
        }
    }
}

/// Accepts exactly `true` or `false`.
fn parse_strict_bool(text: &str) -> Result<AliasValue, String> {
    let value = match text {
        "true" => true,
        "false" => false,
        _ => return Err("must be exactly `true` or `false`".to_owned()),
    };
    Ok(AliasValue::Value(value.into()))
}

impl Section for TestSection {
    fn aliases() -> &'static [VariableAlias] {
        &[
            VariableAlias {
                variable: "PEER_FETCH_ENABLED",
                field: "enabled",
                parse: parse_strict_bool,
            },
            VariableAlias {
                variable: "PEER_FETCH_MAX_REDIRECTS",
                field: "max_redirects",
                parse: parse::parse_integer,
            },
            VariableAlias {
                variable: "PEER_FETCH_TIMEOUT_SECONDS",
                field: "connect_timeout",
                parse: parse::parse_seconds,
            },
            VariableAlias {
                variable: "PEER_FETCH_HOSTS",
                field: "hosts",
                parse: parse::parse_list,
            },
            VariableAlias {
                variable: "PEER_FETCH_PER_HOST",
                field: "limits.per_host",
                parse: parse::parse_integer,
            },
            VariableAlias {
                variable: "PEER_FETCH_KEY",
                field: "key",
                parse: parse::parse_text,
            },
        ]
    }

    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 1] = [FormerName::new("patience", "connect_timeout")];
        &FORMER_NAMES
    }

    fn strict_prefixes() -> &'static [&'static str] {
        &["PEER_FETCH_"]
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        if self.max_redirects > 10 {
            return vec![ConfigProblem::new("max_redirects", "must be 0 to 10")];
        }
        if self.key.expose() == "short" {
            return vec![ConfigProblem::new("key", "must be at least 16 characters")];
        }
        Vec::new()
    }
}

fn loader() -> ConfigLoader {
    ConfigLoader::new().section::<TestSection>("egress-fetcher")
}

fn load(sources: &ConfigSources) -> Result<TestSection, String> {
    loader()
        .load(sources)
        .map(|loaded| loaded.section("egress-fetcher").unwrap())
        .map_err(|error| error.to_string())
}

fn with_variables(variables: &[(&str, &str)]) -> ConfigSources {
    ConfigSources::new(variables.iter().copied().collect())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Every error about these variables, without the first line.
fn config_problems(variables: &[(&str, &str)]) -> Vec<String> {
    match load(&with_variables(variables)) {
        Ok(section) => panic!("{variables:?} were accepted: {section:?}"),
        Err(text) => text
            .lines()
            .skip(1)
            .map(|line| line.trim().to_owned())
            .collect(),
    }
}
