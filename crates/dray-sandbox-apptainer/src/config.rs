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
    /// Variables that it sees. Nothing else is handed on; `HOME` and `APPTAINER_CONFIGDIR` say where it keeps its
    /// instances, when that is not the home of the user.
    pub environment: BTreeMap<String, String>,
    /// Where commands run in an instance; unset means the home of its user.
    pub working_directory: Option<String>,
    /// Bind mounts that are meant for passing files.
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

/// One folder of this host for each instance, bound into it (`--bind HOST/NAME:CONTAINER`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Folder of this host that holds a folder for each instance, which has the name of the instance.
    pub host: PathBuf,
    /// Where an instance sees its own.
    pub container: String,
}
