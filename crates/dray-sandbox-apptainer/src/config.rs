//! Settings of this sandbox backend.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the Apptainer backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The program: `apptainer`, `singularity`, or a path.
    pub program: String,
    /// Environment variables of the program, which inherits no others. Set `HOME` or `APPTAINER_CONFIGDIR` if its
    /// instances are not kept in the home directory of the user.
    pub environment: BTreeMap<String, String>,
    /// Directory of an instance in which commands run. Unset: the home of its user.
    pub working_directory: Option<String>,
    /// Directory of this host that is bound into each instance for passing files: `host` and `container`. Unset: none.
    pub exchange: Option<Exchange>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            program: "apptainer".to_owned(),
            environment: BTreeMap::new(),
            working_directory: None,
            exchange: None,
        }
    }
}

/// One directory of this host for each instance, bound into it (`--bind HOST/NAME:CONTAINER`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Directory of this host with a subdirectory for each instance, which has the name of the instance.
    pub host: PathBuf,
    /// Path of the subdirectory inside its instance.
    pub container: String,
}
