//! Replaces the credentials of the bus and of the store while the process runs. The other fields of their sections need
//! a restart.
//!
//! The bus shows a new identity from the next connection on. So an operator adds the new identity to the server,
//! changes the configuration, and then removes the old one from the server, which ends its connections.

use dray_bus::Bus;
use dray_store::Store;
use opentelemetry::metrics::Meter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bus_certificate;
use super::open::{CommonSections, OpenConnections};
use crate::StartError;
use crate::certificate_expiry::CertificateExpiry;
use crate::config::LoadedConfig;
use crate::reload::{ApplySection, DEFAULT_RELOAD_INTERVAL, ReloadMetrics, SectionReload};
use crate::settings::{BusMode, BusSection, StoreMode, StoreSection};

/// The instruments of the reload of the section `bus`.
pub(super) fn bus_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_bus")
}

/// The instruments of the reload of the section `store`.
pub(super) fn store_metrics(meter: &Meter) -> ReloadMetrics {
    ReloadMetrics::new(meter, "dray_store")
}

/// Follows the credentials of the connections that this host opened to other processes, until `stop`.
pub(super) fn follow(
    connections: &OpenConnections,
    sections: &CommonSections,
    (loaded, meter): (&LoadedConfig, &Meter),
    (checks, stop): (&mut JoinSet<()>, &CancellationToken),
) {
    if connections.owns_bus && sections.bus.mode == BusMode::Nats {
        let reload = SectionReload::new(
            loaded.reader("bus"),
            (sections.bus.clone(), DEFAULT_RELOAD_INTERVAL),
            bus_metrics(meter),
            BusCredentials(connections.bus.clone()),
        );
        checks.spawn(reload.run(stop.clone()));
        if let Some(file) = sections.bus.nats.client_certificate_file.clone() {
            let expiry = CertificateExpiry::new(meter);
            checks.spawn(bus_certificate::record_expiry(file, expiry));
        }
    }
    if connections.owns_store && sections.store.mode == StoreMode::S3 {
        let reload = SectionReload::new(
            loaded.reader("store"),
            (sections.store.clone(), DEFAULT_RELOAD_INTERVAL),
            store_metrics(meter),
            StoreCredentials(connections.store.clone()),
        );
        checks.spawn(reload.run(stop.clone()));
    }
}

#[derive(Debug)]
struct BusCredentials(Bus);

impl ApplySection<BusSection> for BusCredentials {
    fn apply(&mut self, _: &BusSection, later: &BusSection) -> Result<(), StartError> {
        self.0.replace_identity((&later.nats).into());
        Ok(())
    }
}

#[derive(Debug)]
struct StoreCredentials(Store);

impl ApplySection<StoreSection> for StoreCredentials {
    fn apply(&mut self, earlier: &StoreSection, later: &StoreSection) -> Result<(), StartError> {
        if later.s3.derivation_key.is_empty() && earlier.s3.secret_key != later.s3.secret_key {
            tracing::warn!(
                "keys that are derived from `store.s3.secret_key` stay those of the start until a restart; set \
                 `store.s3.derivation_key`, so that replicas with other credentials share them"
            );
        }
        self.0.replace_credentials((&later.s3).into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Section;

    /// Names of the fields of a section in the notation of [`RestartSetting`](crate::config::RestartSetting), with those of `group` inside it.
    fn fields<S: serde::Serialize>(section: &S, group: &str) -> BTreeSet<String> {
        let value = serde_json::to_value(section).unwrap();
        let outer = value.as_object().unwrap();
        let inner = outer[group].as_object().unwrap().keys();
        let inner = inner.map(|name| format!("{group}.{name}"));
        let outer = outer.keys().filter(|name| *name != group).cloned();
        outer.chain(inner).collect()
    }

    fn restart_names<S: Section>() -> BTreeSet<String> {
        let settings = S::restart_settings().unwrap().iter();
        settings.map(|setting| setting.name.into()).collect()
    }

    #[test]
    fn every_field_but_the_credentials_needs_a_restart() {
        let credentials = |fields: &[&str]| fields.iter().map(|name| (*name).to_owned()).collect();
        let bus = fields(&BusSection::default(), "nats");
        let expected: BTreeSet<String> = credentials(&[
            "nats.credentials_file",
            "nats.nkey_seed",
            "nats.password",
            "nats.user",
        ]);
        assert_eq!(&bus - &restart_names::<BusSection>(), expected);
        let store = fields(&StoreSection::default(), "s3");
        let expected: BTreeSet<String> = credentials(&[
            "s3.access_key",
            "s3.credentials_expire_at_ms",
            "s3.secret_key",
            "s3.session_token",
        ]);
        assert_eq!(&store - &restart_names::<StoreSection>(), expected);
    }
}
