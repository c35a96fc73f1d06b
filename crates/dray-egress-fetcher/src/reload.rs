//! Applies changes of the configuration while the service runs: credentials, keys of tokens, limits and times. A fetch
//! and a connection end with the settings with which they began.
//!
//! The operator's policy, the network and the listeners need a restart (egress-security 20); the rules of the policy
//! files have a watcher of their own.

use std::sync::Arc;

use dray_service::reload::{ApplySection, ReloadMetrics, RestartSetting, SectionReload};
use dray_service::{ServiceContext, StartError, restart_settings};
use opentelemetry::metrics::Meter;

use crate::config::Config;
use crate::fetch::{FetchSettings, Fetcher};
use crate::proxy::ForwardProxy;
use crate::service::{compile_config, credentials_of};

const RESTART_SETTINGS: &[RestartSetting<Config>] = restart_settings![
    Config: enabled, host_allowlist, allowed_ports, https_only, allow_downgrade, max_redirects, ipv6, ipv6_first,
    dns_servers, nat64_prefixes, extra_blocked_cidrs, extra_blocked_hosts, private_cidrs, protected, kubernetes_api,
    ca_bundle, upstream_proxy, http2, user_agent, contact, robots, audit_required, origin_required, audit_key,
    audit_file, audit_syslog, policy_path, policy_bucket, policy_replicas, cache, questions, reload_interval, proxy.listen,
    proxy.connect_ports, proxy.http_ports, proxy.plain_ports, proxy.allow_encrypted_hello, proxy.max_tunnels,
    proxy.max_queue, proxy.max_unidentified, proxy.interception, proxy.tls
];

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
            RESTART_SETTINGS,
            reload_metrics(&cx.meter),
            Self { fetcher, proxy },
        )
    }
}

impl ApplySection<Config> for SettingsReload {
    fn apply(&mut self, _: &Config, later: &Config) -> Result<(), StartError> {
        let compiled = compile_config(later)?;
        self.fetcher.set_settings(FetchSettings {
            limits: compiled.settings,
            credentials: credentials_of(later),
        });
        self.fetcher.limits().set_sizes(compiled.sizes);
        if let (Some(proxy), Some(settings)) = (&self.proxy, compiled.proxy) {
            proxy.set_settings(settings);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn credentials_keys_times_and_limits_are_all_that_needs_no_restart() {
        let config = serde_json::to_value(Config::default()).unwrap();
        let config = config.as_object().unwrap();
        let proxy = config["proxy"].as_object().unwrap().keys();
        let proxy = proxy.map(|name| format!("proxy.{name}"));
        let outer = config.keys().filter(|name| *name != "proxy").cloned();
        let fields: BTreeSet<String> = outer.chain(proxy).collect();
        let names = RESTART_SETTINGS.iter().map(|setting| setting.name);
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        assert_eq!(&names - &fields, BTreeSet::new());
        let reloaded = &fields - &names;
        let is_limit = |name: &String| {
            let name = name.trim_start_matches("proxy.");
            name.starts_with("max_") || name.starts_with("min_rate") || name.ends_with("_timeout")
        };
        let others: Vec<&String> = reloaded.iter().filter(|name| !is_limit(name)).collect();
        let keys = ["credentials", "proxy.previous_token_key", "proxy.token_key"];
        assert_eq!(others, keys);
    }
}
