//! Applies changes of the configuration while the service runs: credentials, keys of tokens, limits and times. A fetch
//! and a connection end with the settings with which they began.
//!
//! The operator's policy, the network and the listeners need a restart (egress-security 20); the rules of the policy
//! files have a watcher of their own.

use std::sync::Arc;

use dray_service::reload::{ApplySection, ReloadMetrics, SectionReload};
use dray_service::{ServiceContext, StartError};
use opentelemetry::metrics::Meter;

use crate::config::{Config, ProxySettings};
use crate::fetch::{FetchSettings, Fetcher};
use crate::limits::AdmissionLimits;
use crate::proxy::ForwardProxy;
use crate::service::{compile_config, credentials_of};

/// The instruments of reloads.
pub(crate) fn reload_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_egress")
}

/// Puts changed settings in force.
#[derive(Debug)]
pub(crate) struct SettingsReload {
    fetcher: Arc<Fetcher>,
    proxy: Option<Arc<ForwardProxy>>,
}

impl SettingsReload {
    /// Follows the section of `cx` from the configuration of the start.
    pub(crate) fn follow(
        config: &Config,
        fetcher: Arc<Fetcher>,
        proxy: Option<Arc<ForwardProxy>>,
        cx: &ServiceContext,
    ) -> SectionReload<Config, Self> {
        SectionReload::new(
            cx.section.clone(),
            (config.clone(), config.reload_interval),
            reload_metrics(&cx.meter),
            Self { fetcher, proxy },
        )
    }
}

/// The settings that apply without a restart, as the fetcher and the proxy take them.
#[derive(Debug)]
struct ReloadedSettings {
    fetches: FetchSettings,
    sizes: AdmissionLimits,
    /// `None` without a proxy.
    proxy: Option<ProxySettings>,
}

impl ReloadedSettings {
    fn of(config: &Config) -> Result<Self, StartError> {
        let compiled = compile_config(config)?;
        Ok(Self {
            fetches: FetchSettings {
                limits: compiled.settings,
                credentials: credentials_of(config),
            },
            sizes: compiled.sizes,
            proxy: compiled.proxy,
        })
    }
}

impl ApplySection<Config> for SettingsReload {
    fn apply(&mut self, _: &Config, later: &Config) -> Result<(), StartError> {
        let settings = ReloadedSettings::of(later)?;
        self.fetcher.set_settings(settings.fetches);
        self.fetcher.limits().set_sizes(settings.sizes);
        if let (Some(proxy), Some(settings)) = (&self.proxy, settings.proxy) {
            proxy.set_settings(settings);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dray_service::config::Section as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::CompiledConfig;

    /// Values for a changed setting. The first one that its type accepts, and with which the section is valid, is taken.
    fn changed_values() -> [Value; 8] {
        let credential = json!({
            "name": "git", "host": "git.example", "header": "authorization", "secret": "s3cret", "tenants": ["acme"],
        });
        [
            json!(7),
            json!("1s"),
            json!("2m"),
            json!("20s"),
            json!("64MiB"),
            json!("2KiB"),
            json!("key-of-tokens-with-at-least-32-bytes"),
            json!([credential]),
        ]
    }

    /// The section with a proxy, and with `value` at this path.
    fn section(path: &str, value: &Value) -> Option<Config> {
        let mut section = json!({"proxy": {
            "listen": "127.0.0.1:0", "token_key": "another-key-of-tokens-with-32-bytes"
        }});
        let (table, name) = path.split_once('.').unwrap_or(("", path));
        let fields = if table.is_empty() {
            &mut section
        } else {
            &mut section[table]
        };
        if !name.is_empty() {
            fields[name] = value.clone();
        }
        let config: Config = serde_json::from_value(section).ok()?;
        config.validate().is_empty().then_some(config)
    }

    /// What a start makes of the section besides [`ReloadedSettings`].
    fn settings_of_start(config: &Config) -> String {
        let CompiledConfig {
            settings: _,
            sizes: _,
            proxy: _,
            admin,
            judge,
            servers,
            protected_hosts,
            audit_file,
            audit_syslog,
            cache,
            upstream_proxy,
            questions,
        } = config.compile().unwrap();
        let policy = (admin, judge, servers, protected_hosts);
        let others = (audit_file, audit_syslog, cache, upstream_proxy, questions);
        format!("{policy:?} {others:?}")
    }

    /// Paths of the settings: those of the section, and of `proxy`.
    fn paths() -> Vec<String> {
        let config = serde_json::to_value(Config::default()).unwrap();
        let outer = config.as_object().unwrap().keys();
        let proxy = config["proxy"].as_object().unwrap().keys();
        let proxy = proxy.map(|name| format!("proxy.{name}"));
        let outer = outer.filter(|name| *name != "proxy").cloned();
        outer.chain(proxy).collect()
    }

    #[test]
    fn each_setting_that_needs_no_restart_is_applied_by_a_reload_and_by_nothing_else() {
        let restart = Config::restart_settings().unwrap();
        let needs_restart = |path: &String| restart.iter().any(|setting| setting.name == path);
        let paths = paths();
        for setting in restart {
            assert!(paths.iter().any(|path| path == setting.name), "{setting:?}");
        }
        let started = section("", &Value::Null).unwrap();
        let before = format!("{:?}", ReloadedSettings::of(&started).unwrap());
        for path in paths.iter().filter(|path| !needs_restart(path)) {
            let changed = changed_values()
                .into_iter()
                .find_map(|value| section(path, &value).filter(|config| *config != started));
            let changed = changed.unwrap_or_else(|| panic!("add a valid value of `{path}`"));
            // Keys of tokens are not printed.
            if !path.ends_with("token_key") {
                let after = format!("{:?}", ReloadedSettings::of(&changed).unwrap());
                assert_ne!(after, before, "no reload applies `{path}`: list it");
            }
            assert_eq!(
                settings_of_start(&changed),
                settings_of_start(&started),
                "`{path}` needs a restart: list it"
            );
        }
    }
}
