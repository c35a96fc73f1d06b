//! Settings of this sandbox backend.

use std::path::PathBuf;

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the Kubernetes backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// File that describes cluster and credentials; either this or `in_cluster` is required. It may name a credential
    /// plugin, which is then run on this host.
    pub kubeconfig: Option<PathBuf>,
    /// Context in `kubeconfig`. Unset: the current one.
    pub context: Option<String>,
    /// Uses the service account of the pod that this service runs in, at `https://kubernetes.default.svc`, instead of
    /// a file.
    pub in_cluster: bool,
    /// Namespaces that sandboxes may be in. Empty: every namespace that the credentials allow.
    pub namespaces: Vec<String>,
    /// Image with a shell, `stat`, `mv` and `sha256sum` for an ephemeral container next to a container that has no
    /// shell. Unset: requests for such a container fail with `tool_missing`. An ephemeral container stays until its pod
    /// ends.
    pub ephemeral_image: Option<String>,
    /// Longest time until an ephemeral container runs.
    pub ephemeral_timeout: Period,
    /// Longest time for connecting.
    pub connect_timeout: Period,
    /// Longest time until the API server begins to respond.
    pub response_timeout: Period,
    /// Longest time without a frame, responses to pings included, before a stream counts as broken.
    pub idle_timeout: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            in_cluster: false,
            namespaces: Vec::new(),
            ephemeral_image: None,
            ephemeral_timeout: Period::secs(60),
            connect_timeout: Period::secs(10),
            response_timeout: Period::secs(30),
            idle_timeout: Period::secs(60),
        }
    }
}

/// The reason why the configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Neither or both of the ways to find the cluster are set.
    #[error("set either `kubeconfig` or `in_cluster`")]
    Cluster,
    /// A context is set, but no kubeconfig that could contain it.
    #[error("`context` needs `kubeconfig`")]
    Context,
    /// A name that a namespace cannot have.
    #[error("`{0}` is not a valid name of a namespace")]
    Namespace(String),
    /// The image of ephemeral containers has an empty name.
    #[error("the image of ephemeral containers has no name")]
    Image,
}

impl Config {
    /// Checks the settings against each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        // With both, it would be unclear which cluster is meant.
        if self.kubeconfig.is_some() == self.in_cluster {
            return Err(ConfigError::Cluster);
        }
        if self.context.is_some() && self.in_cluster {
            return Err(ConfigError::Context);
        }
        // A name that cannot exist would permit nothing without any message.
        let invalid = |name: &&String| !crate::target::is_label(name);
        if let Some(name) = self.namespaces.iter().find(invalid) {
            return Err(ConfigError::Namespace(name.clone()));
        }
        if self.ephemeral_image.as_deref() == Some("") {
            return Err(ConfigError::Image);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Config {
        Config {
            kubeconfig: Some("/etc/dray/kubeconfig".into()),
            ..Config::default()
        }
    }

    #[test]
    fn exactly_one_source_of_cluster_access_is_accepted() {
        assert_eq!(file().check(), Ok(()));
        let inside = Config {
            in_cluster: true,
            ..Config::default()
        };
        assert_eq!(inside.check(), Ok(()));
        assert_eq!(Config::default().check(), Err(ConfigError::Cluster));
        let both = Config {
            in_cluster: true,
            ..file()
        };
        assert_eq!(both.check(), Err(ConfigError::Cluster));
        let context = Config {
            context: Some("prod".into()),
            ..inside
        };
        assert_eq!(context.check(), Err(ConfigError::Context));
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let config = Config {
            namespaces: vec!["agents".into(), "../x".into()],
            ..file()
        };
        let error = config.check().unwrap_err();
        assert_eq!(error, ConfigError::Namespace("../x".into()));
        let config = Config {
            ephemeral_image: Some(String::new()),
            ..file()
        };
        assert_eq!(config.check(), Err(ConfigError::Image));
    }

    #[test]
    fn a_setting_that_does_not_exist_is_refused() {
        let read: Result<Config, _> = serde_json::from_str(r#"{"insecure": true}"#);
        assert!(read.unwrap_err().to_string().contains("insecure"));
    }
}
