//! The configuration of a command: where its values come from, and how it is read.

use dray_platform_delivery::PlatformDelivery;
use dray_service::Service as _;
use dray_service::config::{ConfigSources, Environment, FieldOverride, LoadedConfig};
use dray_types::Clock;

use super::all_services_host;
use crate::cli::GlobalOptions;
use crate::outcome::CommandFailure;

/// The sources of configuration that the command line names. The last value of a key counts.
pub(crate) fn config_sources(global: &GlobalOptions) -> Result<ConfigSources, CommandFailure> {
    let mut sources = ConfigSources::new(Environment::from_process());
    if let Some(file) = &global.config {
        sources = sources.file(file);
    }
    if let Some(url) = &global.nats {
        sources = sources.set("bus.mode", "nats").set("bus.nats.servers", url);
    }
    if let Some(url) = &global.s3 {
        sources = sources
            .set("store.mode", "s3")
            .set_by("--s3", "store.s3.endpoint", url);
    }
    if let Some(directory) = &global.state {
        // As text it would name another directory, which would be created.
        let directory = directory.to_str().ok_or_else(|| {
            CommandFailure::Usage(format!(
                "--state: the path {} is not UTF-8",
                directory.display()
            ))
        })?;
        sources = sources.set_by("--state", "state.directory", directory);
    }
    // `--set` comes after the options above and wins, because it names its setting exactly.
    for text in &global.overrides {
        let flag: FieldOverride = text
            .parse()
            .map_err(|error| CommandFailure::Usage(format!("--set: {error}")))?;
        sources.overrides.push(flag);
    }
    Ok(sources)
}

/// Reads the configuration for a command that runs no service for others, and checks it for all services. What only a
/// listener needs, such as the key for tokens of the proxy, may be absent.
pub(crate) fn load_config(sources: &ConfigSources) -> Result<LoadedConfig, CommandFailure> {
    load_service_config(&without_listeners(sources.clone()))
}

/// Settings for services that only the command itself uses: they open no ports in addition to those of a running
/// system.
pub(super) fn without_listeners(sources: ConfigSources) -> ConfigSources {
    sources
        .set("http.listen", "")
        .set("grpc.listen", "")
        .set("egress-fetcher.proxy.listen", "")
}

/// Reads the configuration as a running system does, and checks it for all services, even for those that will not run.
pub(crate) fn load_service_config(sources: &ConfigSources) -> Result<LoadedConfig, CommandFailure> {
    all_services_host(sources.clone())
        .load()
        .map_err(|error| CommandFailure::Configuration(error.to_string()))
}

/// Refuses accounts on platforms that their service could not open. Loading does not look for them, because other
/// services load the same file without the secrets of the accounts.
pub(crate) fn check_accounts(loaded: &LoadedConfig) -> Result<(), CommandFailure> {
    let delivery: dray_platform_delivery::Config = config_section(loaded, PlatformDelivery::NAME)?;
    let problems = delivery.unusable_accounts(&Clock::system());
    if problems.is_empty() {
        return Ok(());
    }
    let error = loaded.problem_error(PlatformDelivery::NAME, problems);
    Err(CommandFailure::Configuration(error.to_string()))
}

/// One section of the configuration, checked.
pub(crate) fn config_section<S: dray_service::config::Section>(
    loaded: &LoadedConfig,
    name: &str,
) -> Result<S, CommandFailure> {
    loaded
        .section(name)
        .map_err(|error| CommandFailure::Configuration(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_state_directory_that_is_not_utf_8_is_refused() {
        let global = |state: &[u8]| GlobalOptions {
            state: Some(OsString::from_vec(state.to_vec()).into()),
            ..GlobalOptions::default()
        };
        let sources = config_sources(&global("/srv/état".as_bytes())).unwrap();
        assert_eq!(sources.overrides[0].value, "/srv/état");
        let refused = config_sources(&global(b"/srv/\xff")).unwrap_err();
        assert!(matches!(refused, CommandFailure::Usage(_)), "{refused:?}");
    }
}
